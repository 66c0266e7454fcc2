"""Recurrent drafters on disk: ours, bound to one target by its hash, and Apple's ml-recurrent-drafter checkpoints."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.utils import dequantize_model

from rdchat.errors import ModelError
from rdchat.inference.api.drafter_facts import APPLE_MODEL_TYPE, TargetMatch
from rdchat.inference.drafting.checkpoints.apple_layout import apple_config, apple_weights
from rdchat.inference.drafting.checkpoints.checkpoint import Checkpoint, Layout
from rdchat.inference.drafting.checkpoints.drafter_files import CONFIG, PublishedDrafter, write_drafter
from rdchat.inference.drafting.checkpoints.settings import Settings
from rdchat.inference.drafting.heads.bound_recurrent import BoundRecurrentHead
from rdchat.inference.drafting.heads.head import HeadKind, StoredHead
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead, quantize
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.target.device import on_gpu
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel

HINT = "Get the drafter again, train one with `rdchat train-drafter`, or name another one."
_FORMAT = 1
_VOCABULARY = "draft_vocabulary"  # the tensor of token ids beside the head's weights
_WHOLE_NUMBERS = {"I32", "I64", "U32"}
_TYPES = {"F16", "BF16", "F32", "U32"}  # whole numbers are packed weights
_VALUES_PER_BYTE = 2  # of weights in 4 bits


@dataclass(frozen=True, slots=True)
class StoredDrafter(StoredHead):
    """A recurrent drafter in memory."""

    head: RecurrentHead
    vocabulary: mx.array  # (draft_vocabulary_size,) int32 ids of the tokens that it can draft, ascending
    target: TargetBinding | None  # the model it was trained for; None for a checkpoint that does not say

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


def save_drafter(folder: Path, drafter: StoredDrafter, card: str) -> None:
    """Write a recurrent drafter; see `write_drafter`."""
    write_drafter(folder, drafter.written(), card)


def matches(config: Any, _tensors: object = ()) -> bool:
    """Tell whether a configuration is of a recurrent drafter."""
    return "format" in config or _is_apples(config)


def inspect(checkpoint: Checkpoint) -> HeadConfig:
    """Return the architecture that a configuration describes and the header of the weights fits.

    Raises:
        ModelError: If one of them is damaged, or if the weights do not account for the architecture.
    """
    shape = _architecture(checkpoint)
    for name, tensor in checkpoint.tensors.items():
        if tensor.dtype not in (_WHOLE_NUMBERS if name == _VOCABULARY else _TYPES):
            raise ModelError(f"{name[:100]} of the drafter {checkpoint.name} is stored as {tensor.dtype[:20]}.", HINT)
    held = _VALUES_PER_BYTE * sum(tensor.stored_bytes for tensor in checkpoint.tensors.values())
    if shape.blocks > len(checkpoint.tensors) or shape.largest_size > held:
        raise _error(checkpoint, "has weights that are too few for its architecture")
    return shape


def check(checkpoint: Checkpoint, model: LoadedModel) -> TargetMatch:
    """Check a checkpoint against a target; see `Layout`."""
    if inspect(checkpoint).draft_vocabulary_size > model.info.vocabulary_size:
        raise _error(checkpoint, f"drafts tokens that {model.info.name} does not have")
    return TargetMatch(False, f"It names no model; its sizes fit {model.info.name}.")


def load(checkpoint: Checkpoint, model: LoadedModel) -> StoredDrafter:
    """Read a checkpoint; see `Layout`."""
    shape, binding = inspect(checkpoint), None
    tensors = checkpoint.lazy(checkpoint.tensors)
    if _is_apples(checkpoint.config):
        tensors = apple_weights(tensors, shape)
        tensors[_VOCABULARY] = mx.arange(shape.draft_vocabulary_size)
    else:
        binding = TargetBinding(**checkpoint.config["target"])  # as `check_drafter` has let it pass
    head = RecurrentHead(shape)
    if shape.quantization_bits:
        head = quantize(head, shape.quantization_bits, shape.quantization_group)
    vocabulary = _check_vocabulary(checkpoint, tensors.pop(_VOCABULARY, None), shape, model)
    _check_tensors(checkpoint, head, tensors)
    head.load_weights(list(tensors.items()))
    if shape.quantization_bits and not on_gpu():
        head = dequantize_model(head)  # quantised kernels are slow there
    return StoredDrafter(head, vocabulary, binding)


RECURRENT = Layout(HeadKind.RECURRENT, matches, inspect, check, load)


def _is_apples(config: Any) -> bool:
    return bool(config.get("model_type") == APPLE_MODEL_TYPE)


def _error(checkpoint: Checkpoint, problem: str) -> ModelError:
    return ModelError(f"The drafter {checkpoint.name} {problem}.", HINT)


def _architecture(checkpoint: Checkpoint) -> HeadConfig:
    config = checkpoint.config
    if _is_apples(config):
        return apple_config(Settings(checkpoint, config))
    data = config.get("architecture")
    if config.get("format") != _FORMAT or not isinstance(data, dict):
        raise not_a_drafter(checkpoint.folder)
    return HeadConfig.from_dict(data)


def not_a_drafter(folder: Path) -> ModelError:
    """Return the error that a folder's configuration is of something else."""
    return ModelError(f"{folder / CONFIG} describes no drafter that this version of rdchat can read.", HINT)


def _check_vocabulary(checkpoint: Checkpoint, ids: mx.array | None, shape: HeadConfig, model: LoadedModel) -> mx.array:
    if ids is None or ids.shape != (shape.draft_vocabulary_size,):
        raise _error(checkpoint, f"has no list of {shape.draft_vocabulary_size:,} tokens")
    host = fetch(ids).astype(np.int64)
    if host[0] < 0 or host[-1] >= model.info.vocabulary_size or (np.diff(host) <= 0).any():
        raise _error(checkpoint, f"drafts tokens that {model.info.name} does not have")
    return ids.astype(mx.int32)


def _check_tensors(checkpoint: Checkpoint, head: nn.Module, tensors: dict[str, mx.array]) -> None:
    expected = dict(tree_flatten(head.parameters()))
    for name in sorted(expected.keys() | tensors.keys()):
        if name not in tensors:
            raise _error(checkpoint, f"is incomplete: {name} is missing")
        if name not in expected:
            raise _error(checkpoint, f"holds {name}, which its architecture does not have")
        wanted, found = expected[name].shape, tensors[name].shape
        if wanted != found:
            raise _error(checkpoint, f"has a tensor {name} that has the shape {found} instead of {wanted}")
        if not mx.all(mx.isfinite(tensors[name])).item():
            raise _error(checkpoint, f"has a tensor {name} that holds numbers that are not finite")
