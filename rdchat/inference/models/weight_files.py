"""The weight files of a model folder: lists them, finds missing ones, and reads their headers."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

from rdchat.errors import ModelError
from rdchat.files.foreign_files import read_json
from rdchat.inference.models.safetensors_file import MOST_TENSORS, StoredTensor, read_header

_SHARD = re.compile(r"(model-)(\d{1,20})(-of-\d{1,20})(\.safetensors)", re.ASCII)
_SHARD_NAME = re.compile(r"[^/\\\x00-\x1f]{1,200}\.safetensors")
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.npz", "*.h5", "*.msgpack", "*.safetensors")
_NAMED_SHARDS = 3  # of missing ones, in a message
_MOST_FILES = 2000  # the largest models have some 200
_REFETCH_HINT = "Download or convert the model again."


def is_weights(path: Path) -> bool:
    """Tell whether mlx-lm reads a file as weights."""
    return path.match("model*.safetensors")


def weight_files(folder: Path, entries: list[Path]) -> tuple[Path, ...]:
    """Return the files that mlx-lm reads, `model*.safetensors`, once none of them is missing.

    Args:
        folder: The model's folder.
        entries: The folder's entries.

    Raises:
        ModelError: If some are missing, or all.
    """
    found = [path for path in entries if is_weights(path)]
    missing = _missing_shards(folder / "model.safetensors.index.json", found)
    if missing:
        raise ModelError(f"{folder} is incomplete: {missing} missing.", _REFETCH_HINT)
    if len(found) > _MOST_FILES:
        raise ModelError(f"{folder} has more than {_MOST_FILES:,} files of weights.", _REFETCH_HINT)
    if found:
        return tuple(found)
    others = [path.name for pattern in _OTHER_WEIGHTS for path in entries if path.match(pattern)]
    if others:
        raise ModelError(
            f"{folder} has its weights as {others[0]}, which mlx-lm does not read.",
            f"Convert it first: `mlx_lm.convert --hf-path {folder} --mlx-path NEW_FOLDER`.",
        )
    raise ModelError(f"{folder} has no weights (model*.safetensors).", _REFETCH_HINT)


def _missing_shards(index: Path, found: list[Path]) -> str:
    """Say which weight files the index, or the names of those that are there, promise in vain; empty for none.

    The names say how many there are, which is any number: missing ones are counted, and few of them are named.
    """
    names = {path.name for path in found}
    missing = _indexed(index) - names
    uncounted = 0
    shards = {match.group(1, 3, 4): len(match[2]) for path in found if (match := _SHARD.fullmatch(path.name))}
    for (start, of, end), digits in shards.items():
        count = int(of.removeprefix("-of-"))
        present = sum(path.name.startswith(start) and path.name.endswith(of + end) for path in found)
        uncounted = max(uncounted, count - present)
        # of the first few more than there are, some are missing where any are
        some = range(1, min(count, present + _NAMED_SHARDS) + 1)
        missing |= {f"{start}{shard:0{digits}d}{of}{end}" for shard in some} - names
    total = max(len(missing), uncounted)
    shown = sorted(missing)[:_NAMED_SHARDS]
    more = f" and {total - len(shown):,} more" if total > len(shown) else ""
    return f"{', '.join(shown)}{more} {'is' if total == 1 else 'are'}" if shown else ""


def _indexed(index: Path) -> set[str]:
    """Return the names of the weight files that an index lists; each is a file beside it."""
    if not index.exists():
        return set()
    listed = read_json(index)
    places = listed.get("weight_map") if isinstance(listed, dict) else None
    names = set(places.values()) if isinstance(places, dict) and _are_texts(places.values()) else None
    if names is None:
        raise ModelError(f"{index} is damaged.", _REFETCH_HINT)
    for name in names:
        if not _SHARD_NAME.fullmatch(name):
            raise ModelError(f"{index} names a file that cannot be: {name[:100]!r}.", _REFETCH_HINT)
    return names


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def read_headers(folder: Path, files: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return the tensors of all weight files of a folder by name; see `read_header`.

    Raises:
        ModelError: If a header is damaged, or they hold too much to be a model, or nothing.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in files:
        tensors |= read_header(path)
        if len(tensors) > MOST_TENSORS:
            raise ModelError(f"{folder} has more than {MOST_TENSORS:,} tensors.", _REFETCH_HINT)
    if not any(tensor.elements for tensor in tensors.values()):
        raise ModelError(f"{folder} has no weights: its files hold nothing.", _REFETCH_HINT)
    return tensors
