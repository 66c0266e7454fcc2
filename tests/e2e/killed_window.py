"""The app in its window with a person who never rests, to be killed.

`main` starts it as a person does. It looks at each chat that the one before left, and writes into a journal what is
stored (`State`), what it is about to do, and what is stored then. Of what was wanted, all or nothing may be there.
"""

import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pydantic  # noqa: F401  PySide's hook of imports fails for it once in a hundred times where a thread comes first
from PySide6.QtCore import QObject, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QDialog, QPushButton, QRadioButton, QWidget

from rdchat import app as composition, cli, paths
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.inference.api import GenerationRequest, Role
from rdchat.services.chat.chat_context import Doing
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.conversation.project_views import ProjectSheet
from rdchat.ui.conversation.temporary_bar import TemporaryBar
from tests.chat.transfer.samples import ours
from tests.hostile.heartbeat import Heartbeat, Script, wait
from tests.services.fakes import Gate, Reply, ScriptedEngine, ScriptedReply
from tests.ui.shown_widgets import choose_files, shown_child

BACKUP = "backup.zip"
EXPORT = "chats.json"
JOURNAL = "journal"
OUTPUT = "output"
FOLDERS = {
    "data": paths.DATA_VARIABLE,
    "cache": paths.CACHE_VARIABLE,
    "temporary": "TMPDIR",
    "home": "HOME",
    "sources": "",
    "chosen": "",
}
"""Folders of an app, and the variables that name them: what is imported, and where backups go, have none."""
CHATS = 3
MESSAGES = 30
FILES = 4
"""What an import has: chats, messages of each, and files of its project."""
_TOKEN_S = 0.002
_LONGEST = 10
_PROJECTS = 3
_STORED = """
    SELECT m.id, m.parent_id, m.role, m.text, m.context_cut, m.conversation_id
    FROM messages m JOIN conversations c ON c.id = m.conversation_id
    WHERE c.deleted_at IS NULL AND c.unlisted = 0 AND m.id NOT IN (SELECT message_id FROM deleted_messages)
"""


@dataclass(frozen=True)
class State:
    """What is stored.

    Attributes:
        messages: Parent, role, text, summary and chat of each message that the person can find, by its id.
        projects: Instructions and digests of the files of each folder, by its name.
        notes: Their texts, sorted.
    """

    messages: dict[str, list[Any]]
    projects: dict[str, list[Any]]
    notes: list[str]


