"""A view of a model folder for transformers: its known tokenizer files, without references to code.

A tokenizer's configuration can name code in the folder or on the hub (`auto_map`); transformers then asks on standard
output whether to run it. So the tokenizer is read from a folder of links without such references.

Where there is a tokenizer.json, it decides how text becomes tokens: transformers would build some classes anew, and
drop what the file says. All chat templates become one.
"""

import inspect
import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError
from rdchat.files.foreign_files import check_file, opened, read_bytes, read_errors, read_object, read_text
from rdchat.hub.known_files import TEMPLATES, TOKENIZER_FILES

_FILES = (
    *TOKENIZER_FILES,
    "added_tokens.json",
    "special_tokens_map.json",
    "tekken.json",
    "tokenizer.json",
    "vocab.json",
)
_TEMPLATE_FILE = "chat_template.jinja"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
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
            if path.exists() and path.name != _TEMPLATE_FILE:
                _show(path, view / path.name)
        _write_configurations(folder, view)
        yield view


def _show(path: Path, place: Path) -> None:
    """Link to a file; copy it without its byte order mark, if it has one."""
    check_file(path)
    with read_errors(path), opened(path) as file:
        is_marked = file.read(len(_BYTE_ORDER_MARK)) == _BYTE_ORDER_MARK
    if is_marked:
        place.write_bytes(read_bytes(path).removeprefix(_BYTE_ORDER_MARK))
    else:
        place.symlink_to(path.resolve())


def _write_configurations(folder: Path, view: Path) -> None:
    model = _read(folder / "config.json")
    tokenizer = _read(folder / "tokenizer_config.json")
    copied = {key: model[key] for key in _MODEL_KEYS if isinstance(model.get(key), str)}
    # mlx-lm's own class does more than the file says.
    if (view / "tokenizer.json").exists() and tokenizer.get("tokenizer_class") != "NewlineTokenizer":
        named = _read(folder / "special_tokens_map.json") | tokenizer
        tokenizer |= {key: text for key, text in _usual_tokens(folder, copied | tokenizer).items() if key not in named}
        # Without a type, transformers would guess one from the folder's name.
        copied = {"model_type": ""}
        tokenizer["tokenizer_class"] = "TokenizersBackend"
    (view / "config.json").write_text(json.dumps(copied), encoding="utf-8")
    code = tokenizer.pop("auto_map", None)
    if code is not None and not any((view / name).exists() for name in _VOCABULARIES):
        raise ModelError(
            f"The tokenizer of {folder.name} needs its own code ({_class_of(code)}), which rdchat does not run.",
            "Choose a model that comes with a tokenizer.json.",
        )
    if (template := _chat_template(folder, tokenizer)) is not None:
        tokenizer["chat_template"] = template
    if len(json.dumps(tokenizer.get("chat_template"))) > _LONGEST_TEMPLATE:
        raise ModelError(
            f"The chat template of {folder.name} has more than {_LONGEST_TEMPLATE:,} characters.",
            "Most have a few thousand. Choose another model, or use the template of its original model.",
        )
    (view / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")


def _usual_tokens(folder: Path, named: dict[str, Any]) -> dict[str, str]:
    """Return the special tokens that a tokenizer's class has where no file names them, if tokenizer.json has them.

    Args:
        folder: The model's.
        named: Names of its `tokenizer_class` and `model_type`.
    """
    from transformers.models.auto import tokenization_auto as auto  # noqa: PLC0415  takes a second

    name = named.get("tokenizer_class") or auto.TOKENIZER_MAPPING_NAMES.get(named.get("model_type", ""))
    known = auto.tokenizer_class_from_name(name) if isinstance(name, str) else None
    usual = inspect.signature(known).parameters if known is not None else {}
    texts = {key: each.default for key, each in usual.items() if key.endswith("_token") and type(each.default) is str}
    spelled = read_bytes(folder / "tokenizer.json") if texts else b""
    return {key: text for key, text in texts.items() if json.dumps(text, ensure_ascii=False).encode() in spelled}


def has_template(folder: Path) -> bool:
    """Return whether a model's folder has a chat template.

    Raises:
        ModelError: If a file that may have one is damaged.
    """
    return _chat_template(folder, _read(folder / "tokenizer_config.json")) is not None


def _chat_template(folder: Path, tokenizer: dict[str, Any]) -> Any:
    """Return a folder's chat template, from whichever of its files has it; None if it has none.

    A template named `tool_use` is the one for tools, and becomes a branch of the other.
    """
    named = tokenizer.get("chat_template")
    for file in ("chat_template.json", "processor_config.json"):
        if named is None:
            named = _read(folder / file).get("chat_template")
    if isinstance(named, list):
        named = {each["name"]: each["template"] for each in named}
    templates = dict(named) if isinstance(named, dict) else {} if named is None else {"default": named}
    for path in (folder / _TEMPLATE_FILE, *sorted((folder / TEMPLATES).glob("*.jinja"))):
        if path.exists():
            name = "default" if path.name == _TEMPLATE_FILE else path.stem
            templates[name] = read_text(path, MODEL_HINT, _LONGEST_TEMPLATE)
    default = templates.get("default")
    tools = templates.get("tool_use")
    if isinstance(default, str) and isinstance(tools, str):
        return joined_templates(tools, default)
    if default is None and templates:
        return [{"name": name, "template": text} for name, text in templates.items()]
    return default


def joined_templates(tools: str, default: str) -> str:
    """Return one chat template that writes what `tools` writes where there are tools, and `default` elsewhere."""
    # A line end after a tag, and one at the end of a template, are not rendered; `+` keeps blanks before a tag.
    branches = tools.removesuffix("\n"), default.removesuffix("\n")
    return "{{% if tools %}}\n{}{{%+ else %}}\n{}{{%+ endif %}}".format(*branches)


def _class_of(auto_map: object) -> str:
    """Return the class named in an `auto_map`, for people."""
    named = auto_map.get("AutoTokenizer") if isinstance(auto_map, dict) else auto_map
    if isinstance(named, list):
        named = next((name for name in named if name), None)
    return str(named)[:100]


def _read(path: Path) -> dict[str, Any]:
    return read_object(path) if path.exists() else {}
