"""Chats, settings and their storage. Pure Python: no Qt, no MLX."""
