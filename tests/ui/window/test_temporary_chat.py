"""The temporary chat in the window: it looks different, is left after one question, and leaves no word behind."""

import logging
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from PySide6.QtWidgets import QLabel, QMessageBox, QPlainTextEdit

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import is_temporary
from rdchat.services.window.chat_controller import NOT_KEPT
from rdchat.ui.conversation.temporary_bar import TemporaryBar
from rdchat.ui.window.main_window import MainWindow
from tests.listed_chats import listed
from tests.ui.conftest import Chat
from tests.ui.early_presses import no_time_passes, press_everything
from tests.ui.shown_widgets import answer_question, click_on
from tests.ui.window.message_menus import banners_of

WORDS = "xylophone of a secret"
IMAGE = b"\x89PNG\r\n\x1a\n\0" + bytes(range(256)) * 4


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Iterator[Path]:
    """A folder of temporary files that a test can look through; no word may be logged."""
    caplog.set_level(logging.DEBUG, "rdchat")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    yield folder
    assert WORDS not in caplog.text


def holders(folder: Path) -> list[Path]:
    """Return the files below a folder that have the words."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if WORDS.encode() in path.read_bytes()]


def begin(window: MainWindow, chat: Chat) -> None:
    """Begin a temporary chat, by its menu."""
    chat.start()
    window.actions_.new_temporary.trigger()
    assert chat.open.temporary


def question_of(window: MainWindow) -> QMessageBox | None:
    return next((box for box in window.findChildren(QMessageBox) if box.isVisible()), None)


def bar_of(window: MainWindow) -> TemporaryBar:
    (bar,) = window.findChildren(TemporaryBar)
    return bar


def test_it_looks_different_and_has_no_row(window: MainWindow, chat: Chat, tmp_path: Path) -> None:
    begin(window, chat)
    assert bar_of(window).isVisible()
    assert window.windowTitle() == "Temporary chat"
    chat.say(WORDS)
    assert chat.path[0].text == WORDS
    assert listed(chat.chats) == []
    assert not window.actions_.delete.isEnabled()
    assert not holders(tmp_path)
    window.actions_.find.trigger()
    find = window.conversation.find_bar
    find.field.setText("xylophone")
    chat.qtbot.waitUntil(lambda: find.isVisible() and find.count.text().startswith("Message 1 of"))


def test_it_says_why_it_has_no_branch(window: MainWindow, chat: Chat) -> None:
    begin(window, chat)
    chat.say(WORDS)
    with chat.qtbot.waitSignal(chat.controller.chat_notice_raised) as notice:
        chat.controller.branch(chat.path.ids[0])
    assert notice.args == [NOT_KEPT]
    assert banners_of(window) == [f"{NOT_KEPT.title} {NOT_KEPT.detail}"]
    bar_of(window).keep.click()
    assert not banners_of(window)


def test_an_empty_one_ends_without_a_question(window: MainWindow, chat: Chat, temporary: Path) -> None:
    begin(window, chat)
    assert [*temporary.iterdir()]
    # The caches of other chats stay.
    with chat.qtbot.assertNotEmitted(chat.open.discarded):
        window.actions_.new_chat.trigger()
    assert question_of(window) is None
    assert not chat.open.temporary
    assert not bar_of(window).isVisible()
    assert window.windowTitle() == "New chat"
    assert not [*temporary.iterdir()]


@pytest.mark.parametrize("leave", ["new_chat", "new_temporary"])
def test_it_is_left_after_one_question(window: MainWindow, chat: Chat, tmp_path: Path, leave: str) -> None:
    begin(window, chat)
    chat.say(WORDS)
    before = chat.open.id
    getattr(window.actions_, leave).trigger()
    answer_question(window, "Cancel")
    assert chat.open.id == before
    getattr(window.actions_, leave).trigger()
    with chat.qtbot.waitSignal(chat.open.discarded):
        answer_question(window, "Discard")
    assert chat.open.id != before
    assert not chat.path
    assert not holders(tmp_path)
    assert listed(chat.chats) == []


def test_a_row_is_opened_after_the_question(window: MainWindow, chat: Chat) -> None:
    chat.start("Another one")
    (row,) = listed(chat.chats)
    window.actions_.new_temporary.trigger()
    chat.say(WORDS)
    window.sidebar.row_actions.open_row(row.id)
    answer_question(window, "Cancel")
    assert chat.open.temporary
    assert window.sidebar.list.current_row is None
    window.sidebar.row_actions.open_row(row.id)
    answer_question(window, "Keep This Chat")
    assert chat.open.id == row.id
    assert {each.title for each in listed(chat.chats)} == {WORDS, "Another one"}


def test_it_becomes_a_chat(window: MainWindow, chat: Chat, temporary: Path) -> None:
    begin(window, chat)
    assert not bar_of(window).keep.isEnabled()
    chat.say(WORDS)
    assert chat.engine.requests[-1].keep is None, "its caches are on no disk"
    texts = [each.text for each in chat.path]
    window.conversation.composer.set_text("and what is typed")
    click_on(bar_of(window).keep)
    assert window.conversation.composer.field.hasFocus()
    assert (chat.open.temporary, is_temporary(chat.path.ids[-1])) == (False, False)
    assert [each.text for each in chat.path] == texts
    assert window.windowTitle() == WORDS
    assert window.conversation.composer.text == "and what is typed"
    assert not [*temporary.iterdir()]
    chat.say("And now?")
    assert chat.engine.requests[-1].keep is not None


def test_what_is_typed_is_asked_about_and_not_stored(window: MainWindow, chat: Chat, tmp_path: Path) -> None:
    begin(window, chat)
    window.conversation.composer.set_text(WORDS)
    chat.open.unsent.store()
    assert not holders(tmp_path)
    window.actions_.new_chat.trigger()
    answer_question(window, "Discard")
    chat.open.unsent.store()
    assert window.conversation.composer.text == ""
    assert not holders(tmp_path)


@pytest.mark.parametrize("cut", [lambda window: window.close(), lambda window: window.close_soon()])
def test_quitting_leaves_nothing(
    window: MainWindow, chat: Chat, tmp_path: Path, cut: Callable[[MainWindow], object]
) -> None:
    begin(window, chat)
    chat.say(WORDS)
    window.conversation.composer.set_text(WORDS)
    cut(window)
    if question_of(window) is not None:
        answer_question(window, "Discard")
    assert not window.isVisible()
    chat.controller.shut_down()
    chat.store.close()
    assert not holders(tmp_path)
    assert chat.settings.values.last_chat is None


def test_its_reply_ends_with_it_and_nothing_leads_back(window: MainWindow, chat: Chat, tmp_path: Path) -> None:
    begin(window, chat)
    chat.say(WORDS)
    chat.controller.delete_message(chat.path.ids[-1])
    assert chat.chats.order.history.last is not None
    assert banners_of(window) == ["Deleted the reply"]
    chat.hold_reply("And now?")
    window.actions_.new_chat.trigger()
    answer_question(window, "Discard")
    assert not chat.controller.recorder.held
    chat.finish_reply()
    assert not chat.chats.new_replies
    assert chat.chats.order.history.last is None
    assert not banners_of(window)
    chat.say("The next one")
    assert [each.title for each in listed(chat.chats)] == ["The next one"]
    assert not holders(tmp_path)


def test_its_reply_goes_on_in_the_chat_that_it_becomes(window: MainWindow, chat: Chat) -> None:
    begin(window, chat)
    chat.hold_reply(WORDS)
    assert "This reply" in [label.text().split(" · ")[0] for label in window.panel.findChildren(QLabel)]
    bar_of(window).keep.click()
    chat.finish_reply()
    assert not chat.open.temporary
    reply = chat.store.message(chat.path.ids[-1])
    assert (reply.text, reply.status) == (chat.path[-1].text, "complete")
    assert reply.text


def test_its_images_are_files_while_a_reply_reads_them(window: MainWindow, chat: Chat, temporary: Path) -> None:
    begin(window, chat)
    chat.open.files.restore_files([image_file(IMAGE, "a.png", width=8, height=8)])
    chat.qtbot.waitUntil(lambda: not chat.open.files.reason_to_wait())
    chat.hold_reply(WORDS)
    chat.qtbot.waitUntil(lambda: bool(chat.engine.requests))
    (image,) = chat.engine.last_request.messages[-1].images
    assert image.path.is_relative_to(temporary)
    assert image.path.read_bytes() == IMAGE
    chat.finish_reply()
    chat.qtbot.waitUntil(lambda: chat.controller.context.meter.current)
    # A file to draw the image from ends soon.
    chat.qtbot.waitUntil(lambda: [path.name for path in temporary.rglob("*") if path.is_file()] == ["chat.db.lock"])


def test_no_answer_to_the_question_counts_at_once(window: MainWindow, chat: Chat, tmp_path: Path) -> None:
    """A click 50 ms after the question stored the chat: its button came after the pause."""
    begin(window, chat)
    chat.say(WORDS)
    with no_time_passes():
        window.commands.new_chat()
        chat.qtbot.waitUntil(lambda: question_of(window) is not None)
        box = question_of(window)
        assert "Keep This Chat" in [button.text() for button in box.buttons()]
        press_everything(box)
    assert not holders(tmp_path)
    answer_question(window, "Discard")


def test_no_field_of_the_benchmark_has_a_word_of_it(window: MainWindow, chat: Chat) -> None:
    begin(window, chat)
    chat.say(WORDS)
    window.windows.open_benchmark("")
    race = window.windows.benchmark_window
    assert race.race_form.prompt.toPlainText() == WORDS
    race.race.plain.show_token(WORDS)
    window.commands.new_chat()
    answer_question(window, "Discard")
    assert [field.toPlainText() for field in race.findChildren(QPlainTextEdit) if WORDS in field.toPlainText()] == []
