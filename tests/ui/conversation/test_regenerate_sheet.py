"""The sheet with the options of one reply that is written again."""

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import MadeWith
from rdchat.inference.api import SamplingParams
from rdchat.services.chat.borrowed_model import OtherModel
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.regenerate_sheet import RegenerateSheet
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key, shown_child, type_number

BIG = ("Big", "/models/big")
type Submitted = tuple[MadeWith, OtherModel | None]


@pytest.fixture
def behind(qtbot: QtBot) -> QWidget:
    """The window behind the sheet."""
    qtbot.addWidget(window := QWidget())
    return window


def sheet_on(behind: QWidget, theme: Theme, own: str = "Small") -> tuple[RegenerateSheet, list[Submitted]]:
    sampling = SamplingParams(temperature=0.7, top_k=5)
    sheet = RegenerateSheet(own, lambda: [BIG], "Be brief.", sampling, theme=theme, parent=behind)
    sheet.open()
    submitted: list[Submitted] = []
    sheet.submitted.connect(lambda *options: submitted.append(options))
    return sheet, submitted


def test_options_that_are_unchanged_are_not_submitted(behind: QWidget, theme: Theme) -> None:
    sheet, submitted = sheet_on(behind, theme)
    assert not sheet.back.isVisible()
    press_key(sheet, "Return")
    assert submitted == [(MadeWith(), None)]
    assert not sheet.isVisible()


def test_changed_options_are_submitted(behind: QWidget, theme: Theme) -> None:
    sheet, submitted = sheet_on(behind, theme)
    type_number(sheet.options.fields["temperature"], "1.5")
    sheet.options.prompt.clear()
    press_key(sheet.model, "Down")
    assert sheet.back.isVisible()
    assert sheet.back.text() == "Go back to Small afterwards"
    click_on(sheet.buttons[-1])
    sampling = SamplingParams(temperature=1.5, top_k=5)
    assert submitted == [(MadeWith(sampling, ""), OtherModel("/models/big", "Big"))]


@pytest.mark.parametrize("own", ["Small", ""])
def test_one_may_stay_with_the_other_model(behind: QWidget, theme: Theme, own: str) -> None:
    sheet, submitted = sheet_on(behind, theme, own)
    if own:
        press_key(sheet.model, "Down")
        press_key(sheet.back, "Space")
    assert sheet.model.currentText() == "Big"
    assert sheet.back.isVisible() is bool(own), "without a model another one is chosen and stays"
    click_on(sheet.buttons[-1])
    assert submitted == [(MadeWith(), OtherModel("/models/big", "Big", stay=True))]


@pytest.mark.slow
def test_one_reply_is_made_by_another_model_through_the_window(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.load("/models/other")
    chat.say("Hi")
    window.actions_.regenerate_with.trigger()
    sheet = shown_child(window, RegenerateSheet)
    assert sheet.model.itemText(0) == "/models/other"
    press_key(sheet.model, "Down")
    chat.engine.gate.shut()
    click_on(sheet.buttons[-1])
    banner = window.conversation.banners.banner("borrowed")
    assert "writes this one reply" in banner.accessibleName()
    chat.engine.gate.open()
    chat.qtbot.waitUntil(lambda: window.conversation.banners.banner("borrowed") is None)
    chat.wait_for(EngineState.IDLE)
    last = chat.path[-1]
    assert (last.model, last.siblings) == ("tiny", 2)
    assert last.made_with == MadeWith(SamplingParams(), once=True)
    assert chat.slot.info.name == "/models/other"
