"""The pages of the server and of notes in Settings."""

import json
import re
import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from PySide6.QtGui import QGuiApplication
from PySide6.QtWidgets import QPlainTextEdit
from pytestqt.qtbot import QtBot

from rdchat.chat.conversation import NEW_CHAT
from rdchat.chat.notes import LONGEST_NOTE, Note
from rdchat.chat.projects import Project
from rdchat.errors import StorageError
from rdchat.inference.api import DEFAULT_PORT
from rdchat.server.server_settings import Phase, RequestFacts, ServerFacts
from rdchat.ui.settings.note_list import NoteSheet
from rdchat.ui.settings.settings_pages import AGENTS, NotesPage, ServerPage
from rdchat.ui.settings.settings_window import SettingsWindow
from rdchat.ui.style import Sheet, Theme
from tests.chat.transfer.samples import ours
from tests.chat.transfer.tasks import import_into
from tests.services.ports import any_port  # noqa: F401  a fixture of each test
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import accept, answer_question, choose_files, click_on, press_key, shown_child


@pytest.fixture
def page(qtbot: QtBot, theme: Theme, chat: Chat) -> ServerPage:
    chat.start()
    settings = SettingsWindow(chat.controller, theme)
    qtbot.addWidget(settings)
    settings.show_page("Serve")
    settings.show()
    return settings.server


def test_the_name_by_which_programs_call_the_model_can_be_copied(page: ServerPage, chat: Chat) -> None:
    slot = chat.slot
    page.copy_model.click()
    assert QGuiApplication.clipboard().text() == page.model.text() == slot.name
    slot.unload_model()
    assert page.model.text() == "No model is loaded."
    assert not page.copy_model.isEnabled()


def test_the_lines_for_an_agent_hide_the_key_until_they_are_copied(page: ServerPage, chat: Chat) -> None:
    agents = page.agents
    info = chat.slot.info
    assert not agents.lines.toPlainText()
    assert not agents.copy_lines.isEnabled()
    agents.show_values(url="http://127.0.0.1:8817", key="the-key", model=info.name, context="4096")
    for agent in AGENTS:
        agents.agent.setCurrentText(agent)
        shown = agents.lines.toPlainText()
        agents.copy_lines.click()
        copied = QGuiApplication.clipboard().text()
        assert "http://127.0.0.1:8817" in shown, agent
        assert info.name in shown
        assert "the-key" not in shown
        assert copied == shown.replace("\N{BULLET}" * 16, "the-key")
        assert not re.search(r"\{\w+\}", copied)


def test_the_lines_for_agents_with_settings_files_are_valid() -> None:
    values = {"url": "http://127.0.0.1:8817", "key": "k", "model": "m", "context": "4096"}
    lines = {
        name: re.sub(r"\{(\w+)\}", lambda field: values[field[1]], agent["lines"]) for name, agent in AGENTS.items()
    }
    assert tomllib.loads(lines["Codex"])["model_providers"]["rdchat"]["wire_api"] == "responses"
    assert json.loads(lines["opencode"])["provider"]["rdchat"]["models"]["m"]["limit"]["context"] == 4096
    assert json.loads(f"{{{lines['Zed']}}}")["language_models"]


def test_a_problem_is_beside_the_switch(page: ServerPage, chat: Chat) -> None:
    server = chat.controller.server
    server.problem = "The port is in use."
    server.changed.emit()
    assert page.problem.isVisible()
    assert page.problem.text() == "The port is in use."
    assert not page.on.isChecked()


def test_the_options_are_kept(page: ServerPage, chat: Chat) -> None:
    port = DEFAULT_PORT + 1  # nothing listens there
    page.at_start.click()
    page.loads.click()
    page.substitutes.click()
    page.port.setValue(port)
    settings = chat.settings.values
    assert (settings.server_at_start, settings.server_loads_models, settings.server_port) == (True, True, port)
    assert not settings.server_substitutes_models


def test_names_by_which_programs_call_this_computer(page: ServerPage, chat: Chat) -> None:
    assert page.hosts.text() == "host.docker.internal"
    page.hosts.setText("Host.Docker.Internal., my-mac.lan,")
    page.hosts.editingFinished.emit()
    assert chat.settings.values.server_hosts == ("host.docker.internal", "my-mac.lan")
    assert page.hosts.text() == "host.docker.internal, my-mac.lan"
    page.hosts.setText("*.lan")
    page.hosts.editingFinished.emit()
    assert "exact name" in page.wrong_host.text()
    assert chat.settings.values.server_hosts == ("host.docker.internal", "my-mac.lan")
    page.hosts.setText("")
    page.hosts.editingFinished.emit()
    assert chat.settings.values.server_hosts == ()
    assert not page.wrong_host.text()


