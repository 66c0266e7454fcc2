"""Messages as the tests of the storage compare them."""

from rdchat.chat.conversation import Message


def texts(messages: list[Message]) -> list[str]:
    return [message.text for message in messages]
