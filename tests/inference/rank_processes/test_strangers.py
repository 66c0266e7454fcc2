"""Strangers at the ring's ports, at a rank's pipe, and in the place of ssh: a plain error in time, nothing left."""

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from io import BytesIO
from pathlib import Path
from random import Random

import mlx.core as mx
import psutil
import pytest

from rdchat.errors import ModelError, RanksError, RdchatError
from rdchat.inference.api import Host
from rdchat.inference.rank_processes import processes
from rdchat.inference.rank_processes.processes import RankProcesses
from rdchat.inference.sharding import rank_messages
from rdchat.inference.sharding.rank_messages import receive
from rdchat.work import child_process
from rdchat.work.served import MAX_BYTES, FrameError, packed, read_message
from tests.grids import share
from tests.inference.sharding.programs import StandIn

HERE = (Host("localhost", ("127.0.0.1",)),)
ROOT = Path(__file__).parents[3]
# A busy machine takes long to start Python; a rank that a stranger holds up is given up after the second.
DEADLINE_S = 60.0
SHORT_S = 8.0
SLOW = pytest.mark.slow


_PIECE = 2**16


def silence(one: socket.socket, other: socket.socket) -> None:
    """Send nothing until the rank ends."""
    del one
    while other.recv(_PIECE):
        pass


def garbage(one: socket.socket, other: socket.socket) -> None:
    draw = Random(0)
    while True:
        for each in (one, other):
            each.sendall(draw.randbytes(_PIECE))


def zeros(one: socket.socket, other: socket.socket) -> None:
    """Take part as a rank that adds nothing."""
    while True:
        for each in (one, other):
            each.sendall(bytes(_PIECE))


def echo(one: socket.socket, other: socket.socket) -> None:
    """Send back what the rank sends."""
    while data := other.recv(_PIECE):
        one.sendall(data)


def end(one: socket.socket, other: socket.socket) -> None:
    one.close()
    other.close()


Stranger = Callable[[socket.socket, socket.socket], None]


