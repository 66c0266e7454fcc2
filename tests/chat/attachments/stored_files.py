"""Stores files of messages, and takes them out again."""

from collections.abc import Sequence
from pathlib import Path

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import Message
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.chat_import import FileReport
from rdchat.inference.api import Role
from tests.chat.transfer import tasks


def ask(store: ConversationStore, *files: tuple[AttachedFile, str], text: str = "How much?") -> Message:
    return store.add_message(store.create_conversation("Apples").id, None, Role.USER, text, files=files)


def erase_all(store: ConversationStore, chats: Sequence[int]) -> None:
    for chat in chats:
        store.delete_conversation(chat)
    store.organiser.schedule_erase(chats)
    store.organiser.erase().result()


def export(store: ConversationStore, path: Path, kind: str, chats: list[int], *, details: bool = False) -> None:
    tasks.export(store.path, path, kind, chats, details=details)


def imported(store: ConversationStore, path: Path) -> FileReport:
    (report,) = tasks.import_into(store, [path]).files
    return report
