"""The engine over ranks in child processes: replies, faults of a rank, ssh, and the end of all processes."""

import os
import signal
import sys
import threading
import time
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import psutil
import pytest

from rdchat import host
from rdchat.errors import InvalidSettingError, ModelError, PromptTooLongError, RanksError, RdchatError
from rdchat.hub import snapshot_of
from rdchat.inference.api import (
    BenchCell,
    BenchPlan,
    BenchProgress,
    ChatMessage,
    DraftSettings,
    Dtype,
    FinishReason,
    GenerationRequest,
    Host,
    LikelyToken,
    LoadProgress,
    PrefillProgress,
    Prompt,
    ReplyEnd,
    Role,
    SamplingParams,
    StoppedError,
    TokenEvent,
    ranked_address,
)
from rdchat.inference.rank_processes import processes
from rdchat.inference.rank_processes.processes import RankProcesses
from rdchat.inference.rank_processes.ranks_engine import RanksEngine, read
from rdchat.inference.rank_processes.ring import start_command
from tests.hub.downloads.downloading import small_files
from tests.inference.threads import load_silently
from tests.processes import python_process

COMMAND = [sys.executable, "-m", "tests.inference.rank_processes.scripted_rank", "--child", "rank"]
ROOT = Path(__file__).parents[3]
# A busy machine takes long to start Python.
DEADLINE_S = 60.0
SHORT_S = 30.0
NAMES = ("localhost", "b.test", "c.test")
THIS = Host("localhost", ("127.0.0.1",))
HOSTS = tuple(Host(name, ("127.0.0.1",)) for name in NAMES[1:])
ADDRESS = ranked_address(NAMES, "model")
PAIR = ranked_address(NAMES[:2], "model")
# What a fake ssh does with the command that it gets; `$host` is the Mac.
RUN = f"exec {sys.executable} -m tests.inference.rank_processes.scripted_rank --child rank"
ENDLESS = 10_000


@pytest.fixture(scope="module")
def ssh(tmp_path_factory):
    """A fake ssh that runs a rank here; call it to have it do something else on the Mac b.test."""
    tmp_path = tmp_path_factory.mktemp("bin")
    monkeypatch = pytest.MonkeyPatch()
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(host, "child_command", lambda _name: COMMAND)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")

    def write(on_b=RUN):
        script = f'#!/bin/sh\nwhile [ "$1" != "--" ]; do echo "$1" >> {tmp_path}/options; shift; done\n'
        script += f'echo "$3" > {tmp_path}/command\nexport SCRIPTED_HOST="$2"\n'
        script += f'if [ "$2" = b.test ]; then {on_b}\nelse {RUN}\nfi\n'
        (tmp_path / "ssh").write_text(script)
        (tmp_path / "ssh").chmod(0o755)
        return tmp_path

    write()
    yield write
    monkeypatch.undo()