class _SlowGate(Gate):
    """Has a token after a while, without holding Python meanwhile."""

    def wait(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        time.sleep(_TOKEN_S)


class NewWordsEngine(ScriptedEngine):
    """Answers with words that it never used before."""

    def generate(self, request: GenerationRequest, _stopped: object = None) -> ScriptedReply:
        words = tuple(f"{random.random()} " for _ in range(random.randrange(2, 40)))
        return ScriptedReply(request, Reply(words), self.gate, [])


class Person(QObject):
    """Does one kind of thing again and again, and asks in between.

    Args:
        app: The app.
        folder: Has the journal, and the files that are written and read.
        kind: A key of `KINDS`.
    """

    def __init__(self, app: composition.App, folder: Path, kind: str) -> None:
        super().__init__()
        self._app = app
        self._window = app.window
        self._controller = app.controller
        self._store = app.controller.chats.store
        self._folder = folder
        self._kind = kind
        self._journal = os.open(folder / JOURNAL, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        self._backup: State | None = None
        self._heart = Heartbeat(lambda: None, self)
        self._heart.play(self._live())

    # The journal

    def _state(self) -> State:
        messages = {str(row[0]): list(row[1:]) for row in self._store.rows(_STORED)}
        folders = self._store.organiser.folders()
        projects = {each.name: [each.project.instructions, [file.digest for file in each.files]] for each in folders}
        assert len(projects) == len(folders), "no folder is there twice"
        return State(messages, projects, sorted(note.text for note in self._store.organiser.notes()))

    def _note(self, did: str, **facts: object) -> None:
        os.write(self._journal, (json.dumps({"did": did, **facts}) + "\n").encode())

    def _want(self, kind: str, **facts: object) -> None:
        self._note("wanted", kind=kind, **facts)

    def _done(self) -> None:
        self._note("done", state=asdict(self._state()))

    # The window

    def _is_idle(self) -> bool:
        replies = self._controller.replies
        at_rest = replies.free and not replies.live and replies.state is EngineState.IDLE
        return at_rest and self._controller.chat.streaming_id is None

    def _transferred(self) -> bool:
        return not self._app.transfer.busy

    def _buttons(self, text: str) -> list[QPushButton]:
        """Return the visible buttons whose text begins so, in a dialog or else in the window."""
        dialogs = [each for each in self._window.findChildren(QDialog) if each.isVisible()]
        places: list[QWidget] = [*dialogs] or [self._window]
        buttons = [each for place in places for each in place.findChildren(QPushButton)]
        return [each for each in buttons if each.text().startswith(text) and each.isVisible() and each.isEnabled()]

    def _press(self, text: str) -> Script:
        yield lambda: bool(self._buttons(text))
        self._buttons(text)[-1].click()

    # What the person does

    def _live(self) -> Script:
        yield lambda: self._is_idle() and self._controller.chats.rows is not None
        yield self._nothing_left
        yield from self._look()
        while True:
            yield from self._ask()
            yield from KINDS[self._kind](self)
            yield wait(random.uniform(0, 0.05))

    def _nothing_left(self) -> bool:
        """Whether what a kill left half done is erased; that goes on behind the window."""
        return self._store.rows("SELECT count(*) FROM conversations WHERE unlisted <> 0") == [(0,)]

    def _look(self) -> Script:
        """Open each chat, and tell what is there."""
        state = self._state()
        faults = [] if self._store.notice is None else [str(self._store.notice)]
        if (check := self._store.rows("PRAGMA integrity_check")) != [("ok",)]:
            faults.append(str(check))
        shown = 0
        for chat in self._store.conversations():
            self._controller.chat.open_chat(chat.id)
            yield lambda: bool(self._window.conversation.transcript.widgets)
            path = self._controller.chat.path
            faults += [
                f"{each.id} is shown as {each.text}" for each in path if state.messages[str(each.id)][2] != each.text
            ]
            shown += bool(path)
        if shown != len({row[-1] for row in state.messages.values()}):
            faults.append(f"{shown} chats open")
        self._note("started", state=asdict(state), faults=faults)

    def _ask(self, more: str = "") -> Script:
        chat = self._controller.chat
        if len(chat.path) >= _LONGEST:
            self._window.actions_.new_chat.trigger()
        text = f"Question {random.random()}{more}"
        before = len(chat.path)
        if not chat.temporary:
            self._want("ask", text=text)
        field = self._window.conversation.composer.field
        field.setPlainText(text)
        QTest.keyClick(field, Qt.Key.Key_Return)
        yield lambda: len(chat.path) == before + 2 and self._is_idle()
        if not chat.temporary:
            self._done()

    def _files(self, count: int) -> list[str]:
        """Write files that were not there before."""
        names = []
        for number in range(count):
            path = self._folder / "sources" / f"{number}.txt"
            path.write_text(f"{random.random()} " * random.randrange(1, 20_000))
            names.append(str(path))
        return names

    def _project(self) -> Script:
        """Make a project, or give one other files and instructions, by its sheet."""
        folders = self._store.organiser.folders()
        folder = random.choice(folders) if len(folders) >= _PROJECTS else None
        self._window.commands.edit_project(folder)
        sheet = shown_child(self._window, ProjectSheet)
        name = folder.name if folder else f"Project {random.random()}"
        sheet.name.setText(name)
        sheet.instructions.setPlainText(f"Instructions {random.random()}")
        for file in sheet.files.files:
            sheet.chips.remove_requested.emit(file.id)
        count = random.randrange(4)
        sheet.attach_files(self._files(count))
        yield lambda: len(sheet.files.to_send()) == count and sheet.buttons[-1].isEnabled()
        digests = [file.digest for file, _ in sheet.files.to_send()]
        self._want("project", name=name, value=[sheet.instructions.toPlainText(), digests])
        sheet.buttons[-1].click()
        self._done()

    def _notes(self) -> Script:
        """Keep a note that is proposed; change or delete one."""
        yield from self._ask(f"\nRemember that I like number {random.random()}.")
        notes = self._controller.notes
        yield lambda: bool(self._buttons("Keep"))
        (proposed,) = notes.proposed(self._controller.chat.conversation)
        self._want("notes", notes=sorted([*self._state().notes, proposed.text]))
        self._buttons("Keep")[-1].click()
        self._done()
        kept = self._store.organiser.notes()
        if random.random() < 0.6:
            note = random.choice(kept)
            text = random.choice(["", f"I like another number, {random.random()}"])
            others = [each.text for each in kept if each != note]
            self._want("notes", notes=sorted(filter(None, [*others, text])))
            notes.change(note, text)
            self._done()

    def _summary(self) -> Script:
        """Have the oldest turns summarised."""
        while len(self._controller.chat.path) < _LONGEST - 2:
            yield from self._ask()
        self._want("summary")
        self._controller.context.summarise()
        yield lambda: self._controller.context.doing is Doing.NOTHING
        self._done()
        self._window.actions_.new_chat.trigger()

    def _back_up(self) -> Script:
        """Back up, and export all chats."""
        state = self._state()
        self._want("nothing", backup=asdict(state))
        self._window.actions_.back_up.trigger()
        choose_files(self._window, self._folder / "chosen" / BACKUP)
        yield self._transferred
        self._backup = state
        self._done()
        self._want("nothing")
        self._window.actions_.export_all.trigger()
        next(each for each in self._window.findChildren(QRadioButton) if each.text().startswith("JSON")).setChecked(
            True
        )
        yield from self._press("Export…")
        choose_files(self._window, self._folder / "chosen" / EXPORT)
        yield self._transferred
        self._done()

    def _restore(self) -> Script:
        """Restore the backup that was made last by this process, after more was written."""
        if self._backup is None or random.random() < 0.3:
            yield from self._back_up()
        yield from self._ask()
        assert self._backup is not None
        self._window.actions_.restore.trigger()
        choose_files(self._window, self._folder / "chosen" / BACKUP)
        yield lambda: bool(self._buttons("Restore"))
        self._want("restore", backup=asdict(self._backup))
        yield from self._press("Restore")
        yield lambda: self._transferred() and self._is_idle() and self._controller.chat.id is not None
        self._done()

    def _import(self) -> Script:
        """Import chats and a project with files."""
        name = f"Imported {random.random()}"
        texts = [{"role": ("user", "assistant")[n % 2], "text": f"{random.random()} " * 50} for n in range(MESSAGES)]
        chats = [{"title": f"{name} {n}", "folder": [name], "messages": texts} for n in range(CHATS)]
        files = [{"name": f"{n}.txt", "kind": "text", "text": f"{random.random()} " * 5_000} for n in range(FILES)]
        head = {"title": name, "folder": [name], "project": True, "system_prompt": "Rhyme."}
        project = head | {"messages": [{"role": "user", "text": "", "files": files}]}
        path = self._folder / "sources" / "import.json"
        path.write_text(json.dumps(ours(project, *chats)))
        self._window.actions_.import_chats.trigger()
        yield from self._press("Choose Files…")
        self._want("import", name=name)
        choose_files(self._window, path)
        yield from self._press("Done")
        self._done()

    def _write_temporary(self) -> Script:
        """Write a temporary chat, and keep or discard it."""
        chat = self._controller.chat
        self._want("temporary", texts=[])
        self._window.actions_.new_temporary.trigger()
        for _ in range(random.randrange(1, 3)):
            yield from self._ask(" Temporary")
        texts = [message.text for message in chat.path if message.role is Role.USER]
        if random.random() < 0.5:
            self._want("temporary", texts=texts)
            shown_child(self._window, TemporaryBar).keep.click()
        else:
            self._window.actions_.new_chat.trigger()
            yield from self._press("Discard")
        yield lambda: not chat.temporary
        self._done()


KINDS: dict[str, Callable[[Person], Iterator[Callable[[], bool]]]] = {
    "restore": Person._restore,
    "project": Person._project,
    "import": Person._import,
    "backup": Person._back_up,
    "temporary": Person._write_temporary,
    "notes": Person._notes,
    "summary": Person._summary,
}


def main(folder: Path, seed: int, kind: str) -> None:
    """Run until killed.

    Args:
        folder: Has the folders of `FOLDERS`.
        seed: Draws what is done.
        kind: A key of `KINDS`.
    """
    os.environ |= {variable: str(folder / name) for name, variable in FOLDERS.items() if variable}
    tempfile.tempdir = None
    output = os.open(folder / OUTPUT, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    random.seed(seed)
    if not paths.settings_path().exists():
        settings = Settings(model="tiny", titles_by_model=False, notes_everywhere=True)
        SettingsStore(paths.settings_path()).save_settings(settings)
    engine = NewWordsEngine(gate=_SlowGate())
    engine.context_length = 400 if kind == "summary" else 10**6

    class WatchedApp(composition.App):
        def open_window(self) -> None:
            super().open_window()
            self.person = Person(self, folder, kind)

    composition.make_engine = lambda _settings: engine
    composition.App = WatchedApp  # type: ignore[misc]
    sys.exit(cli.main([]))
