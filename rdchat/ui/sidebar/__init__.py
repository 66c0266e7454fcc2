"""The left side of the window: search, chats in their folders, the archive and the bin."""

from rdchat.ui.sidebar.sidebar import Sidebar

__all__ = ["Sidebar"]
