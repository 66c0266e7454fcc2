"""Which messages of a path the model is told: those behind the last cut."""

from collections.abc import Sequence

from rdchat.chat.conversation import Message
from rdchat.chat.message_path import MessagePath


def uncut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model is told."""
    return path[_cut_place(path) + 1 :]


def from_cut(path: Sequence[Message]) -> Sequence[Message]:
    """Return the messages of a path that the model is told, behind the one with the cut that counts."""
    return path[max(0, _cut_place(path)) :]


def cut_of(path: Sequence[Message]) -> Message | None:
    """Return the message with the cut that counts; None where all of the path is told."""
    place = _cut_place(path)
    return path[place] if place >= 0 else None


def _cut_place(path: Sequence[Message]) -> int:
    if isinstance(path, MessagePath):
        return path.cut_place
    places = (place for place in reversed(range(len(path))) if path[place].context_cut is not None)
    return next(places, -1)
