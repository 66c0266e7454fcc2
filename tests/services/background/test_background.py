"""Work beside the main thread: what is told of it, and when nothing is told any more."""

import gc
import threading
import weakref

import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import ModelError, RdchatError
from rdchat.services.background.folder_search import FolderSearch
from rdchat.services.background.latest_task import LatestTask, Tell
from rdchat.services.background.work_queue import WorkQueue

MAIN = threading.get_ident()


def fail() -> None:
    raise ModelError("It is damaged.", "Mend it.")


def test_a_queue_works_in_order_and_hands_over_on_the_main_thread(qtbot: QtBot) -> None:
    queue, threads, told = WorkQueue("test"), set[int](), list[tuple[int, int]]()

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        return number

    for number in range(5):
        queue.do(lambda number=number: work(number), lambda result: told.append((result, threading.get_ident())))
    qtbot.waitUntil(lambda: len(told) == 5)
    assert told == [(number, MAIN) for number in range(5)]
    assert len(threads) == 1
    assert MAIN not in threads
    queue.close()


def test_a_queue_hands_errors_over_and_goes_on(qtbot: QtBot, caplog: pytest.LogCaptureFixture) -> None:
    queue, told = WorkQueue("test"), list[object]()
    queue.do(fail, told.append)
    queue.do(lambda: open("/nowhere/at-all"), told.append)  # noqa: PTH123, SIM115
    assert "unexpectedly" not in caplog.text
    queue.do(lambda: 1 // 0, told.append)
    queue.do(lambda: "whole", told.append)
    qtbot.waitUntil(lambda: len(told) == 4)
    assert all(isinstance(each, RdchatError) for each in told[:3])
    assert [str(each).split(".")[0] for each in told[:3]] == [
        "It is damaged",
        "/nowhere/at-all cannot be used: No such file or directory",
        "Something went wrong: ZeroDivisionError",
    ]
    assert told[3] == "whole"
    assert "test failed unexpectedly" in caplog.text
    queue.close()


def test_a_queue_that_closes_finishes_what_was_given_and_tells_nothing(qtbot: QtBot) -> None:
    queue, done, told = WorkQueue("test"), list[int](), list[object]()
    for number in range(3):
        queue.do(lambda number=number: done.append(number), told.append)
    queue.close()
    queue.do(lambda: done.append(3), told.append)
    qtbot.wait(20)
    assert done == [0, 1, 2]
    assert told == []


def test_a_task_tells_in_between_and_its_end(qtbot: QtBot) -> None:
    task, came = LatestTask("test"), list[object]()
    task.told.connect(came.append)
    task.done.connect(came.append)

    def work(tell: Tell) -> str:
        tell(1)
        tell(2)
        return "end"

    task.start(work)
    assert task.running
    qtbot.waitUntil(lambda: len(came) == 3)
    assert came == [1, 2, "end"]
    assert not task.running
    task.close()


def test_only_the_latest_task_counts(qtbot: QtBot) -> None:
    task, came, go_on, ended = LatestTask("test"), list[object](), threading.Event(), list[object]()
    task.told.connect(came.append)
    task.done.connect(came.append)
    task.failed.connect(came.append)

    def waiting(tell: Tell) -> str:
        go_on.wait(5)
        try:
            tell("too late")
        except Exception:  # as work does that puts its own errors in words
            ended.append("caught")
        ended.append("went on")
        return "old"

    task.start(waiting)
    task.start(lambda _tell: go_on.wait(5) and fail())
    task.start(lambda _tell: "new")
    qtbot.waitUntil(lambda: bool(came))
    go_on.set()
    task.close()
    qtbot.wait(20)
    assert came == ["new"]
    assert ended == []


@pytest.mark.parametrize("close", [False, True])
def test_nothing_is_told_of_a_task_that_was_stopped(qtbot: QtBot, close: bool) -> None:
    task, came, told = LatestTask("test"), list[object](), threading.Event()
    for signal in (task.told, task.done, task.failed):
        signal.connect(came.append)

    def work(tell: Tell) -> None:
        tell(1)
        told.set()

    task.start(work)
    assert told.wait(5)  # it waits for the main thread to take it
    task.close() if close else task.stop()
    assert not task.running
    qtbot.wait(20)
    assert came == []
    task.start(lambda _tell: "again")
    qtbot.wait(20)
    assert came == ([] if close else ["again"])
    task.close()


def test_a_task_that_fails_is_told(qtbot: QtBot, caplog: pytest.LogCaptureFixture) -> None:
    task, errors = LatestTask("test"), list[RdchatError]()
    task.failed.connect(errors.append)
    task.start(lambda _tell: fail())
    qtbot.waitUntil(lambda: len(errors) == 1)
    assert isinstance(errors[0], ModelError)
    assert "unexpectedly" not in caplog.text
    task.start(lambda _tell: 1 // 0)
    qtbot.waitUntil(lambda: len(errors) == 2)
    assert "test failed unexpectedly" in caplog.text
    task.close()


def test_what_hangs_does_not_keep_the_app_from_ending() -> None:
    never = threading.Event()
    queue, task = WorkQueue("test"), LatestTask("test")
    queue.do(never.wait)
    for _ in range(3):
        task.start(lambda _tell: never.wait())
    before = {thread.name for thread in threading.enumerate() if not thread.daemon}
    assert "test" not in before
    queue.close(0.01)
    task.close(0.01)
    assert not task.running
    never.set()


def test_a_search_looks_once_more_with_what_was_asked_last(qtbot: QtBot) -> None:
    go_on, looked = threading.Event(), list[int]()

    def find(number: int) -> tuple[int, ...] | None:
        looked.append(number)
        go_on.wait(5)
        return (number,) if number else None

    search = FolderSearch(find)
    for number in (1, 2, 3):
        search.look(number)
    go_on.set()
    qtbot.waitUntil(lambda: search.found == (3,))
    assert looked == [1, 3]
    search.look(0)
    qtbot.waitUntil(lambda: looked[-1] == 0)
    search.close()
    assert search.found == (3,)


def test_what_ends_late_tells_nothing_of_an_object_that_is_gone(qtbot: QtBot) -> None:
    """A thread that hung held the object: it was destroyed on that thread, or while it told, and took the app down."""
    go_on, ended = threading.Event(), threading.Barrier(3)
    queue, task = WorkQueue("test"), LatestTask("test")
    queue.do(lambda: go_on.wait(5) and ended.wait(5))
    task.start(lambda _tell: go_on.wait(5) and ended.wait(5))
    queue.close(0.01)
    task.close(0.01)
    left = [weakref.ref(queue), weakref.ref(task)]
    del queue, task
    gc.collect()
    assert [each() for each in left] == [None, None]
    go_on.set()
    ended.wait(5)
    qtbot.wait(20)
