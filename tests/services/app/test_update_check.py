"""Nothing is asked before the person says so, and then once a day."""

from collections.abc import Iterator
from datetime import date

import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import NetworkError
from rdchat.hub.updates import Update
from rdchat.services.app import update_check
from rdchat.services.app.update_check import UpdateCheck
from tests.services.window import Window

UPDATE = Update("9.0", "Faster.", "https://example.org")


class Address:
    """Stands for the address: counts how often it is asked."""

    def __init__(self) -> None:
        self.answers: list[Update | Exception | None] = []
        self.asked: list[str] = []

    def __call__(self, address: str) -> Update | None:
        self.asked.append(address)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Address:
    address = Address()
    monkeypatch.setattr(update_check, "newer_version", address)
    return address


class Days:
    day = date(2026, 11, 25)

    def __call__(self) -> date:
        return self.day


@pytest.fixture
def check(window: Window) -> Iterator[UpdateCheck]:
    check = UpdateCheck(window.settings, "https://example.org/newest", Days())
    yield check
    check.cancel_check()


def test_update_check_is_off_until_the_person_answers(check: UpdateCheck, address: Address) -> None:
    assert check.unanswered
    check.look_for_update()
    check.keep_answer(False)
    check.look_for_update()
    assert not check.unanswered
    assert not check._work.busy
    assert address.asked == []


def test_update_check_asks_once_a_day(
    qtbot: QtBot, check: UpdateCheck, address: Address, monkeypatch: pytest.MonkeyPatch
) -> None:
    address.answers = [UPDATE, None, NetworkError("Nobody answers."), UPDATE]
    found: list[Update] = []
    check.update_found.connect(found.append)
    check.keep_answer(True)
    qtbot.waitUntil(lambda: found == [UPDATE])
    check.look_for_update()
    check.keep_answer(True)
    for day in (26, 27, 28):
        monkeypatch.setattr(Days, "day", date(2026, 11, day))
        check.look_for_update()
        check.look_for_update()
    qtbot.waitUntil(lambda: found == [UPDATE, UPDATE])
    assert len(address.asked) == 4


def test_a_build_without_an_address_never_asks(window: Window, address: Address) -> None:
    check = UpdateCheck(window.settings, "")
    check.keep_answer(True)
    assert not check.unanswered
    assert not check._work.busy
    assert address.asked == []
    check.cancel_check()