@pytest.fixture(scope="module")
def engine(ssh):
    """One for all tests that leave it as it was; what its ranks noted is in `ssh() / "notes"`."""
    engine = RanksEngine(lambda: HOSTS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SCRIPTED_LOG", str(ssh() / "notes"))
        engine.load(ADDRESS, Dtype.FLOAT16, lambda _progress: None)
    yield engine
    engine.close()


@pytest.fixture
def make(ssh, monkeypatch):
    engines = []
    before = ranks_here()

    def make_engine(deadline_s=DEADLINE_S):
        monkeypatch.setattr(processes, "DEADLINE_S", deadline_s)
        monkeypatch.setattr(processes, "_SETTLE_S", 2.0)
        engines.append(RanksEngine(lambda: HOSTS))
        return engines[-1]

    yield make_engine
    for engine in engines:
        engine.close()
    ssh()
    assert ranks_here() <= before


def ranks_here():
    """Return the process ids of ranks that this process started."""
    found = set()
    for child in psutil.Process().children(recursive=True):
        with suppress(psutil.Error):
            if "scripted_rank" in " ".join(child.cmdline()):
                found.add(child.pid)
    return found


def notes_in(folder):
    """Return what the ranks noted; see `scripted_rank.note`."""
    return (folder / "notes").read_text().splitlines()


def asking(text, max_tokens=20, **options):
    sampling = SamplingParams(max_tokens=max_tokens)
    return GenerationRequest((ChatMessage(Role.USER, text),), sampling, request_id=5, **options)


def pids(engine):
    return [child.pid for child in engine._ranks._children]


def texts(events):
    return "".join(event.text for event in events if isinstance(event, TokenEvent))


def test_a_reply_over_three_ranks(engine):
    reply = engine.generate(asking("one two"))
    events = list(reply)
    assert isinstance(events[0], PrefillProgress)
    assert texts(events) == "one two " * 10
    assert events[1].alternatives == (LikelyToken(7, b"\xff", -float("inf")),)
    assert events[1].data == b"\x80"
    assert isinstance(events[-1], ReplyEnd)
    assert events[-1].finish_reason is FinishReason.LENGTH
    assert 0 < reply.statistics.generated_tokens <= 20
    reply.close()


def test_other_calls(engine):
    assert engine.draft_options(DraftSettings(drafter="/head")).model == Path("/head")
    told = []
    engine.load_drafters(DraftSettings(), told.append)
    assert told == [LoadProgress("Drafter", None)]
    assert engine.prefix_caches(77).limit_bytes == 77
    assert engine.idle(hidden=True)
    assert not engine.idle()
    engine.rest()
    plan = BenchPlan((BenchCell(),), (Prompt("x"),), trials=3)
    assert list(engine.benchmark(plan)) == [BenchProgress(done, 3, "Off") for done in range(3)]


def test_tokens_are_counted_on_other_threads_during_a_reply(engine):
    reply = engine.generate(asking("word", ENDLESS))
    next(reply)
    counts = []
    messages = [ChatMessage(Role.USER, "one two three")]
    threads = [threading.Thread(target=lambda: counts.append(engine.count_tokens(messages))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [3, 3, 3]
    reply.close()


def test_a_stop_loses_no_text(engine):
    reply = engine.generate(asking("word", ENDLESS))
    events = [next(reply) for _ in range(5)]
    reply.cancel()
    events += reply
    end = events[-1]
    assert end.finish_reason is FinishReason.CANCELLED
    assert end.text == texts(events)


def test_a_reply_that_is_closed_early_leaves_the_engine_ready(engine):
    reply = engine.generate(asking("word", ENDLESS))
    next(reply)
    reply.close()
    reply.close()
    assert texts(engine.generate(asking("next", 2))) == "next next "


def test_a_reply_stopped_during_its_template(engine):
    reply = engine.generate(asking("slow template"))
    reply.cancel()
    with pytest.raises(StoppedError):
        next(reply)


def test_a_request_between_two_events_pauses_the_reply(engine):
    paused = engine.generate(asking("first", ENDLESS))
    events = [next(paused), next(paused)]
    with paused.paused():
        assert texts(engine.generate(asking("second", 3))) == "second second second "
    paused.cancel()
    events += paused
    assert texts(events) == "first " * (len(events) - 2)
    assert events[-1].trailing_text == "1 pauses"


def test_errors_keep_their_class(engine):
    with pytest.raises(PromptTooLongError, match="too long") as caught:
        next(engine.generate(asking("too long")))
    assert caught.value.hint == "Make it shorter."
    assert engine.count_tokens([ChatMessage(Role.USER, "goes on")]) == 2


def test_without_a_model(make):
    engine = make()
    for call in (lambda: engine.generate(asking("x")), lambda: engine.count_tokens([]), lambda: engine.benchmark(None)):
        with pytest.raises(ModelError, match="No model"):
            call()
    assert not engine.idle()
    assert engine.unload() == 0


def test_another_thread_may_end_the_ranks_at_any_moment(monkeypatch):
    """As sleeping does while tokens are counted."""
    running = SimpleNamespace(error=None)
    engine = RanksEngine()
    for method in (RanksEngine._loaded, RanksEngine._runs.fget):
        seen = iter([running])
        monkeypatch.setattr(RanksEngine, "_ranks", property(lambda _, seen=seen: next(seen, None)), raising=False)
        assert method(engine)


def test_a_load_says_how_far_it_is_and_sleeping_unloads_the_model_and_ends_the_processes(make, tmp_path, monkeypatch):
    """macOS may keep the wired memory of a process that only ends."""
    monkeypatch.setenv("SCRIPTED_LOG", str(tmp_path / "notes"))
    monkeypatch.setattr(processes, "_UNLOAD_S", DEADLINE_S)
    engine = make()
    told = []
    info = engine.load(ranked_address(NAMES[:2], None), Dtype.FLOAT16, told.append)
    assert (info.name, info.dtype, info.path) == ("default", "float16", Path("/scripted"))
    assert told == [LoadProgress("Starting", None), LoadProgress("Reading", 0.5)]
    before = pids(engine)
    engine.sleep()
    assert not any(psutil.pid_exists(pid) for pid in before)
    assert notes_in(tmp_path).count("b.test is unloaded") == 1
    assert texts(engine.generate(asking("again", 2))) == "again again "
    engine.rest()
    assert engine.unload() == engine.unload() == 0
    assert notes_in(tmp_path).count("b.test is unloaded") == 2


def test_a_resting_rank_waits_for_its_parent(engine, ssh):
    """MLX waits for a message by looking for it all the time. Counting tokens does not end the rest, a reply does."""

    def count(what):
        return notes_in(ssh()).count(f"b.test {what}")

    before = count("rests")
    for rests in range(before + 1, before + 4):
        engine.rest()
        while count("rests") < rests:
            time.sleep(0.02)
        assert engine.count_tokens([ChatMessage(Role.USER, "one two")]) == 2
        assert count("goes on") == rests - 1
        assert texts(engine.generate(asking("again", 2))) == "again again "
        assert count("goes on") == rests


def test_ranks_keep_their_macs_awake(engine, ssh):
    """The other one from the join to the end, this one while it works: a session of ssh does not."""
    there = [note for note in notes_in(ssh()) if note in {"b.test stays awake", "b.test may sleep"}]
    assert there == ["b.test stays awake", "b.test may sleep"] * (len(there) // 2) + ["b.test stays awake"]
    reply = engine.generate(asking("word", ENDLESS))
    next(reply)
    assert [note for note in notes_in(ssh()) if note.startswith("here")][-1] == "here stays awake"
    reply.close()


def test_a_mac_fetches_the_model_that_it_lacks_unless_it_cannot_have_it(make, hub):
    hub.add("org/absent", small_files())
    with closing(RankProcesses((THIS, HOSTS[0]))) as ranks:
        ranks.hello()
        stages = []

        def fetch(model):
            ranks.fetch(model, partial(read, LoadProgress), lambda progress: stages.append(progress.stage))

        with pytest.raises(RanksError, match="It cannot be split over 2 Macs"):
            fetch("odd/absent")
        assert hub.requests == []
        for model, hint in (("/models/absent", "Copy it there."), ("org/absent-too", "Check the name")):
            with pytest.raises(RdchatError, match=r"^On b\.test: ") as caught:
                fetch(model)
            assert model in caught.value.message
            assert hint in str(caught.value.hint)
        fetch("org/absent")
    assert "Downloading org/absent" in stages
    assert snapshot_of("org/absent") is not None


KILL = signal.SIGKILL
STOP = signal.SIGSTOP
FAULTS = [pytest.param(rank, fault, marks=() if (rank, fault) == (1, KILL) else pytest.mark.slow)
          for rank in range(2) for fault in (KILL, STOP)]  # fmt: skip


@pytest.mark.parametrize(("rank", "fault"), FAULTS)
def test_a_rank_that_is_killed_or_hangs_ends_the_reply(make, rank, fault):
    """The message names its Mac, what was written is kept, no process stays, and the next reply starts them again.

    At the end none is waited for that hangs.
    """
    engine = make(SHORT_S if fault is STOP else DEADLINE_S)
    load_silently(engine, PAIR)
    reply = engine.generate(asking("word", ENDLESS))
    events = [next(reply) for _ in range(5)]
    before = [psutil.Process(pid) for pid in pids(engine)]
    before[rank].send_signal(fault)
    began = time.monotonic()
    what = "was killed" if fault is KILL else "(was stopped|does not answer)"
    with pytest.raises(ModelError, match=f"The process on {('this Mac', *NAMES[1:])[rank]} {what}") as caught:
        events += reply
    assert caught.value.hint
    assert time.monotonic() - began < DEADLINE_S
    assert texts(events).startswith("word word word ")
    _, alive = psutil.wait_procs(before, timeout=DEADLINE_S)
    assert not alive
    reply.close()
    assert not engine.idle()
    assert texts(engine.generate(asking("again", 2))) == "again again "
    before = [psutil.Process(pid) for pid in pids(engine)]
    before[0].suspend()
    engine.close()
    assert not any(process.is_running() for process in before)


@pytest.mark.slow
def test_a_rank_that_ends_while_nothing_is_asked_is_noticed(make):
    engine = make(SHORT_S)
    load_silently(engine, PAIR)
    os.kill(pids(engine)[1], signal.SIGKILL)
    while engine._ranks.error is None:
        time.sleep(0.02)
    assert "b.test was killed" in engine._ranks.error.message
    assert texts(engine.generate(asking("again", 2))) == "again again "


SSH_FAULTS = {
    "refuses": ("echo 'Permission denied (publickey).' >&2; exit 255", r"ssh cannot reach b.test: Permission denied"),
    "no local network": ("echo 'No route to host' >&2; exit 255", "No route to host.*Local Network must allow rdchat"),
    "no rdchat": ("echo 'sh: rdchat: not found' >&2; exit 127", "ssh finds no rdchat on b.test"),
    "other version": (f"export SCRIPTED_VERSION=9.9; {RUN}", r"b\.test has rdchat 9\.9, and this Mac has"),
}


@pytest.mark.parametrize("name", SSH_FAULTS)
def test_what_is_wrong_with_ssh_is_said(make, ssh, name):
    command, message = SSH_FAULTS[name]
    ssh(command)
    ranks = RankProcesses((THIS, HOSTS[0])[name != "other version" :])
    with pytest.raises(RdchatError, match=message) as caught:
        ranks.hello()
    assert caught.value.hint
    ranks.close()


def test_ctrl_c_in_a_terminal_reaches_no_rank(engine):
    assert all(os.getsid(pid) != os.getsid(0) for pid in pids(engine))


def test_ssh_never_asks_and_gets_the_name_behind_its_options(engine, ssh):
    folder = ssh()
    assert "BatchMode=yes" in (folder / "options").read_text().split()
    assert (folder / "command").read_text() == f"{start_command(HOSTS[0])[-1]}\n"


def test_an_address_of_another_machine_is_refused_before_the_ring(make):
    ranks = RankProcesses((Host("b.test", ("10.255.255.1",)),))
    with pytest.raises(InvalidSettingError, match=r"On b\.test: 10\.255\.255\.1 is not an address"):
        ranks.hello()
    ranks.close()


def test_a_load_that_is_cancelled_leaves_no_process(make):
    def cancel(progress):
        if progress.stage == "Reading":
            raise StoppedError

    engine = make()
    with pytest.raises(StoppedError):
        engine.load(None, Dtype.AUTO, cancel)
    assert engine._ranks is None


PARENT = f"""
import sys
from rdchat import host
from rdchat.inference.api.requests import Dtype
from rdchat.inference.api import ChatMessage, GenerationRequest, Role, SamplingParams
from rdchat.inference.api import Host
from rdchat.inference.rank_processes.ranks_engine import RanksEngine
host.child_command = lambda _name: {COMMAND!r}
engine = RanksEngine(lambda: [Host("b.test", ("127.0.0.1",))])
engine.load({PAIR!r}, Dtype.AUTO, lambda _progress: None)
reply = engine.generate(GenerationRequest((ChatMessage(Role.USER, "word"),), SamplingParams(max_tokens=10**6)))
next(reply)
print(*(child.pid for child in engine._ranks._children), flush=True)
list(reply)
"""


def test_no_process_outlives_an_app_that_is_killed(ssh):
    with python_process(PARENT) as parent:
        children = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        parent.kill()
        assert len(children) == 2
        _, alive = psutil.wait_procs(children, timeout=DEADLINE_S)
        assert not alive
