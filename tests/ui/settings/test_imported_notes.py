"""Notes from an import in the list of notes: they are not used until they are kept."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import NEW_CHAT
from rdchat.ui.conversation.project_views import ProjectSheet
from rdchat.ui.settings.note_list import NoteList
from rdchat.ui.settings.settings_pages import NotesPage
from rdchat.ui.style import Theme
from rdchat.ui.window.main_window import MainWindow
from tests.chat.transfer.samples import ours
from tests.chat.transfer.tasks import import_into
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import press_key

ENTRY = {
    "title": "Work", "folder": ["Work"], "project": True, "system_prompt": "Rhyme.", "messages": [],
    "notes": [{"text": "They use tabs"}, {"text": "Ann leads"}],
}  # fmt: skip


def texts(notes: NoteList) -> list[str]:
    return [notes.list.item(index).text() for index in range(notes.list.count())]


@pytest.mark.parametrize("where", ["sheet", "settings"])
def test_a_note_from_an_import_counts_once_it_is_kept(
    qtbot: QtBot, theme: Theme, window: MainWindow, chat: Chat, tmp_path: Path, where: str
) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(ours(ENTRY)))
    assert len(import_into(chat.store, [path]).notes) == 2
    (folder,) = chat.store.organiser.folders()
    chat.controller.chats.update_list()
    chat.start()
    if where == "sheet":
        sheet = ProjectSheet(folder, chat.controller, list, theme, window)
        sheet.open()
        notes = sheet.notes
    else:
        page = NotesPage(theme, chat.controller)
        qtbot.addWidget(page)
        notes = page.notes
    told = "\nFrom an import, not used, for the project “Work”"
    assert texts(notes) == [f"Ann leads{told}", f"They use tabs{told}"]
    inside = replace(NEW_CHAT, id=1, folder_id=folder.id)
    assert chat.controller.replies.notes(inside) == []
    press_key(notes.keep, "Space")
    assert [note.text for note in chat.controller.replies.notes(inside)] == ["Ann leads"]
    assert texts(notes)[0].startswith("Ann leads (perhaps from an import)\nFor the project “Work”, kept ")
    assert not notes.keep.isEnabled()
    notes.list.setCurrentRow(1)
    assert notes.keep.isEnabled()
