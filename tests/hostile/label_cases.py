"""Cases of names: of chats, folders, files and the models that wrote replies, as an import takes them from strangers.

In `cases/labels.json`, PIPE stands for a pipe that nobody writes to: who opens it waits for ever. The pointer rests on
each part of the window: a tooltip that Qt took for HTML would read what it names.
"""

import os
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.hostile.case import Call, Case, Kind
from tests.hostile.data import expanded, read

_FILE_TEXT = "text"


def _make(written: object, folder: Path) -> Call:
    from rdchat.chat.attachments.attached_file import AttachedFile, FileKind
    from rdchat.chat.store import ConversationStore
    from rdchat.inference.api import Role

    pipe = folder / "pipe"
    path = folder / "data" / "conversations.db"
    os.mkfifo(pipe)
    name = expanded(written).replace("PIPE", str(pipe))
    path.parent.mkdir()
    with closing(ConversationStore(path)) as store:
        store.organiser.create_folder(name)
        chat = store.create_conversation(name)
        digest = sha256(_FILE_TEXT.encode()).hexdigest()
        file = AttachedFile(name, FileKind.TEXT, digest, len(_FILE_TEXT), taken=name, note=name)
        asked = store.add_message(chat.id, None, Role.USER, "Hello", files=[(file, _FILE_TEXT)])
        for text in ("One", name[:1000]):  # long texts are cases of their own
            store.add_message(chat.id, asked.id, Role.ASSISTANT, text, model=name)
    return Call(store=path, data=folder / "data", only_model=name)


def label_cases() -> Iterator[Case]:
    """Yield all cases of names."""
    for name, text in read("labels").items():
        yield Case(Kind.LABELS, name, partial(_make, text))
