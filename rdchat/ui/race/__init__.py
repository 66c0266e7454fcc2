"""The race window: one prompt answered plainly and drafted, replayed side by side."""

from rdchat.ui.race.window import RaceWindow

__all__ = ["RaceWindow"]
