"""What a model that does not see gets of images."""

from collections.abc import Sequence
from dataclasses import replace

from rdchat.inference.api.messages import ChatMessage

UNSEEN = "(an image that this model cannot see)"


def without_images(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return a conversation for a model that does not see: a line stands for each image."""
    return [_unseen(each) if each.images else each for each in messages]


def _unseen(message: ChatMessage) -> ChatMessage:
    lines = ChatMessage(message.role, "\n".join([UNSEEN] * len(message.images)))
    both = lines.joined(message) if message.content else lines
    return replace(message, content=both.content, own_control=both.own_control, images=())
