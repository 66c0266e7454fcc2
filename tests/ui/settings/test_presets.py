"""Thinking and presets through the real widgets: a chat's options, and the page in Settings."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLineEdit, QPushButton
from pytestqt.qtbot import QtBot

from rdchat.chat.presets import Preset, SavedPrompt
from rdchat.inference.api import AnswerShape, DraftSettings, Mode, SamplingParams, ShapeKind, ThinkingChoice
from rdchat.ui.settings.chat_options import ChatOptions
from rdchat.ui.settings.presets_page import PresetsPage
from rdchat.ui.style import Theme
from tests.listed_chats import listed
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import answer_question, click_on, press_key

BRIEF = Preset(
    "Brief", system_prompt="Be brief.", sampling=SamplingParams(temperature=0), sampling_chosen=("temperature",)
)


@pytest.fixture(autouse=True)
def thinks(chat: Chat) -> None:
    """Let the model think, with a switch for it."""
    chat.engine.thinking = (ThinkingChoice.OFF, ThinkingChoice.ON)


@pytest.fixture
def page(qtbot: QtBot, theme: Theme, chat: Chat) -> PresetsPage:
    chat.start()
    settings = chat.settings
    page = PresetsPage(theme, chat.controller)
    settings.changed.connect(page.show_settings)
    settings.change_values(presets=(BRIEF,), prompts=(SavedPrompt("Translate", "Into {{language}}"),))
    qtbot.addWidget(page)
    page.show()
    return page


def choose(options: ChatOptions, text: str) -> None:
    index = options.preset.findText(text)
    options.preset.setCurrentIndex(index)
    options.preset.activated.emit(index)


def test_thinking_is_chosen_with_the_keyboard_kept_with_the_chat_and_reaches_the_engine(
    chat: Chat, options: ChatOptions
) -> None:
    chats = chat.chats
    assert [options.thinking.itemText(place) for place in range(3)] == ["Model's default", "Off", "On"]
    press_key(options.thinking, "Down")
    assert chats.chat.conversation.thinking_choice == ThinkingChoice.OFF
    assert options.source.text() == "Changed for this chat"
    chat.say("Without")
    assert chat.engine.last_request.thinking is ThinkingChoice.OFF
    chats.chat.start_new()
    options.show_values()
    assert options.thinking.currentText() == "Model's default"
    chats.chat.open_chat(listed(chats)[0].id)
    options.show_values()
    assert options.thinking.currentText() == "Off"
    click_on(options.defaults)
    assert chats.chat.conversation.thinking_choice is None


@pytest.mark.parametrize("default", [*ThinkingChoice, None])
def test_the_switch_says_what_the_model_does_where_nothing_is_chosen(
    theme: Theme, chat: Chat, default: ThinkingChoice | None
) -> None:
    chat.engine.thinking_default = default
    chat.start()
    button = QPushButton()
    chat.qtbot.addWidget(button)
    options = ChatOptions(chat.controller, theme, button)
    options.show_values()
    assert options.thinking.currentText() == f"Model's default ({default})".replace(" (None)", "")


def test_the_limit_of_thinking_reaches_the_engine_and_off_needs_no_switch(
    qtbot: QtBot, chat: Chat, options: ChatOptions
) -> None:
    assert options.limit.text() == "No limit"
    options.limit.setFocus()
    options.limit.selectAll()
    qtbot.keyClicks(options.limit, "750")
    press_key(options.limit, "Return")
    chat.say("Hello")
    assert (chat.engine.last_request.thinking, chat.engine.last_request.thinking_tokens) == (None, 750)
    assert chat.store.conversation(chat.open.conversation.id).own.thinking_tokens == 750
    press_key(options.thinking, "Down")
    assert not options.limit.isEnabled()
    chat.say("Off")
    assert chat.engine.last_request.thinking is ThinkingChoice.OFF
    chat.engine.thinking = ()
    chat.slot.retry()
    qtbot.waitUntil(lambda: chat.slot.info is not None and not chat.slot.info.thinking)
    chat.say("Off without a switch")
    assert (chat.engine.last_request.thinking, chat.engine.last_request.thinking_tokens) == (None, 0)


def test_options_are_saved_as_a_preset_and_used_in_another_chat(qtbot: QtBot, chat: Chat, options: ChatOptions) -> None:
    qtbot.keyClicks(options.form.prompt, "Be brief.")
    options.form.fields["temperature"].setValue(0.3)
    options.form.stop.setPlainText("END")
    assert not options.save.isEnabled()
    qtbot.keyClicks(options.name, "Short answers")
    press_key(options.name, "Return")
    assert not options.save.isEnabled()
    assert options.source.text() == "Same as in Short answers"
    assert options.preset.currentText() == "Short answers"
    assert not options.defaults.isEnabled()
    chat.open.start_new()
    options.show_values()
    assert options.form.prompt.toPlainText() == ""
    choose(options, "Short answers")
    assert options.form.prompt.toPlainText() == "Be brief."
    options.form.fields["top_k"].setValue(7)
    assert options.source.text() == "Changed for this chat"
    marks = [name for name, label in options.form.marks.items() if label.text() == "Changed"]
    assert marks == ["top_k"]
    chat.say("Hello")
    assert chat.engine.last_contents[0] == "Be brief."
    assert chat.engine.last_request.sampling == SamplingParams(temperature=0.3, top_k=7, stop=("END",))
    click_on(options.defaults)
    assert options.form.fields["top_k"].value() == 0
    choose(options, "None")
    assert options.source.text() == "Same as in Settings"


def test_a_chat_can_have_any_text_although_its_preset_asks_for_json(chat: Chat, options: ChatOptions) -> None:
    shaped = Preset("Data", answer_shape=AnswerShape(ShapeKind.JSON))
    chat.settings.change_values(presets=(shaped,))
    options.show_values()
    choose(options, "Data")
    assert options.shape.kind.currentText() == "A JSON object"
    options.shape.kind.setCurrentIndex(0)
    options.shape.kind.activated.emit(0)
    assert options.form.marks["answer_shape"].text() == "Changed"
    chat.say("Hello")
    assert chat.engine.last_request.shape is None


def test_the_draft_settings_of_a_preset_leave_those_of_the_model(chat: Chat, options: ChatOptions) -> None:
    controller = chat.controller
    controller.drafting.change(DraftSettings(Mode.OFF))
    controller.settings.change_values(presets=(Preset("Drafted", draft=DraftSettings(Mode.LOOKUP)),))
    options.show_values()
    choose(options, "Drafted")
    assert controller.drafting.settings.mode is Mode.LOOKUP
    chat.say("Hello")
    assert chat.engine.last_request.draft.mode is Mode.LOOKUP
    assert controller.drafting.of_model.mode is Mode.OFF
    controller.drafting.change(DraftSettings(Mode.AUTO))
    assert controller.chat.conversation.own.draft == DraftSettings(Mode.AUTO)
    controller.chat.start_new()
    assert controller.drafting.settings.mode is Mode.OFF
    chat.say("Hello")
    assert chat.engine.last_request.draft.mode is Mode.OFF


def test_a_preset_is_renamed_made_a_models_default_and_deleted(qtbot: QtBot, chat: Chat, page: PresetsPage) -> None:
    settings = chat.settings
    click_on(page.rename)
    editor = page.list.findChild(QLineEdit)
    qtbot.keyClicks(editor, "Short")
    press_key(editor, "Return")
    qtbot.waitUntil(lambda: [each.name for each in settings.values.presets] == ["Short"])
    click_on(page.default)
    chat.say("Hello")
    assert chat.engine.last_contents[0] == "Be brief."
    click_on(page.delete)
    answer_question(page, "Delete")
    assert settings.values.presets == ()
    chat.say("Still readable")
    assert chat.engine.last_contents[0] != "Be brief."


def test_a_preset_is_changed_in_the_same_form(chat: Chat, page: PresetsPage) -> None:
    settings = chat.settings
    settings.change_values(presets=(replace(BRIEF, thinking_tokens=9, models=("/m",)), Preset("Plain")))
    form = page.form
    marked = lambda: {name for name, mark in form.marks.items() if mark.text() == "Changed"}  # noqa: E731
    assert (form.prompt.toPlainText(), form.fields["temperature"].value()) == ("Be brief.", 0)
    assert marked() == {"temperature"}
    saves = list[object]()
    settings.changed.connect(saves.append)
    chat.qtbot.keyClicks(form.prompt, "!?")
    form.fields["top_k"].setValue(7)
    assert not saves, "the file is not written at each key"
    settings.change_values(text_size=settings.values.text_size + 1)
    assert form.fields["top_k"].value() == 7
    press_key(page.list, "Down")
    saved, plain = settings.values.presets
    assert plain == Preset("Plain", id=plain.id)
    assert saved == replace(
        BRIEF,
        system_prompt="!?Be brief.",
        sampling=SamplingParams(temperature=0, top_k=7),
        sampling_chosen=("temperature", "top_k"),
        thinking_tokens=9,
        models=("/m",),
    )
    assert (form.prompt.toPlainText(), form.fields["top_k"].value(), marked()) == ("", 0, set())
    form.fields["top_k"].setValue(5)
    form.fields["top_k"].setValue(0)
    click_on(page.default)
    plain = settings.values.presets[1]
    assert (plain.sampling_chosen, plain.system_prompt, plain.long_chats) == ((), None, None), "it is left open"
    assert plain.models == (str(chat.slot.info.path),)
    press_key(page.list, "Down")
    assert (form.isVisible(), page.text.isVisible()) == (False, True)


def test_prompts_are_written_and_presets_imported(qtbot: QtBot, chat: Chat, page: PresetsPage, tmp_path: Path) -> None:
    settings = chat.settings
    press_key(page.list, "Down")
    assert page.text.isVisible()
    page.text.setFocus()
    saves = list[object]()
    settings.changed.connect(saves.append)
    qtbot.keyClicks(page.text, "!?")
    assert not saves, "the file is not written at each key"
    settings.change_values(text_size=settings.values.text_size + 1)
    assert page.text.toPlainText() == "!?Into {{language}}"
    qtbot.waitUntil(lambda: settings.values.prompts == (SavedPrompt("Translate", "!?Into {{language}}"),))
    qtbot.keyClicks(page.text, "!")
    press_key(page.list, "Up")
    assert settings.values.prompts == (SavedPrompt("Translate", "!?!Into {{language}}"),)
    path = tmp_path / "Coder.preset.json"
    fields = [{"key": "llm.prediction.temperature", "value": 0.5}, {"key": "llm.prediction.speech", "value": 1}]
    path.write_text(json.dumps({"operation": {"fields": fields}}))
    page.import_files([str(path), str(tmp_path / "missing.json")])
    assert [each.name for each in settings.values.presets] == ["Brief", "Coder"]
    assert "Not understood in Coder.preset.json: llm.prediction.speech." in page.result.text()
    assert "missing.json cannot be imported" in page.result.text()


def test_presets_and_prompts_stand_below_headings_of_their_own(chat: Chat, page: PresetsPage) -> None:
    settings = chat.settings

    def rows() -> list[str]:
        return [page.list.item(row).text() for row in range(page.list.count())]

    assert rows() == ["Presets", "Brief", "Prompts", "/Translate"]
    assert page.list.currentItem().text() == "Brief"
    press_key(page.list, "Down")
    assert page.list.currentItem().text() == "/Translate", "a heading is no stop"
    settings.change_values(presets=())
    assert rows() == ["Prompts", "/Translate"]
    assert page.list.currentItem().text() == "/Translate"
    settings.change_values(prompts=())
    assert (rows(), page.rename.isEnabled(), page.write.isEnabled()) == ([], False, False)
    page.add_prompt()
    assert [each.name for each in settings.values.prompts] == ["New prompt"]
