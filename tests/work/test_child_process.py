"""A watched child process: answers, limits, cancelling, its end, and invalid answers."""

import gc
import os
import queue
import signal
import sys
import threading
import time
import weakref
from pathlib import Path

import psutil
import pytest

from rdchat import host
from rdchat.errors import RdchatError
from rdchat.work.child_process import ChildEndedError, ChildLimitError, ChildProcess, Limits
from rdchat.work.job import CancelledError
from rdchat.work.served import MAX_BYTES, FrameError

CHILD = Path(__file__).parent / "echo_child.py"


@pytest.fixture(autouse=True)
def command(monkeypatch):
    """The command of each child; a test may change it."""
    command = [sys.executable, str(CHILD)]
    monkeypatch.setattr(host, "child_command", lambda _name: command)
    return command


@pytest.fixture
def child():
    child = ChildProcess("echo")
    yield child
    child.close()


@pytest.fixture(scope="module")
def lasting():
    """A child of all tests that do not end it: a start takes a quarter of a second."""
    child = ChildProcess("lasting")
    yield child
    child.close()


def answers(child):
    return child.submit("echo", {"value": 1}).result() == {"value": 1}


def test_requests_reach_the_child_in_the_order_in_which_they_were_submitted(lasting):
    ended = []
    jobs = [lasting.submit("echo", {"value": number}, on_end=ended.append) for number in range(200)]
    for job in jobs:
        job.result()
    assert ended == [{"value": number} for number in range(200)]
    assert lasting.starts == 1


def test_tells_progress_in_order_before_the_result(lasting):
    told = []
    assert lasting.submit("count", {"to": 50}, on_progress=told.append).result() == 50
    assert told == list(range(50))


@pytest.mark.parametrize("closes", [False, True])
def test_an_ended_run_does_not_stay_in_memory(child, closes):
    runs = []
    for _ in range(2):
        assert answers(child)
        runs.append(weakref.ref(child._running))
        if closes:
            child.close()
        else:
            os.kill(child.pid, signal.SIGKILL)
            for thread in threading.enumerate():
                if thread.name == "echo child":
                    thread.join()
    gc.collect(1)
    assert runs[0]() is None


def test_a_large_request_and_its_answer_pass(lasting):
    text = "x" * 5_000_000
    assert lasting.submit("echo", {"value": text}).result() == {"value": text}


def test_an_error_of_the_child_comes_with_its_words_and_the_child_goes_on(lasting):
    with pytest.raises(RdchatError) as refused:
        lasting.submit("fail", {}).result()
    assert (refused.value.message, refused.value.hint) == ("The file is odd.", "Choose another.")
    with pytest.raises(RdchatError, match="ValueError") as stumbled:
        lasting.submit("stumble", {}).result()
    assert "stranger" not in str(stumbled.value)
    assert answers(lasting)
    assert lasting.starts == 1


def test_what_takes_too_long_is_ended_and_the_next_request_starts_another(child):
    with pytest.raises(ChildLimitError, match="longer than"):
        child.submit("hang", {}, Limits(seconds=0.2)).result()
    assert answers(child)
    assert child.starts == 2


def test_what_takes_too_much_memory_is_ended(child):
    with pytest.raises(ChildLimitError, match="memory"):
        child.submit("take", {"size": 300_000_000}, Limits(memory_bytes=50_000_000)).result()


def test_one_that_hangs_is_killed_when_it_is_cancelled(child):
    told = []
    job = child.submit("hang", {}, on_end=told.append)
    behind = child.submit("echo", {"value": 1})
    job.cancel()
    with pytest.raises(CancelledError):
        job.result()
    assert behind.result() == {"value": 1}
    assert len(told) == 1


def test_one_that_gets_time_to_stop_is_not_killed(lasting):
    job = lasting.submit("wait", {}, Limits(cancel_s=30.0))
    job.cancel()
    with pytest.raises(CancelledError):
        job.result()
    assert answers(lasting)
    assert lasting.starts == 1


def test_others_of_a_child_that_does_not_stop_are_not_told_of_a_time_limit():
    child = ChildProcess("echo", at_once=2)
    begun = threading.Event()
    hanging = child.submit("hang", {}, on_progress=lambda _begun: begun.set())
    begun.wait()
    other = child.submit("echo", {"value": 1})
    while len(child._running._requests) < 2:
        time.sleep(0.01)
    hanging.cancel()
    with pytest.raises(ChildEndedError, match="was ended"):
        other.result()
    with pytest.raises(CancelledError):
        hanging.result()
    child.close()


