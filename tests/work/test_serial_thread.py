"""Jobs on a thread: order, results, errors, replacing, forgetting, closing."""

import threading

import pytest

from rdchat.errors import RdchatError
from rdchat.work.job import CancelledError, Job, SerialThread


@pytest.fixture
def thread():
    thread = SerialThread("tested")
    yield thread
    thread.wait_for_jobs()


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (RdchatError("It is full.", "Make room."), "It is full. Make room."),
        (OSError(28, "No space left on device", "here"), "here cannot be used: No space left on device."),
        (ValueError("secret"), "Something unexpected went wrong: ValueError."),
        (MemoryError(), "There is not enough memory."),
    ],
)
def test_what_fails_becomes_an_error_for_people_and_the_thread_goes_on(thread, error, words):
    def fail(_job):
        raise error

    with pytest.raises(RdchatError) as failed:
        thread.do(fail).result()
    assert words in str(failed.value)
    assert "secret" not in str(failed.value)
    assert thread.do(lambda _job: 1).result() == 1


def test_the_thread_ends_with_its_object_after_the_jobs_given():
    free = threading.Event()
    seen = []
    thread = SerialThread("dropped")
    thread.do(lambda _job: seen.append(threading.current_thread()))
    thread.do(lambda _job: free.wait())
    ended = thread.do(lambda _job: seen.append("last"))
    del thread
    free.set()
    ended.result()
    seen[0].join(60)
    assert not seen[0].is_alive()
    assert seen[1:] == ["last"]


def test_a_callback_that_fails_does_not_end_the_thread(thread):
    thread.do(lambda _job: 1, on_end=lambda _: 1 / 0)
    assert thread.do(lambda _job: 2).result() == 2


def test_a_job_that_is_cancelled_before_its_turn_does_not_run(thread):
    let_go = threading.Event()
    ran = []
    thread.do(lambda _job: let_go.wait(60))
    job = thread.do(lambda _job: ran.append(1))
    job.cancel()
    let_go.set()
    with pytest.raises(CancelledError):
        job.result()
    assert not ran


def test_after_closing_jobs_end_as_cancelled(thread):
    ended = thread.do(lambda _job: 1)
    thread.wait_for_jobs()
    assert ended.result() == 1
    with pytest.raises(CancelledError):
        thread.do(lambda _job: 1).result()


def test_a_thread_ends_with_the_owner_whose_methods_were_its_last_job() -> None:
    class Owner:
        def __init__(self) -> None:
            self.thread = SerialThread("owned")

        def work(self, _job: Job[None]) -> None:
            pass

    owner = Owner()
    owner.thread.do(owner.work).result()
    (thread,) = owner.thread._threads
    del owner
    thread.join(60)
    assert not thread.is_alive()
