"""Deleted is deleted: no phrase of it is left on the disk, no cache that was computed with it, and all others are.

`COMMANDS` has every command that deletes a text. Each public method of the store belongs to one, or is in `KEEPS`.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.chat.attachments.attached_file import AttachedFile, image_file
from rdchat.chat.notes import Note
from rdchat.chat.organiser import ChatOrganiser
from rdchat.chat.projects import Folder, Project
from rdchat.chat.reply_tokens import ReplyTokens
from rdchat.chat.storage import DeletedMessage, MessageTrash
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.window import Window, restarted, text_file

WORDS = ("xylophone", "marmalade")
PHRASE = " ".join(WORDS)
INDEXES = ("messages_index", "titles_index", "files_index", "summaries_index")
MONTH_S = 31 * 86_400


@dataclass
class Person:
    """Has two projects with a file and a note each, and a chat in each, one outside, and one that was in the first.

    Attributes:
        caches: The folders of KV caches by the name of the chat, or of the project, and what was put into them.
    """

    window: Window
    engine: ScriptedEngine
    ids: dict[str, int] = field(default_factory=dict)
    caches: dict[str, Path] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.window.settings.change_values(notes_everywhere=True)
        for name in ("Work", "Home"):
            file = text_file(f"{name}.txt", f"All about {name}.")
            folder = self.window.make_project(Project(f"This is {name}."), file, name=name)
            self.note(f"{name} is nice", folder.id)

    def folder(self, name: str = "Work") -> Folder:
        return next(each for each in self.window.chats.order.folders if each.name == name)

    def note(self, text: str, folder_id: int | None) -> Note:
        organiser = self.window.store.organiser
        organiser.keep_note(Note(text, folder_id, None))
        return organiser.notes()[-1]

    def set_files(self, *files: tuple[AttachedFile, str]) -> None:
        folder = self.folder()
        self.window.chats.order.set_project(folder, folder.project, files)

    def ask(self, name: str, text: str = "Hello", *files: tuple[AttachedFile, str]) -> None:
        """Ask in a chat, a new one in the folder of its name where there is none, and fill its caches."""
        chat = self.window.chat
        if name in self.ids:
            chat.open_chat(self.ids[name])
        else:
            folders = {"moved": "Work"} | {each.name: each.name for each in self.window.chats.order.folders}
            chat.start_new(self.folder(folders[name]).id if name in folders else None)
        chat.files.restore_files(files)
        self.window.wait_until(lambda: not chat.files.reason_to_wait())
        self.window.ask(text)
        self.ids[name] = self.window.stored_chat.id
        keep = self.engine.last_request.keep
        assert keep is not None
        self._fill(name, keep.path)
        if keep.shared is not None and name != "moved":
            self._fill(f"files of {name}", keep.shared)
        if name == "moved":
            self.window.chats.order.move(self.window.stored_chat, None)

    def _fill(self, name: str, folder: Path) -> None:
        rows = folder / "tiny" / "0-128-x.rows"
        rows.parent.mkdir(parents=True, exist_ok=True)
        rows.write_bytes(b"rows")
        self.caches[name] = rows

    def ask_all(self) -> None:
        for name in ("Work", "Home", "moved", "outside"):
            self.ask(name)

    def wait_a_month(self) -> None:
        for table in ("conversations", "folders", "deleted_messages"):
            self.window.store.execute(f"UPDATE {table} SET deleted_at = deleted_at - {MONTH_S}")
        self.window.chats.order.tidy_trash()

    @property
    def gone(self) -> set[str]:
        return {name for name, rows in self.caches.items() if not rows.exists()}

    def finds(self, *texts: str) -> bool:
        """Return whether any file has one of some texts."""
        folders = (self.window.store.path.parent, paths.chat_caches_dir().parent)
        files = {path for folder in folders for path in folder.rglob("*") if path.is_file()}
        forms = [text.encode(code) for text in texts for code in ("utf-8", "utf-16-le", "utf-16-be")]
        return any(form in data for data in map(_content, files) for form in forms)

    def merge_index(self) -> None:
        for index in INDEXES:
            self.window.store.execute(f"INSERT INTO {index} ({index}) VALUES ('optimize')")
        self.window.store.organiser.erase()


def _content(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except FileNotFoundError:
        return b""


type Command = Callable[[Person], Generator[set[str]]]
WHOLE_PROJECT = {"Work", "moved", "files of Work"}


def files() -> list[tuple[AttachedFile, str]]:
    return [text_file(f"{PHRASE}.txt", PHRASE), image_file(b"\x89PNG" + PHRASE.encode(), f"{PHRASE}.png")]


def message(person: Person) -> Generator[set[str]]:
    person.ask_all()
    person.ask("outside", PHRASE)
    yield {"outside"}
    person.window.delete_message(person.window.chat.path.ids[-2])
    person.wait_a_month()


def file_of_a_message(person: Person) -> Generator[set[str]]:
    person.ask_all()
    person.ask("Home", "Look", *files())
    person.window.store.image_path(person.window.chat.path[-2].files[1])
    yield {"Home"}
    person.window.delete_message(person.window.chat.path.ids[-2])
    person.wait_a_month()


def reply(person: Person) -> Generator[set[str]]:
    person.ask_all()
    person.engine.replies = [Reply((PHRASE, ".")), Reply()]
    person.ask("outside")
    yield {"outside"}
    person.window.delete_message(person.window.last.id)
    person.wait_a_month()


def chat_for_good(person: Person) -> Generator[set[str]]:
    person.ask("other", PHRASE, *files())
    person.ask_all()
    yield {"other"}
    person.window.chats.delete_conversation(person.ids["other"])
    person.window.chats.order.erase(person.window.store.organiser.deleted_chats())


def chat_after_a_month(person: Person) -> Generator[set[str]]:
    person.ask("other", PHRASE, *files())
    person.ask_all()
    yield {"other"}
    person.window.chats.delete_conversation(person.ids["other"])
    person.wait_a_month()


def _project(person: Person) -> Generator[set[str]]:
    person.set_files(*files())
    person.window.chats.order.set_project(person.folder(), Project(PHRASE))
    person.note(PHRASE, person.folder().id)
    person.ask_all()
    yield WHOLE_PROJECT
    person.window.chats.order.delete_folder(person.folder())


def project_for_good(person: Person) -> Generator[set[str]]:
    yield from _project(person)
    person.window.chats.order.erase((), person.window.store.organiser.deleted_folders())


def project_after_a_month(person: Person) -> Generator[set[str]]:
    yield from _project(person)
    person.wait_a_month()


def project_without_files(person: Person) -> Generator[set[str]]:
    """Only its notes are in the caches of its chats."""
    person.set_files()
    person.window.chats.order.set_project(person.folder(), Project(tools=("files",)))
    person.note(PHRASE, person.folder().id)
    person.ask_all()
    yield {"Work", "moved"}
    folder = person.folder()
    person.window.chats.order.delete_folder(folder)
    person.window.chats.order.erase((), [folder])


def instructions(person: Person) -> Generator[set[str]]:
    person.window.chats.order.set_project(person.folder(), Project(PHRASE))
    person.ask_all()
    yield WHOLE_PROJECT
    person.window.chats.order.set_project(person.folder(), Project("Be brief."))


def file_of_a_project(person: Person) -> Generator[set[str]]:
    person.set_files(*files())
    person.window.store.image_path(person.folder().files[1])
    person.ask_all()
    yield WHOLE_PROJECT
    person.set_files(text_file("Work.txt", "All about Work."))


def name_of_a_project_s_file(person: Person) -> Generator[set[str]]:
    person.set_files(text_file(f"{PHRASE}.txt", "Nothing"))
    person.ask_all()
    yield WHOLE_PROJECT
    person.set_files(text_file("other.txt", "Nothing"))


def _note(person: Person, text: str) -> Generator[set[str]]:
    note = person.note(PHRASE, person.folder().id)
    person.ask_all()
    yield {"Work", "moved"}
    person.window.notes.change(note, text)


def note_deleted(person: Person) -> Generator[set[str]]:
    return _note(person, "")


def note_changed(person: Person) -> Generator[set[str]]:
    return _note(person, "I use tabs")


def note_of_all_chats(person: Person) -> Generator[set[str]]:
    person.ask("other")
    note = person.note(PHRASE, None)
    person.ask_all()
    yield {"Work", "Home", "moved", "outside"}
    person.window.notes.change(note)


def _summary(person: Person) -> Generator[set[str]]:
    person.ask_all()
    person.ask("Home")
    person.window.chat.set_cut(person.window.last.id, ContextCut(PHRASE))
    yield {"Home"}


def summary_changed(person: Person) -> Generator[set[str]]:
    yield from _summary(person)
    person.window.context.edit_summary(person.window.last.id, "Short.")


def summary_undone(person: Person) -> Generator[set[str]]:
    yield from _summary(person)
    person.window.context.undo_cut(person.window.last.id)


def summary_dropped_as_its_reply_goes_on(person: Person) -> Generator[set[str]]:
    yield from _summary(person)
    person.window.continue_reply(person.window.last.id)
    person.window.wait_until_idle()


def system_prompt_of_a_chat(person: Person) -> Generator[set[str]]:
    """It is stored with each letter, so SQLite's log is emptied later: within an hour."""
    person.ask_all()
    person.window.chat.set_options(system_prompt=PHRASE)
    person.ask("outside")
    yield {"outside"}
    person.window.chat.set_options(system_prompt="Short.")
    person.window.chats.order.tidy_trash()


