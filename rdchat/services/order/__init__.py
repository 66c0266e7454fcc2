"""Conversations kept in order: what the sidebar lists, searching, undoing, titles by the model."""
