"""Nothing is asked before the person says so, and then once a day."""

from collections.abc import Iterator
from datetime import date

import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import NetworkError
from rdchat.hub.updates import Update
from rdchat.services.app import update_check
from rdchat.services.app.update_check import UpdateCheck
from tests.services.window import Window, collected

UPDATE = Update("9.0", "Faster.", "https://example.org")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The addresses that were asked; each day has another answer."""
    asked: list[str] = []
    answers = [UPDATE, None, NetworkError("Nobody answers."), UPDATE]

    def newer_version(address: str) -> Update | None:
        asked.append(address)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(update_check, "newer_version", newer_version)
    monkeypatch.setattr(update_check, "date", Days)
    return asked


class Days(date):
    day = 25

    @classmethod
    def today(cls) -> date:
        return date(2026, 11, cls.day)


@pytest.fixture
def check(window: Window, asked: list[str]) -> Iterator[UpdateCheck]:
    check = UpdateCheck(window.settings, "https://example.org/newest")
    yield check
    check.cancel_check()


def test_update_check_is_off_until_the_person_answers(check: UpdateCheck, asked: list[str]) -> None:
    assert check.unanswered
    check.look_for_update()
    check.keep_answer(False)
    check.look_for_update()
    assert not check.unanswered
    assert not check._work.busy
    assert asked == []


def test_update_check_asks_once_a_day(
    qtbot: QtBot, check: UpdateCheck, asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = collected(check.update_found)
    check.keep_answer(True)
    qtbot.waitUntil(lambda: found == [UPDATE])
    check.look_for_update()
    check.keep_answer(True)
    for day in (26, 27, 28):
        monkeypatch.setattr(Days, "day", day)
        check.look_for_update()
        check.look_for_update()
    qtbot.waitUntil(lambda: found == [UPDATE, UPDATE])
    assert len(asked) == 4


def test_a_build_without_an_address_never_asks(window: Window, asked: list[str]) -> None:
    check = UpdateCheck(window.settings, "")
    assert not check.unanswered
    check.keep_answer(True)
    assert not check._work.busy
    assert asked == []
    check.cancel_check()
