"""A chat whose answers must be JSON says so."""

import json

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import Preset
from rdchat.inference.api import AnswerShape, ShapeKind
from rdchat.ui.transcript.message_kinds import fenced
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on

_SCHEMA = AnswerShape(ShapeKind.SCHEMA, json.dumps({"type": "object"}))


def test_the_shape_is_named_and_ended_in_the_message_field(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chip = window.conversation.composer.shape
    dot = window.header.dot
    assert not chip.isVisible()
    assert not dot.isVisible()
    chat.say("Hi")
    chat.open.set_options(answer_shape=_SCHEMA)
    assert chip.isVisible()
    assert dot.isVisible()
    assert chip.label.text() == "JSON · schema"
    with_shape = chat.open.id
    window.actions_.new_chat.trigger()
    assert not chip.isVisible()
    assert with_shape is not None
    chat.open.open_chat(with_shape)
    assert chip.isVisible()
    click_on(chip.remove)
    assert not chip.isVisible()
    assert not dot.isVisible()
    assert chat.open.conversation.answer_shape is None


def test_the_shape_of_a_models_preset_is_named_once_it_is_loaded(qtbot: QtBot, chat: Chat, window: MainWindow) -> None:
    chip = window.conversation.composer.shape
    slot = chat.controller.model_slot
    shaped = Preset("Data", answer_shape=AnswerShape(ShapeKind.JSON), models=("other",))
    chat.controller.settings.change_values(presets=(shaped,))
    chat.start()
    assert not chip.isVisible()
    slot.load_model("other")
    qtbot.waitUntil(chip.isVisible)


@pytest.mark.parametrize("answer", ['{"a": "*b*"}', '{\n  "a": [1]}', "{}", '{"a'])
def test_a_json_object_is_shown_as_code(answer: str) -> None:
    assert fenced(answer).startswith("```json\n")


@pytest.mark.parametrize("answer", ["", "{", "{name}, hello", "A {x}", "[1](a)", "`{}`"])
def test_other_answers_are_shown_as_they_are(answer: str) -> None:
    assert fenced(answer) == answer
