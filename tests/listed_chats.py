"""The chats that the sidebar lists."""

from rdchat.chat.conversation import Conversation
from rdchat.chat.listing import ChatRow
from rdchat.services.chat_list.chat_list import ChatList


def listed(chats: ChatList) -> list[Conversation]:
    """Return the conversations that the search leaves, newest first; without one, those that are not archived."""
    if chats.query:
        return [row.conversation for row in chats.rows if isinstance(row, ChatRow)]
    return [chat for chat in chats.store.conversations() if not chat.archived]
