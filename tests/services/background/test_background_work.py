"""Work beside the main thread: what is told of it, and when nothing is told any more."""

import gc
import threading
import weakref

import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import ModelError, RdchatError
from rdchat.services.background_work import BackgroundWork, FolderSearch, MainThread
from rdchat.work.job import Job

MAIN = threading.get_ident()


def fail() -> None:
    raise ModelError("It is damaged.", "Mend it.")


def test_work_works_in_order_and_hands_over_on_the_main_thread(qtbot: QtBot) -> None:
    queue = BackgroundWork("test")
    threads = set[int]()
    told = list[tuple[int, int]]()

    def work(number: int) -> int:
        threads.add(threading.get_ident())
        return number

    for number in range(5):
        queue.do(lambda number=number: work(number), lambda result: told.append((result, threading.get_ident())))
    qtbot.waitUntil(lambda: len(told) == 5)
    assert told == [(number, MAIN) for number in range(5)]
    assert len(threads) == 1
    assert MAIN not in threads
    queue.finish_work()


def test_work_hands_errors_over_and_goes_on(qtbot: QtBot, caplog: pytest.LogCaptureFixture) -> None:
    queue = BackgroundWork("test")
    told = list[object]()
    queue.do(fail, told.append)
    queue.do(lambda: "whole", told.append)
    qtbot.waitUntil(lambda: len(told) == 2)
    queue.replace(lambda _job: fail(), failed=told.append)
    qtbot.waitUntil(lambda: len(told) == 3)
    assert "unexpectedly" not in caplog.text
    queue.replace(lambda _job: 1 // 0, failed=told.append)
    qtbot.waitUntil(lambda: len(told) == 4)
    assert [type(each) for each in told] == [ModelError, str, ModelError, RdchatError]
    assert "test failed unexpectedly" in caplog.text
    queue.finish_work()


def test_finish_work_completes_queued_work_and_reports_nothing(qtbot: QtBot) -> None:
    queue = BackgroundWork("test")
    done = list[int]()
    told = list[object]()
    for number in range(3):
        queue.do(lambda number=number: done.append(number), told.append)
    queue.finish_work(60)
    queue.do(lambda: done.append(3), told.append)
    qtbot.wait(20)
    assert done == [0, 1, 2]
    assert told == []


def test_nothing_is_waited_for_after_the_end_of_background_work(qtbot: QtBot) -> None:
    """What was begun later was refused, and yet counted as open for ever."""
    queue = BackgroundWork("test")
    queue.finish_work()
    queue.do(lambda: None, lambda _result: None)
    queue.run_job(lambda _job: None, None, lambda _progress: None)
    assert not queue.busy
    main = MainThread()
    main.refuse_calls()
    main.bring(lambda _value: None)
    assert not main.waits


def test_replaceable_work_tells_in_between_and_its_end(qtbot: QtBot) -> None:
    task = BackgroundWork("test")
    came = list[object]()

    def work(job: Job[str]) -> str:
        job.report_progress(1)
        job.report_progress(2)
        return "end"

    task.replace(work, came.append, came.append, came.append)
    assert task.busy
    qtbot.waitUntil(lambda: len(came) == 3)
    assert came == [1, 2, "end"]
    assert not task.busy
    task.finish_work()


def test_only_the_latest_task_counts(qtbot: QtBot) -> None:
    task = BackgroundWork("test")
    came = list[object]()
    go_on = threading.Event()
    ended = list[object]()

    def waiting(job: Job[str]) -> str:
        go_on.wait(60)
        try:
            job.report_progress("too late")
        except Exception:  # as work does that puts its own errors in words
            ended.append("caught")
        ended.append("went on")
        return "old"

    task.replace(waiting, came.append, came.append, came.append)
    task.replace(lambda _job: go_on.wait(60) and fail(), came.append, came.append)
    task.replace(lambda _job: "new", came.append)
    qtbot.waitUntil(lambda: bool(came))
    go_on.set()
    task.finish_work()
    qtbot.wait(20)
    assert came == ["new"]
    assert ended == []


@pytest.mark.parametrize("close", [False, True])
def test_nothing_is_told_of_replaceable_work_that_was_stopped(qtbot: QtBot, close: bool) -> None:
    task = BackgroundWork("test")
    came = list[object]()
    told = threading.Event()

    def work(job: Job[str]) -> None:
        job.report_progress(1)
        told.set()

    task.replace(work, came.append, came.append, came.append)
    assert told.wait(60)  # it waits for the main thread to take it
    task.finish_work() if close else task.drop_jobs()
    assert not task.busy
    qtbot.wait(20)
    assert came == []
    task.replace(lambda _job: "again", came.append)
    if close:
        qtbot.wait(20)
        assert came == []
    else:
        qtbot.waitUntil(lambda: came == ["again"])
    task.finish_work()


def test_hanging_work_does_not_keep_the_app_from_ending() -> None:
    never = threading.Event()
    queue = BackgroundWork("test")
    task = BackgroundWork("test")
    queue.do(never.wait)
    for _ in range(3):
        task.replace(lambda _job: never.wait())
    before = {thread.name for thread in threading.enumerate() if not thread.daemon}
    assert "test" not in before
    queue.finish_work(0.01)
    task.finish_work(0.01)
    assert not task.busy
    never.set()


def test_a_search_looks_once_more_with_what_was_asked_last(qtbot: QtBot) -> None:
    go_on = threading.Event()
    looked = list[int]()

    def find(number: int) -> tuple[int, ...] | None:
        looked.append(number)
        go_on.wait(60)
        return (number,) if number else None

    search = FolderSearch(find)
    for number in (1, 2, 3):
        search.search_folders(number)
    go_on.set()
    qtbot.waitUntil(lambda: search.results == (3,))
    assert looked == [1, 3]
    search.search_folders(0)
    qtbot.waitUntil(lambda: looked[-1] == 0)
    search.finish_work()
    assert search.results == (3,)


def test_late_work_reports_nothing_to_a_deleted_object(qtbot: QtBot) -> None:
    """A thread that hung held the object: it was destroyed on that thread, or while it told, and took the app down."""
    barrier = threading.Barrier(3)

    def hang() -> None:
        barrier.wait(60)  # it has begun
        barrier.wait(60)  # the objects are gone

    queue = BackgroundWork("test")
    task = BackgroundWork("test")
    queue.do(hang)
    task.replace(lambda _job: hang())
    barrier.wait(60)
    queue.finish_work(0.01)
    task.finish_work(0.01)
    left = [weakref.ref(queue), weakref.ref(task)]
    del queue, task
    gc.collect(1)
    assert [each() for each in left] == [None, None]
    barrier.wait(60)
    qtbot.wait(20)


def test_the_progress_of_jobs_that_ended_is_not_kept(qtbot: QtBot) -> None:
    """Each server of tools that was started again left its job and its callback."""
    main = MainThread()
    came = list[int]()
    ended = list[int]()
    progress, end = main.bring_both(came.append, ended.append)
    progress(1)
    end(2)
    progress(3)
    qtbot.waitUntil(lambda: ended == [2])
    assert came == [1]
    assert not main._callbacks


def test_a_search_that_fails_keeps_what_was_found(caplog: pytest.LogCaptureFixture) -> None:
    search = FolderSearch(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    search.results = ("before",)
    search.search_folders()
    search.finish_work()
    assert search.results == ("before",)
    assert "search failed unexpectedly" in caplog.text
