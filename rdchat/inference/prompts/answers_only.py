"""Removes the thoughts from a conversation, for chat templates that leave them out."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate

from rdchat.inference.api.requests import ChatMessage

_BETWEEN = "\n\n"


def answers_only(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Leave the thoughts out; where nothing else was said, join the messages on either side, as templates want it."""
    kept: list[ChatMessage] = []
    for message in messages:
        said = message if message.answer is None else _answer(message, message.answer)
        if not said.content.strip():
            continue
        if kept and kept[-1].role is said.role:
            before = kept[-1].content + _BETWEEN
            moved = tuple(len(before) + offset for offset in said.own_control)
            kept[-1] = ChatMessage(said.role, before + said.content, kept[-1].own_control + moved)
        else:
            kept.append(said)
    return kept


def _answer(message: ChatMessage, spans: Sequence[tuple[int, int]]) -> ChatMessage:
    """Return the message with what stands at `spans` alone, without the blanks before it."""
    text = "".join(message.content[start:end] for start, end in spans)
    blank = len(text) - len(text.lstrip())
    starts = accumulate((end - start for start, end in spans), initial=-blank)
    own = tuple(
        at + offset - start
        for at, (start, end) in zip(starts, spans, strict=False)
        for offset in message.own_control
        if start <= offset < end
    )
    return replace(message, content=text[blank:], own_control=own, answer=None)