def quick_exchange(person: Person) -> Generator[set[str]]:
    person.ask_all()
    quick = person.window.controller.quick
    quick.files.restore_files(files()[1:])
    quick.ask_question("Look")
    person.window.wait_until_idle()
    yield set()
    quick.forget_exchange()


COMMANDS: dict[str, Command] = {
    command.__name__: command
    for command in (
        message,
        file_of_a_message,
        reply,
        chat_for_good,
        chat_after_a_month,
        project_for_good,
        project_after_a_month,
        project_without_files,
        instructions,
        file_of_a_project,
        name_of_a_project_s_file,
        note_deleted,
        note_changed,
        note_of_all_chats,
        summary_changed,
        summary_undone,
        summary_dropped_as_its_reply_goes_on,
        system_prompt_of_a_chat,
        quick_exchange,
    )
}
DELETING = {
    "change_note": ("note_deleted", "note_changed", "note_of_all_chats"),
    "delete": ("message", "file_of_a_message", "reply"),
    "delete_conversation": ("chat_for_good", "chat_after_a_month"),
    "delete_folder": ("project_for_good", "project_after_a_month", "project_without_files"),
    "erase": ("quick_exchange",),
    "erase_folder": ("project_for_good", "project_without_files"),
    "expire": ("message", "chat_after_a_month", "project_after_a_month"),
    "reopen_message": ("summary_dropped_as_its_reply_goes_on",),
    "schedule_erase": ("chat_for_good",),
    "set_chat_options": ("system_prompt_of_a_chat",),
    "set_context_cut": ("summary_changed", "summary_undone"),
    "set_project": ("instructions", "file_of_a_project", "name_of_a_project_s_file"),
}
"""Methods of the store that delete a text, or replace one that the person wrote, with the commands that call them."""
IN_THE_LOG = {
    "rename_conversation", "rename_folder", "save_unsent_files", "save_unsent_text", "set_title_by_model",
}  # fmt: skip
"""These replace a text too, often with each letter. SQLite's log may have the old one for an hour (SECURITY.md)."""
KEEPING = {
    # They read.
    "alternatives", "conversation", "conversations", "count_replies", "deleted_chats", "deleted_folders", "file_text",
    "find_chats", "find_folder", "folders", "has_title", "has_trace", "holder_of", "image_path", "last", "message",
    "messages", "newest", "newest_conversations", "note_source", "notes", "path_to", "read_folder", "reading_position",
    "trace", "unsent_files", "unsent_origin", "unsent_text", "without_title",
    # They add, restore or move, or write what has no text of a person.
    "add_message", "add_results", "attach", "copy", "create_conversation", "create_folder", "finish_message",
    "keep_note", "keep_temporary", "move", "move_folder", "restore", "restore_conversation", "restore_folder",
    "restore_last", "save_reading_position", "save_text", "save_tokens", "save_trace", "select_sibling", "set_archived",
    "set_expanded", "set_image_size", "set_pinned",
    # They end a temporary chat, which is in no file (test_temporary_chat.py), or the store; or drop what can be made
    # again from a text that stays.
    "begin_temporary", "close", "delete_temporary_images", "delete_tokens", "end_temporary",
}  # fmt: skip


