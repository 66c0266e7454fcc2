"""The models window: installed models, the hub, downloads and drafters."""

from rdchat.ui.models.window import ModelsWindow

__all__ = ["ModelsWindow"]
