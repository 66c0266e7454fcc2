"""Addresses, files and starts that other programs hand over."""

from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat import app, cli
from rdchat.services.app.start_request import MAX_CHARACTERS, StartRequest
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.window.main_window import MainWindow
from tests.chat.attachments.documents import docx, pdf
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key, shown_child


def test_an_address_adds_its_text_to_what_is_typed_and_sends_nothing(chat: Chat, window: MainWindow) -> None:
    chat.start()
    field = window.conversation.composer.field
    window.hide()
    window.commands.open_file("rdchat://ask?text=What%20is%20%3Cb%3E?")
    assert window.isVisible()
    assert field.toPlainText() == "What is <b>?"
    window.commands.open_file("rdchat://ask?text=And%0Athat%00?")
    assert field.toPlainText() == "What is <b>?\n\nAnd\nthat?"
    assert not chat.path
    field.undo()
    assert field.toPlainText() == "What is <b>?"
    field.setFocus()
    press_key(field, "Return")
    assert chat.path[0].text == "What is <b>?"


def test_links_that_are_opened_again_and_again_fill_no_field(chat: Chat, window: MainWindow) -> None:
    chat.start()
    composer = window.conversation.composer
    for _ in range(3):
        window.commands.open_file(f"rdchat://ask?text={'a' * (MAX_CHARACTERS - 1)}")
    assert len(composer.text) == 2 * MAX_CHARACTERS
    assert composer.note.text() == "The text of the link was left out, since the message is long."


def test_another_address_is_named_as_one_that_is_not_opened(window: MainWindow) -> None:
    window.commands.open_file("rdchat://delete?all=1")
    banner = shown_child(window, Banner)
    assert banner.accessibleName() == "rdchat cannot open this address. It opens rdchat://ask?text=, with a text."


def test_files_are_attached_and_a_model_is_loaded(qtbot: QtBot, chat: Chat, window: MainWindow, tmp_path: Path) -> None:
    """A drop on the Dock's icon comes as one event for each file."""
    chat.start()
    (tmp_path / "a.txt").write_text("apples")
    (tmp_path / "b.pdf").write_bytes(pdf(["pears"]))
    (tmp_path / "c.docx").write_bytes(docx("<w:p><w:r><w:t>plums</w:t></w:r></w:p>"))
    (tmp_path / "model").mkdir()
    for name in ("a.txt", "b.pdf", "c.docx", "model"):
        window.commands.open_file(str(tmp_path / name))
    files = chat.open.files
    qtbot.waitUntil(lambda: [file.name for file in files.files if file.read] == ["a.txt", "b.pdf", "c.docx"])
    qtbot.waitUntil(lambda: chat.controller.model_slot.chosen == str(tmp_path / "model"))
    assert not chat.path


@pytest.mark.parametrize(
    ("arguments", "request_"),
    [
        ([], StartRequest()),
        (["--quick"], StartRequest(quick=True)),
        (["rdchat://ask?text=Hi"], StartRequest(text="Hi")),
        (["RDCHAT://ask?text=Hi"], StartRequest(text="Hi")),
        (["a.txt", "b c.txt"], StartRequest(files=("{}/a.txt", "{}/b c.txt"))),
    ],
)
def test_the_command_line_hands_files_and_addresses_to_the_window(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, arguments: list[str], request_: StartRequest
) -> None:
    taken: list[StartRequest] = []
    monkeypatch.setattr(app, "main", lambda request: taken.append(request) or 0)
    monkeypatch.chdir(tmp_path)
    for name in ("a.txt", "b c.txt", "ask"):
        Path(name).touch()
    assert cli.main(arguments) == 0
    files = tuple(each.format(Path.cwd()) for each in request_.files)
    assert taken == [replace(request_, files=files)]


def test_the_command_line_refuses_other_addresses_and_files_that_are_not_there(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["rdchat://send?text=Hi"]) == 2
    assert "rdchat cannot open this address. It opens rdchat://ask?text=" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        cli.main(["missing.txt"])
