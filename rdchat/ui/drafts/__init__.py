"""The window that shows how a reply came about: its tokens, and the prefix tree of each round."""

from rdchat.ui.drafts.window import DraftsWindow

__all__ = ["DraftsWindow"]