def test_whoever_waits_may_give_up(child):
    class GaveUpError(Exception):
        pass

    def give_up():
        raise GaveUpError

    job = child.submit("hang", {})
    with pytest.raises(GaveUpError):
        job.result(give_up)
    assert job.cancelled


def test_a_child_that_dies_ends_what_it_worked_on(child):
    first = child.submit("die", {"status": 3})
    second = child.submit("echo", {"value": 1})
    with pytest.raises(ChildEndedError, match="status 3"):
        first.result()
    assert second.result() == {"value": 1}  # asked of another: it was not at fault
    assert child.starts == 2


def test_a_child_that_is_killed_from_outside(child):
    begun = threading.Event()
    job = child.submit("hang", {}, on_progress=lambda _: begun.set())
    assert begun.wait(60)  # one that it does not have yet would be asked of another child
    os.kill(child.pid, signal.SIGKILL)
    with pytest.raises(ChildEndedError):
        job.result()


def test_what_libraries_print_does_not_get_between_the_answers(lasting):
    lasting.submit("babble", {"text": "{}" * 100}).result()
    assert answers(lasting)


@pytest.mark.slow
def test_a_request_that_is_too_long_is_refused_and_the_child_goes_on(child):
    with pytest.raises(FrameError):
        child.submit("echo", {"value": "x" * (MAX_BYTES + 1)}).result()
    assert answers(child)


@pytest.mark.parametrize(
    "said",
    [
        b"\xff\xff\xff\xff",  # a length of four gigabytes
        b"\x00\x00\x00\x02[]",
        b"\x00\x00\x00\x03{]}",
        b'\x00\x00\x00\x09{"id": 7}',
        b"\x00\x00\x40\x00" + b"[" * 2**14,
        b"\x00\x00",  # half a frame, then the end
    ],
)
def test_a_child_that_answers_nonsense_is_ended(child, command, said):
    code = (
        f"import sys, time; sys.stdout.buffer.write({said!r}); sys.stdout.flush(); len({said!r}) > 2 and time.sleep(60)"
    )
    command[1:] = "-S", "-c", code
    with pytest.raises(ChildEndedError):
        answers(child)


def test_a_child_that_always_dies_before_it_is_ready_is_not_started_for_ever(child, command):
    command[1:] = "-S", "-c", "raise SystemExit(1)"
    with pytest.raises(ChildEndedError):
        answers(child)
    assert child.starts == 1


def test_a_child_that_cannot_be_started(child, command):
    command[:] = ["/nowhere/to/be/found"]
    with pytest.raises(ChildEndedError, match="could not be started"):
        answers(child)


def test_closing_lets_it_stop_in_good_order_and_waits_no_longer(child):
    answers(child)
    pid = child.pid
    job = child.submit("hang", {})
    child.close(0.1)
    assert not psutil.pid_exists(pid)
    with pytest.raises(RdchatError):
        job.result()


def test_closing_lets_a_stopped_child_stop_in_good_order(child):
    answers(child)
    process = child._running.process
    process.send_signal(signal.SIGSTOP)
    child.close(60.0)
    assert process.returncode == 0, "it was not killed after its time"


def test_a_child_ends_with_the_object_that_held_it():
    child = ChildProcess("echo")
    answers(child)
    process = psutil.Process(child.pid)
    del child
    gc.collect(1)
    process.wait(60)
    assert not process.is_running()


def test_a_child_without_anything_to_do_is_ended_and_started_again():
    child = ChildProcess("echo", idle_s=0.1)
    for starts in (1, 2):
        assert answers(child)
        assert child.starts == starts
        child._running.process.wait(60)
    child.close()


def test_many_threads_may_ask(lasting):
    answers = []

    def ask(number):
        answers.append(lasting.submit("echo", {"value": number}).result()["value"])

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(answers) == list(range(16))


def test_work_that_is_held_waits_and_goes_on(lasting):
    told = queue.SimpleQueue()
    job = lasting.submit("be_held", {}, on_progress=told.put)
    assert told.get(timeout=60) == "begun"
    job.hold(True)
    echoed = lasting.submit("echo", {"value": 1})  # behind it
    assert told.get(timeout=60) == "held"
    assert not job.ended
    assert not echoed.ended
    job.hold(False)
    assert job.result() == "free"
    assert echoed.result() == {"value": 1}


def test_held_work_can_be_cancelled(lasting):
    told = queue.SimpleQueue()
    job = lasting.submit("be_held", {}, on_progress=told.put)
    job.hold(True)
    while told.get(timeout=60) != "held":
        pass
    job.cancel()
    with pytest.raises(CancelledError):
        job.result()
