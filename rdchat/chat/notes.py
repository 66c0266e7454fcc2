"""Notes: short texts that the person kept for later chats of a project, or for all chats."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

LONGEST_NOTE = 300
"""In characters."""
NOTES_WISH = (
    "List what of this exchange will still matter in other chats about the same work: my preferences, names, decisions."
    ' List at most three facts, each in one short sentence on a line that begins with "- ", in my language. Leave out'
    " what is a matter of this chat alone, and what is noted already. If nothing is left, which is usual, reply: none"
)
_HEAD = "Notes from earlier chats, which I kept:"
# A request to remember something, up to the end of its sentence. "Do you remember that day" and "I remember that" are
# none.
_ASKED = re.compile(
    r"(?<!do you )(?<!\bI )(?<!not )(?<!n't )\bremember that\s(\S(?:[^.!?\n]|[.!?](?=\S)){0,300})", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class Note:
    """A note, or one that is proposed.

    Attributes:
        text: One line.
        folder_id: The folder of its project; None for all chats.
        chat_id: The chat that it comes from; None once that is deleted for good.
        source: The text of others in that chat from which it may come: `a file or a result of a tool`; empty for none.
        scope: Where it counts, for people: `the project “Work”`.
        date: The day when it was kept: `2026-11-29`.
        chat: Its chat, for people: `the chat “Soup”`, or `a deleted chat`.
        id: The primary key; 0 while it is proposed.
        kept: Whether the person has kept it; a note from an import counts for no chat before.
    """

    text: str
    folder_id: int | None
    chat_id: int | None
    source: str = ""
    scope: str = ""
    date: str = ""
    chat: str = ""
    id: int = 0
    kept: bool = True

    @property
    def marked(self) -> str:
        """Its text with its source."""
        return f"{self.text} (perhaps from {self.source})" if self.source else self.text


def tidy_note(text: str) -> str:
    """Return a note's text on one line, at most `LONGEST_NOTE` characters long; may be empty."""
    return " ".join(text.split())[:LONGEST_NOTE].rstrip(" .")


def notes_text(notes: Sequence[Note]) -> str:
    """Return notes as they stand in the prompt; empty without any."""
    return "\n".join([_HEAD, *(f"- {note.date}: {note.marked}" for note in notes)]) if notes else ""


def asked_notes(question: str) -> list[str]:
    """Return what a question asks to remember, in the words of the person: `remember that I use tabs`."""
    return [tidy_note(each) for each in _ASKED.findall(question)]


def notes_from_model(answer: str) -> list[str]:
    """Return the notes in a model's answer to `NOTES_WISH`."""
    lines = (tidy_note(line[2:]) for line in answer.splitlines() if line.startswith("- "))
    return [line for line in lines if line and line.casefold() != "none"]
