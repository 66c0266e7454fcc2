"""A drafter on disk: its configuration and what the headers of its safetensors files say."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.files.foreign_files import entries_of
from rdchat.inference.drafting.checkpoints.drafter_files import CONFIG
from rdchat.inference.drafting.heads.head import HeadKind, StoredHead
from rdchat.inference.models.model_files import shown_name
from rdchat.inference.models.safetensors_file import StoredTensor
from rdchat.inference.models.weight_files import read_headers, weight_files
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel

HINT = "Get the drafter again, train one with `rdchat train-drafter`, or name another one."
OTHER_HINT = "Use a drafter that was made for this model."
NEWER_HINT = "Name another drafter; a newer version of rdchat may read this one."
_PREFIX, _FIRST_LAYER = "model.", "midlayer."  # of names: of some writers, and SafeAILab's for `layers.0.`
_FLOATS = {"F16", "BF16", "F32"}
PACKED = _FLOATS | {"U32"}  # where weights may be quantised
_WHOLE_NUMBERS = {"I32", "I64", "U32"}
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_LISTS = {"draft_vocabulary": _WHOLE_NUMBERS, "d2t": _WHOLE_NUMBERS, "t2d": {"BOOL", "U8", *_WHOLE_NUMBERS}}

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder with a drafter; none of its weights is read before they are wanted."""

    folder: Path
    config: Mapping[str, Any]  # its `config.json`
    files: tuple[Path, ...]  # its safetensors files
    tensors: Mapping[str, StoredTensor]  # what their headers say, by `plain_name`

    @property
    def listed_tokens(self) -> int:
        """How many tokens its list `d2t` has; 0 without it."""
        tensor = self.tensors.get("d2t")
        return tensor.shape[0] if tensor is not None and tensor.shape else 0

    @property
    def name(self) -> str:
        """The folder's name, for people."""
        return shown_name(self.folder)

    def error(self, reason: str, hint: str = HINT) -> ModelError:
        """Return the error that says why it cannot be used."""
        return ModelError(f"The drafter {self.name} cannot be used: {reason}.", hint)

    def check_tensors(self, expected: Shapes, ignored: Collection[str] = (), types: Collection[str] = _FLOATS) -> None:
        """Check that it has these tensors and no others, each of its shape and of one of these types.

        Raises:
            ModelError: If it has not.
        """
        for name in sorted(expected.keys() | self.tensors.keys()):
            if name in ignored:
                continue
            if name not in self.tensors:
                raise self.error(f"it lacks the tensor {name}")
            found = self.tensors[name]
            if name not in expected:
                raise self.error(f"it has a tensor {name[:100]}, which its kind of drafter does not have", NEWER_HINT)
            if found.shape != expected[name]:
                raise self.error(f"its tensor {name} has the shape {found.shape} instead of {expected[name]}")
            if found.dtype not in _LISTS.get(name, types):
                raise self.error(f"its tensor {name} is stored as {found.dtype[:20]}", NEWER_HINT)

    def read(self, wanted: Collection[str]) -> dict[str, mx.array]:
        """Return tensors, still lazy: each is read where it is used, so that all are never in memory unless they stay.

        Raises:
            ModelError: If one holds numbers that are not finite.
        """
        checked = self.lazy(wanted)
        while checked:  # none is held longer than it takes
            name, tensor = checked.popitem()
            if mx.issubdtype(tensor.dtype, mx.floating) and not mx.all(mx.isfinite(tensor)).item():
                raise self.error(f"its tensor {name} holds numbers that are not finite")
        return self.lazy(wanted)

    def lazy(self, wanted: Collection[str]) -> dict[str, mx.array]:
        """Return tensors as `read` does, where that has been called for them."""
        tensors: dict[str, mx.array] = {}
        for path in self.files:
            held = mx.load(str(path))
            assert isinstance(held, dict)
            tensors |= {plain_name(name): tensor for name, tensor in held.items() if plain_name(name) in wanted}
        return tensors

    def drafted_tokens(self, name: str, ids: npt.NDArray[np.integer], vocabulary_size: int) -> mx.array:
        """Return the ids of the tokens that can be drafted, (n,) int32, once they are checked; `name` is the list's.

        Raises:
            ModelError: If one is no token of the target, or if they are not in ascending order.
        """
        if not ids.size or ids.min() < 0 or ids.max() >= vocabulary_size:
            raise self.error(f"its list {name} has tokens that the model does not have")
        if (np.diff(ids) <= 0).any():
            raise self.error(f"the tokens of its list {name} are not in ascending order")
        return mx.array(ids.astype(np.int32))

    def offset_tokens(self, offsets: mx.array, vocabulary_size: int) -> mx.array:
        """Return `drafted_tokens` of a list `d2t`, (n,): draft token i is token i + offsets[i] of the target."""
        ids = fetch(offsets).astype(np.int64) + np.arange(offsets.shape[0])
        return self.drafted_tokens("d2t", ids, vocabulary_size)


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of drafters on disk; its functions raise ModelError."""

    kind: HeadKind  # the head that it holds
    matches: Callable[[Mapping[str, Any], Collection[str]], bool]  # by configuration and names of tensors
    config: Callable[[Checkpoint, int | None], Any]  # the checked network; takes the target's layers, if it is known
    load: Callable[[Checkpoint, Any, LoadedModel], StoredHead]  # reads it with its `config`


def plain_name(name: str) -> str:
    """Return a tensor's name as most writers have it."""
    name = name.removeprefix(_PREFIX)
    return f"layers.0.{name.removeprefix(_FIRST_LAYER)}" if name.startswith(_FIRST_LAYER) else name


def not_a_drafter(folder: Path) -> ModelError:
    """Return the error that a folder's configuration is of something else."""
    return ModelError(f"{folder / CONFIG} describes no drafter that this version of rdchat can read.", HINT)


def open_checkpoint(folder: Path, config: Mapping[str, Any]) -> Checkpoint | None:
    """Return what a folder holds beside its configuration; None where it has no weights.

    Raises:
        ModelError: If its weights are incomplete or damaged, or are pickles: those can run code, and are never read.
    """
    try:
        entries = entries_of(folder)
    except OSError as error:
        raise ModelError(f"{folder} cannot be read: {error.strerror}.", "Check its permissions.") from error
    if not any(path.match("model*.safetensors*") for path in entries):
        pickles = [path.name for pattern in _PICKLES for path in entries if path.match(pattern)]
        if pickles:
            raise ModelError(
                f"The drafter {shown_name(folder)} has its weights as {pickles[0][:100]}, a file that can run code.",
                "Convert it to safetensors, for example with the Space `safetensors/convert` of huggingface.co.",
            )
        return None
    files = weight_files(folder, entries)
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in read_headers(folder, files).items():
        if plain_name(name) in tensors:
            raise ModelError(f"The drafter {shown_name(folder)} holds {plain_name(name)[:100]} twice.", HINT)
        tensors[plain_name(name)] = tensor
    return Checkpoint(folder, config, files, tensors)
