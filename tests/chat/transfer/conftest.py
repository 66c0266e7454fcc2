import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.chat_import import ImportReport
from tests.chat.transfer.tasks import import_into

type ImportFiles = Callable[..., ImportReport]
type WriteJson = Callable[[str, Any], Path]
type ImportJson = Callable[[str, Any], ImportReport]


@pytest.fixture
def import_files(store: ConversationStore) -> ImportFiles:
    """Imports files into the store."""
    return lambda *paths: import_into(store, paths)


@pytest.fixture
def write_json(tmp_path: Path) -> WriteJson:
    """Writes a file of JSON."""

    def write(name: str, data: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(data))
        return path

    return write


@pytest.fixture
def import_json(import_files: ImportFiles, write_json: WriteJson) -> ImportJson:
    """Imports a file of JSON."""
    return lambda name, data: import_files(write_json(name, data))
