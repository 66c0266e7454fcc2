"""The list of chats: its order, search, Undo, and titles by the model."""
