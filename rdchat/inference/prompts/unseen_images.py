"""What a model that does not see gets of images."""

from collections.abc import Sequence

from rdchat.inference.api.messages import ChatMessage

UNSEEN = "(an image that this model cannot see)"


def without_images(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return a conversation for a model that does not see: a line stands for each image."""
    return [each.with_lines([UNSEEN] * len(each.images)) for each in messages]
