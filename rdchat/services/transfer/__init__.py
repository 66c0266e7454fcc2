"""Chats in and out, as the window and the command line ask for it."""
