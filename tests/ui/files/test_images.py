"""Images are pasted and dropped, shown small and large, copied and saved, and sent without words."""

import io
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from PIL import Image
from PySide6.QtCore import QMimeData, QPoint, QPointF, QSize, Qt, QUrl
from PySide6.QtGui import QGuiApplication, QImage, QNativeGestureEvent, QPointingDevice
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from rdchat import host, mac_desktop
from rdchat.chat.attachments.attached_file import FileKind, Part, ReadFile, attached
from rdchat.services.chat import chat_prompt
from rdchat.services.files.pending_files import PendingFile
from rdchat.ui.conversation.alternatives_window import AlternativesWindow
from rdchat.ui.files.attaching import PendingRow, chip_text
from rdchat.ui.files.chips import ImageTile
from rdchat.ui.files.file_drops import has_image, image_in
from rdchat.ui.files.image_window import ImageWindow
from rdchat.ui.style import DEFAULT_TEXT, ElidedLabel
from rdchat.ui.transcript.message_kinds import PersonMessage
from rdchat.ui.transcript.message_parts import MessageEditor
from rdchat.ui.window.main_window import MainWindow
from tests.inference.vision.seeing_models import seeing_folder
from tests.services import fakes
from tests.ui.conftest import Chat
from tests.ui.files.conftest import chip_names, chips, wait_for_chips
from tests.ui.shown_widgets import activate, choose_files, drop, press_key, shown_child, turn_wheel

ADDRESS = QUrl("https://example.com/cat.png")
TURNED = 6  # a quarter, as a phone that is held upright


def png(size: tuple[int, int] = (300, 200), color: str = "teal") -> bytes:
    with io.BytesIO() as buffer:
        Image.new("RGB", size, color).save(buffer, "PNG")
        return buffer.getvalue()


def photo(path: Path) -> Path:
    """A photo whose EXIF turns it, and names its maker."""
    exif = Image.Exif()
    exif[0x0112], exif[0x010F] = TURNED, "A maker"
    Image.new("RGB", (120, 80), "olive").save(path, exif=exif)
    return path


def mime(data: bytes = b"", text: str = "", *urls: QUrl) -> QMimeData:
    made = QMimeData()
    if urls:
        made.setUrls(list(urls))
    if text:
        made.setText(text)
    if data:
        made.setData("image/png", data)
    return made


def tiles(window: MainWindow) -> list[ImageTile]:
    return window.conversation.transcript.findChildren(ImageTile)


def viewer(window: MainWindow) -> ImageWindow:
    return next(each for each in window.findChildren(ImageWindow) if each.isVisible())


@pytest.fixture
def sent(qtbot: QtBot, window: MainWindow, chat: Chat, tmp_path: Path) -> Iterator[MainWindow]:
    """A chat with two images that were sent without words."""
    chat.start()
    (tmp_path / "wide.png").write_bytes(png((600, 200)))
    window.conversation.files.attach_files([str(photo(tmp_path / "photo.jpg")), str(tmp_path / "wide.png")])
    wait_for_chips(qtbot, window, 2)
    press_key(window.conversation.composer.field, "Return")
    qtbot.waitUntil(lambda: len(tiles(window)) == 2 and not chat.writing)
    yield window
    for each in window.findChildren(ImageWindow):
        each.close()


@pytest.mark.parametrize(
    ("data", "is_image"),
    [
        (mime(png()), True),
        (mime(png(), "", ADDRESS), True),
        (mime(png(), ADDRESS.toString(), ADDRESS), True),
        (mime(png(), "A cat"), False),
        (mime(b"", ADDRESS.toString(), ADDRESS), False),
        (mime(b"", "A cat"), False),
    ],
)
def test_words_beside_an_image_win_and_its_address_does_not(data: QMimeData, is_image: bool) -> None:
    assert has_image(data) == is_image
    assert not is_image or image_in(data, is_dragged=False)() == png()


SVG = b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>'
TIFF = b"II*\0 as another program wrote it"


