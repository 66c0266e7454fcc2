"""Reads and writes recurrent drafters: ours, bound to a target, and Apple's ml-recurrent-drafter checkpoints.

The key names and layer order of Apple's checkpoints are those of that project's PyTorch and MLX models. They were
tested with synthetic checkpoints only: no real one was at hand. A bound head has the target's embeddings: token ids in,
logits of the draft vocabulary out.
"""

from collections.abc import Collection
from copy import deepcopy
from dataclasses import asdict, dataclass
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from rdchat.errors import ModelError, one_line
from rdchat.files.foreign_files import plain
from rdchat.inference.api import APPLE_MODEL_TYPE, MAX_BEAM_ROWS
from rdchat.inference.drafting.checkpoints.checkpoint import Checkpoint, Layout, PublishedDrafter, not_a_drafter
from rdchat.inference.drafting.checkpoints.head_settings import Settings
from rdchat.inference.drafting.heads.head import Head, HeadKind, HeadMemory, HeadState, Root
from rdchat.inference.drafting.heads.recurrent_head import Cell, HeadConfig, Output, RecurrentHead
from rdchat.inference.models.model_files import TargetBinding
from rdchat.inference.verification.device import fetch
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings

_FORMAT = 1
# Tensor of the ids of the tokens that can be drafted.
_VOCABULARY = "draft_vocabulary"
# Our names and Apple's, whose matrix for h and s has the columns of h first.
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


class BoundRecurrentHead(Head):
    """A recurrent head in the target's precision, with the target's embeddings and output rows; see `Head`.

    Args:
        head: The network; a copy in the precision of the target's embeddings is used.
        vocabulary: (candidates,) int32 ids of the tokens it drafts.
        embeddings: The target's.

    Raises:
        ModelError: If the head needs embeddings of another width.
    """

    kind = HeadKind.RECURRENT
    max_drafted = MAX_BEAM_ROWS
    remembers = False

    def __init__(self, head: RecurrentHead, vocabulary: mx.array, embeddings: TargetEmbeddings) -> None:
        if head.config.hidden_size != embeddings.width:
            raise ModelError(
                f"The drafter reads hidden states of width {head.config.hidden_size:,}, the model's have "
                f"{embeddings.width:,}.",
                "Use a drafter that was trained for this model.",
            )
        self._dtype = embeddings.dtype
        self.network = deepcopy(head)
        self.network.set_dtype(self._dtype)
        self._embeddings = embeddings
        self._output = embeddings.output_for(vocabulary) if head.config.output is Output.TIED else nn.Identity()
        self.vocabulary = vocabulary
        self.candidates = int(vocabulary.shape[0])
        self.reads = HiddenReads(head.config.target_layers)
        self.inverse_temperature = head.config.inverse_temperature

    def memory(self) -> HeadMemory:
        """See `Head`; it keeps nothing."""
        return _NoMemory(self)

    def context(self, hidden: mx.array) -> mx.array:
        """Return `RecurrentHead.context` of the target's hidden states, (..., input_size)."""
        return self.network.context(hidden.astype(self._dtype))

    def advance(self, state: mx.array | None, tokens: mx.array) -> mx.array:
        """Return the states, (beams, state_size), after one more token of each beam.

        Args:
            state: (beams, state_size); None before the root.
            tokens: (beams,) ids of the whole vocabulary.
        """
        if state is None:
            state = self.network.initial_state(tokens.shape, self._dtype)
        return self.network.advance(state, self._embeddings.embed(tokens))

    def candidate_logits(self, context: mx.array, state: mx.array) -> mx.array:
        """Return the logits, (beams, candidates) float32, of the token after each beam."""
        logits: mx.array = self._output(self.network.features(context, state))
        return logits.astype(mx.float32)


@dataclass(frozen=True, slots=True)
class _NoMemory(HeadMemory):
    """Keeps nothing: a recurrent head knows a text only through the hidden state from which the root was chosen."""

    head: BoundRecurrentHead

    def root_state(self, root: Root) -> HeadState:
        first = mx.array(root.token, mx.int32).reshape(1)
        return _RecurrentState(self.head, self.head.context(root.hidden[None]), self.head.advance(None, first))


@dataclass(frozen=True, slots=True)
class _RecurrentState(HeadState):
    """See `HeadState`: one context for the whole draft, and (beams, state_size) states."""

    head: BoundRecurrentHead
    context: mx.array
    states: mx.array

    def logits(self) -> mx.array:
        return self.head.candidate_logits(self.context, self.states)

    def after(self, beams: mx.array, tokens: mx.array) -> HeadState:
        return _RecurrentState(self.head, self.context, self.head.advance(self.states[beams], tokens))


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


def matches(config: Any, _tensors: object = ()) -> bool:
    """Return whether a configuration is of a recurrent drafter."""
    return "format" in config or _is_apples(config)


def head_config(checkpoint: Checkpoint, _depth: int | None = None) -> HeadConfig:
    """Return the architecture in a configuration, and check it against the header of the weights.

    Raises:
        ModelError: If either is damaged.
    """
    config = _architecture(checkpoint)
    held = sum(tensor.stored_bytes for tensor in checkpoint.tensors.values())
    if config.blocks > len(checkpoint.tensors) or config.largest_size > held:
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
    for name, stored in names.items():
        rows, *columns = shapes[name]
        expected[stored] = (rows, *columns) if stored not in expected else (rows, expected[stored][1] + columns[0])
    checkpoint.check_tensors(expected)
    tensors = checkpoint.read_tensors(expected)
    ids = np.arange(count) if apples else fetch(tensors[_VOCABULARY]).astype(np.int64)
    vocabulary = checkpoint.drafted_tokens(_VOCABULARY, ids, model.info.vocabulary_size)
    for name, stored in names.items():
        if expected[stored] != shapes[name]:
            width = config.hidden_size
            tensors[name] = tensors[stored][:, :width] if name == "from_hidden.weight" else tensors[stored][:, width:]
        else:
            tensors[name] = tensors[stored]
    head.load_weights([(name, tensors[name]) for name in names])
    return BoundRecurrentHead(head, vocabulary, TargetEmbeddings(model.network, model.info.vocabulary_size))


RECURRENT = Layout(HeadKind.RECURRENT, matches, head_config, load)


def _is_apples(config: Any) -> bool:
    return bool(config.get("model_type") == APPLE_MODEL_TYPE)


def _architecture(checkpoint: Checkpoint) -> HeadConfig:
    if _is_apples(checkpoint.config):
        return _apple_config(Settings(checkpoint, checkpoint.config))
    if checkpoint.config.get("format") != _FORMAT:
        raise not_a_drafter(checkpoint.folder)
    try:
        return plain(HeadConfig, checkpoint.config.get("architecture"))
    except (TypeError, ValueError) as error:
        raise checkpoint.error(f"its configuration is damaged ({one_line(error)[:200]})") from error


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
