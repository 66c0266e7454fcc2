"""Reads and writes recurrent drafters: those that rdchat trains, and Apple's ml-recurrent-drafter checkpoints.

The tensors of ours are named as in `RecurrentHead`. Apple's names and layer order are those of that project's PyTorch
and MLX models; one of its matrices holds two of ours side by side. They were tested with synthetic checkpoints only: no
real one was at hand.
"""

from collections.abc import Collection
from dataclasses import asdict
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten

from rdchat.errors import one_line
from rdchat.files import plain
from rdchat.inference.api import APPLE_MODEL_TYPE
from rdchat.inference.device import fetch
from rdchat.inference.drafting.checkpoints.checkpoint import Checkpoint, Layout, PublishedDrafter, not_a_drafter
from rdchat.inference.drafting.checkpoints.head_settings import Settings
from rdchat.inference.drafting.heads.head import HeadKind
from rdchat.inference.drafting.heads.recurrent_head import BoundRecurrentHead, Cell, HeadConfig, Output, RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.verification import LoadedModel, TargetEmbeddings

_FORMAT = 1
# Tensor of the ids of the tokens that can be drafted.
_VOCABULARY = "draft_vocabulary"
# Our names and Apple's, whose matrix for h and s has the columns of h first; `{input}` is one of `_APPLE_INPUTS`.
_APPLE_NAMES = {
    "from_token.weight": "rnn_w.weight",
    "recurrence.weight": "rnn_u.weight",
    # Apple's sum has a single bias, which can stand on either side.
    "from_token.bias": "rnn_u.bias",
    "from_hidden.bias": "{input}.bias",
    "from_hidden.weight": "{input}.weight",
    "from_state.weight": "{input}.weight",
}
# Spellings of the output layers and of the input projection, as TensorRT-LLM's `convert_checkpoint.py` reads them
_APPLE_OUTPUTS = ("lm_head", "lm_heads", "0")
_APPLE_INPUTS = ("input_proj", "input_projs")


def published(head: RecurrentHead, vocabulary: mx.array, target: TargetBinding) -> PublishedDrafter:
    """Return a head as stored files, its weights in their present precision.

    Args:
        head: The network.
        vocabulary: (draft_vocabulary_size,): ids of the tokens that it can draft, ascending.
        target: Model that it was trained for.
    """
    tensors = dict(tree_flatten(head.parameters())) | {_VOCABULARY: vocabulary.astype(mx.int32)}
    facts = {"format": _FORMAT, "target": asdict(target), "architecture": asdict(head.config)}
    return PublishedDrafter(facts, tensors)


def matches(config: Any, _tensors: object) -> bool:
    """Return whether a configuration is of a recurrent drafter."""
    return "format" in config or _is_apples(config)


def head_config(checkpoint: Checkpoint, _depth: int | None) -> HeadConfig:
    """Return the architecture in a configuration, and check it against the header of the weights.

    Raises:
        ModelError: If either is damaged.
    """
    if _is_apples(checkpoint.config):
        config = _apple_config(Settings(checkpoint, checkpoint.config))
    elif checkpoint.config.get("format") != _FORMAT:
        raise not_a_drafter(checkpoint.folder)
    else:
        try:
            config = plain(HeadConfig, checkpoint.config.get("architecture"))
        except (TypeError, ValueError) as error:
            raise checkpoint.error(f"its configuration is damaged ({one_line(error)[:200]})") from error
    stored_bytes = sum(tensor.stored_bytes for tensor in checkpoint.tensors.values())
    if config.blocks > len(checkpoint.tensors) or config.largest_size > stored_bytes:
        raise checkpoint.error("it has fewer weights than its configuration needs")
    return config


def load(checkpoint: Checkpoint, config: HeadConfig, model: LoadedModel) -> BoundRecurrentHead:
    """Read a checkpoint, and bind it; see `Layout`."""
    head = RecurrentHead(config)
    apples = _is_apples(checkpoint.config)
    count = config.draft_vocabulary_size
    shapes = {name: array.shape for name, array in tree_flatten(head.parameters())}
    names = _apple_names(shapes, config, checkpoint) if apples else {name: name for name in shapes}
    expected: dict[str, tuple[int, ...]] = {} if apples else {_VOCABULARY: (count,)}
    # Where two of our matrices are stored as one, its columns are those of both.
    for name, stored in names.items():
        rows, *columns = shapes[name]
        expected[stored] = (rows, *columns) if stored not in expected else (rows, expected[stored][1] + columns[0])
    checkpoint.check_tensors(expected)
    tensors = checkpoint.read_tensors(expected)
    ids = np.arange(count) if apples else fetch(tensors[_VOCABULARY]).astype(np.int64)
    vocabulary = checkpoint.drafted_tokens(_VOCABULARY, ids, model.info.vocabulary_size)
    for name, stored in names.items():
        # A stored matrix that is wider than ours holds two of ours side by side.
        if expected[stored] != shapes[name]:
            width = config.hidden_size
            tensors[name] = tensors[stored][:, :width] if name == "from_hidden.weight" else tensors[stored][:, width:]
        else:
            tensors[name] = tensors[stored]
    head.load_weights([(name, tensors[name]) for name in names])
    return BoundRecurrentHead(head, vocabulary, TargetEmbeddings(model.network, model.info.vocabulary_size))


RECURRENT = Layout(HeadKind.RECURRENT, matches, head_config, load)


def _is_apples(config: Any) -> bool:
    """Return whether a configuration is of Apple's kind."""
    return bool(config.get("model_type") == APPLE_MODEL_TYPE)


def _apple_config(settings: Settings) -> HeadConfig:
    """Return the head that Apple's `config.json` describes.

    Only where `exit_dim` is not twice the hidden size does it have an input layer for [h, s]. It has no activation
    after that layer, and an output matrix of its own over the whole vocabulary.
    """
    hidden = settings.size("hidden_size")
    inner = settings.size("exit_dim")
    return HeadConfig(
        hidden_size=hidden,
        draft_vocabulary_size=settings.size("vocab_size"),
        exit_size=inner,
        state_size=hidden,
        cell=Cell.RNN if settings.data.get("rnn", False) else Cell.SUM,
        blocks=settings.size("num_draft_layers", minimum=0),
        project_input=inner != 2 * hidden,
        activate_input=False,
        output=Output.OWN,
    )


def _apple_names(ours: Collection[str], config: HeadConfig, checkpoint: Checkpoint) -> dict[str, str]:
    """Return Apple's names of the tensors of a `RecurrentHead`, in the checkpoint's own spelling."""
    # Blocks and output matrix are one numbered list, the output last.
    last = f".{config.blocks}.weight"
    output = next((name for name in _APPLE_OUTPUTS if name + last in checkpoint.tensors), _APPLE_OUTPUTS[0])
    inputs = next((name for name in _APPLE_INPUTS if f"{name}.weight" in checkpoint.tensors), _APPLE_INPUTS[0])
    names = {}
    for name in ours:
        part, *rest = name.split(".")
        if part == "blocks":
            names[name] = f"{output}.{rest[0]}.linear.{rest[1]}"
        else:
            names[name] = output + last if part == "output" else _APPLE_NAMES[name].format(input=inputs)
    return names