@pytest.mark.parametrize(
    ("kind", "content"),
    [
        ("image/svg+xml", SVG),
        ("image/svg", SVG),
        ("image/tiff", TIFF),
        ("image/of-tomorrow", b"any"),
        ("application/x-qt-image", SVG),
    ],
)
def test_no_image_of_another_program_is_decoded_in_the_window(
    kind: str, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On X11, Qt says that it has an image for each format that it reads, and would decode it here."""
    data = QMimeData()
    data.setData(kind, content)
    monkeypatch.setattr(QMimeData, "imageData", lambda _data: pytest.fail("Qt decodes it"))
    assert has_image(data)
    assert image_in(data, is_dragged=False)() == content


def test_an_image_of_qt_is_encoded_when_it_is_read_and_not_when_it_is_pasted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = QMimeData()
    image = QImage(3, 2, QImage.Format.Format_RGB32)
    data.setImageData(image)
    with monkeypatch.context() as patch:
        patch.setattr(QImage, "save", lambda *_call: pytest.fail("it is encoded at once"))
        read = image_in(data, is_dragged=False)
    assert read().startswith(b"\x89PNG")


def test_a_picture_of_svg_alone_is_refused_in_words(window: MainWindow, chat: Chat) -> None:
    chat.start()
    data = QMimeData()
    data.setData("image/svg+xml", SVG)
    QGuiApplication.clipboard().setMimeData(data)
    window.conversation.composer.field.paste()
    note = window.conversation.composer.note
    chat.qtbot.waitUntil(lambda: "Open it in another app and save it as PNG or JPEG." in note.text())
    assert not chips(window)


def test_a_drop_of_a_promised_file_alone_says_what_to_do(
    window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As from Photos and Mail."""
    chat.start()
    monkeypatch.setattr(mac_desktop, "is_file_promised", lambda: True)
    assert drop(window, QMimeData())
    note = window.conversation.composer.note
    chat.qtbot.waitUntil(lambda: note.text().endswith("Save it and drop the file, or copy and paste it."))
    assert not chips(window)


def test_an_image_is_pasted_dropped_and_removed(window: MainWindow, chat: Chat) -> None:
    chat.start()
    composer = window.conversation.composer
    QGuiApplication.clipboard().setMimeData(mime(png()))
    composer.field.paste()
    assert drop(window, mime(png((40, 30)), ADDRESS.toString(), ADDRESS))
    wait_for_chips(chat.qtbot, window, 2)
    assert chip_names(window)[0].startswith("Image, ")
    assert composer.text == ""
    assert composer.button.isEnabled(), "an image needs no words"
    remove = chips(window)[0].remove
    assert remove.accessibleName() == "Remove Image"
    for chip in chips(window):
        chip.remove.click()
    assert not composer.button.isEnabled()


def test_sent_images_stand_in_a_row_with_names_and_are_drawn(qtbot: QtBot, sent: MainWindow) -> None:
    first, second = tiles(sent)
    assert first.accessibleName() == "Image photo.jpg, 80 × 120 pixels"  # noqa: RUF001
    assert first.sizeHint().height() > first.sizeHint().width(), "its EXIF turns it"
    assert first.y() + first.height() == second.y() + second.height()
    assert first.geometry().right() < second.geometry().left()
    (message,) = sent.conversation.transcript.findChildren(PersonMessage)
    assert not message.body.isVisible(), "there are no words"
    color = lambda: second.grab().toImage().pixelColor(second.rect().center()).name()  # noqa: E731
    qtbot.waitUntil(lambda: color() == "#008080")


def test_the_viewer_goes_through_the_images_of_a_chat_and_copies_them_turned_without_metadata(
    qtbot: QtBot, sent: MainWindow, tmp_path: Path
) -> None:
    tiles(sent)[0].click()
    window = viewer(sent)
    qtbot.waitUntil(lambda: window.detail.text().startswith("1 of 2") and not window.view.image.isNull())
    assert window.view.accessibleName() == "Image photo.jpg, 80 × 120 pixels"  # noqa: RUF001
    assert not window.previous.isEnabled()
    activate(window)
    press_key(window.view, "Right")
    assert window.windowTitle() == "wide.png"
    press_key(window.view, "Right")
    assert window.detail.text().startswith("2 of 2")
    press_key(window.view, "Left")
    assert window.windowTitle() == "photo.jpg"
    press_key(window.view, "Ctrl+C")
    qtbot.waitUntil(lambda: window.detail.text() == "Copied")
    assert QGuiApplication.clipboard().image().size().toTuple() == (80, 120)
    press_key(window.view, "Ctrl+S")
    choose_files(window, tmp_path / "saved.png")
    qtbot.waitUntil(lambda: window.detail.text() == "Saved as saved.png")
    with Image.open(tmp_path / "saved.png") as saved:
        assert saved.size == (80, 120)
        assert not saved.getexif()
        assert not saved.info
    press_key(window.view, "Esc")
    assert not window.isVisible()


def test_an_image_is_zoomed_by_keys_wheel_pinch_and_double_click_and_moved(
    qtbot: QtBot, window: MainWindow, chat: Chat, tmp_path: Path
) -> None:
    chat.start()
    size = QSize(3000, 2000)
    (tmp_path / "large.png").write_bytes(png(size.toTuple()))
    window.conversation.files.attach_files([str(tmp_path / "large.png")])
    wait_for_chips(qtbot, window, 1)
    chips(window)[0].click()
    opened = viewer(window)
    activate(opened)
    view = opened.view
    zoom = lambda: view.transform().m11()  # noqa: E731
    qtbot.waitUntil(lambda: not view.image.isNull())
    assert view.image.width() < size.width(), "no more pixels than the screen has are read at first"
    fitting = zoom()
    assert view.mapFromScene(view.sceneRect()).boundingRect().width() <= view.viewport().width() + 1
    press_key(view, "Ctrl++")
    assert zoom() == pytest.approx(fitting * 1.25)
    press_key(view, "Ctrl+-")
    press_key(view, "Ctrl+-")
    assert zoom() == pytest.approx(fitting / 1.25)
    press_key(view, "Ctrl+0")
    assert zoom() == fitting
    qtbot.mouseDClick(view.viewport(), Qt.MouseButton.LeftButton)
    assert zoom() == 1
    qtbot.waitUntil(lambda: view.image.size() == size)
    assert zoom() == 1, "it stays as large when all of its pixels are there"
    before = view.mapToScene(0, 0)
    middle = view.viewport().rect().center()
    qtbot.mousePress(view.viewport(), Qt.MouseButton.LeftButton, pos=middle)
    qtbot.mouseMove(view.viewport(), middle - QPoint(30, 20))
    qtbot.mouseRelease(view.viewport(), Qt.MouseButton.LeftButton, pos=middle - QPoint(30, 20))
    assert view.mapToScene(0, 0) - before == QPointF(30, 20)
    where = QPointF(middle)
    turn_wheel(view.viewport(), QPoint(0, 120), where, Qt.KeyboardModifier.ControlModifier)
    assert zoom() == 1.25
    pinch = QNativeGestureEvent(
        Qt.NativeGestureType.ZoomNativeGesture, QPointingDevice(), 2, where, where, where, -0.2, QPointF()
    )
    QGuiApplication.sendEvent(view.viewport(), pinch)
    assert zoom() == 1
    for _ in range(30):
        press_key(view, "Ctrl++")
    assert zoom() == 16
    assert chat.settings.values.text_size == DEFAULT_TEXT, "the menus' keys are kept from them"
    opened.close()


def test_the_viewer_says_the_size_at_which_the_model_sees(
    qtbot: QtBot, sent: MainWindow, chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = seeing_folder(tmp_path / "model", "qwen3_vl")
    monkeypatch.setattr(fakes, "MODEL", replace(fakes.MODEL, sees=True, path=folder))
    chat.slot.load_model(str(folder))
    qtbot.waitUntil(lambda: chat.slot.info is not None and chat.slot.info.sees)
    tiles(sent)[1].click()
    window = viewer(sent)
    qtbot.waitUntil(lambda: window.detail.text().endswith("The model sees 64 × 16"))  # noqa: RUF001
    assert "600 × 200 pixels" in window.detail.text()  # noqa: RUF001
    qtbot.waitUntil(window.previous.isEnabled)
    window.show_other(-1)
    qtbot.waitUntil(lambda: window.detail.text().endswith("The model sees 32 × 48"))  # noqa: RUF001


def test_the_images_that_are_too_many_are_marked_and_drawn_again_only_where_that_changes(
    qtbot: QtBot, sent: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chat_prompt, "MAX_IMAGES", 1)
    monkeypatch.setattr(fakes, "MODEL", replace(fakes.MODEL, sees=True))
    line = sent.conversation.sight
    chat.slot.load_model("sees")
    qtbot.waitUntil(lambda: line.isVisible() and [tile.left_out for tile in tiles(sent)] == [True, False])
    assert line.text.text() == "The oldest image of this chat is left out: the model gets the latest 100."
    assert not line.button.isVisible()
    assert "gets the latest 100" in tiles(sent)[0].accessibleDescription()
    assert "gets the latest 100" not in tiles(sent)[1].accessibleDescription()
    monkeypatch.setattr(chat_prompt, "MAX_IMAGES", 2)
    chat.controller.context.meter.count_soon()
    qtbot.waitUntil(lambda: not line.isVisible() and not any(tile.left_out for tile in tiles(sent)))
    drawn: list[ImageTile] = []
    monkeypatch.setattr(ImageTile, "update", lambda tile: drawn.append(tile))  # noqa: PLW0108  it gets a tile as a method
    sent.conversation.transcript.mark_left_out({})
    # Later a tile may be drawn because its picture has come.
    assert drawn == []


def editor_of(window: MainWindow) -> MessageEditor:
    (message,) = window.conversation.transcript.findChildren(PersonMessage)
    return message.edit()


def save(qtbot: QtBot, window: MainWindow, chat: Chat) -> None:
    """Save the edit, once its images were counted."""
    field, (files,) = editor_of(window).field, chat.open.edits.values()
    qtbot.waitUntil(lambda: files.tokens is not None)
    press_key(field, "Return")


def test_compared_messages_with_the_same_words_and_other_images_are_not_the_same(
    qtbot: QtBot, sent: MainWindow, chat: Chat
) -> None:
    (row,) = editor_of(sent).findChildren(PendingRow)
    first = row.row.chips[0].remove
    first.click()
    save(qtbot, sent, chat)
    qtbot.waitUntil(lambda: chat.path[0].siblings == 2 and not chat.writing)
    sent.windows.compare(chat.path[0].id)
    (window,) = sent.findChildren(AlternativesWindow)
    qtbot.waitUntil(lambda: window.note.text() == "Both messages have the same words")
    assert [pane.made.text() for pane in window.panes] == ["Yours · photo.jpg, wide.png", "Yours · wide.png"]
    window.close()


def test_a_message_grows_with_the_images_of_its_editor_which_cannot_be_saved_without_them(
    sent: MainWindow, chat: Chat
) -> None:
    """Its column kept the height of the editor before the chips had another line, and they covered the buttons."""
    editor = editor_of(sent)
    (message,) = sent.conversation.transcript.findChildren(PersonMessage)
    (row,) = editor.findChildren(PendingRow)
    for height in (90, 40, 120):
        message._column.activate()
        message._column.heightForWidth(message.width())
        row.setFixedHeight(height)
        row.height_changed.emit()
        assert message.height() == message.layout_for(message.width())
        assert editor.height() >= editor.sizeHint().height()
    for _ in range(2):
        assert editor._save.isEnabled()
        row.row.chips[0].remove.click()  # type: ignore[union-attr]
    assert not editor._save.isEnabled()
    press_key(editor.field, "Return")
    assert chat.path[0].siblings == 1


def test_a_waiting_message_without_words_is_named_by_its_images(sent: MainWindow, chat: Chat) -> None:
    chat.hold_reply("Hello")
    sent.conversation.files.add_image(png)
    wait_for_chips(chat.qtbot, sent, 1)
    chat.controller.send("")
    (line,) = (each for each in sent.conversation.waiting.findChildren(ElidedLabel) if each.text())
    assert line.text() == "Image.png"
    chat.finish_reply()


def test_a_mac_offers_a_screenshot_and_says_what_forbids_it(
    qtbot: QtBot, window: MainWindow, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    chat.start()
    monkeypatch.setattr(host, "MACOS", True)
    monkeypatch.setattr(mac_desktop, "_may_see_screen", lambda: False)
    choose(window, "Screenshot")
    note = window.conversation.composer.note
    qtbot.waitUntil(lambda: note.text().endswith("System Audio Recording, and open rdchat again."))

    def capture(command: list[str], file: Path, _timeout_s: float | None) -> bool:
        assert command == ["/usr/sbin/screencapture", "-i", str(file)]
        file.write_bytes(png())
        return True

    monkeypatch.setattr(mac_desktop, "_may_see_screen", lambda: True)
    monkeypatch.setattr(mac_desktop, "_writes", capture)
    choose(window, "Screenshot")
    wait_for_chips(qtbot, window, 1)
    assert not note.isVisible()
    monkeypatch.setattr(mac_desktop, "_writes", lambda *_call: False)
    choose(window, "Screenshot")
    qtbot.waitUntil(lambda: not window.conversation.files._screenshots.busy)
    assert len(chips(window)) == 1, "the person chose nothing"


def choose(window: MainWindow, entry: str) -> None:
    window.conversation.composer.attach.click()
    menu = shown_child(window, QMenu)
    next(each for each in menu.actions() if each.text() == entry).trigger()
    menu.close()


def test_an_image_has_no_count_of_characters_while_a_model_loads() -> None:
    """It said 167,728 characters: the letters of its bytes."""
    for kind, words in ((FileKind.IMAGE, "An image"), (FileKind.TEXT, "4 characters")):
        read = ReadFile("sky.png", kind, ("abcd",))
        file = PendingFile(1, None, "sky.png", read=read, part=Part("abcd"), file=attached(read, "abcd", ""))
        assert chip_text(file, None, too_long=False) == (words, "muted")
