"""Two alternatives of one message beside each other."""

from rdchat.ui.alternatives.window import AlternativesWindow

__all__ = ["AlternativesWindow"]
