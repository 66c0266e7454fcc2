"""Drafters on disk.

Ours is recurrent: `config.json`, `model.safetensors` and `card.md`, bound to one target by its hash. Apple's are read
here too; what others publish is told apart by what it holds (`formats`).
"""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model

from rdchat.errors import ModelError
from rdchat.files.atomic_file import temporary_of
from rdchat.files.foreign_files import check_file, read_json
from rdchat.inference.api.drafter_facts import APPLE_MODEL_TYPE, TargetMatch
from rdchat.inference.drafting.folders.apple_checkpoint import apple_config, apple_weights
from rdchat.inference.drafting.folders.checkpoint import Checkpoint, DrafterFormat, open_checkpoint
from rdchat.inference.drafting.folders.drafter_files import (
    ACCEPTANCE,
    BINDING,
    CARD,
    CONFIG,
    WEIGHTS,
    PublishedDrafter,
    write_drafter,
)
from rdchat.inference.drafting.folders.formats import format_of
from rdchat.inference.drafting.heads.bound_recurrent import BoundRecurrentHead
from rdchat.inference.drafting.heads.head import HeadKind, StoredHead
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead, quantize
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.models.model_files import shown_name
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.target.device import on_gpu
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.target import LoadedModel

_MOST_CONFIG_BYTES = 2**20
_FORMAT = 1
_VOCABULARY = "draft_vocabulary"  # the tensor of token ids beside the head's weights
_WHOLE_NUMBERS = {"I32", "I64", "U32"}
_TYPES = {"F16", "BF16", "F32", "U32"}  # whole numbers are packed weights
_VALUES_PER_BYTE = 2  # of weights in 4 bits
_HINT = "Get the drafter again, train one with `rdchat train-drafter`, or name another one."


@dataclass(frozen=True, slots=True)
class StoredDrafter(StoredHead):
    """A recurrent drafter in memory.

    Attributes:
        head: Its network.
        vocabulary: (draft_vocabulary_size,) int32 ids of the tokens that it can draft, ascending.
        target: The model it was trained for; None for a checkpoint that does not say.
    """

    head: RecurrentHead
    vocabulary: mx.array
    target: TargetBinding | None

    def bind(self, model: LoadedModel) -> BoundRecurrentHead:
        """See `StoredHead`."""
        embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
        return BoundRecurrentHead(self.head, self.vocabulary, embeddings)

    def written(self) -> PublishedDrafter:
        """Return it as it is written, its weights in the precision they have."""
        assert self.target is not None
        tensors = dict(tree_flatten(self.head.parameters())) | {_VOCABULARY: self.vocabulary.astype(mx.int32)}
        facts = {"format": _FORMAT, "target": asdict(self.target), "architecture": self.head.config.to_dict()}
        return PublishedDrafter(facts, tensors)


def bound_hash(folder: Path) -> str | None:
    """Return the `target_hash` of a drafter's model; None where its configuration, as Apple's, names none.

    Raises:
        ModelError: If that cannot be read.
    """
    config = _read_config(folder)
    binding = config.get(BINDING, config)
    target = binding.get("target") if isinstance(binding, dict) else None
    named = target.get("hash") if isinstance(target, dict) else None
    return named if isinstance(named, str) else None


def target_named_in(folder: Path) -> str | None:
    """Return the `target_hash` of the drafter that a folder holds, "" where it holds something else.

    None where a drafter may be written there without asking: an empty folder, or one where writing was cut short.
    """
    names = {path.name for path in folder.iterdir()}
    ours = {CONFIG, WEIGHTS, CARD, ACCEPTANCE}
    temporary = {temporary_of(folder / name).name for name in ours}
    if names - ours - temporary:
        return ""
    if CONFIG in names:
        try:
            return bound_hash(folder) or ""
        except ModelError:
            return ""
    return None if names <= temporary or temporary_of(folder / CONFIG).name in names else ""


def save_drafter(folder: Path, drafter: StoredDrafter, card: str) -> None:
    """Write a recurrent drafter; see `write_drafter`."""
    write_drafter(folder, drafter.written(), card)


