"""Context cuts: marks that hide the beginning of a chat from the model, mostly with a summary in its place."""

from dataclasses import dataclass

from rdchat.chat.attachments.attached_file import AttachedFile

SUMMARY_NOTE = "This is a summary of the conversation so far; what follows goes on from it."
"""Stands before a summary in a prompt."""


@dataclass(frozen=True, slots=True)
class ContextCut:
    """Hides a message and those before it from the model. The last cut of a path counts.

    Attributes:
        summary: What the model gets instead; empty for nothing.
        model: The model that wrote the summary, with the name of its server if that is a remote one.
        written_at: When it was written, in seconds since the epoch; None where unknown.
        edited: Whether the summary is the person's version.
        sources: The tools, remote servers and files whose texts it summarises.
        files: Files of the hidden messages that the model still gets whole.
        shortens: Whether the messages stay, and only long results of tools among them are shortened.
    """

    summary: str = ""
    model: str = ""
    written_at: float | None = None
    edited: bool = False
    sources: tuple[str, ...] = ()
    files: tuple[AttachedFile, ...] = ()
    shortens: bool = False