def test_each_method_of_the_store_is_sorted_in() -> None:
    kinds = (ConversationStore, ChatOrganiser, MessageTrash, ReplyTokens)
    public = {name for kind in kinds for name, value in vars(kind).items() if callable(value) and name[0] != "_"}
    assert public == DELETING.keys() | IN_THE_LOG | KEEPING
    assert {name for names in DELETING.values() for name in names} == COMMANDS.keys()


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
@pytest.mark.parametrize("quits", [False, True], ids=["runs on", "quits at once"])
def test_what_is_deleted_is_in_no_file_and_only_its_caches_go(
    window: Window, engine: ScriptedEngine, command: Command, quits: bool
) -> None:
    person = Person(window, engine)
    steps = command(person)
    computed_with_it = next(steps)
    window.wait_until(lambda: person.finds(PHRASE))
    assert not person.gone
    next(steps, None)
    if quits:
        assert window.shut_down()
        window.store.close()
        assert person.gone == computed_with_it
        assert not list(paths.chat_caches_dir().glob("removed-*"))
        return
    window.wait_until(lambda: not person.finds(PHRASE))
    window.wait_until(lambda: person.gone == computed_with_it)
    with window.qtbot.waitSignal(window.disk_caches.changed):
        window.disk_caches.tidy()
    assert person.gone == computed_with_it
    person.merge_index()
    # In an index a word may lack its first letters, which the one before it has.
    window.wait_until(lambda: not person.finds(*(word[2:] for word in WORDS)))