def test_what_a_running_server_has_can_be_copied_and_a_new_key_comes_only_after_a_yes(
    qtbot: QtBot, page: ServerPage, chat: Chat
) -> None:
    server = chat.controller.server
    assert page.address.text() == "The server is off."
    buttons = (page.copy_address, page.copy_key, page.new_key)
    assert not any(each.isEnabled() for each in buttons)
    click_on(page.on)
    qtbot.waitUntil(lambda: bool(server.address))
    page.copy_address.click()
    assert QGuiApplication.clipboard().text() == page.address.text() == f"{server.address}/v1"
    old = server.key
    assert old not in page.key.text()
    page.new_key.click()
    assert "reply" not in answer_question(page, "Cancel")
    assert server.key == old
    page.new_key.click()
    answer_question(page, "Make a New Key")
    qtbot.waitUntil(lambda: bool(server.key))
    page.copy_key.click()
    assert QGuiApplication.clipboard().text() == server.key != old


@pytest.mark.parametrize("name", ["port", "loads", "network"])
def test_a_reply_is_not_ended_without_a_word(page: ServerPage, chat: Chat, name: str) -> None:
    control = chat.settings
    control.change(replace(control.values, server_on_network=True))
    before = control.values
    chat.controller.server.facts = ServerFacts("", RequestFacts(7, "", "agent/1", "tiny", Phase.WRITING))
    port = DEFAULT_PORT + 1
    act = {"port": lambda: page.port.setValue(port), "loads": page.loads.click, "network": page.network.click}
    act[name]()
    assert "getting now ends" in answer_question(page, "Cancel")
    assert control.values == before
    assert (page.port.value(), page.loads.isChecked(), page.network.isChecked()) == (before.server_port, False, True)
    act[name]()
    answer_question(page, "Restart")
    assert control.values != before
    after = control.values
    shown = page.port.value(), page.loads.isChecked(), page.network.isChecked()
    assert shown == (after.server_port, after.server_loads_models, after.server_on_network)
    chat.controller.server.facts = ServerFacts("")


def test_other_computers_come_in_only_after_a_yes(page: ServerPage, chat: Chat) -> None:
    page.network.click()
    assert "with the key" in answer_question(page, "Cancel")
    assert not page.network.isChecked()
    assert not chat.settings.values.server_on_network
    page.network.click()
    answer_question(page, "Let Them Connect")
    assert chat.settings.values.server_on_network
    assert page.network.isChecked()
    assert page.network_note.isVisible()
    page.network.click()
    assert not chat.settings.values.server_on_network


def test_on_a_network_the_address_names_this_machine(chat: Chat) -> None:
    server = chat.controller.server
    server.facts = ServerFacts("http://0.0.0.0:8817")
    assert "0.0.0.0" not in server.address
    server.facts = ServerFacts("")


@pytest.fixture
def notes(qtbot: QtBot, theme: Theme, chat: Chat) -> NotesPage:
    chat.start()
    folder = chat.store.organiser.create_folder("Work")
    soup = chat.store.create_conversation("Soup")
    for text, source in (("I use tabs", ""), ("Ann leads", "a file")):
        chat.store.organiser.keep_note(Note(text, folder.id, soup.id, source))
    chat.store.organiser.keep_note(Note("I live in Lisbon", None, None))
    page = NotesPage(theme, chat.controller)
    qtbot.addWidget(page)
    page.show_settings(chat.settings.values)
    return page


def shown(page: NotesPage) -> list[str]:
    return [page.notes.list.item(index).text() for index in range(page.notes.list.count())]


def test_the_page_lists_and_searches_notes(notes: NotesPage, chat: Chat) -> None:
    day = chat.controller.replies.notes()[0].date
    assert shown(notes) == [
        f"I live in Lisbon\nFor all chats, kept {day}",
        f"Ann leads (perhaps from a file)\nFor the project “Work”, kept {day} from the chat “Soup”",
        f"I use tabs\nFor the project “Work”, kept {day} from the chat “Soup”",
    ]
    chat.qtbot.keyClicks(notes.search, "soup TABS")
    assert [text.splitlines()[0] for text in shown(notes)] == ["I use tabs"]
    notes.search.setText("nothing")
    assert shown(notes) == []
    assert not any(button.isEnabled() for button in notes.notes.buttons)


def test_a_note_is_edited_and_deleted(notes: NotesPage, chat: Chat) -> None:
    edit, delete, _ = notes.notes.buttons
    notes.notes.list.setCurrentRow(1)
    edit.click()
    sheet = notes.findChild(Sheet)
    sheet.findChild(QPlainTextEdit).setPlainText("Bo\nleads.")
    accept(sheet)
    texts = lambda: [note.text for note in chat.controller.replies.notes()]  # noqa: E731
    assert texts() == ["I use tabs", "Bo\nleads.", "I live in Lisbon"]
    notes.notes.list.setCurrentRow(2)
    delete.click()
    assert answer_question(notes, "Delete").startswith("Delete “I use tabs”?")
    assert texts() == ["Bo\nleads.", "I live in Lisbon"]
    assert len(shown(notes)) == 2


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("Café", "Cafe\u0301 Zoe\u0308 is our meeting place"),
        ("ZURICH", "my flat is in Zürich"),
    ],
)
def test_a_search_finds_a_note_as_it_finds_a_chat(notes: NotesPage, chat: Chat, query: str, text: str) -> None:
    chat.store.organiser.keep_note(Note(text, None, None))
    notes.search.setText(query)
    assert [each.splitlines()[0] for each in shown(notes)] == [text]


