"""The left side of the window: search, chats in their folders, the archive and the Trash."""
