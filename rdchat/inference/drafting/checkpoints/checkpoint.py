"""A published drafter on disk: its configuration and what the headers of its safetensors files say."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import mlx.core as mx
import numpy as np

from rdchat.errors import ModelError
from rdchat.files.foreign_files import entries_of
from rdchat.inference.api.drafter_facts import TargetMatch
from rdchat.inference.drafting.heads.head import HeadKind, StoredHead
from rdchat.inference.models.model_files import shown_name
from rdchat.inference.models.safetensors_file import StoredTensor
from rdchat.inference.models.weight_files import read_headers, weight_files
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel

HINT = "Get the drafter again, or name another one."
OTHER_HINT = "Use a drafter that was made for this model."
NEWER_HINT = "Name another drafter; a newer version of rdchat may read this one."
_PREFIX = "model."
_FLOATS = {"F16", "BF16", "F32"}
_WHOLE_NUMBERS = {"I32", "I64", "U32"}
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_LISTS = {"d2t": _WHOLE_NUMBERS, "t2d": {"BOOL", "U8", *_WHOLE_NUMBERS}}

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder with a drafter; none of its weights is read before they are wanted."""

    folder: Path
    config: Mapping[str, Any]  # its `config.json`
    files: tuple[Path, ...]  # its safetensors files
    tensors: Mapping[str, StoredTensor]  # what their headers say, by name, without the prefix `model.`

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

    def check_tensors(self, expected: Shapes, ignored: Collection[str] = ()) -> None:
        """Check that it has these tensors and no others, each of its shape and of a type that can be read.

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
            if found.dtype not in _LISTS.get(name, _FLOATS):
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

    def drafted_tokens(self, offsets: mx.array, vocabulary_size: int) -> mx.array:
        """Return the ids, (n,) int32 ascending, of the tokens that can be drafted.

        Args:
            offsets: (n,) `d2t`: draft token i is token i + offsets[i] of the target.
            vocabulary_size: Of the target.

        Raises:
            ModelError: If one is no token of the target, or if they are in another order.
        """
        ids = fetch(offsets).astype(np.int64) + np.arange(offsets.shape[0])
        if not ids.size or ids.min() < 0 or ids.max() >= vocabulary_size:
            raise self.error("its list d2t has tokens that the model does not have")
        if (np.diff(ids) <= 0).any():
            raise self.error("the tokens of its list d2t are not in ascending order")
        return mx.array(ids.astype(np.int32))


@dataclass(frozen=True, slots=True)
class Layout:
    """A layout of drafters on disk; its functions raise ModelError."""

    kind: HeadKind  # the head that it holds
    matches: Callable[[Mapping[str, Any], Collection[str]], bool]  # by configuration and names of tensors
    inspect: Callable[[Checkpoint], object]  # checks that configuration and tensors fit together
    check: Callable[[Checkpoint, LoadedModel], TargetMatch]  # checks it against a target, and tells how sure that is
    load: Callable[[Checkpoint, LoadedModel], StoredHead]  # reads it, for a target that `check` let pass


class TargetNeeds(Protocol):
    """What a published drafter's configuration says of its target."""

    @property
    def hidden_size(self) -> int: ...
    @property
    def vocabulary_size(self) -> int: ...
    @property
    def target_layers(self) -> tuple[int, ...]: ...
    @property
    def target_depth(self) -> int | None: ...


def plain_name(name: str) -> str:
    """Return a tensor's name without the prefix that some writers give it."""
    return name.removeprefix(_PREFIX)


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


def fit_to(checkpoint: Checkpoint, needs: TargetNeeds, named: str | None, model: LoadedModel) -> TargetMatch:
    """Check a drafter's sizes against a target's, and tell how sure it is that it was made for it.

    Args:
        checkpoint: The drafter.
        needs: What it says of its target.
        named: What it calls its target; None for nothing.
        model: The target.

    Raises:
        ModelError: If it was made for another one.
    """
    info, depth = model.info, len(getattr(model.network, "layers", ()))
    width = TargetEmbeddings(model.network, info.vocabulary_size).width
    differing = [
        (needs.hidden_size, width, "hidden states of width {:,}"),
        (needs.vocabulary_size, info.vocabulary_size, "{:,} tokens"),
        (needs.target_depth or depth, depth, "{:,} layers"),
    ]
    for wanted, found, words in differing:
        if wanted != found:
            reason = f"it is for a model with {words.format(wanted)}, {info.name} has {found:,}"
            raise checkpoint.error(reason, OTHER_HINT)
    if not all(0 <= layer < depth for layer in needs.target_layers):
        raise checkpoint.error(
            f"it reads the layers {list(needs.target_layers)[:20]}, {info.name} has {depth}", OTHER_HINT
        )
    kind = checkpoint.config.get("target_model_type")
    if not named and isinstance(kind, str) and kind and kind != info.architecture:
        return TargetMatch(False, f"It was made for a {kind[:100]} model; its sizes fit {info.name} as well.")
    return _name_fit(named, info.name)


def _name_fit(named: str | None, name: str) -> TargetMatch:
    """Hold the target's name against what the drafter calls it.

    That is vague: `Qwen/Qwen3-4B` fits `mlx-community/Qwen3-4B-4bit`, and `Qwen3-4B-Instruct-2507`, another model.
    """
    if not named:
        return TargetMatch(False, f"It names no model; its sizes fit {name}.")
    wanted = named.rstrip("/").rsplit("/", 1)[-1].lower()
    fits = bool(wanted) and name.rsplit("/", 1)[-1].lower().startswith(wanted)
    words = f"name and sizes fit {name}" if fits else f"its sizes fit {name} as well"
    return TargetMatch(False, f"It was made for {named[:100]}; {words}.")