@contextmanager
def stranger(behave: Stranger, rank: int, address: str) -> Iterator[str]:
    """Be the other one of two ranks; yield its address.

    Args:
        behave: What is done with the connections: the one that the stranger made, and the one that the rank made.
        rank: The rank that is to be deceived.
        address: Where that one listens, sooner or later.
    """
    ip, port = address.split(":")
    with socket.create_server(("127.0.0.1", 0)) as server:

        def meet() -> None:
            with suppress(OSError):
                # The last rank connects first, and then listens.
                accepted = server.accept()[0] if rank else None
                with _connected(ip, int(port)) as made, accepted or server.accept()[0] as other:
                    behave(made, other)

        threading.Thread(target=meet, daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _connected(ip: str, port: int) -> socket.socket:
    while True:
        with suppress(ConnectionRefusedError):
            return socket.create_connection((ip, port))
        threading.Event().wait(0.01)


@pytest.mark.parametrize(("rank", "behave", "problem"), [
    (0, zeros, "Another program connected to rank 0"),
    pytest.param(1, zeros, "Another program connected to rank 1", marks=SLOW),
    pytest.param(0, garbage, "Another program connected to rank 0", marks=SLOW),
    pytest.param(1, end, "could not join the others", marks=SLOW),
    pytest.param(0, echo, "does not answer", marks=SLOW),
    pytest.param(1, silence, "does not answer", marks=SLOW),
])  # fmt: skip
def test_who_takes_a_neighbours_place_in_the_ring_is_found(
    rank: int, behave: Stranger, problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(RankProcesses(HERE)) as ranks:
        mine = f"127.0.0.1:{ranks.hello()[0]['port']}"
        if behave in {echo, silence}:
            monkeypatch.setattr(processes, "DEADLINE_S", SHORT_S)
        process = psutil.Process(ranks._children[0].pid)
        with stranger(behave, rank, mine) as theirs:
            addresses = [theirs, mine] if rank else [mine, theirs]
            with pytest.raises(RdchatError, match=problem) as caught:
                ranks.result_of(ranks.ask_rank("measure", {"rank": rank, "addresses": addresses, "key": "key"}))
        assert caught.value.hint
    assert not process.is_running()


@pytest.mark.parametrize("words", [
    (0, 2, 0), (rank_messages._MAGIC, 0, 0), (rank_messages._MAGIC, 99, 0), (rank_messages._MAGIC, 2, -1),
    (rank_messages._MAGIC, 2, 2**30),
])  # fmt: skip
def test_what_is_no_message_takes_no_memory(monkeypatch: pytest.MonkeyPatch, words: tuple[int, ...]) -> None:
    sizes: list[int] = []

    def summed(array: mx.array, **_options: object) -> mx.array:
        sizes.append(array.size)
        return mx.pad(mx.array(words, mx.int32), (0, array.size - len(words)))

    monkeypatch.setattr(mx.distributed, "all_sum", summed)
    with pytest.raises(RanksError, match="lost step with rank 0"):
        receive(StandIn(2))  # type: ignore[arg-type]
    assert sizes == [rank_messages._SIZE]


@pytest.fixture
def rank_alone() -> Iterator[subprocess.Popen[bytes]]:
    """A rank that is ready, and whose pipe is anyone's."""
    command = [sys.executable, "-m", "tests.inference.rank_processes.scripted_rank", "--child", "rank"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, cwd=ROOT) as process:
        assert process.stdout is not None
        assert read_message(process.stdout) == {"ready": True}
        yield process
        process.kill()


@pytest.mark.parametrize("written", [
    b"GET / HTTP/1.1\r\n\r\n", (MAX_BYTES + 1).to_bytes(4, "big"), b"\0\0\0\5[1,2]", b"\0\0\0\4null",
    b"\0\0\0\5" + b"[[[[[",
], ids=repr)  # fmt: skip
def test_garbage_is_no_message(written: bytes) -> None:
    with pytest.raises(FrameError):
        read_message(BytesIO(written))


@pytest.mark.parametrize("written", [
    b"\xff" * 2**20, packed({}), packed({"id": []}), packed({"cancel": {}}),
], ids=lambda written: repr(written[:20]))  # fmt: skip
def test_a_rank_ends_at_garbage_in_its_pipe(rank_alone: subprocess.Popen[bytes], written: bytes) -> None:
    assert rank_alone.stdin is not None
    with suppress(BrokenPipeError):
        rank_alone.stdin.write(written)
        rank_alone.stdin.flush()
    assert rank_alone.wait(DEADLINE_S) == 1


def test_calls_in_the_wrong_order_are_answered_by_errors_and_half_a_message_is_the_end(
    rank_alone: subprocess.Popen[bytes],
) -> None:
    assert rank_alone.stdin is not None
    assert rank_alone.stdout is not None
    calls = ["idle", "generate", "go", "__init__", "unload", "nothing", "measure", "ping"]
    answers = {}
    for number, call in enumerate(calls):
        rank_alone.stdin.write(packed({"id": number, "do": call, "arguments": {}}))
        rank_alone.stdin.flush()
        message = read_message(rank_alone.stdout)
        assert message is not None
        assert message["id"] == number
        answers[call] = "error" not in message
    assert [call for call, is_fine in answers.items() if is_fine] == ["go", "ping"]
    rank_alone.stdin.write(packed({"id": 1, "do": "ping", "arguments": {}})[:-3])
    rank_alone.stdin.close()
    assert rank_alone.wait(DEADLINE_S) == 0


@pytest.fixture
def fake_ssh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a shell script in the place of ssh; it runs in a folder of its own."""

    def write(script: str) -> None:
        (tmp_path / "ssh").write_text(f"#!/bin/sh\n{script}\n")
        (tmp_path / "ssh").chmod(0o755)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    return write


LEAVES_ANOTHER = "sleep 1000 & echo $! > other; exit 0"
SSH = {
    "password": ("printf 'Password: '; exec sleep 1000", "b.test sent an answer that could not be read"),
    "exit": ("exit 0", r"The process on b.test ended unexpectedly \(status 0\)"),
    "garbage": ("exec head -c 1000000 /dev/urandom", "b.test (sent an answer that could not be read|ended)"),
    "zeros": ("exec cat /dev/zero", "b.test sent an answer that could not be read"),
    "asks": ("printf 'Password: ' >&2; exec sleep 1000", "b.test does not answer"),
    "flood": ("exec yes 'a line of many' >&2", "b.test does not answer"),
    "endless line": ("exec cat /dev/zero >&2", "b.test does not answer"),
    "slow message": ("printf '\\001\\000\\000\\000x'; exec sleep 1000", "b.test does not answer"),
    "leaves another": (LEAVES_ANOTHER, "b.test does not answer"),
}


@pytest.mark.parametrize("kind", share(SSH))
def test_a_program_that_is_not_ssh(
    kind: str, tmp_path: Path, fake_ssh: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    script, problem = SSH[kind]
    fake_ssh(script)
    if "does not answer" in problem:
        monkeypatch.setattr(child_process, "_START_S", 5.0 if script == LEAVES_ANOTHER else 0.3)
    with closing(RankProcesses((Host("b.test", ("127.0.0.1",)),))) as ranks:
        with pytest.raises(ModelError, match=problem) as caught:
            ranks.hello()
        assert caught.value.hint
    if script == LEAVES_ANOTHER:
        with suppress(psutil.NoSuchProcess):
            # Nobody may have waited for it.
            while psutil.Process(int((tmp_path / "other").read_text())).status() != psutil.STATUS_ZOMBIE:
                time.sleep(0.01)


def answering(place: Path, answers: bytes) -> str:
    """Return a script that is ready, and says this once it is asked: before, any answer is an error."""
    (place / "ready").write_bytes(packed({"ready": True}))
    (place / "answers").write_bytes(answers)
    return "cat ready; head -c 1 > /dev/null; cat answers; exec cat > /dev/null"


def test_a_mac_that_reports_without_end_takes_no_memory(tmp_path: Path, fake_ssh: Callable[[str], None]) -> None:
    reports = packed({"id": 1, "progress": 1}) * 1000 + packed({"id": 1, "result": None})
    fake_ssh(answering(tmp_path, reports))
    with closing(RankProcesses((*HERE, Host("b.test", ("127.0.0.1",))))) as ranks:
        answers = ranks.ask_rank("fetch", {}, 1)
        told = [answers.get(timeout=DEADLINE_S)]
        while ranks._children[1]._running._requests:  # type: ignore[union-attr]
            time.sleep(0.01)
        while not answers.empty():
            told.append(answers.get())
    assert told[0] == 1
    assert told[-1].outcome is None
    assert len(told) <= 3


@pytest.mark.parametrize("facts", share([
    None, 5, [], "text", {}, {"versions": 5}, {"versions": None}, {"versions": "text"}, {"port": "x"}, {"port": None},
    {"port": []}, {"free_bytes": {}},
]), ids=str)  # fmt: skip
def test_a_mac_that_says_nonsense_of_itself(facts: object, tmp_path: Path, fake_ssh: Callable[[str], None]) -> None:
    right = {"versions": {}, "free_bytes": 1, "limit_bytes": 1, "port": 1}
    answer = {"id": 1, "result": right | facts if isinstance(facts, dict) and facts else facts}
    fake_ssh(answering(tmp_path, packed(answer)))
    ranks = RankProcesses((Host("b.test", ("127.0.0.1",)),))
    with closing(ranks), pytest.raises(ModelError, match=r"b\.test sent an answer that could not be read"):
        ranks.hello()
