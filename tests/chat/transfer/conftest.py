import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.importing import Import
from rdchat.chat.transfer.reports import ImportReport

type ImportFiles = Callable[..., ImportReport]
type WriteJson = Callable[[str, Any], Path]


@pytest.fixture
def import_files(store: ConversationStore) -> ImportFiles:
    """Imports files into the store, beside the process that has it."""
    return lambda *paths: Import(store.path, lambda _progress: None, considerate=False).run(list(paths))


@pytest.fixture
def write_json(tmp_path: Path) -> WriteJson:
    """Writes a file of JSON."""

    def write(name: str, data: Any) -> Path:
        path = tmp_path / name
        path.write_text(json.dumps(data))
        return path

    return write
