"""Names and addresses of Macs, the ring that they make, and what goes between processes."""

import shutil
import socket
import subprocess
from pathlib import Path
from unittest.mock import Mock

import pytest

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import (
    AnswerShape,
    BenchCell,
    BenchEvent,
    BenchPiece,
    BenchPlan,
    BenchProgress,
    ChatMessage,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Host,
    LedgerEntry,
    LikelyToken,
    PrefillProgress,
    Prompt,
    ReplyEnd,
    Role,
    RoundStatistics,
    RoundTree,
    SamplingParams,
    ShapeKind,
    Statistics,
    ThinkingChoice,
    TokenEvent,
    ToolCall,
)
from rdchat.inference.computer_checks import resolve_host
from rdchat.inference.rank_processes.ranks_engine import EVENTS, kinds_of, plain, read
from rdchat.inference.rank_processes.ring import ring_hosts, start_command
from rdchat.work.served import packed, read_message

STUDIO = Host("anna@studio.local", ("192.168.1.5",))


@pytest.mark.parametrize(
    "name", ["-oProxyCommand=x", "", "a b", "a;b", "a,b", "a:b", "$(x)", "a\nb", "é.local", "a" * 300]
)
def test_what_is_no_name_of_a_mac(name: str) -> None:
    with pytest.raises(InvalidSettingError, match="not the name of a Mac"):
        Host(name)


@pytest.mark.parametrize("ip", ["10.0.0.1", "172.16.3.4", "192.168.1.5", "169.254.7.8", "127.0.0.1"])
def test_private_addresses_are_taken(ip: str) -> None:
    assert resolve_host("studio.local", ip) == Host("studio.local", (ip,))


@pytest.mark.parametrize("ip", ["8.8.8.8", "100.64.0.1", "0.0.0.0", "224.0.0.1", "255.255.255.255", "172.32.0.1"])
def test_public_addresses_are_refused(ip: str) -> None:
    for name, words in (
        ("studio.local", f"{ip} of studio.local is not an address of a private network"),
        (ip, f"{ip} is"),
    ):
        with pytest.raises(InvalidSettingError, match=f"^{words}"):
            resolve_host(name, ip)


@pytest.mark.parametrize("ip", ["", "studio.local", "::1", "10.0.0", "10.0.0.1:5000", "٣.0.0.1"])
def test_what_is_no_address(ip: str) -> None:
    with pytest.raises(InvalidSettingError, match="is not an IPv4 address"):
        resolve_host("studio.local", ip)


def test_a_name_is_looked_up_without_its_user(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "gethostbyname", {"studio.local": "192.168.1.5"}.__getitem__)
    assert resolve_host("anna@studio.local") == STUDIO
    monkeypatch.setattr(socket, "gethostbyname", {"studio.local": "93.184.216.34"}.__getitem__)
    with pytest.raises(InvalidSettingError, match="private network"):
        resolve_host("studio.local")


def start_there(home: Path, path: str, shell: str = "/bin/sh") -> subprocess.CompletedProcess[str]:
    """Run what ssh is given as a person's shell would that has only these variables."""
    given = {"HOME": str(home), "PATH": path}
    return subprocess.run(
        [shell, "-c", start_command(STUDIO)[-1]], check=False, env=given, capture_output=True, text=True
    )


@pytest.mark.parametrize("place", ["bin", "Applications/rdchat.app/Contents/MacOS"])
@pytest.mark.parametrize("shell", [each for each in map(shutil.which, ("sh", "bash", "zsh", "fish", "tcsh")) if each])
def test_rdchat_is_found_in_the_path_and_in_applications(tmp_path: Path, place: str, shell: str) -> None:
    program = tmp_path / place / "rdchat"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\necho "$0 $*"\n')
    program.chmod(0o755)
    ran = start_there(tmp_path, str(program.parent) if place == "bin" else "", shell)
    assert ran.stdout == f"{program} --child rank\n"


