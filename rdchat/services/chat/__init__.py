"""Conversations as the window commands them, and replies on their way into the store."""