def test_after_a_kill_the_next_start_removes_the_caches(
    window: Window, engine: ScriptedEngine, window_on: Callable[[Path], Window]
) -> None:
    """The store is written first; what of the caches was computed with it, their folders say themselves."""
    person = Person(window, engine)
    steps = note_deleted(person)
    computed_with_it = next(steps)
    window.store.organiser.change_note(window.replies.notes()[-1].id, "")
    restarted(window, window_on)
    window.wait_until(lambda: person.gone == computed_with_it)


def test_caches_of_a_chat_go_before_its_message(
    window: Window, engine: ScriptedEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kill behind the message's deletion would leave them for ever: the chat is still there."""
    person = Person(window, engine)
    person.ask("outside")
    delete = MessageTrash.delete
    seen = list[set[str]]()

    def look(trash: MessageTrash, message_id: int) -> DeletedMessage:
        seen.append(person.gone)
        return delete(trash, message_id)

    monkeypatch.setattr(MessageTrash, "delete", look)
    window.delete_message(window.last.id)
    assert seen == [{"outside"}]


def test_folders_of_an_earlier_version_say_nothing_of_their_sources_and_go(
    window: Window, engine: ScriptedEngine
) -> None:
    person = Person(window, engine)
    person.ask("Work")
    folder = person.caches["Work"].parents[1]
    store, _ = folder.name.split("-")
    person._fill("old", folder.with_name(f"{store}-{'0' * 24}"))
    window.disk_caches.tidy()
    window.wait_until(lambda: person.gone == {"old"})
