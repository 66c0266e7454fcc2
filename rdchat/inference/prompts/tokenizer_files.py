"""A view of a model folder for transformers: its known tokenizer files, without references to code.

A tokenizer's configuration can name code in the folder or on the hub (`auto_map`); transformers then asks on standard
output whether to run it. So the tokenizer is read from a folder of links without such references.
"""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.files.foreign_files import check_file, read_object
from rdchat.hub.known_files import TOKENIZER_FILES

_FILES = (
    *TOKENIZER_FILES,
    "added_tokens.json",
    "chat_template.json",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "vocab.json",
)
# A tokenizer reads no other keys of config.json.
_MODEL_KEYS = ("model_type", "tokenizer_class", "transformers_version")
_LONGEST_TEMPLATE = 2**20
_VOCABULARIES = ("tokenizer.json", "tokenizer.model", "spiece.model", "vocab.json", "tekken.json")
MODEL_HINT = "Download the model again, or choose another one."
NO_CODE = {"trust_remote_code": False, "local_files_only": True}
"""How every tokenizer and configuration is read."""


@contextmanager
def tokenizer_view(folder: Path) -> Iterator[Path]:
    """Make a folder of the same name with links to the tokenizer's files, which lasts as long as the block.

    `tokenizer_config.json` and `config.json` are copies without references to code.

    Raises:
        ModelError: If the tokenizer consists of code, its configuration is damaged, or a file is not a regular file.
    """
    with tempfile.TemporaryDirectory(prefix="rdchat-tokenizer-") as root:
        view = Path(root) / (folder.name or "model")
        view.mkdir()
        for path in (*(folder / name for name in _FILES), *folder.glob("*.tiktoken")):
            if path.exists():
                check_file(path)
                (view / path.name).symlink_to(path.resolve())
        _write_configurations(folder, view)
        yield view


def _write_configurations(folder: Path, view: Path) -> None:
    model = _read(folder / "config.json")
    copied = {key: model[key] for key in _MODEL_KEYS if isinstance(model.get(key), str)}
    (view / "config.json").write_text(json.dumps(copied), encoding="utf-8")
    tokenizer = _read(folder / "tokenizer_config.json")
    code = tokenizer.pop("auto_map", None)
    if code is not None and not any((view / name).exists() for name in _VOCABULARIES):
        raise ModelError(
            f"The tokenizer of {folder.name} needs its own code ({_class_of(code)}), which rdchat does not run.",
            "Choose a model that comes with a tokenizer.json.",
        )
    if len(json.dumps(tokenizer.get("chat_template"))) > _LONGEST_TEMPLATE:
        raise ModelError(
            f"The chat template of {folder.name} has more than {_LONGEST_TEMPLATE:,} characters.",
            "Most have a few thousand. Choose another model, or use the template of its original model.",
        )
    (view / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def _class_of(auto_map: object) -> str:
    """Return the class named in an `auto_map`, for people."""
    named = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else auto_map
    if isinstance(named, list):
        named = next((name for name in named if name), None)
    return str(named)[:100]


def _read(path: Path) -> dict[str, Any]:
    return read_object(path) if path.exists() else {}
