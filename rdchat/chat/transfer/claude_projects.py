"""Reads Claude's projects and memories into entries of our JSON, in the transfer process.

Claude documents neither; they are those of exports of 2025 and 2026. `projects.json` is a list of projects, in newer
exports a file each, `projects/ID.json`, with a `name`, a `prompt_template` (its instructions) and `docs`, which have a
`filename` and a `content`. `memories.json`, or `memories/ID.json`, has a text about the person,
`conversations_memory`, and one of each project in `project_memories`, by the project's `uuid`. No chat names its
project, so the chats stay outside. A project's `description`, which the model does not get, and `memory_files`, of
which no form is known, are counted as left out.
"""

import re
from pathlib import PurePath

from rdchat.chat.storage import FullChat
from rdchat.chat.transfer import rdchat_json
from rdchat.chat.transfer.foreign_chats import ChatFormat, ForeignChat, Json

# What is between two notes: a paragraph each. A heading, which ends with `**`, goes with the one below.
_BETWEEN = re.compile(r"(?<!\*\*)\n\s*\n")


def is_projects_name(path: PurePath) -> bool:
    """Return whether a file in an export may have projects or memories, by its name and its folder's."""
    return path.suffix == ".json" and not {"projects", "memories"}.isdisjoint((path.stem, path.parent.name))


def is_memories_name(path: PurePath) -> bool:
    """Return whether a file or archive has memories by its name; it is read behind the projects that it is about."""
    return "memories" in f"{path.parent.name}/{path.name}"


def _project(chat: ForeignChat, fields: Json) -> FullChat:
    # The creator is the person.
    fields.pop("creator", None)
    files = [{"name": each.get("filename"), "text": each.get("content")} for each in chat.listed(fields, "docs")]
    fields.pop("docs", None)
    title = fields.pop("name", None)
    ours = {
        "title": title,
        "project": True,
        "key": fields.pop("uuid", None),
        "folder": [title],
        "system_prompt": fields.pop("prompt_template", None),
        "messages": [{"parent": None, "role": "user", "files": files}],
    }
    return rdchat_json.read(fields | ours, chat)


def _memories(chat: ForeignChat, fields: Json) -> FullChat:
    texts = chat.inner(fields, "project_memories") | {"": fields.pop("conversations_memory", None)}
    fields.pop("project_memories", None)
    notes = [
        {"project": key, "text": note} for key, text in texts.items() for note in _BETWEEN.split(chat.text_of(text))
    ]
    return rdchat_json.read(fields | {"title": "Memories", "project": True, "notes": notes, "messages": []}, chat)


PROJECTS = ChatFormat("Claude", lambda data: "prompt_template" in data, _project)
MEMORIES = ChatFormat("Claude", lambda data: "conversations_memory" in data, _memories)
