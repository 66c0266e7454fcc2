"""Damages model folders, and collects the messages about them."""

import json
from pathlib import Path
from typing import Any

import pytest

from rdchat.errors import ModelError
from rdchat.inference.models.model_files import check_model_folder


def change_config(folder: Path, **changes: Any) -> None:
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in config.items() if value is not None}))


def refusal(folder: Path) -> ModelError:
    with pytest.raises(ModelError) as caught:
        check_model_folder(folder)
    assert caught.value.hint
    return caught.value
