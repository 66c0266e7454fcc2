"""What people do with their chats, drawn by a seed: each change is one call of the store."""

from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from random import Random

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached, image_file
from rdchat.chat.conversation import Conversation, Message
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.errors import StorageError
from rdchat.inference.api import Role, SamplingParams
from tests.stores import connect_by_hand

_STATE = {
    "chats": "SELECT id, title, system_prompt, sampling, pinned_at IS NULL, archived_at IS NULL, deleted_at IS NULL,"
    " folder_id FROM conversations WHERE unlisted = 0",
    "messages": "SELECT m.id, m.parent_id, m.role, m.text, m.status, m.edited, m.context_cut,"
    " m.id IN (SELECT message_id FROM deleted_messages) FROM messages m JOIN conversations c"
    " ON c.id = m.conversation_id WHERE c.unlisted = 0",
    "shown": "SELECT m.id FROM messages m JOIN conversations c ON c.id = m.conversation_id WHERE c.unlisted = 0"
    " ORDER BY m.conversation_id, m.activated",
    "folders": "SELECT id, name, parent_id, deleted_at IS NULL FROM folders",
    "files": "SELECT f.message_id, f.name, t.text, hex(i.data) FROM message_files f JOIN file_texts t USING (digest)"
    " LEFT JOIN file_images i USING (digest) JOIN conversations c ON c.id = f.conversation_id WHERE c.unlisted = 0",
}


def state(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """Return all that a person could see of the chats in a file, without times."""
    with closing(connect_by_hand(path)) as connection:
        return {
            name: sorted(connection.execute(query)) if name != "shown" else list(connection.execute(query))
            for name, query in _STATE.items()
        }


def changes(store: ConversationStore, seed: int) -> Iterator[str]:
    """Make changes for ever; yield the name of each once it is made, or could not be made."""
    draw = Random(seed)
    kinds = (
        _begin,
        _write,
        _edit,
        _delete_message,
        _cut,
        _branch,
        _delete_chat,
        _restore_chat,
        _order,
        _restore_message,
    )
    while True:
        change = draw.choices(kinds, (1, 6, 3, 2, 2, 1, 1, 1, 2, 2))[0]
        with suppress(StorageError):  # there is nothing to be changed, or brought back
            change(store, draw)
        yield change.__name__


def _chat(store: ConversationStore, draw: Random) -> Conversation:
    chats = sorted(store.conversations(), key=lambda chat: chat.id)
    if not chats:
        raise StorageError("There is no chat.", "Begin one.")
    return draw.choice(chats)


def _message(store: ConversationStore, draw: Random) -> Message:
    chat = _chat(store, draw)
    path = store.messages(chat.id)
    if not path:
        raise StorageError("There is no message.", "Write one.")
    return draw.choice(path)


def _begin(store: ConversationStore, draw: Random) -> None:
    store.create_conversation(f"Chat {draw.random()}")


def _write(store: ConversationStore, draw: Random) -> None:
    chat = _chat(store, draw)
    path = store.messages(chat.id)
    role = Role.ASSISTANT if path and path[-1].role is Role.USER else Role.USER
    text = f"Text {draw.random()} " * draw.randrange(1, 200)
    read = ReadFile("notes.txt", FileKind.TEXT, (text,))
    files = [(attached(read, text), text)] if role is Role.USER and draw.random() < 0.3 else []
    if role is Role.USER and draw.random() < 0.3:
        files.append(image_file(b"\x89PNG" + draw.randbytes(draw.randrange(100_000)), "photo", "", 3, 2))
    store.add_message(chat.id, path[-1].id if path else None, role, text, files=files)


def _edit(store: ConversationStore, draw: Random) -> None:
    old = _message(store, draw)
    is_reply = old.role is Role.ASSISTANT
    more = {"edited": True} if is_reply else {"files": [(file, store.file_text(file)) for file in old.files]}
    store.add_message(old.conversation_id, old.parent_id, old.role, f"Edited {draw.random()}", **more)  # type: ignore[arg-type]


def _delete_message(store: ConversationStore, draw: Random) -> None:
    store.message_trash.delete(_message(store, draw).id)


def _restore_message(store: ConversationStore, draw: Random) -> None:
    store.message_trash.restore_last(_chat(store, draw).id)


def _cut(store: ConversationStore, draw: Random) -> None:
    summary = ContextCut(f"A summary {draw.random()}", "model", draw.random(), sources=("files__read",))
    cut = draw.choice((None, ContextCut(), summary, ContextCut(shortens=True)))
    store.set_context_cut(_message(store, draw).id, cut)


def _branch(store: ConversationStore, draw: Random) -> None:
    last = _message(store, draw)
    store.organiser.copy(last.conversation_id, f"Branch {draw.random()}", last.id).result()


def _delete_chat(store: ConversationStore, draw: Random) -> None:
    store.delete_conversation(_chat(store, draw).id)


def _restore_chat(store: ConversationStore, draw: Random) -> None:
    if deleted := sorted(chat.id for chat in store.organiser.deleted_chats()):
        store.restore_conversation(draw.choice(deleted))


def _order(store: ConversationStore, draw: Random) -> None:
    chat = _chat(store, draw)
    organiser = store.organiser
    match draw.randrange(5):
        case 0:
            organiser.set_pinned(chat.id, draw.random() < 0.5)
        case 1:
            organiser.set_archived(chat.id, draw.random() < 0.5)
        case 2:
            folders = sorted(folder.id for folder in organiser.folders())
            organiser.move(chat.id, draw.choice(folders) if folders else None)
        case 3:
            organiser.create_folder(f"Folder {draw.random()}")
        case _:
            prompt = f"Prompt {draw.random()}"
            sampling = SamplingParams(temperature=draw.random())
            store.set_chat_options(replace(chat, system_prompt=prompt, sampling=sampling))
