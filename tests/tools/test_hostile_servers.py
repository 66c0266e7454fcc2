"""Servers that misbehave are cut or ended in one plain line, while others go on; no process of theirs remains."""

import json
import os
import signal
from collections.abc import Iterator

import psutil
import pytest
from hypothesis import given, settings, strategies as st

from rdchat.errors import RdchatError
from rdchat.tools.definitions import ServerLimits, ToolServer
from rdchat.work.child_process import ChildProcess
from rdchat.work.job import CancelledError
from tests.tools.conftest import Start
from tests.tools.running import Run, hostile, processes_below, tools_child, wait_until_gone

QUICK = ServerLimits(start_s=30.0, call_s=0.3)
SMALL = ServerLimits(message_bytes=1_000_000)
ENDS = {
    "dies": "ended by itself (status 3).",
    "1 GB": "sent too much, so it was ended.",
    "pings": "sent too much, so it was ended.",
    "garbage": "sent lines that are not messages, so it was ended.",
    "grandchild goes on": "ended by itself (status 0).",
}
SLOW = {"pings", "garbage", "grandchild goes on"}
FAILS = {
    "ends at once": "ended by itself (status 1).",
    "long line at start": "sent too much, so it was ended.",
    "old": "gave an answer that is not valid.",
    "no list": "gave an answer that is not valid.",
}


@pytest.fixture(scope="module")
def good(child: ChildProcess) -> Run:
    return Run(child, hostile("good", "good"))


@pytest.fixture(autouse=True)
def _others_go_on(good: Run) -> Iterator[None]:
    yield
    assert good.call()["text"] == "done"


@pytest.mark.parametrize(
    "mode", [pytest.param(mode, marks=pytest.mark.slow) if mode in SLOW else mode for mode in ENDS]
)
def test_a_server_that_breaks_in_a_call_is_ended(start: Start, mode: str) -> None:
    run = start(mode)
    with pytest.raises(RdchatError) as ended:
        run.call()
    assert str(ended.value) == f"The server hostile {ENDS[mode]}"
    with pytest.raises(RdchatError) as also:
        run.job.result()
    assert str(also.value) == str(ended.value)


@pytest.mark.parametrize("mode", FAILS)
def test_a_server_that_breaks_at_the_start_is_ended(start: Start, mode: str) -> None:
    with pytest.raises(RdchatError) as failed:
        start(mode).job.result()
    assert str(failed.value) == f"The server hostile {FAILS[mode]}"


def test_a_server_that_hangs_at_the_start_is_ended(start: Start) -> None:
    with pytest.raises(RdchatError, match=r"^The server hostile did not answer within 0 seconds\.$"):
        start("hang at start", ServerLimits(start_s=0.3)).job.result()


def test_a_call_of_a_server_that_starts_ends_with_it(start: Start, good: Run) -> None:
    run = start("hang at start")
    call = run.submit("do")
    # A child that has just started would read both requests together with the end of the first, and begin neither.
    good.call()
    run.stop()
    with pytest.raises(RdchatError, match=r"^The server hostile was stopped\.$"):
        call.result()


@pytest.mark.slow
def test_a_call_that_hangs_is_ended(start: Start) -> None:
    run = start("hang in a call", QUICK)
    with pytest.raises(RdchatError, match=r"^The tool do took longer than 0 seconds, so it was stopped\.$"):
        run.call()


def test_a_call_is_stopped(start: Start) -> None:
    run = start("hang in a call")
    run.listed()
    call = run.submit("do")
    call.cancel()
    with pytest.raises(CancelledError):
        call.result()


@pytest.mark.slow
def test_a_server_that_takes_memory_is_ended(start: Start) -> None:
    run = start("memory", ServerLimits(memory_bytes=200_000_000))
    with pytest.raises(RdchatError, match=r"^The server hostile took more than 200 MB of memory, so it was ended\.$"):
        run.call()


@pytest.mark.parametrize("mode", ["burst", "malformed", "slow"])
def test_what_is_only_odd_does_no_harm(start: Start, mode: str) -> None:
    run = start(mode)
    assert run.call() == {"text": "done", "is_error": False, "images": []}


def test_long_arguments_reach_a_server(good: Run) -> None:
    assert good.call(arguments=json.dumps({"text": "x" * 1_000_000}))["text"] == "done"


def test_a_photo_is_an_image_and_no_text(start: Start) -> None:
    """A server of files sends each twice; one of 1.6 MB once ended the server."""
    run = start("photo")
    result = run.call()
    assert (result["text"], len(result["images"])) == ("[image 1]", 1)


def test_a_message_over_the_limit_fails_its_call_alone(start: Start) -> None:
    """It once ended the server."""
    run = start("long", SMALL)
    for _ in range(2):
        with pytest.raises(RdchatError, match=r"^The tool do was refused: its answer has more than 1 MB\.$"):
            run.call()
        assert run.call()["text"] == "x" * 9


@pytest.mark.slow
def test_the_id_of_a_message_over_the_limit_is_found_at_its_end(start: Start) -> None:
    run = start("long, id last", SMALL)
    with pytest.raises(RdchatError, match=r"^The tool do was refused: its answer has more than 1 MB\.$"):
        run.call()