def test_a_mac_without_rdchat_says_so(tmp_path: Path) -> None:
    ran = start_there(tmp_path, "")
    assert ran.returncode == 127
    assert ran.stderr == "rdchat is neither in the PATH nor in Applications.\n"


def test_a_name_without_an_address_names_the_local_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """macOS looks no name of the local network up for an app that may not use it."""
    monkeypatch.setattr(socket, "gethostbyname", Mock(side_effect=socket.gaierror))
    with pytest.raises(InvalidSettingError, match=r"has no address here.*Local Network must allow rdchat"):
        resolve_host("studio.local")


def test_a_ring_begins_with_this_mac_at_the_address_that_the_others_reach() -> None:
    other = Host("other", ("127.0.0.2",))
    ring = ring_hosts(("localhost", "other", "other"), [STUDIO, other])
    assert [each.ssh for each in ring] == ["localhost", "other", "other"]
    assert ring[0].ips == ("127.0.0.1",)
    assert ring[1].ips == ("127.0.0.2",)
    assert ring_hosts(("localhost", "localhost"), [])[1].ips == ("127.0.0.1",)


@pytest.mark.parametrize(("names", "hint"), [
    (("studio.local",), "localhost,studio.local"),
    ((), "localhost"),
    (("localhost", "unknown"), "rdchat cluster add unknown"),
])  # fmt: skip
def test_what_is_no_ring(names: tuple[str, ...], hint: str) -> None:
    with pytest.raises(InvalidSettingError) as caught:
        ring_hosts(names, [STUDIO])
    assert hint in caught.value.hint


TREE = RoundTree((1, 2), (-1, 0), ("", "lookup"), (0.0, -float("inf")), (0, 1), 7, ("a", "b"))
LIKELY = (LikelyToken(1, b"\xff\x00", -1.0),)
CALL = ToolCall("add", '{"a": [1, 2.5, "é"]}', "call-1")
STATISTICS = Statistics(generated_tokens=4, ledger=(LedgerEntry("a", "", 1, 2.5),), accepted_lengths=(1, 2))
REQUEST = GenerationRequest(
    (ChatMessage(Role.USER, "hé\udc80"), ChatMessage(Role.ASSISTANT, "x", (1,), ((0, 1),), (CALL,))),
    SamplingParams(stop=("a", "b")), 2**64 - 1, 2**40, thinking=ThinkingChoice.LOW,
    shape=AnswerShape(ShapeKind.SCHEMA, "{}"), partition="p", thinking_tokens=0,
)  # fmt: skip
VALUES = [
    (GenerationEvent, PrefillProgress(1, 2, 3, 4, in_thought=True)),
    (GenerationEvent, TokenEvent(1, 2, 3, "é", "lookup", 1, None, TREE, -float("inf"), LIKELY, b"\xe2")),
    (GenerationEvent, ReplyEnd(1, "t", (1, 2), "", FinishReason.EOS, STATISTICS, tool_calls=(CALL,))),
    (BenchEvent, BenchProgress(1, 2, "x")),
    (BenchEvent, BenchPiece(1, "x")),
    (BenchPlan, BenchPlan((BenchCell(),), (Prompt("x"),), earlier_replies=((1, 2),), finished=frozenset({(0, 1, 2)}))),
    (GenerationRequest, REQUEST),
    (kinds_of("count_tokens")["prompt"], REQUEST),
    (kinds_of("count_tokens")["prompt"], REQUEST.messages),
    (RoundStatistics, None),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "value"), VALUES, ids=[str(number) for number in range(len(VALUES))])
def test_values_come_back_as_they_were(kind: object, value: object, tmp_path) -> None:
    (tmp_path / "pipe").write_bytes(packed({"value": plain(kind, value)}))
    with (tmp_path / "pipe").open("rb") as pipe:
        message = read_message(pipe)
    assert message is not None
    back = read(kind, message["value"])
    assert (tuple(back) if isinstance(back, list) else back) == value


def test_what_is_not_of_the_type_is_refused() -> None:
    with pytest.raises(ValueError, match="validation error"):
        read(EVENTS["generate"], {"request_id": "x"})
