"""Notes: short texts that the person kept for later chats of a project, or for all chats."""

import re
import tomllib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b
from importlib import resources
from itertools import chain
from secrets import token_hex

LONGEST_NOTE = 1000
"""In characters. A longer one is stored whole, but a field for notes accepts none: it would displace all others."""
NOTES_WISH = (
    "List what of this exchange will still matter in other chats about the same work: my preferences, names, decisions."
    ' List at most three facts, each in one short sentence on a line that begins with "- ", in my language. Leave out'
    " what is a matter of this chat alone, and what is noted already. If nothing is left, which is usual, reply: none"
)
_HEAD = "Notes from earlier chats, which I kept:"
# In characters.
_LONGEST_QUESTION = 100_000
_KEY_LETTERS = 16
# Patterns of the words by which people ask to remember something; `note_wordings.toml` describes them.
_TABLE = tomllib.loads(resources.files("rdchat.chat").joinpath("note_wordings.toml").read_text(encoding="utf-8"))
_FLAGS = re.VERBOSE | re.IGNORECASE | re.MULTILINE | re.DOTALL


def _pattern(pattern: str, *tables: dict[str, list[str]]) -> re.Pattern[str]:
    """Return a pattern where each list's name in braces is replaced by any of its entries in all tables."""
    lists = {name: "|".join(chain(*(each[name] for each in tables))).replace(" ", r"\s{1,9}") for name in tables[0]}
    return re.compile(pattern.format(**{name: f"(?:{entries})" for name, entries in lists.items()}), _FLAGS)


# The words of one language may stand before those of another one: "OK, merk dir …".
_WISHES = tuple(_pattern(each["pattern"], *each["languages"].values()) for each in _TABLE["wishes"])
_ABBREVIATION, _BULLET, _ENDS_SHORT, _OTHERS, _SENTENCE = (
    _pattern(_TABLE["patterns"][name], _TABLE["lists"])
    for name in ("abbreviation", "bullet", "ends_short", "others", "sentence")
)
_NO_FACT = frozenset(_TABLE["lists"]["no_fact"])
_END_MARKS = _TABLE["end_marks"]
# For `str.translate`: Latin letters without their accents, and one form of the apostrophe.
_PLAIN = {
    code: base for code in range(0xC0, 0x180) if (base := unicodedata.normalize("NFD", chr(code))[0]).isascii()
} | dict.fromkeys(map(ord, _TABLE["apostrophes"]), "'")


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
        chat: Its chat, for people: `the chat “Soup”`, or `a deleted chat`; empty if it has none, or none any more.
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


def notes_text(notes: Sequence[Note]) -> str:
    """Return notes as they stand in the prompt; empty without any."""
    texts = ("\n  ".join(f"{note.date}: {note.marked}".splitlines()) for note in notes)
    return "\n".join([_HEAD, *(f"- {text}" for text in texts)]) if notes else ""


def asked_notes(question: str) -> list[str]:
    """Return what a question asks to remember, in the words of the person: `remember that I use tabs`.

    Words of others (`_OTHERS`) ask for nothing. They can be a part of what is to remember. Nothing is looked for in a
    question of more than `_LONGEST_QUESTION` characters: its words are others', and the window would wait.
    """
    if len(question) > _LONGEST_QUESTION:
        return []
    text = unicodedata.normalize("NFC", question)
    own = _ABBREVIATION.sub(_masked, _OTHERS.sub(_masked, text).translate(_PLAIN))
    notes: list[str] = []
    for sentence in _SENTENCE.finditer(own):
        wish = next(filter(None, (each.match(own, *sentence.span("words")) for each in _WISHES)), None)
        if wish and (wish["request"] or wish["tag"] or not {"?", "\uff1f"} & set(sentence["mark"])):
            begin, end = wish.span("rest")
            rest = text[begin : sentence.end() if end == sentence.end("words") else end].strip()
            notes += _entries(rest) if _BULLET.match(rest) else [_without_point(rest)]
    return list(filter(_is_fact, notes))


def notes_from_model(answer: str) -> list[str]:
    """Return the notes in a model's answer to `NOTES_WISH`."""
    return list(filter(_is_fact, _entries(answer)))


def note_digest(text: str, like: str = "") -> str:
    """Return a key, that of another digest or a new one, and the digest of a note's text with it.

    The digest is short, so that many texts have the same one: it tells nearly nothing of a text that was dismissed.
    """
    key = like[:_KEY_LETTERS] or token_hex(_KEY_LETTERS // 2)
    return key + blake2b(text.casefold().encode(), key=key.encode(errors="replace"), digest_size=4).hexdigest()


def _entries(text: str) -> list[str]:
    """Return the entries of a list without their bullets, each on one line; other lines are left out."""
    entries = [_BULLET.sub("", line, 1) for line in text.splitlines() if _BULLET.match(line)]
    return [_without_point(" ".join(entry.split())) for entry in entries]


def _masked(found: re.Match[str]) -> str:
    return "_" * len(found[0])


def _without_point(text: str) -> str:
    """Return a text without the point that ends it, unless that belongs to an abbreviation."""
    return text if _ENDS_SHORT.search(text) else text.rstrip(_END_MARKS)


def _is_fact(text: str) -> bool:
    """Return whether a text is no answer such as `(none)`, nor the rest of `remember that for me`."""
    return not _NO_FACT.issuperset(re.findall(r"\w+", text.casefold()))