def test_a_list_of_tools_is_cleaned(start: Start) -> None:
    run = start("lies")
    do, named, erases = run.listed()
    assert run.problems == [
        "The tool do cannot be used: an earlier tool has its name.",
        "The tool number 3 cannot be used: its name is not valid.",
        f"The tool {'x' * 60} cannot be used: its name is not valid.",
        "The tool bell cannot be used: its name is not valid.",
        "The tool huge cannot be used: its parameters are too long.",
    ]
    assert (do["name"], do["description"], do["read_only"]) == ("do", "Does it.", False)
    assert named["name"] == "a.b/c"
    assert named["description"].startswith("<b>bold</b>[31mlong long")
    assert len(named["description"]) == 4_000
    assert (named["read_only"], erases["read_only"]) == (True, False)
    # its pattern would take longer than the universe
    assert json.loads(run.call("a.b/c")["text"]) == {"x": "a" * 40 + "!"}


def test_a_changed_list_is_read_again_and_the_tool_that_was_shown_is_not_called(
    child: ChildProcess, start: Start
) -> None:
    run = start("changes")
    (shown,) = run.listed()
    assert run.call()["text"] == "done"
    assert run.listed(2)[0]["description"] == "Does something else."
    request = {"server": "hostile", "tool": shown, "arguments": "{}"}
    with pytest.raises(RdchatError, match="not what it was when it was shown"):
        child.submit("call", request).result()


def test_a_server_is_offered_nothing(start: Start) -> None:
    run = start("asks back")
    assert run.call()["text"] == "True,True,True"


def test_a_server_gets_a_part_of_the_environment_and_its_own_variables(start: Start) -> None:
    run = start(hostile("environment", environment={"A": "1"}), KEY="sesame")
    seen = json.loads(run.call()["text"])
    assert (seen.pop("A"), seen.pop("KEY")) == ("1", "•••")
    assert {name for name in seen if not name.startswith("LC_")} <= {"HOME", "USER", "LANG", "TMPDIR", "PATH"}


def test_the_last_lines_of_the_error_output_are_kept_without_secrets(start: Start) -> None:
    run = start("logs", KEY="open sesame")
    run.wait_for(lambda: run.log[-1:] == ["line 999 of •••"])
    assert len(run.log) == 200


SECRETS = {
    "KEY": "sk-hostile-0123456789",
    "PEM": "-----BEGIN KEY-----\nMIIEvgIBADANBgkqhkiG\nend=\n-----END KEY-----",
    "PASSPHRASE": "a b c\nd e f",
    "QUOTED": 'one"two\\three',
    "HEADER": "Bearer ghp_0123456789",
}
# What a server may quote of them, and 8 characters of each, since a text may be cut within it.
QUOTED = [*SECRETS.values(), 'one\\"two\\\\three', "MIIEvgIBADANBgkqhkiG", "ghp_0123456789"]
PARTS = ["sk-hosti", "23456789", "MIIEvgIB", 'one"two\\', "ghp_0123", *QUOTED]
# Where texts are cut, so that a secret may be there.
PLACES = (0, 150, 200, 485, 500, 985, 1_000, 99_990)


@pytest.fixture(scope="module")
def repeating(child: ChildProcess) -> Run:
    return Run(child, hostile("repeats", keys_chosen=True), **SECRETS)


@settings(max_examples=40)
@given(
    st.sampled_from(["text", "error", "structured", "log"]),
    st.builds(int.__add__, st.sampled_from(PLACES), st.integers(0, 20)),
    st.lists(st.sampled_from(QUOTED) | st.text(max_size=4), max_size=5),
    st.sampled_from(["", " ", "\n", "="]),
)
def test_nothing_that_a_server_says_has_its_secrets(
    repeating: Run, way: str, place: int, said: list[str], between: str
) -> None:
    text = between.join(["x" * place, *said])
    try:
        told = repeating.call(arguments=json.dumps({"way": way, "text": text}))["text"]
    except RdchatError as error:
        told = str(error)
    assert not [part for part in PARTS if part in told]


def test_lists_and_logs_of_a_server_have_no_secrets(repeating: Run) -> None:
    (tool,) = repeating.listed()
    assert tool["description"] == "x" * 3_990 + "•••"
    assert tool["parameters"]["default"] == [{"text": "•••"}]
    for way, line in (("garbage", "y" * 470), ("log", "z" * 490)):
        repeating.call(arguments=json.dumps({"way": way, "text": f"{line} {SECRETS['KEY']}"}))
    for text in (SECRETS["PASSPHRASE"], SECRETS["PEM"], "last"):
        repeating.call(arguments=json.dumps({"way": "log", "text": text}))
    repeating.wait_for(lambda: repeating.log[-1:] == ["last"])
    assert not [part for part in PARTS if part in "\n".join(repeating.log)]
    assert f"(not a message) {'y' * 470} •••" in repeating.log


@pytest.mark.slow
def test_a_program_that_is_not_here_is_named(start: Start) -> None:
    with pytest.raises(RdchatError, match=r"^The program no-such-program of the server absent was not found"):
        start(ToolServer("absent", ("no-such-program",))).job.result()


@pytest.mark.parametrize("mode", ["grandchild", pytest.param("stubborn", marks=pytest.mark.slow)])
def test_all_processes_of_a_server_end_with_it(child: ChildProcess, start: Start, mode: str) -> None:
    before = set(processes_below(child))
    run = start(mode)
    run.listed()
    started = set(processes_below(child)) - before
    assert len(started) == 2
    run.stop()
    wait_until_gone(list(started))


@pytest.mark.slow
def test_all_processes_end_when_the_child_is_killed() -> None:
    with tools_child() as child:
        for mode in ("good", "grandchild", "stubborn"):
            Run(child, hostile(mode, mode)).listed()
        started = processes_below(child)
        assert len(started) == 6  # with the guard
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        wait_until_gone(started)
        assert not psutil.pid_exists(started[-1].pid)
