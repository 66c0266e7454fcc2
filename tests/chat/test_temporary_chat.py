"""A temporary chat: in memory, beside the file of the others, and on no disk."""

import hashlib
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as some

from rdchat.chat.attachments.attached_file import (
    AttachedFile,
    FileKind,
    ReadFile,
    attached,
    full_text,
    image_file,
)
from rdchat.chat.conversation import (
    NEW_CHAT,
    Conversation,
    MessagePath,
    MessageStatus,
    Thinking,
    from_cut,
    is_temporary,
)
from rdchat.chat.storage import SearchReader, read_chat
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.errors import StorageError
from rdchat.files.atomic_file import remove_abandoned
from rdchat.inference.api import ChatImage, ChatMessage, ReplyPart, Role
from rdchat.services.chat.chat_prompt import ChatPrompt

PNG = b"\x89PNG\r\n\x1a\n\0" + bytes(range(256)) * 4
WORDS = "xylophone-of-a-secret"


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConversationStore]:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    (tmp_path / "data").mkdir()
    with closing(ConversationStore(tmp_path / "data" / "chats.db")) as opened:
        yield opened


def holders(folder: Path, words: bytes) -> list[Path]:
    """Return the files below a folder that have the words."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if words in path.read_bytes()]


def written(store: ConversationStore) -> int:
    """Write a temporary chat with a question, an answer, an unsent text and a trace; return its id."""
    chat = store.begin_temporary(NEW_CHAT)
    question = store.add_message(chat.id, None, Role.USER, WORDS)
    reply = store.add_message(chat.id, question.id, Role.ASSISTANT, WORDS, status=MessageStatus.STREAMING)
    store.save_text(reply.id, f"{WORDS} on")
    store.save_trace(reply.id, WORDS.encode(), onward=False)
    store.save_unsent_text(chat.id, None, WORDS)
    return chat.id


def test_is_searched_and_has_an_unsent_text(store: ConversationStore) -> None:
    chat = written(store)
    path = store.messages(chat)
    assert store.unsent_text(chat, None) == WORDS
    store.finish_message(replace(path[-1], status=MessageStatus.COMPLETE))
    reader = SearchReader(store.holder_of(chat).path, in_memory=True)
    assert reader.messages_with(chat, "xylophone").ids == path.ids


def test_is_on_no_disk(store: ConversationStore, tmp_path: Path) -> None:
    written(store)
    assert store.conversations() == []
    assert not holders(tmp_path, WORDS.encode())


def test_its_images_end_with_it(store: ConversationStore, tmp_path: Path) -> None:
    chat = store.begin_temporary(NEW_CHAT)
    (image,) = store.add_message(chat.id, None, Role.USER, "", files=[image_file(PNG, "a.png")]).files
    path = store.image_path(image)
    assert path.read_bytes() == PNG
    assert path.is_relative_to(tmp_path / "temporary")
    store.end_temporary()
    assert not holders(tmp_path, PNG)
    assert not [*(tmp_path / "temporary").iterdir()]


def test_nothing_takes_what_is_written_after_its_end(store: ConversationStore, tmp_path: Path) -> None:
    chat = written(store)
    question, reply = store.messages(chat)
    store.end_temporary()
    store.save_text(reply.id, WORDS)
    store.save_trace(reply.id, WORDS.encode(), onward=False)
    store.save_unsent_text(chat, None, WORDS)
    store.save_reading_position(chat, None)
    for write in (
        lambda: store.add_message(chat, None, Role.USER, WORDS),
        lambda: store.finish_message(reply),
        lambda: store.messages(chat)[0].text and store.message(question.id),
    ):
        with pytest.raises((StorageError, IndexError)):
            write()
    assert not holders(tmp_path, WORDS.encode())


def test_ids_of_two_differ(store: ConversationStore) -> None:
    first = written(store)
    ids = store.messages(first).ids
    second = written(store)
    assert second != first
    assert not {*ids} & {*store.messages(second).ids}
    assert all(map(is_temporary, (first, second, *ids)))


def test_becomes_a_chat(store: ConversationStore) -> None:
    chat = store.conversation(written(store))
    kept = store.keep_temporary(chat, f"{WORDS}\n")
    store.end_temporary()
    assert [each.id for each in store.conversations()] == [kept.id]
    assert (kept.title, is_temporary(kept.id)) == (WORDS, False)


ACTS = ("ask", "answer", "edit", "cut", "delete", "restore", "step")


class Writer:
    """Carries out the same acts in chats of the two kinds."""

    def __init__(self, store: ConversationStore, chat: Conversation) -> None:
        self.store = store
        self.chat = chat.id

    @property
    def path(self) -> MessagePath:
        return self.store.messages(self.chat)

    def act(self, act: str, number: int) -> None:
        store = self.store
        last = self.path.ids[-1] if self.path else None
        chosen = self.path[number % len(self.path)] if self.path else None
        trash = store.holder_of(self.chat).message_trash
        data = PNG + bytes([number])
        read = ReadFile(f"{number}.txt", FileKind.TEXT, (f"file {number}",))
        files = (
            image_file(data, f"{number}.png", width=8, height=9),
            (attached(read, full_text(read)), full_text(read)),
        )
        match act:
            case "ask":
                store.add_message(self.chat, last, Role.USER, f"text {number}", files=files[: number % 3])
            case "answer":
                thinking = Thinking(begun=True, ms=number, paired=True, parts=(ReplyPart(0, 4, is_thought=True),))
                reply = store.add_message(self.chat, last, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
                store.save_text(reply.id, f"text {number}", thinking)
                status = MessageStatus.COMPLETE if number % 2 else MessageStatus.FAILED
                store.finish_message(replace(store.message(reply.id), status=status, error="" if number % 2 else "It"))
                store.save_trace(reply.id, bytes([number]), onward=False)
            case "edit" if chosen is not None:
                store.add_message(self.chat, chosen.parent_id, chosen.role, f"other {number}", edited=True)
            case "cut" if chosen is not None:
                store.set_context_cut(chosen.id, ContextCut(f"summary {number}", "tiny") if number % 3 else None)
            case "delete" if chosen is not None:
                trash.delete(chosen.id)
            case "restore":
                trash.restore_last(self.chat)
            case "step" if chosen is not None:
                store.select_sibling(chosen.id, number % 3 - 1)

    def prompt(self) -> tuple[ChatMessage, ...]:
        """Return what the model would get."""

        def seen(file: AttachedFile, _check: object) -> ChatImage:
            data = self.store.image_path(file).read_bytes()
            return ChatImage(Path(), hashlib.sha256(data).hexdigest(), file.width, file.height)

        prompt = ChatPrompt(from_cut(self.path), "Be short.", "And now?")
        return prompt.with_files(self.store.file_text, lambda: None, image_of=seen).turns()

    def all(self) -> list[tuple[object, ...]]:
        """Return the messages with their traces and files, without ids and dates."""

        def read(connection: sqlite3.Connection) -> list[tuple[object, ...]]:
            chat = read_chat(connection, self.chat)
            plain = (replace(each, created_at=0.0, activated=0, conversation_id=0) for each in chat.messages)
            files = ([chat.texts[file.digest] for file in each.files] for each in chat.messages)
            return [(*each, chat.traces.get(n)) for n, each in enumerate(zip(plain, files, strict=True))]

        return self.store.holder_of(self.chat).write(read)


@settings(max_examples=25)
@given(some.lists(some.tuples(some.sampled_from(ACTS), some.integers(0, 99)), max_size=20))
def test_it_is_as_another_chat_also_once_it_is_kept(store: ConversationStore, acts: list[tuple[str, int]]) -> None:
    usual = Writer(store, store.create_conversation("Usual"))
    temporary = Writer(store, store.begin_temporary(NEW_CHAT))
    for act, number in acts:
        for writer in (usual, temporary):
            writer.act(act, number)
    assert temporary.prompt() == usual.prompt()
    kept = Writer(store, store.keep_temporary(store.conversation(temporary.chat), "Kept"))
    store.end_temporary()
    assert kept.prompt() == usual.prompt()
    assert kept.all() == usual.all()


def test_a_large_sort_stays_in_memory(store: ConversationStore, tmp_path: Path) -> None:
    chat = store.begin_temporary(NEW_CHAT)
    temporary = store.holder_of(chat.id)
    assert temporary.rows("PRAGMA temp_store") == [(2,)]
    assert temporary.write(lambda connection: connection.execute("PRAGMA temp_store").fetchone()) == (2,)
    assert temporary.write(lambda connection: connection.execute("PRAGMA journal_mode").fetchone()) == ("memory",)


def test_a_folder_of_a_killed_process_is_removed(store: ConversationStore, tmp_path: Path) -> None:
    store.begin_temporary(NEW_CHAT)
    remove_abandoned()
    assert [*(tmp_path / "temporary").iterdir()]  # this process still has it
