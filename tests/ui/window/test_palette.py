"""The command palette: what it lists, in which order, and the keys and the mouse in it."""

from PySide6.QtCore import QPoint
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from rdchat.chat.presets import Preset
from rdchat.ui.style import SectionHead
from rdchat.ui.window.main_window import MainWindow
from rdchat.ui.window.palette import CommandPalette, PaletteEntry
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import activate, click_on, press_key


def _opened(window: MainWindow, words: str = "") -> CommandPalette:
    """Open the palette by its key, and type words there."""
    activate(window)
    focused = QApplication.focusWidget()
    press_key(focused, "Ctrl+K")
    assert window.palette_.field.hasFocus()
    QTest.keyClicks(window.palette_.field, words)
    return window.palette_


def _listed(palette: CommandPalette) -> list[str]:
    return [entry.text for entry in palette.listed]


def test_words_in_any_order_find_a_command_and_return_carries_it_out(chat: Chat, window: MainWindow) -> None:
    chat.start("Hello")
    palette = _opened(window, "chat ne")
    assert _listed(palette)[:1] == ["New Chat"]
    press_key(palette.field, "Return")
    assert not palette.isVisible()
    assert chat.open.id is None
    assert window.conversation.composer.field.hasFocus()


def test_training_is_found_and_opens_where_it_is(chat: Chat, window: MainWindow) -> None:
    """The word opened the list of models."""
    chat.start()
    palette = _opened(window, "train")
    assert _listed(palette)[:1] == ["Train a Drafter"]
    press_key(palette.field, "Return")
    chat.qtbot.waitUntil(window.windows.models.installed.training.isVisible)
    window.windows.end_background_work()


def test_what_was_used_last_comes_first_also_after_a_restart(chat: Chat, window: MainWindow) -> None:
    chat.start()
    palette = _opened(window, "time ledger")
    press_key(palette.field, "Return")
    window.windows.ledger.close()
    palette = _opened(window)
    assert _listed(palette)[:2] == ["Time Ledger", "New Chat"]
    assert chat.settings.values.palette_recent == ("do ledger",)


def test_settings_are_found_by_what_is_in_them(chat: Chat, window: MainWindow) -> None:
    chat.start()
    settings = window.settings_window
    for words, name, page in (
        ("dark", "General", "General"),
        ("hugging", "Downloads and Files", "General"),
        ("temperature", "Chats", "Chats"),
        ("seed", "Sampling", "Chats"),
        ("remember", "Notes", "Chats"),
        ("precision", "Models", "Models"),
        ("caches", "Memory and Disk", "Models"),
        ("mcp", "Tools", "Tools"),
        ("openai", "Serve", "Serve"),
        ("port", "Server Options", "Serve"),
    ):
        palette = _opened(window, words)
        assert [(entry.text, entry.detail) for entry in palette.listed[:1]] == [(f"Settings: {name}", "")]
        press_key(palette.field, "Return")
        assert settings.isVisible()
        assert settings.tabs.tabText(settings.tabs.currentIndex()) == page
        unfolded = [each.text() for each in settings.findChildren(SectionHead) if each.isChecked() and each.isVisible()]
        assert unfolded == [] if name == page else [{"Sampling": "More"}.get(name, name)]
        for each in settings.findChildren(SectionHead):
            each.setChecked(False)
        settings.close()
    chat.say("Hello")
    palette = _opened(window, "tree")
    assert _listed(palette)[:1] == ["Tokens and Drafts"]


def test_chats_and_what_is_not_listed_are_found(chat: Chat, window: MainWindow) -> None:
    for title in ("Crème brûlée", "Bread"):
        chat.store.create_conversation(title)
    chat.start()
    palette = _opened(window, "brulee")
    assert [(entry.text, entry.detail) for entry in palette.listed[:1]] == [("Crème brûlée", "Chat")]
    first = palette.list.visualItemRect(palette.list.topLevelItem(0))  # type: ignore[arg-type]
    click_on(palette.list.viewport(), first.center())
    assert window.windowTitle() == "Crème brûlée"
    palette = _opened(window, "flour")
    press_key(palette.field, "Return")
    assert window.sidebar.search.text() == "flour"
    assert window.sidebar.search.hasFocus()


def test_models_are_loaded_and_another_source_is_listed_too(chat: Chat, window: MainWindow) -> None:
    chat.start()
    chat.load("/models/other")
    used: list[str] = []
    window.palette_.sources.append(lambda: [PaletteEntry("thing 1", "Brief", "Thing", lambda: used.append("Brief"))])
    palette = _opened(window, "load model")
    assert ("model None", "Model") in [(entry.key, entry.detail) for entry in palette.listed]
    palette.field.clear()
    QTest.keyClicks(palette.field, "brief")
    press_key(palette.field, "Return")
    assert used == ["Brief"]
    chat.settings.change_values(presets=(Preset("Pirate", "7"),))
    palette = _opened(window, "preset pir")
    press_key(palette.field, "Return")
    assert chat.open.conversation.own.preset == "7"


def test_escape_and_a_click_beside_it_close_it_and_the_keyboard_goes_back(chat: Chat, window: MainWindow) -> None:
    chat.start("Hello")
    window.sidebar.list.setFocus()
    chat.hold_reply("Again")
    palette = _opened(window)
    press_key(palette.field, "Esc")
    assert not palette.isVisible()
    assert chat.writing, "Escape closed the palette, and stopped nothing"
    assert window.sidebar.list.hasFocus()
    palette = _opened(window)
    click_on(palette, QPoint(5, palette.height() + 5))
    assert not palette.isVisible()
    assert window.sidebar.list.hasFocus()


def test_the_keys_of_the_list_move_in_it_and_a_reader_hears_the_entry(chat: Chat, window: MainWindow) -> None:
    chat.start()
    palette = _opened(window)
    press_key(palette.field, "Down")
    press_key(palette.field, "Tab")
    assert palette.field.hasFocus()
    assert palette.list.currentIndex().row() == 1
    assert palette.field.accessibleDescription().startswith("New Temporary Chat, File")
    palette.open()
    window.resize(500, 420)
    palette = _opened(window)
    assert window.frameGeometry().contains(palette.frameGeometry())
