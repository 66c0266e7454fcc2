"""Notes: short texts that the person kept for later chats of a project, or for all chats."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rdchat.chat.note_wordings import (
    AT_AN_END,
    BEFORE_A_WORD,
    BULLET,
    END_MARKS,
    GOES_ON,
    NO_FACT,
    NOTHING,
    OTHERS,
    PLAIN,
    SENTENCE_END,
    TAG,
    WISHES,
)

LONGEST_NOTE = 1000
"""In characters. A longer one is stored whole, but a field for notes accepts none: it would displace all others."""
NOTES_WISH = (
    "List what of this exchange will still matter in other chats about the same work: my preferences, names, decisions."
    ' List at most three facts, each in one short sentence on a line that begins with "- ", in my language. Leave out'
    " what is a matter of this chat alone, and what is noted already. If nothing is left, which is usual, reply: none"
)
_HEAD = "Notes from earlier chats, which I kept:"
# In characters.
_LONGEST_WORD = 24
_LONGEST_TAG = 60
_LONGEST_QUESTION = 100_000


@dataclass(frozen=True, slots=True)
class Note:
    """A note, or one that is proposed.

    Attributes:
        text: As typed, perhaps of several lines.
        folder_id: The folder of its project; None for all chats.
        chat_id: The chat that it comes from; None once that is deleted for good.
        source: The text of others in that chat from which it may come: `a file or a result of a tool`; empty for none.
        scope: Where it counts, for people: `the project “Work”`.
        date: The day when it was kept: `2026-11-29`.
        chat: Its chat, for people: `the chat “Soup”`, or `a deleted chat`.
        id: The primary key; 0 while it is proposed.
    """

    text: str
    folder_id: int | None
    chat_id: int | None
    source: str = ""
    scope: str = ""
    date: str = ""
    chat: str = ""
    id: int = 0

    @property
    def marked(self) -> str:
        """Its text with its source."""
        return f"{self.text} (perhaps from {self.source})" if self.source else self.text


def notes_text(notes: Sequence[Note]) -> str:
    """Return notes as they stand in the prompt; empty without any."""
    texts = ("\n  ".join(f"{note.date}: {note.marked}".splitlines()) for note in notes)
    return "\n".join([_HEAD, *(f"- {text}" for text in texts)]) if notes else ""


def asked_notes(question: str) -> list[str]:
    """Return what a question asks to remember, in the words of the person: `remember that I use tabs`.

    Words of others (`OTHERS`) ask for nothing. They can be a part of what is to remember. Nothing is looked for in a
    question of more than `_LONGEST_QUESTION` characters: its words are others', and the window would wait.
    """
    if len(question) > _LONGEST_QUESTION:
        return []
    text = unicodedata.normalize("NFC", question)
    own = OTHERS.sub(lambda others: "_" * len(others[0]), text).translate(PLAIN)
    notes: list[str] = []
    for begin, end, mark in _sentences(own):
        tag = TAG.search(own, max(begin, end - _LONGEST_TAG), end)
        last = tag.start() if tag else end
        wish = next(filter(None, (pattern.match(own, begin, last) for pattern in WISHES)), None)
        if wish is not None and (tag or wish["request"] or not {"?", "\uff1f"} & set(mark)):
            rest = text[slice(*wish.span("rest"))].strip()
            notes += _entries(rest) if BULLET.match(rest) else [_without_point(rest)]
    return [note for note in notes if _words(note) - NO_FACT]


def notes_from_model(answer: str) -> list[str]:
    """Return the notes in a model's answer to `NOTES_WISH`."""
    return [note for note in _entries(answer) if _words(note) - NOTHING]


def _entries(text: str) -> list[str]:
    """Return the entries of a list without their bullets; other lines are left out."""
    bullets = ((BULLET.match(line), line) for line in text.splitlines())
    return [_without_point(" ".join(line[bullet.end() :].split())) for bullet, line in bullets if bullet]


def _without_point(text: str) -> str:
    """Return a text without the point that ends it, unless that belongs to an abbreviation."""
    return text if _is_abbreviation(text[-_LONGEST_WORD:]) else text.rstrip(END_MARKS)


def _is_abbreviation(text: str) -> bool:
    """Return whether a text ends with an abbreviation, or with an ellipsis."""
    return bool(BEFORE_A_WORD.search(text) or AT_AN_END.search(text))


def _words(text: str) -> set[str]:
    return set(re.findall(r"\w+", text.casefold()))


def _sentences(text: str) -> Iterator[tuple[int, int, str]]:
    """Yield begin and end of each sentence of a text without accents, and the mark behind it."""
    begin = 0
    for mark in SENTENCE_END.finditer(text):
        end = mark.end()
        last = text[max(mark.start() - _LONGEST_WORD, 0) : end]
        if BEFORE_A_WORD.search(last):
            goes_on = bool(text[end : end + _LONGEST_WORD].strip())
        else:
            goes_on = bool(AT_AN_END.search(last) and GOES_ON.match(text, end))
        if not goes_on:
            yield begin, end if _is_abbreviation(last) else mark.start(), mark[0]
            begin = end
    yield begin, len(text), ""
