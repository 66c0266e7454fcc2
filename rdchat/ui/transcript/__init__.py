"""The transcript of a conversation."""

from rdchat.ui.transcript.view import TranscriptView

__all__ = ["TranscriptView"]
