from pathlib import Path

import pytest
from PySide6.QtCore import QEvent, QObject, QPoint
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractItemView,
    QAbstractSpinBox,
    QApplication,
    QComboBox,
    QLineEdit,
    QPlainTextEdit,
    QWidget,
)
from pytestqt.qtbot import QtBot

from rdchat import host, paths
from rdchat.chat.settings import Appearance, Settings, SettingsStore
from rdchat.inference.api import Dtype, Role, SamplingDefaults, SamplingParams
from rdchat.mac_desktop import HotKey
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.settings.settings_window import PLACES, SettingsWindow
from rdchat.ui.style import SectionHead, Theme, show_folder
from tests.carbon import EXISTS, Carbon
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key


@pytest.fixture
def preferences(qtbot: QtBot, theme: Theme, chat: Chat) -> SettingsWindow:
    chat.start()
    preferences = SettingsWindow(chat.controller, theme)
    qtbot.addWidget(preferences)
    preferences.show()
    return preferences


def test_what_is_in_force_is_shown(preferences: SettingsWindow) -> None:
    chosen = preferences.appearance.currentText(), preferences.text_size.value(), preferences.dtype.currentText()
    assert chosen == ("System", 13, "Automatic")
    assert preferences.form.sampling() == SamplingParams()
    assert preferences.models_folder.text() == "None"


def test_the_app_stays_where_something_can_bring_its_window_back(chat: Chat, preferences: SettingsWindow) -> None:
    default = Settings()
    assert preferences.menu_bar.isChecked() is default.menu_bar_item
    assert preferences.stays.isChecked() is default.stays_open
    assert preferences.stays.isEnabled() is host.MACOS
    preferences.menu_bar.setChecked(True)
    preferences.stays.setChecked(True)
    settings = chat.settings.values
    assert (settings.menu_bar_item, settings.stays_open) == (True, True)


def test_the_quick_windows_shortcut_is_chosen_by_pressing_it(chat: Chat, theme: Theme) -> None:
    carbon = Carbon()
    chat.controller.hot_key = HotKey(chat.controller.hot_key_pressed.emit, carbon)
    chat.start()
    preferences = SettingsWindow(chat.controller, theme)
    chat.qtbot.addWidget(preferences)
    preferences.show()
    assert preferences.keys.isVisible()
    press_key(preferences.keys, "Ctrl+Alt+Q")
    assert chat.settings.values.quick_shortcut == "Ctrl+Alt+Q"
    assert carbon.registered == (0x0C, 0x900)
    carbon.RegisterEventHotKey.answer = EXISTS
    chat.settings.change_values(quick_shortcut="Ctrl+Alt+W")
    assert preferences.keys_problem.text() == "Another program has this shortcut. Choose another one."
    preferences.keys.clear()
    assert (chat.settings.values.quick_shortcut, preferences.keys_problem.isVisible()) == ("", False)


def test_its_notes_are_never_windows_of_their_own(theme: Theme, chat: Chat) -> None:
    """They were shown before they had a parent, and took the keyboard from the message field."""
    shown: list[QWidget] = []
    watch = Watch(shown)
    QApplication.instance().installEventFilter(watch)
    window = SettingsWindow(chat.controller, theme)
    QApplication.instance().removeEventFilter(watch)
    chat.qtbot.addWidget(window)
    assert shown == []


class Watch(QObject):
    """Collects the windows that are shown."""

    def __init__(self, shown: list[QWidget]) -> None:
        super().__init__()
        self._shown = shown

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() is QEvent.Type.Show and isinstance(watched, QWidget) and watched.isWindow():
            self._shown.append(watched)
        return False


def test_changes_apply_at_once_and_are_kept(chat: Chat, preferences: SettingsWindow, tmp_path: Path) -> None:
    preferences.appearance.setCurrentIndex(2)
    preferences.text_size.setValue(17)
    preferences.form.fields["temperature"].setValue(0.3)
    settings = chat.settings.values
    assert (settings.appearance, settings.text_size) == (Appearance.DARK, 17)
    assert settings.sampling == SamplingParams(temperature=0.3)
    chat.settings.wait_until_saved()
    assert SettingsStore(tmp_path / "settings.json").settings == settings


def test_typed_text_is_saved_after_a_pause(qtbot: QtBot, chat: Chat, preferences: SettingsWindow) -> None:
    qtbot.keyClicks(preferences.form.prompt, "Be kind.")
    qtbot.keyClicks(preferences.seed, "42")
    qtbot.waitUntil(lambda: chat.settings.values.seed == 42)
    assert chat.settings.values.system_prompt == "Be kind."
    assert preferences.form.prompt.toPlainText() == "Be kind."


def test_closing_saves_what_was_just_typed(chat: Chat, preferences: SettingsWindow) -> None:
    chat.qtbot.keyClicks(preferences.form.prompt, "Short.")
    preferences.close()
    assert chat.settings.values.system_prompt == "Short."


def test_a_wrong_seed_is_explained_and_not_kept(chat: Chat, preferences: SettingsWindow) -> None:
    preferences.show_page("Sampling")
    preferences._typing.setInterval(0)
    for text in ("abc", "7", "-1", "1.5", str(2**64), "²"):
        preferences.seed.setText(text)
        preferences.seed.textEdited.emit(text)
        chat.qtbot.waitUntil(lambda text=text: preferences.seed_problem.isVisible() is (text != "7"))
        assert preferences.seed.text() == text
        assert chat.settings.values.seed == (None if text == "abc" else 7)
    assert preferences.seed_problem.text() == "A seed is a whole number from 0 to 2^64 - 1. It can be empty."


