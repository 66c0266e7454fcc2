"""Titles of chats: given by the person, made from the first prompt, or written by the model."""

import re

NEW_CHAT = "New chat"
NEW_FOLDER = "New folder"
TITLE_WISH = "Write a title for this chat: three to six words in its language. Reply with the title alone."
# The longest title that a person can give, in characters.
_LONGEST = 200
# The longest title that is made, in characters: it fits the sidebar.
_LONGEST_MADE = 48
# More of a text is not read for a title: marks without an end are looked for again and again.
_LONGEST_READ = 2_000
# Markdown around a line, which is removed from titles.
_MARKS = "#>*_`~-+=| \t"
_QUOTES = "\"'“”„\u2018\u2019«»「」"
# A line of the model with more words or characters than these is not a title.
_MAX_WORDS_MADE = 12
_LONGEST_WRITTEN = 90
_LABEL = re.compile(r"^(?:the )?(?:chat )?(?:title|titel|titre|título)\s*[:\uff1a]\s*", re.IGNORECASE)
# Bold, italic, struck-out and code.
_MARKED = re.compile(r"(?<!\w)(\*\*|\*|~~|`{1,9})(?=\S)(.{1,300}?)(?<=\S)\1(?!\w)")
_LINK = re.compile(r"!?\[([^\[\]]+)\]\([^()\s]*\)")
# These remain of marks that were cut.
_LEFT_OVER = re.compile(r"\*\*|`")
_CONTROL = re.compile(r"<\|[^<>|]*\|>")


def tidy_title(title: str) -> str:
    """Return a title or another name on one line, with a mark where a long one is cut; may be empty."""
    text = " ".join(title.split())
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1].rstrip()}…"


def title_from_prompt(prompt: str) -> str:
    """Return a title made from the first line of a prompt with words in it, cut at a word."""
    lines = (
        _plain(" ".join(line.split())) for line in prompt[:_LONGEST_READ].splitlines() if not line.startswith("```")
    )
    title = next((line for line in lines if line), "") or tidy_title(prompt)
    if len(title) > _LONGEST_MADE:
        cut = title[:_LONGEST_MADE]
        complete, space, _ = cut.rpartition(" ")
        title = (complete if space and len(complete) > _LONGEST_MADE // 2 else cut).rstrip(" ,;:.-") + "…"
    return title or NEW_CHAT


def title_from_model(answer: str) -> str:
    """Return the title in a model's answer to a request for one, which ended by itself; may be empty."""
    lines = (_LEFT_OVER.sub("", _plain(line)) for line in _CONTROL.sub("", answer[:_LONGEST_READ]).splitlines())
    line = " ".join(_LABEL.sub("", next((line for line in lines if line), "")).strip(_MARKS + _QUOTES).split())
    if not any(character.isalnum() for character in line):
        return ""
    if len(line) > _LONGEST_WRITTEN or len(line.split()) > _MAX_WORDS_MADE or line.endswith(":"):
        return ""
    line = line.rstrip(" ,;")
    return line.rstrip(".\u3002") if line.count(".") < 2 else line


def _plain(line: str) -> str:
    """Return a line of Markdown without its marks."""
    return _MARKED.sub(r"\2", _LINK.sub(r"\1", line)).strip(_MARKS)
