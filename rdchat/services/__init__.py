"""The engine thread and its Qt facade, and what coordinates chats with it. QtCore and QtNetwork only, no widgets."""
