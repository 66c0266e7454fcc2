"""Cases of what a reply says: markdown that is deep, wide, long or odd. They are shown in the window's transcript."""

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from tests.hostile.case import Call, Case, Kind
from tests.hostile.data import expanded, read


def _make(written: object, folder: Path) -> Call:
    """Make a database with a chat whose reply has this text."""
    from rdchat.chat.store import ConversationStore
    from rdchat.inference.api import Role

    text = expanded(written)
    path = folder / "data" / "conversations.db"
    path.parent.mkdir()
    with closing(ConversationStore(path)) as store:
        chat = store.create_conversation("Stored")
        prompt = store.add_message(chat.id, None, Role.USER, text[:20_000])
        store.add_message(chat.id, prompt.id, Role.ASSISTANT, text)
    return Call(text=text, store=path, data=path.parent)


def markdown_cases() -> Iterator[Case]:
    """Yield all cases of markdown."""
    for name, text in read("markdown").items():
        yield Case(Kind.MARKDOWN, name, partial(_make, text))