def test_a_note_is_added_for_a_project_or_for_all_chats(notes: NotesPage, chat: Chat) -> None:
    """With keys alone. Nothing can be added where it would count nowhere."""
    assert not notes.notes.add.isEnabled()
    chat.settings.change_values(notes_everywhere=True)
    (folder,) = chat.store.organiser.folders()
    chat.chats.order.set_project(folder, Project("Be brief."), ())
    notes.show_settings(chat.settings.values)
    for scope in ("All chats", "Work"):
        press_key(notes.notes.add, "Space")
        sheet = shown_child(notes, NoteSheet)
        assert not sheet.buttons[-1].isEnabled()
        chat.qtbot.keyClicks(sheet.field, f"Dr. Lee signs for {scope}.")
        sheet.scope.setCurrentText(scope)
        press_key(sheet.buttons[-1], "Space")
        assert shown(notes)[0].startswith(f"Dr. Lee signs for {scope}.\nFor ")
    everywhere, work = chat.controller.replies.notes()[-2:]
    assert (everywhere.folder_id, work.folder_id) == (None, folder.id)


@given(st.text(st.characters(exclude_categories=["Cs", "Cc"]) | st.just("\n"), max_size=2 * LONGEST_NOTE))
@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_what_is_typed_comes_back_whole_or_a_word_says_why_not(notes: NotesPage, chat: Chat, text: str) -> None:
    note = chat.controller.replies.notes()[0]
    sheet = NoteSheet(notes, notes._theme, chat.controller.notes, note)
    sheet.field.setPlainText(text)
    typed = sheet.field.toPlainText().strip()
    assert sheet.length.text() == f"{len(typed):,} of at most 1,000 characters"
    assert sheet.buttons[-1].isEnabled() == (0 < len(typed) <= LONGEST_NOTE)
    accept(sheet)
    stored = chat.controller.replies.notes()[0].text
    assert stored == (typed if 0 < len(typed) <= LONGEST_NOTE else note.text)
    sheet.reject()


def test_a_note_that_cannot_be_stored_stays_in_its_field(
    notes: NotesPage, chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise StorageError("The disk is full.")

    notes.notes.buttons[0].click()
    sheet = shown_child(notes, NoteSheet)
    sheet.field.setPlainText("Bo leads")
    with monkeypatch.context() as broken:
        broken.setattr(chat.store.organiser, "change_note", fail)
        with chat.qtbot.waitSignal(chat.controller.storage.failed):
            accept(sheet)
    assert sheet.isVisible()
    assert sheet.field.toPlainText() == "Bo leads"
    accept(sheet)
    assert shown(notes)[0].startswith("Bo leads\n")


def test_notes_are_exported(notes: NotesPage, tmp_path: Path) -> None:
    notes.notes.buttons[-1].click()
    choose_files(notes, tmp_path / "notes.txt")
    assert (tmp_path / "notes.txt").read_text() == "\n\n".join(shown(notes))


def test_the_settings_are_on_the_page(notes: NotesPage, chat: Chat) -> None:
    settings = chat.settings
    assert not settings.values.notes_everywhere
    boxes = {name: field for field, name, _ in notes._bound}
    boxes["notes_everywhere"].click()  # type: ignore[attr-defined]
    boxes["notes_tokens"].setValue(300)  # type: ignore[attr-defined]
    assert (settings.values.notes_everywhere, settings.values.notes_tokens) == (True, 300)


ENTRY = {
    "title": "Work", "folder": ["Work"], "project": True, "system_prompt": "Rhyme.", "messages": [],
    "notes": [{"text": "They use tabs"}, {"text": "Ann leads"}],
}  # fmt: skip


def test_a_note_from_an_import_counts_once_it_is_kept(theme: Theme, chat: Chat, tmp_path: Path) -> None:
    path = tmp_path / "theirs.json"
    path.write_text(json.dumps(ours(ENTRY)))
    assert len(import_into(chat.store, [path]).notes) == 2
    (folder,) = chat.store.organiser.folders()
    chat.chats.update_list()
    chat.start()
    page = NotesPage(theme, chat.controller)
    chat.qtbot.addWidget(page)
    keep = page.notes.keep
    told = "\nFrom an import, not used, for the project “Work”"
    assert shown(page) == [f"Ann leads{told}", f"They use tabs{told}"]
    inside = replace(NEW_CHAT, id=1, folder_id=folder.id)
    assert chat.controller.replies.notes(inside) == []
    press_key(keep, "Space")
    assert [note.text for note in chat.controller.replies.notes(inside)] == ["Ann leads"]
    assert shown(page)[0].startswith("Ann leads (perhaps from an import)\nFor the project “Work”, kept ")
    assert not keep.isEnabled()
    page.notes.list.setCurrentRow(1)
    assert keep.isEnabled()
