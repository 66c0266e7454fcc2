"""The weight files of a model folder: lists them, finds missing ones, and reads their headers."""

import re
from collections.abc import Sequence
from pathlib import Path

from rdchat.errors import ModelError
from rdchat.files.foreign_files import REFETCH_HINT, read_json
from rdchat.inference.models.safetensors_file import MAX_TENSORS, StoredTensor, read_header

_SHARD = re.compile(r"(model-)(\d{1,20})(-of-\d{1,20})(\.safetensors)", re.ASCII)
_SHARD_NAME = re.compile(r"[^/\\\x00-\x1f]{1,200}\.safetensors")
_OTHER_WEIGHTS = ("*.bin", "*.pt", "*.pth", "*.npz", "*.h5", "*.msgpack", "*.safetensors")
# Maximum number of missing files that a message names.
_NAMED_SHARDS = 3
# The largest models have some 200.
_MAX_FILES = 2000


def is_weights(path: Path) -> bool:
    """Return whether mlx-lm reads a file as weights."""
    return path.match("model*.safetensors")


def weight_files(folder: Path, entries: list[Path]) -> tuple[Path, ...]:
    """Return the files that mlx-lm reads, `model*.safetensors`, and check that none is missing.

    Args:
        folder: The model's folder.
        entries: The folder's entries.

    Raises:
        ModelError: If some or all are missing.
    """
    files = [path for path in entries if is_weights(path)]
    missing = _missing_shards(folder / "model.safetensors.index.json", files)
    if missing:
        raise ModelError(f"{folder} is incomplete: {missing} missing.", REFETCH_HINT)
    if len(files) > _MAX_FILES:
        raise ModelError(f"{folder} has more than {_MAX_FILES:,} files of weights.", REFETCH_HINT)
    if files:
        return tuple(files)
    others = [path.name for pattern in _OTHER_WEIGHTS for path in entries if path.match(pattern)]
    if others:
        raise ModelError(
            f"{folder} has its weights in {others[0]}, which mlx-lm cannot read.",
            f"Convert it first: `mlx_lm.convert --hf-path {folder} --mlx-path NEW_FOLDER`.",
        )
    raise ModelError(f"{folder} has no weights (model*.safetensors).", REFETCH_HINT)


def _missing_shards(index: Path, files: list[Path]) -> str:
    """Return which weight files are missing, by the index or by the names of the others; empty for none.

    The names contain the number of files, which may be anything: missing ones are counted, but only few are named.
    """
    names = {path.name for path in files}
    missing = _indexed(index) - names
    uncounted = 0
    shards = {match.group(1, 3, 4): len(match[2]) for path in files if (match := _SHARD.fullmatch(path.name))}
    for (start, of, end), digits in shards.items():
        count = int(of.removeprefix("-of-"))
        present = sum(path.name.startswith(start) and path.name.endswith(of + end) for path in files)
        uncounted = max(uncounted, count - present)
        # among the first few numbers beyond those found, some are missing if any are
        some = range(1, min(count, present + _NAMED_SHARDS) + 1)
        missing |= {f"{start}{shard:0{digits}d}{of}{end}" for shard in some} - names
    total = max(len(missing), uncounted)
    named = sorted(missing)[:_NAMED_SHARDS]
    more = f" and {total - len(named):,} more" if total > len(named) else ""
    return f"{', '.join(named)}{more} {'is' if total == 1 else 'are'}" if named else ""


def _indexed(index: Path) -> set[str]:
    """Return the names of the weight files that an index lists; each must be in its folder."""
    if not index.exists():
        return set()
    listed = read_json(index)
    files = listed.get("weight_map") if isinstance(listed, dict) else None
    if not isinstance(files, dict) or not all(isinstance(name, str) for name in files.values()):
        raise ModelError(f"{index} is damaged.", REFETCH_HINT)
    names = set(files.values())
    for name in names:
        if not _SHARD_NAME.fullmatch(name):
            raise ModelError(f"{index} has an invalid file name: {name[:100]!r}.", REFETCH_HINT)
    return names


def read_headers(folder: Path, files: Sequence[Path]) -> dict[str, StoredTensor]:
    """Return the tensors of all weight files of a folder by name; see `read_header`.

    Raises:
        ModelError: If a header is damaged, or they have too many tensors or none.
    """
    tensors: dict[str, StoredTensor] = {}
    for path in files:
        tensors |= read_header(path)
        if len(tensors) > MAX_TENSORS:
            raise ModelError(f"{folder} has more than {MAX_TENSORS:,} tensors.", REFETCH_HINT)
    if not any(tensor.elements for tensor in tensors.values()):
        raise ModelError(f"{folder} has no weights: its files are empty.", REFETCH_HINT)
    return tensors
