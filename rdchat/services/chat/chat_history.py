"""What the model is told of a conversation."""

from collections.abc import Sequence

from rdchat.chat.conversation import Message
from rdchat.inference.api.requests import ChatMessage, Role


def history(path: Sequence[Message], system_prompt: str) -> tuple[ChatMessage, ...]:
    """Turn a path of messages into what a chat template takes.

    Replies that never got a word are left out, and the prompts on either side of them joined: many templates refuse
    empty replies and two prompts in a row, and a question that broke off must not be lost silently.

    Args:
        path: Messages from the root to the last one that the model is to see.
        system_prompt: Comes first where it is not blank.
    """
    turns: list[ChatMessage] = []
    for message in path:
        if not message.text.strip():
            continue
        if turns and turns[-1].role is message.role:
            before = f"{turns[-1].content}\n\n"
            moved = tuple(len(before) + offset for offset in message.control_offsets)
            turns[-1] = ChatMessage(message.role, before + message.text, turns[-1].own_control + moved)
        else:
            turns.append(ChatMessage(message.role, message.text, message.control_offsets))
    if system_prompt.strip():
        turns.insert(0, ChatMessage(Role.SYSTEM, system_prompt))
    return tuple(turns)


def told_with(path: Sequence[Message], system_prompt: str, typed: str) -> tuple[ChatMessage, ...]:
    """Return what the model would be told of a path if a prompt were sent; a blank one adds nothing."""
    turns = list(history(path, system_prompt))
    if not typed.strip():
        return tuple(turns)
    if turns and turns[-1].role is Role.USER:
        last = turns.pop()
        typed = f"{last.content}\n\n{typed}"
    return (*turns, ChatMessage(Role.USER, typed))
