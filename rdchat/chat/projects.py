"""Folders of chats, and the projects that they are: what the chats of a folder share."""

from dataclasses import dataclass
from typing import Any

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.wording import counted


@dataclass(frozen=True, slots=True)
class Project:
    """What the chats of a folder share.

    Attributes:
        instructions: Their system prompt; blank leaves it to the preset.
        preset: Id of their preset; None leaves it to the model.
        model: Name of their model, by which it is loaded; None for the one that is loaded.
        tools: Names of the tool servers that are switched on in them.
        imported: Whether its instructions came with an import.
    """

    instructions: str = ""
    preset: str | None = None
    model: str | None = None
    tools: tuple[str, ...] = ()
    imported: bool = False


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder of chats.

    Attributes:
        id: The primary key.
        name: As the sidebar shows it.
        parent_id: The folder around it; None at the top. A folder in a folder cannot contain another one.
        expanded: Whether its content is shown.
        deleted_at: When it was moved to the Trash; None elsewhere.
        project: What its chats share, besides files.
        files: The files that its chats share, without their texts.
    """

    id: int
    name: str
    parent_id: int | None = None
    expanded: bool = True
    deleted_at: float | None = None
    project: Project = Project()
    files: tuple[AttachedFile, ...] = ()

    @property
    def is_project(self) -> bool:
        """Whether its chats share something."""
        return bool(self.description)

    @property
    def description(self) -> str:
        """What its chats share, for people: `instructions, model, 2 files`."""
        parts: dict[str, Any] = {
            "instructions": self.project.instructions.strip(),
            "preset": self.project.preset,
            "model": self.project.model,
            "tools": self.project.tools,
            counted(len(self.files), "file"): self.files,
        }
        return ", ".join(name for name, value in parts.items() if value)
