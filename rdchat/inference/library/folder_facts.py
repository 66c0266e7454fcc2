"""Reads the facts of one model folder or drafter from the headers of its files.

They are foreign data: `model_library` has a child process read them (`rdchat --child facts`, whose `main` is here).
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.errors import ModelError, RdchatError
from rdchat.hub import checksum
from rdchat.inference.api import FolderFacts
from rdchat.inference.models.model_config import check_architecture, read_config, stated_layers, unreadable
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.models.model_locations import is_drafter
from rdchat.inference.prompts.tokenizer_process import has_template
from rdchat.inference.vision.families import vision_of
from rdchat.work import Job, serve

# Endings of the classes of models that write text, as `architectures` in config.json names them.
_WRITES = ("ForCausalLM", "LMHeadModel", "ForConditionalGeneration")


def read_facts(path: Path) -> FolderFacts:
    """Read the facts of a model folder; a problem is one of the facts."""
    try:
        return _drafter_facts(path) if is_drafter(path) else _folder_facts(path)
    except (RdchatError, OSError) as error:
        family = _known_family(path)
        return FolderFacts(family=family, problem=_reason(path, error), is_model=bool(family))


def _folder_facts(folder: Path) -> FolderFacts:
    """Read the facts of a language model; raises what `read_facts` reports as a problem."""
    files = check_model_folder(folder)
    bits = files.sizes.quantization_bits
    vision = vision_of(folder)
    return FolderFacts(
        family=files.architecture,
        sizes=vision.sizes(files.sizes),
        quantization=f"{bits}-bit" if bits else files.sizes.float_type.value,
        tokens=_tokens(folder),
        states_mtp=stated_layers(read_config(folder)) > 0 and not unreadable(files.architecture),
        sees=vision.family is not None,
        blind=vision.reason,
        has_template=has_template(folder),
    )


def _drafter_facts(folder: Path) -> FolderFacts:
    """Read the facts of a drafter head, or of a vision tower, which is listed as a drafter is.

    They are told apart by their folder: all towers are in `towers_dir`.
    """
    if folder.parent == paths.towers_dir():
        return FolderFacts(
            family="vision", problem=vision_of(folder).reason, is_model=False, is_drafter=True, sees=True
        )
    from rdchat.inference.drafting.checkpoints.drafter_folder import inspect_drafter  # noqa: PLC0415  imports MLX

    try:
        kind = inspect_drafter(folder).label
        problem = ""
    except (RdchatError, OSError) as error:
        kind = ""
        problem = _reason(folder, error)
    return FolderFacts(family=kind, problem=problem, is_model=False, is_drafter=True)


def _reason(path: Path, error: RdchatError | OSError) -> str:
    return error.message if isinstance(error, RdchatError) else f"{path} cannot be read: {error.strerror}."


def _tokens(folder: Path) -> str:
    """Return a hash of the tokenizer's file. Different files may have the same tokens; this does not detect it."""
    return checksum(folder / "tokenizer.json", letters=64)[:32]


def _known_family(folder: Path) -> str:
    """Return the architecture of a folder with a language model, however damaged; empty for other folders."""
    try:
        config = read_config(folder)
    except (RdchatError, OSError):
        return ""
    try:
        return check_architecture(config)
    except ModelError:
        named = config.get("architectures")
        writes_text = isinstance(named, list) and any(str(name).endswith(_WRITES) for name in named)
        return str(config["model_type"])[:60] if writes_text else ""


def main() -> int:
    """Answer requests until the app ends."""
    return serve({"read": _read})


def _read(_job: Job[Any], path: str) -> dict[str, Any]:
    return asdict(read_facts(Path(path)))
