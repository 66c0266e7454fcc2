"""What the model is told of a conversation."""

from collections.abc import Callable, Sequence

from rdchat.chat.conversation import Message
from rdchat.chat.message_path import cut_of, uncut
from rdchat.inference.api.requests import ChatMessage, Role

_SUMMARY_WORDS = "This is a summary of the conversation so far; what follows goes on from it."


def history(
    path: Sequence[Message], system_prompt: str, waiting: Callable[[], object] = lambda: None
) -> tuple[ChatMessage, ...]:
    """Turn a path of messages into what a chat template takes.

    Replies that never got a word are left out, and the prompts on either side of them joined: many templates refuse
    empty replies and two prompts in a row, and a question that broke off must not be lost silently.

    Args:
        path: Messages from the root to the last one that the model is to see.
        system_prompt: Comes first where it is not blank.
        waiting: Called before each message; what it raises ends the work.
    """
    turns: list[ChatMessage] = []
    for message in path:
        waiting()
        if not message.text.strip():
            continue
        if turns and turns[-1].role is message.role:
            before = f"{turns[-1].content}\n\n"
            moved = tuple(len(before) + offset for offset in message.control_offsets)
            turns[-1] = ChatMessage(message.role, before + message.text, turns[-1].own_control + moved)
        else:
            turns.append(ChatMessage(message.role, message.text, message.control_offsets, _answer(message)))
    if system_prompt.strip():
        turns.insert(0, ChatMessage(Role.SYSTEM, system_prompt))
    return tuple(turns)


def _answer(message: Message) -> tuple[tuple[int, int], ...] | None:
    """Return where a reply's answer stands; None where all of it is."""
    if message.role is not Role.ASSISTANT:
        return None
    spans = message.parts.spans
    return None if spans == ((0, len(message.text)),) else spans


def told(
    path: Sequence[Message], system_prompt: str, typed: str = "", waiting: Callable[[], object] = lambda: None
) -> tuple[ChatMessage, ...]:
    """Return what the model is told of a path: what is not left out, with a summary where one stands for the rest.

    Args:
        path: Messages from the root to the last one that the model is to see.
        system_prompt: Comes first where it is not blank; a summary is a part of it.
        typed: A prompt that is not sent yet; blank for none.
        waiting: Called before each message; what it raises ends the work.
    """
    cut = cut_of(path)
    summary = cut.context_cut.summary if cut and cut.context_cut else ""
    turns = list(history(uncut(path), with_summary(system_prompt, summary), waiting))
    if not typed.strip():
        return tuple(turns)
    if turns and turns[-1].role is Role.USER:
        typed = f"{turns.pop().content}\n\n{typed}"
    return (*turns, ChatMessage(Role.USER, typed))


def with_summary(system_prompt: str, summary: str) -> str:
    """Return a system prompt that tells what was said before."""
    if not summary.strip():
        return system_prompt
    return f"{system_prompt}\n\n{_SUMMARY_WORDS}\n\n{summary}".strip()
