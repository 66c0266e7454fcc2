"""Cases of names: of chats, folders, files and the models that wrote replies, as an import takes them from strangers.

The pointer rests on each part of the window: a tooltip that Qt took for HTML would read what it names.
"""

import os
from collections.abc import Iterator, Mapping
from contextlib import closing
from functools import partial
from hashlib import sha256
from pathlib import Path

from tests.hostile.case import Call, Case, Kind

_FILE_TEXT = "text"
NAMES: Mapping[str, str] = {  # PIPE stands for a pipe that nobody writes to: who opens it waits for ever
    "a picture": '<img src="PIPE">',
    "a picture by its address": '<img src="file://PIPE">',
    "a picture without end": '<img src="/dev/zero">',
    "a picture of the network": '<img src="http://127.0.0.1:9/a.png">',
    "a style sheet": '<link rel="stylesheet" href="PIPE"><b>a</b>',
    "an imported style sheet": '<style>@import url("PIPE");</style><b>a</b>',
    "a background": '<table background="PIPE"><tr><td>a</td></tr></table>',
    "a background by style": '<p style="background-image: url(PIPE)">a</p>',
    "a list's picture": '<ul style="list-style-image: url(PIPE)"><li>a</li></ul>',
    "a whole document": '<!DOCTYPE html><html><body><img src="PIPE"></body></html>',
    "XML": '<?xml version="1.0"?><html><img src="PIPE"/></html>',
    "a picture after lines": 'a\n\n<img src="PIPE">',
    "a picture after an entity": 'a &lt; <img src="PIPE">',
    "a link": '<a href="file://PIPE">a</a>',
    "10,000 pictures": '<img src="PIPE">' * 10_000,
    "pictures of all sizes": '<img src=":/none" width="100000" height="100000">' * 100,
    "tables in one another": "<table><tr><td>" * 5000,
    "lists in one another": "<ul><li>" * 5000,
    "tags without end": "<b " * 50_000,
    "entities": "&amp;&#0;&#x110000;&evil;" * 5000,
    "1,000,000 letters": "a" * 1_000_000,
    "100,000 words": "word " * 100_000,
    "10,000 lines": "a\n" * 10_000,
    "zero bytes": "<b>a\0</b>" * 100,
    "from right to left": "<b>\u202e\u05d0</b>" * 1000,
    "ampersands": "&a && &&&" * 100,
}


def _make(name: str, folder: Path) -> Call:
    from rdchat.chat.attachments.attached_file import AttachedFile, FileKind
    from rdchat.chat.store import ConversationStore
    from rdchat.inference.api.messages import Role

    pipe, path = folder / "pipe", folder / "data" / "conversations.db"
    os.mkfifo(pipe)
    name = name.replace("PIPE", str(pipe))
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
    for name, text in NAMES.items():
        yield Case(Kind.LABELS, name, partial(_make, text))
