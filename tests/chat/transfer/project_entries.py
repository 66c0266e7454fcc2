"""Projects, and the entries that they and their chats are in a file of ours."""

from collections.abc import Sequence
from typing import Any

from rdchat.chat.projects import Project

PROJECTS = {
    "plain": Project(),
    "tools": Project(tools=("web",)),
    "rhymes": Project("Rhyme."),
    "drums": Project("Drum."),
    "files": Project("Rhyme."),
}


def project_entry(names: Sequence[str], kind: str) -> dict[str, Any]:
    files = [{"name": "a.txt", "kind": "text", "text": "Alpha"}] if kind == "files" else []
    return {
        "title": names[-1], "folder": [*names], "project": True, "system_prompt": PROJECTS[kind].instructions,
        "messages": [{"parent": None, "role": "user", "text": "", "files": files}] if files else [],
        "notes": [{"text": "They use blanks"}, {"text": "I use tabs"}],
    }  # fmt: skip


def chat_entry(names: Sequence[str], title: str) -> dict[str, Any]:
    return {"title": title, "folder": [*names], "messages": [{"parent": None, "role": "user", "text": title}]}
