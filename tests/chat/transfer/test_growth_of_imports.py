"""The law of the writer's work in an import: it grows with the file, and not faster."""

import base64
import json
import sys
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.store import ConversationStore
from tests.chat.transfer import tasks
from tests.chat.transfer.samples import ours

SMALL = 100
LONGER = 4

type Entries = Callable[[int], list[dict[str, Any]]]


def _image(number: int) -> dict[str, Any]:
    text = base64.b64encode(b"\x89PNG%d" % number).decode()
    file = {"name": "a.png", "kind": "image", "text": text}
    return {"title": f"Chat {number}", "messages": [{"parent": None, "role": "user", "text": "Look", "files": [file]}]}


def _project(number: int) -> dict[str, Any]:
    return {"folder": ["Work"], "project": True, "system_prompt": f"Rhyme {number}.", "messages": []}


def _note(number: int) -> dict[str, str]:
    return {"text": f"I use {number} tabs"}


MANY: Mapping[str, Entries] = {
    "chats with an image each": lambda count: [_image(each) for each in range(count)],
    "projects of one name": lambda count: [_project(each) for each in range(count)],
    "notes of a project": lambda count: [_project(0) | {"notes": [_note(each) for each in range(count)]}],
}


def work(folder: Path, entries: list[dict[str, Any]]) -> int:
    """Return what the writer did for an import: calls of functions in Python, and steps of SQLite."""
    done = 0

    def count(*_event: object) -> None:
        nonlocal done
        done += 1

    path = folder / "theirs.json"
    path.write_text(json.dumps(ours(*entries)))
    with closing(ConversationStore(folder / "chats.db")) as store:
        store.write(lambda connection: connection.set_progress_handler(count, 1))
        store.write(lambda _: sys.setprofile(count))
        report = tasks.import_into(store, [path])
        assert max(len(report.chats), len(report.folders), len(report.notes)) == len(entries[0].get("notes", entries))
    return done


@pytest.mark.parametrize("what", MANY)
def test_the_work_grows_with_the_file_and_not_faster(tmp_path: Path, what: str) -> None:
    """2,000 chats with an image each held the writer, and with it the window, for 13 s; so did projects and notes."""
    works = []
    for count in (SMALL, SMALL * LONGER):
        folder = tmp_path / f"{count}"
        folder.mkdir()
        works.append(work(folder, MANY[what](count)))
    assert works[1] <= 1.25 * LONGER * works[0], works
