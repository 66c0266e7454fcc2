"""Titles of conversations: the person's, those made from the first prompt, and the model's."""

import re

from rdchat.thoughts import split_thoughts

NEW_CHAT, NEW_FOLDER = "New chat", "New folder"
TITLE_WISH = "Write a title for this chat: three to six words in its language. Reply with the title alone."
_LONGEST = 200  # what a person may give
_LONGEST_MADE = 48  # what fits the sidebar
_MARKS = "#>*_`~-+=| \t"  # markdown around a line, which a title does not need
_QUOTES = "\"'“”„\u2018\u2019«»「」"
_MOST_WORDS_MADE, _LONGEST_WRITTEN = 12, 90  # of a model's line: a longer one is no title
_LABEL = re.compile(r"^(?:the )?(?:chat )?(?:title|titel|titre|título)\s*[:\uff1a]\s*", re.IGNORECASE)
_CONTROL = re.compile(r"<\|[^<>|]*\|>")


def tidy_title(title: str) -> str:
    """Return a person's title on one line and of a bearable length; empty where nothing is left."""
    return " ".join(title.split())[:_LONGEST].rstrip()


def title_from_prompt(prompt: str) -> str:
    """Return a title made of the first line of a prompt that says something, cut at a word."""
    lines = (" ".join(line.split()).strip(_MARKS) for line in prompt.splitlines() if not line.startswith("```"))
    title = next((line for line in lines if line), "") or tidy_title(prompt)
    if len(title) > _LONGEST_MADE:
        cut = title[:_LONGEST_MADE]
        words, space, _ = cut.rpartition(" ")
        title = (words if space and len(words) > _LONGEST_MADE // 2 else cut).rstrip(" ,;:.-") + "…"
    return title or NEW_CHAT


def title_from_model(written: str, *, begins_in_thought: bool) -> str:
    """Return the title in what a model wrote when it was asked for one; empty where there is none.

    What it thought is no title, neither between think tags nor in a channel that is not the final one.

    Args:
        written: All of it, as it ended by itself.
        begins_in_thought: The model's replies begin inside a thought that only a closing tag ends.
    """
    parts = split_thoughts(written, begun=begins_in_thought)
    if parts.open:
        return ""
    lines = (line.strip(_MARKS) for line in _CONTROL.sub("", parts.answer).splitlines())
    line = " ".join(_LABEL.sub("", next((line for line in lines if line), "")).strip(_MARKS + _QUOTES).split())
    if not any(character.isalnum() for character in line):
        return ""
    if len(line) > _LONGEST_WRITTEN or len(line.split()) > _MOST_WORDS_MADE or line.endswith(":"):
        return ""
    line = line.rstrip(" ,;")
    return line.rstrip(".\u3002") if line.count(".") < 2 else line


def begins_in_thought(reply: str) -> bool:
    """Tell whether a reply's first thought was begun by the chat template: a closing tag without an opening one."""
    return "</think>" in reply and "<think>" not in reply.partition("</think>")[0]
