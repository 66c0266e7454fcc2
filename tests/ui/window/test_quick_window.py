"""A question over other programs, and what becomes of it."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QUrl
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QApplication, QMessageBox
from pytestqt.qtbot import QtBot

from rdchat import mac_desktop
from rdchat.chat.conversation import MessageStatus
from rdchat.errors import ModelError
from rdchat.inference.api import FinishReason, Role
from rdchat.services.app.start_request import StartRequest
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.files.chips import ImageTile
from rdchat.ui.files.image_window import ImageWindow
from rdchat.ui.transcript.message_kinds import ReplyMessage
from rdchat.ui.window import quick_window
from rdchat.ui.window.main_window import MainWindow
from rdchat.ui.window.quick_window import QuickWindow
from tests.inference.vision.pictures import encoded, photo, stored
from tests.services.fakes import Reply
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on, press_key


@pytest.fixture
def quick(qtbot: QtBot, window: MainWindow) -> QuickWindow:
    window.commands.carry_out(StartRequest(quick=True))
    quick = window.windows.quick
    qtbot.waitUntil(quick.isActiveWindow)
    return quick


def ask(qtbot: QtBot, quick: QuickWindow, text: str) -> None:
    qtbot.keyClicks(quick.composer.field, text)
    press_key(quick.composer.field, "Return")


def ended(qtbot: QtBot, chat: Chat) -> None:
    qtbot.waitUntil(lambda: not chat.controller.quick.busy and chat.controller.replies.state is EngineState.IDLE)


def texts(chat: Chat) -> list[str]:
    return [message.text for message in chat.controller.quick.path]


def shown(quick: QuickWindow) -> list[str]:
    """Return what the replies show: their texts, or what they wait for or ended with."""
    replies = [each for each in quick.transcript.widgets.values() if isinstance(each, ReplyMessage)]
    return [each._status.text() or each.body.toPlainText() for each in replies]


def test_questions_are_asked_and_nothing_is_stored(qtbot: QtBot, chat: Chat, quick: QuickWindow) -> None:
    chat.start()
    chat.settings.change_values(system_prompt="Be brief.", seed=7)
    chat.engine.replies = [Reply(("Blue",)), Reply(("Red",))]
    ask(qtbot, quick, "Which colour?")
    ended(qtbot, chat)
    ask(qtbot, quick, "And in the evening?")
    ended(qtbot, chat)
    assert texts(chat) == ["Which colour?", "Blue", "And in the evening?", "Red"]
    qtbot.waitUntil(lambda: shown(quick) == ["Blue", "Red"])
    request = chat.engine.requests[-1]
    assert [each.content for each in request.messages] == ["Be brief.", *texts(chat)[:-1]]
    assert [each.role for each in request.messages] == [Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.USER]
    assert chat.store.conversations() == []
    assert chat.store.rows("SELECT count(*) FROM messages")[0][0] == 0
    assert not chat.controller.recorder.held
    press_key(quick, "Esc")
    assert not quick.isVisible()
    quick.open_here()
    qtbot.waitUntil(quick.isActiveWindow)
    assert len(texts(chat)) == 4
    press_key(quick.composer.field, "Ctrl+N")
    assert texts(chat) == []
    assert quick.transcript.isHidden()
    assert chat.open.id is None


def test_an_exchange_goes_on_as_a_chat_while_it_is_written(
    qtbot: QtBot, chat: Chat, window: MainWindow, quick: QuickWindow
) -> None:
    chat.start()
    ask(qtbot, quick, "Which colour?")
    ended(qtbot, chat)
    before = chat.controller.quick.path[-1]
    chat.engine.gate.shut()
    ask(qtbot, quick, "And then?")
    chat.engine.gate.allow(4)
    qtbot.waitUntil(lambda: texts(chat)[-1] == "Hello,")
    press_key(quick.composer.field, "Ctrl+Return")
    assert (quick.isVisible(), texts(chat)) == (False, [])
    qtbot.waitUntil(window.isActiveWindow)
    path = chat.open.path
    assert [message.text for message in path] == ["Which colour?", "Hello, you!", "And then?", "Hello,"]
    assert chat.writing
    assert replace(path[1], id=before.id, conversation_id=0, parent_id=None, created_at=None) == before
    chat.engine.gate.open()
    chat.wait_for_reply()
    assert [m.text for m in chat.store.messages(path[0].conversation_id)][-1] == "Hello, you!"
    assert chat.open.conversation.title == "Which colour?"
    assert window.conversation.transcript.widgets.keys() == set(path.ids)


def test_a_question_waits_for_another_chats_reply(qtbot: QtBot, chat: Chat, quick: QuickWindow) -> None:
    chat.start()
    chat.hold_reply("A long story")
    ask(qtbot, quick, "And a short one?")
    assert shown(quick) == ["Sent when the current reply is finished"]
    assert len(chat.controller.replies.live) == 1
    ask(qtbot, quick, "Another")
    assert quick.composer.text == "Another"
    assert quick.composer.note.text() == "Wait until this reply is finished, or stop it."
    chat.engine.gate.open()
    ended(qtbot, chat)
    assert texts(chat) == ["And a short one?", "Hello, you!"]
    assert chat.open.path[-1].text == "Hello, you!"


def test_a_question_that_waits_can_be_stopped_or_wait_in_a_chat(qtbot: QtBot, chat: Chat, quick: QuickWindow) -> None:
    chat.start()
    chat.hold_reply("A long story")
    ask(qtbot, quick, "First")
    quick.composer.button.click()
    assert shown(quick) == ["Stopped."]
    qtbot.keyClicks(quick.composer.field, "Second")
    press_key(quick.composer.field, "Ctrl+Return")
    assert [each.text for each in chat.open.path if each.role is Role.USER] == ["First"]
    chat.engine.gate.open()
    qtbot.waitUntil(lambda: len(chat.open.path) == 4 and not chat.writing)
    assert [each.text for each in chat.open.path] == ["First", "", "Second", "Hello, you!"]


def test_a_chats_message_waits_for_the_quick_reply_and_stop_ends_it(
    qtbot: QtBot, chat: Chat, quick: QuickWindow
) -> None:
    chat.start()
    chat.engine.gate.shut()
    ask(qtbot, quick, "Quick")
    chat.engine.gate.allow(3)
    qtbot.waitUntil(lambda: texts(chat)[-1] == "Hello")
    chat.controller.send("Slow")
    assert len(chat.open.unsent.waiting) == 1
    press_key(quick.composer.field, "Ctrl+.")
    ended_as = lambda: chat.controller.quick.path[-1].finish_reason  # noqa: E731
    qtbot.waitUntil(lambda: ended_as() is FinishReason.CANCELLED)
    assert shown(quick) == ["Stopped."]
    chat.engine.gate.open()
    qtbot.waitUntil(lambda: bool(chat.open.path) and not chat.writing)
    assert chat.open.path[-1].text == "Hello, you!"


def test_a_question_without_a_model_loads_one_or_says_why_not(qtbot: QtBot, chat: Chat, quick: QuickWindow) -> None:
    chat.engine.load_errors[None] = ModelError("It is damaged.", "Load another.")
    chat.controller.open_last_chat()
    chat.wait_for(EngineState.NO_MODEL)
    chat.engine.load_gate.shut()
    ask(qtbot, quick, "Hello?")
    assert shown(quick)[0].startswith("Getting ready…")
    chat.engine.load_gate.open()
    qtbot.waitUntil(lambda: not chat.controller.quick.busy)
    assert chat.controller.quick.path[-1].status is MessageStatus.FAILED
    assert shown(quick) == ["It is damaged. Load another."]
    chat.engine.load_errors.clear()
    ask(qtbot, quick, "Now?")
    ended(qtbot, chat)
    assert texts(chat)[-1] == "Hello, you!"


def test_the_clipboard_is_inserted_when_its_button_is_pressed(qtbot: QtBot, quick: QuickWindow) -> None:
    QGuiApplication.clipboard().setText("word " * 1000)
    quick.open_here()  # it has the keyboard: this hides it
    quick.open_here()
    assert quick.composer.text == ""
    click_on(quick.composer.attach)
    assert quick.composer.text == "word " * 1000, "a long text stays text here"


def test_the_first_key_wakes_the_model(chat: Chat, quick: QuickWindow) -> None:
    chat.start()
    chat.client._fall_asleep()
    if not chat.client.asleep:
        chat.client._set_asleep(True)
    press_key(quick.composer.field, "H")
    assert not chat.client.asleep


def test_on_a_mac_it_is_shown_without_the_app_and_by_qt_where_that_fails(
    window: MainWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    views: list[int] = []

    def show_over_programs(view: int, show: Callable[[], object]) -> bool:
        views.append(view)
        if able:
            show()
        return able

    monkeypatch.setattr(mac_desktop, "show_over_programs", show_over_programs)
    raised: list[object] = []
    monkeypatch.setattr(quick_window, "show_in_front", raised.append)
    quick = window.windows.quick
    able = True
    quick.open_here()
    assert (views, raised, quick.isVisible()) == ([int(quick.winId())], [], True)
    quick.close()
    able = False
    quick.open_here()
    assert raised == [quick]


def paste(quick: QuickWindow, data: QMimeData) -> None:
    QGuiApplication.clipboard().setMimeData(data)
    quick.composer.attach.click()


def wait_for_image(qtbot: QtBot, chat: Chat) -> None:
    files = chat.controller.quick.files
    qtbot.waitUntil(lambda: bool(files.images) and files.tokens is not None)


def test_a_pasted_image_is_asked_about_and_becomes_part_of_the_chat(
    qtbot: QtBot, chat: Chat, quick: QuickWindow, tmp_path: Path
) -> None:
    chat.start()
    image = photo(37, 23)
    other = stored(tmp_path, photo(20, 10))
    data = QMimeData()
    data.setData("image/png", encoded(image, "PNG"))
    paste(quick, data)
    wait_for_image(qtbot, chat)
    press_key(quick.composer.field, "Return")
    ended(qtbot, chat)
    (seen,) = chat.engine.requests[-1].messages[0].images
    assert (seen.width, seen.path.read_bytes()) == (37, encoded(image, "PNG"))
    assert chat.store.rows("SELECT count(*) FROM file_images")[0][0] == 0
    (tile,) = quick.transcript.findChildren(ImageTile)
    tile.click()
    viewer = next(each for each in quick.findChildren(ImageWindow) if each.isVisible())
    qtbot.waitUntil(lambda: not viewer.view.image.isNull())
    viewer.close()
    files = QMimeData()
    files.setUrls([QUrl.fromLocalFile(str(other))])
    paste(quick, files)
    wait_for_image(qtbot, chat)
    press_key(quick.composer.field, "Return")
    ended(qtbot, chat)
    quick._open_as_chat()
    assert [file.width for message in chat.open.path for file in message.files] == [37, 20]
    assert chat.store.rows("SELECT count(*) FROM file_images")[0][0] == 2
    assert chat.open.conversation.title == "Image.png"


def test_a_file_that_is_no_image_is_for_a_chat(chat: Chat, quick: QuickWindow, tmp_path: Path) -> None:
    chat.start()
    (tmp_path / "notes.txt").write_text("notes")
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(tmp_path / "notes.txt"))])
    paste(quick, data)
    assert quick.composer.note.text().startswith("Only images can be attached here.")


def test_an_image_goes_to_a_server_only_after_a_question(qtbot: QtBot, chat: Chat, quick: QuickWindow) -> None:
    chat.start()
    slot = chat.slot
    slot.info = replace(slot.info, server="Studio", device="http://192.0.2.1:8080")
    with qtbot.waitSignal(chat.controller.replies.sending_asked):
        quick.images.add_image(lambda: encoded(photo(), "PNG"))
        wait_for_image(qtbot, chat)
        ask(qtbot, quick, "What is it?")
    (box,) = (each for each in QApplication.topLevelWidgets() if isinstance(each, QMessageBox) and each.isVisible())
    assert "1 message and 1 image." in box.informativeText()
    box.reject()