def load_drafter(folder: Path, model: LoadedModel) -> StoredHead:
    """Read a drafter and check it against the target.

    Args:
        folder: A drafter folder of ours, a checkpoint of Apple's ml-recurrent-drafter, or one of `FORMATS`.
        model: The target.

    Raises:
        ModelError: If it is missing, damaged, or made for another model; the message says which and why.
    """
    published = _published(folder, _read_config(folder))
    if published is None:
        return load_recurrent(folder, model)
    form, checkpoint = published
    _check_published(form, checkpoint, model)
    return form.load(checkpoint, model)


def check_drafter(folder: Path, model: LoadedModel) -> TargetMatch:
    """Check a drafter's configuration against the target; its weights are not read.

    Returns:
        How sure it is that it was made for it.

    Raises:
        ModelError: If it is missing, described wrongly, or made for another model.
    """
    published = _published(folder, _read_config(folder))
    if published is not None:
        return _check_published(*published, model)
    binding, _ = _check_recurrent(folder, model)
    if binding is None:
        return TargetMatch(False, f"It names no model; its sizes fit {model.info.name}.")
    return TargetMatch(True)


def inspect_drafter(folder: Path) -> HeadKind:
    """Check that a drafter's configuration and the header of its weights fit together.

    Returns:
        Its kind.

    Raises:
        ModelError: If one of them is missing or damaged, or if the weights do not account for the architecture.
    """
    published = _published(folder, _read_config(folder))
    if published is None:
        _inspect_recurrent(folder)
        return HeadKind.RECURRENT
    form, checkpoint = published
    form.inspect(checkpoint)
    return form.kind


def load_recurrent(folder: Path, model: LoadedModel) -> StoredDrafter:
    """Read a recurrent drafter and check it against the target.

    Args:
        folder: A drafter folder of ours, or a checkpoint of Apple's ml-recurrent-drafter.
        model: The target.

    Raises:
        ModelError: If it is missing, damaged, or made for another model; the message says which and why.
    """
    binding, shape = _check_recurrent(folder, model)
    tensors = cast("dict[str, mx.array]", mx.load(str(folder / WEIGHTS)))
    if binding is None:
        tensors = apple_weights(tensors, shape)
        tensors[_VOCABULARY] = mx.arange(shape.draft_vocabulary_size)
    head = RecurrentHead(shape)
    if shape.quantization_bits:
        head = quantize(head, shape.quantization_bits, shape.quantization_group)
    vocabulary = _check_vocabulary(folder, tensors.pop(_VOCABULARY, None), shape, model)
    _check_tensors(folder, head, tensors)
    head.load_weights(list(tensors.items()))
    if shape.quantization_bits and not on_gpu():
        head = dequantize_model(head)  # quantised kernels are slow there
    return StoredDrafter(head, vocabulary, binding)


def _check_recurrent(folder: Path, model: LoadedModel) -> tuple[TargetBinding | None, HeadConfig]:
    """Return the model it was trained for, None for a checkpoint of Apple's, which does not say; and its architecture.

    Raises:
        ModelError: If it is missing, described wrongly, or made for another model.
    """
    config, shape = _inspect_recurrent(folder)
    binding = None if config.get("model_type") == APPLE_MODEL_TYPE else _check_binding(folder, config, model)
    if shape.draft_vocabulary_size > model.info.vocabulary_size:
        raise ModelError(f"The drafter {shown_name(folder)} drafts tokens that {model.info.name} does not have.", _HINT)
    return binding, shape


def _inspect_recurrent(folder: Path) -> tuple[dict[str, Any], HeadConfig]:
    """Return the configuration, and the architecture that it describes and the header of the weights fits.

    Raises:
        ModelError: If one of them is missing or damaged, or if the weights do not account for the architecture.
    """
    config = _read_config(folder)
    apple = config.get("model_type") == APPLE_MODEL_TYPE
    shape = apple_config(config) if apple else _architecture(folder, config)
    path = folder / WEIGHTS
    if not path.exists():
        raise ModelError(f"The drafter {shown_name(folder)} has no {WEIGHTS}.", _HINT)
    check_file(path, _HINT)
    tensors = read_header(path)
    for name, tensor in tensors.items():
        if tensor.dtype not in (_WHOLE_NUMBERS if name == _VOCABULARY else _TYPES):
            raise ModelError(
                f"{name[:100]} of the drafter {shown_name(folder)} is stored as {tensor.dtype[:20]}.", _HINT
            )
    held = _VALUES_PER_BYTE * sum(tensor.stored_bytes for tensor in tensors.values())
    if shape.blocks > len(tensors) or shape.largest_size > held:
        raise ModelError(f"The weights of the drafter {shown_name(folder)} are too few for its architecture.", _HINT)
    return config, shape


