"""File formats of chats: our own JSON, Markdown, and those of other apps."""
