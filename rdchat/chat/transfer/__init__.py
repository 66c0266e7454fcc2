"""Chats in and out: exports, imports of our own and of other apps' files, and their reports."""