def _published(folder: Path, config: dict[str, Any]) -> tuple[DrafterFormat, Checkpoint] | None:
    """Return what a folder holds where it is one of `FORMATS`; None where it is recurrent, or no drafter at all."""
    if "format" in config or config.get("model_type") == APPLE_MODEL_TYPE:
        return None
    checkpoint = open_checkpoint(folder, config)
    form = checkpoint and format_of(checkpoint)
    return (form, checkpoint) if form and checkpoint else None


def _check_published(form: DrafterFormat, checkpoint: Checkpoint, model: LoadedModel) -> TargetMatch:
    """Check a published drafter against a target; one that we trained names its own."""
    fit = form.check(checkpoint, model)
    if BINDING not in checkpoint.config:
        return fit
    _check_binding(checkpoint.folder, checkpoint.config[BINDING], model)
    return TargetMatch(True)


def _read_config(folder: Path) -> dict[str, Any]:
    path = folder / CONFIG
    if not path.exists() and not path.is_symlink():
        raise ModelError(f"There is no drafter at {folder}: it has no {CONFIG}.", _HINT)
    config = read_json(path, _HINT, _MOST_CONFIG_BYTES)
    if not isinstance(config, dict):
        raise ModelError(f"{path} is damaged: it describes no drafter.", _HINT)
    return config


def _architecture(folder: Path, config: dict[str, Any]) -> HeadConfig:
    data = config.get("architecture")
    if config.get("format") != _FORMAT or not isinstance(data, dict):
        raise ModelError(f"{folder / CONFIG} describes no drafter that this version of rdchat can read.", _HINT)
    return HeadConfig.from_dict(data)


def _check_binding(folder: Path, config: Any, model: LoadedModel) -> TargetBinding:
    try:
        binding = TargetBinding(**config["target"])
    except (KeyError, TypeError) as error:
        raise ModelError(f"{folder / CONFIG} does not say which model the drafter is for.", _HINT) from error
    if not all(isinstance(text, str) for text in (binding.name, binding.architecture, binding.hash)):
        raise ModelError(f"{folder / CONFIG} does not say which model the drafter is for.", _HINT)
    own = TargetBinding.of(model.info)
    if binding.hash != own.hash:
        other = "other weights of that name" if binding.name == own.name else f"the model {binding.name[:100]}"
        raise ModelError(
            f"The drafter {shown_name(folder)} was trained for {other}, not for the loaded {own.name}.", _HINT
        )
    return binding


def _check_vocabulary(folder: Path, ids: mx.array | None, shape: HeadConfig, model: LoadedModel) -> mx.array:
    size = model.info.vocabulary_size
    if ids is None or ids.shape != (shape.draft_vocabulary_size,):
        raise ModelError(
            f"The drafter {shown_name(folder)} has no list of {shape.draft_vocabulary_size:,} tokens.", _HINT
        )
    host = np.array(ids).astype(np.int64)
    if host[0] < 0 or host[-1] >= size or (np.diff(host) <= 0).any():
        raise ModelError(f"The drafter {shown_name(folder)} drafts tokens that {model.info.name} does not have.", _HINT)
    return ids.astype(mx.int32)


def _check_tensors(folder: Path, head: nn.Module, tensors: dict[str, mx.array]) -> None:
    expected = dict(tree_flatten(head.parameters()))
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise ModelError(f"The drafter {shown_name(folder)} is incomplete: {name} is missing.", _HINT)
        if name not in expected:
            raise ModelError(
                f"The drafter {shown_name(folder)} holds {name}, which its architecture does not have.", _HINT
            )
        wanted, found = expected[name].shape, tensors[name].shape
        if wanted != found:
            raise ModelError(
                f"{name} of the drafter {shown_name(folder)} has the shape {found} instead of {wanted}.", _HINT
            )
        if not mx.all(mx.isfinite(tensors[name])).item():
            raise ModelError(f"{name} of the drafter {shown_name(folder)} holds numbers that are not finite.", _HINT)
