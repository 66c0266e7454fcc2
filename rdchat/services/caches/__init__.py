"""Data of earlier chats that speeds up later replies."""