def test_what_few_people_change_is_folded_until_it_is_searched(preferences: SettingsWindow) -> None:
    """Nine pages had 64 controls."""
    kinds = QAbstractButton, QAbstractItemView, QAbstractSpinBox, QComboBox, QLineEdit, QPlainTextEdit
    owned_by = QAbstractItemView, QAbstractSpinBox, QComboBox, QLineEdit

    def controls() -> list[QWidget]:
        shown = [each for each in preferences.tabs.currentWidget().findChildren(QWidget) if each.isVisible()]
        return [each for each in shown if isinstance(each, kinds) and not isinstance(each.parent(), owned_by)]

    pages = preferences.tabs
    count = 0
    for index in range(pages.count()):
        pages.setCurrentIndex(index)
        count += len(controls())
    assert pages.count() == 5
    assert 20 < count <= 35
    for name in PLACES:
        heads = [each for each in preferences.findChildren(SectionHead) if each.isChecked()]
        for head in heads:
            head.setChecked(False)
        preferences.show_page(name)
        unfolded = [each for each in controls() if isinstance(each, SectionHead) and each.isChecked()]
        is_page = name in {pages.tabText(index) for index in range(pages.count())}
        assert len(unfolded) == (not is_page), name
        assert len(controls()) > 3, name


def test_what_is_searched_is_in_view(qtbot: QtBot, preferences: SettingsWindow) -> None:
    preferences.resize(preferences.minimumSize())
    preferences.show_page("Chats")
    area = preferences.tabs.currentWidget()
    bar = area.verticalScrollBar()
    heads = area.findChildren(SectionHead)
    for head in heads:
        head.setChecked(True)
    qtbot.waitUntil(lambda: bar.maximum() > 2 * area.height())
    for name in ("Notes", "Sampling", "Presets and Prompts"):
        preferences.show_page(name)
        seen = [each for each in heads if 0 <= each.mapTo(area, QPoint()).y() < area.height() - each.height()]
        assert QApplication.focusWidget() in seen


def test_sampling_can_be_restored(chat: Chat, preferences: SettingsWindow) -> None:
    preferences.form.fields["temperature"].setValue(3)
    preferences.use_sampling.click()
    assert chat.settings.values.sampling == SamplingParams()
    assert preferences.form.fields["temperature"].value() == SamplingParams().temperature


def test_a_precision_that_is_chosen_loads_the_model_again(chat: Chat, preferences: SettingsWindow) -> None:
    chat.load("/models/big")
    preferences.dtype.setCurrentIndex(preferences.dtype.findData(Dtype.EIGHT_BIT))
    chat.wait_for(EngineState.IDLE)
    assert chat.engine.loads[-1] == ("/models/big", Dtype.EIGHT_BIT)
    assert preferences.dtype.currentData() == Dtype.EIGHT_BIT


def test_folders_are_shown_even_before_they_exist(opened: list[str]) -> None:
    show_folder(paths.log_path())
    assert opened == [paths.log_path().parent.as_uri()]
    assert paths.log_path().parent.is_dir()


def test_earlier_replies_can_be_cleared_and_switched_off(chat: Chat, preferences: SettingsWindow) -> None:
    settings = chat.settings
    earlier = chat.controller.earlier
    assert preferences.earlier.isChecked()
    assert (preferences.earlier_size.text(), preferences.clear_earlier.isEnabled()) == ("Nothing is kept.", False)
    conversation = chat.store.create_conversation()
    reply = chat.store.add_message(conversation.id, None, Role.ASSISTANT, "Hi.")
    chat.store.reply_tokens.save_tokens(reply.id, "tokenizer", [1] * 3000)
    earlier.changed.emit()
    assert (preferences.earlier_size.text(), preferences.clear_earlier.isEnabled()) == ("12 KB on disk", True)
    preferences.clear_earlier.click()
    chat.qtbot.waitUntil(lambda: preferences.earlier_size.text() == "Nothing is kept.")
    assert not preferences.clear_earlier.isEnabled()
    preferences.earlier.click()
    assert not settings.values.earlier_replies


def test_only_values_that_the_person_chooses_are_kept_over_the_models(chat: Chat, preferences: SettingsWindow) -> None:
    chat.engine.sampling = SamplingDefaults(SamplingParams(temperature=0.6), frozenset({"temperature"}))
    chat.start()
    assert preferences.form.marks["temperature"].text() == "From the model"
    preferences.form.fields["top_k"].setValue(7)
    settings = chat.settings.values
    assert settings.chosen_sampling == {"top_k": 7}
    preferences.form.fields["temperature"].setValue(0.7)
    settings = chat.settings.values
    assert settings.chosen_sampling == {"top_k": 7, "temperature": 0.7}
    assert preferences.form.marks["temperature"].text() == ""


def test_caches_on_disk_are_limited_cleared_and_switched_off(
    qtbot: QtBot, preferences: SettingsWindow, chat: Chat
) -> None:
    chat.say("Hello")
    preferences.show_page("Memory and Disk")
    kept = chat.controller.disk_caches
    folder = chat.engine.last_request.keep
    (folder.path / "model").mkdir()
    (folder.path / "model" / "0-128-x.rows").write_bytes(b"1" * 5_000_000)
    kept.tidy()
    qtbot.waitUntil(lambda: preferences.disk_cache_size.text() == "5 MB now")
    preferences.disk_cache_limit.setFocus()
    preferences.disk_cache_limit.selectAll()
    qtbot.keyClicks(preferences.disk_cache_limit, "25\r")
    assert chat.settings.values.kept_caches_gb == 25
    click_on(preferences.clear_disk_caches)
    qtbot.waitUntil(lambda: preferences.disk_cache_size.text() == "None now")
    assert not folder.path.exists()
    assert not preferences.clear_disk_caches.isEnabled()
    press_key(preferences.keep_caches, "Space")
    assert not chat.settings.values.keep_caches
