import threading

import pytest
from pytestqt.qtbot import QtBot

from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.background.background_work import FolderSearch

MODEL = ModelCard("small", "/models/small", "LM Studio")


def test_they_are_looked_for_on_another_thread_and_told_once(qtbot: QtBot) -> None:
    threads: list[int] = []

    def find() -> tuple[ModelCard, ...]:
        threads.append(threading.get_ident())
        return (MODEL,)

    installed = FolderSearch(find)
    with qtbot.waitSignal(installed.changed):
        installed.search_folders()
    assert installed.results == (MODEL,)
    assert threads != [threading.get_ident()]
    installed.finish_work()
    installed.search_folders()
    installed.finish_work()
    assert len(threads) == 1


def test_one_search_at_a_time(qtbot: QtBot) -> None:
    go_on, began = threading.Event(), []

    def find() -> tuple[ModelCard, ...]:
        began.append(True)
        go_on.wait(60)
        return ()

    installed = FolderSearch(find)
    for _ in range(3):
        installed.search_folders()
    go_on.set()
    installed.finish_work()
    assert began == [True]


def test_a_search_that_fails_is_logged_and_keeps_what_was_found(qtbot: QtBot, caplog: pytest.LogCaptureFixture) -> None:
    installed = FolderSearch(lambda: 1 // 0)  # type: ignore[arg-type,return-value]
    installed.results = (MODEL,)
    installed.search_folders()
    installed.finish_work()
    assert installed.results == (MODEL,)
    assert "search failed unexpectedly" in caplog.text
