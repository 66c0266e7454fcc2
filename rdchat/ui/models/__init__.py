"""The models window: what is on this machine, what the hub has, downloads, and drafters."""

from rdchat.ui.models.window import ModelsWindow

__all__ = ["ModelsWindow"]
