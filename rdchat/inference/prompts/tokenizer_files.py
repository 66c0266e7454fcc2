"""A view of a model folder for transformers: its known tokenizer files, without anything that names code to run.

A tokenizer's configuration can name code in the folder or on the hub (`auto_map`), for which transformers asks on
standard output. Nothing here follows it: the tokenizer is read from a folder of links that holds none of it.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.files.foreign_files import check_file, read_json

_FILES = (
    "added_tokens.json",
    "chat_template.jinja",
    "chat_template.json",
    "merges.txt",
    "special_tokens_map.json",
    "spiece.model",
    "tekken.json",
    "tiktoken.model",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer.model.v3",
    "vocab.json",
    "vocab.txt",
)
_PATTERNS = ("*.tiktoken",)
_MODEL_KEYS = ("model_type", "tokenizer_class", "transformers_version")  # all that a tokenizer asks of config.json
_LONGEST_TEMPLATE = 2**20
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "tekken.json")
NO_CODE = {"trust_remote_code": False, "local_files_only": True}
"""How every tokenizer and configuration is read."""


@contextmanager
def tokenizer_view(folder: Path) -> Iterator[Path]:
    """Make a folder of the same name with links to the tokenizer's files, for as long as the block lasts.

    `tokenizer_config.json` and `config.json` are copies without what names code.

    Raises:
        ModelError: If the tokenizer is nothing but code, its configuration is damaged, or a file is no regular one.
    """
    with tempfile.TemporaryDirectory(prefix="rdchat-tokenizer-") as place:
        view = Path(place) / (folder.name or "model")
        view.mkdir()
        named = [folder / name for name in _FILES] + [path for pattern in _PATTERNS for path in folder.glob(pattern)]
        for path in named:
            if path.exists():
                check_file(path)
                (view / path.name).symlink_to(path.resolve())
        _write_configurations(folder, view)
        yield view


def _write_configurations(folder: Path, view: Path) -> None:
    model = _read(folder / "config.json")
    kept = {key: model[key] for key in _MODEL_KEYS if isinstance(model.get(key), str)}
    (view / "config.json").write_text(json.dumps(kept), encoding="utf-8")
    tokenizer = _read(folder / "tokenizer_config.json")
    code = tokenizer.pop("auto_map", None)
    if code is not None and not any((view / name).exists() for name in _VOCABULARIES):
        raise ModelError(
            f"The tokenizer of {folder.name} wants to run its own code ({_class_of(code)}), which rdchat does not do.",
            "Choose a model that comes with a tokenizer.json.",
        )
    if len(json.dumps(tokenizer.get("chat_template"))) > _LONGEST_TEMPLATE:
        raise ModelError(
            f"The chat template of {folder.name} has more than {_LONGEST_TEMPLATE:,} characters.",
            "Real ones have some thousands: choose another model, or put the template of the one it was made from.",
        )
    (view / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def _class_of(auto_map: object) -> str:
    """Return the class that an `auto_map` names, for people."""
    named = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else auto_map
    if isinstance(named, list):
        named = next((name for name in named if name), None)
    return str(named)[:100]


def _read(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    content = read_json(path)
    if not isinstance(content, dict):
        raise ModelError(f"{path} is damaged: it holds no object.", "Download or convert the model again.")
    return content
