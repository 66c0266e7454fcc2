"""An import is killed at any moment: afterwards all chats of a file are there, or none."""

import json
from pathlib import Path

import pytest

from tests.chat.conftest import OpenStore, StartProcess
from tests.chat.transfer.killed_imports import CHATS, KILLS, LONGEST_S, MESSAGES, kill_at
from tests.chat.transfer.samples import chatgpt_chat, chatgpt_node
from tests.processes import moments


def write_chats(path: Path) -> Path:
    chats = [
        chatgpt_chat(
            *[chatgpt_node(str(n), str(n - 1) if n else None, "user", f"{number} {n} " * 100) for n in range(MESSAGES)],
            title=f"Chat {number}",
        )
        for number in range(CHATS)
    ]
    path.write_text(json.dumps(chats))
    return path


@pytest.mark.slow
def test_a_killed_import_leaves_nothing(
    database: Path, open_store: OpenStore, start_process: StartProcess, tmp_path: Path
):
    open_store().close()
    file = write_chats(tmp_path / "conversations.json")
    for moment_s in moments(KILLS, LONGEST_S, 36):
        assert kill_at(moment_s, database, file, start_process) in {0, CHATS}
