"""The formats of chats in files: our own JSON, Markdown, and those that other apps write."""
