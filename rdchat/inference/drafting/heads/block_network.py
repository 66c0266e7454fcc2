"""The network of block drafters: DFlash (Chen et al. 2026, arXiv 2602.06036) and DSpark (deepseek-ai/DeepSpec).

A block is the root followed by mask tokens. One pass of a few decoder layers gives the logits of all its tokens at
once. The text before the block is read through hidden states of several layers of the target: projected to one width
(`fc`), they give each layer keys and values, which are kept. The block's own rows are not kept.

DSpark then corrects the logits of each token by the token before it (`MarkovHead`), so a path is searched with one
cheap step per token. A published DSpark's confidence head is not used: cutting by scores serves as well.

Parameters have the names of the published tensors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import override

import mlx.core as mx
import mlx.nn as nn

from rdchat.inference.drafting.heads.decoder import (
    DecoderConfig,
    DecoderLayer,
    RowPositions,
    Rows,
    Shape,
    add_modules,
    below,
)

Extend = Callable[[int, Rows], tuple[Rows, "mx.array | str | None"]]


class Markov(StrEnum):
    """How a drafted token's logits are corrected by the token before it; the kinds of DeepSpec's `markov_head_type`.

    `vanilla` adds a low-rank bias that depends on that token, `gated` scales it by the hidden state, `rnn` keeps a
    recurrent state along the block. `none` is DFlash: the tokens of a block are drafted independently.
    """

    NONE = "none"
    VANILLA = "vanilla"
    GATED = "gated"
    RNN = "rnn"


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockConfig(DecoderConfig):
    """Sizes and switches of a block drafter; `windows` counts the positions before the block.

    Attributes:
        causal: For each layer: whether a token sees only earlier ones of its block, or all of the block.
        block_size: Tokens of a block, the root included.
        mask_token: Id of the mask token.
        from_anchor: Whether the root drafts the first token (DSpark), or the first mask (DFlash).
        confidence_inputs: Input size of a confidence head; 0 without one.
        softcap: Bound of the logits before the correction.
    """

    causal: tuple[bool, ...]
    block_size: int
    mask_token: int
    from_anchor: bool
    markov: Markov = Markov.NONE
    markov_rank: int = 0
    confidence_inputs: int = 0
    softcap: float | None = None

    @property
    def max_drafted(self) -> int:
        """Tokens that one block drafts."""
        return self.block_size - (not self.from_anchor)

    @override
    def shapes(self) -> dict[str, Shape]:
        rank, hidden = self.markov_rank, self.hidden_size
        shapes = DecoderConfig.shapes(self) | {"hidden_norm.weight": (hidden,)}
        if self.gemma:
            shapes |= {f"layers.{number}.layer_scalar": (1,) for number in range(self.layers)}
        if self.markov is not Markov.NONE:
            shapes["markov_head.markov_w1.weight"] = (self.vocabulary_size, rank)
            shapes["markov_head.markov_w2.weight"] = (self.draft_vocabulary_size, rank)
        if self.markov is Markov.GATED:
            shapes["markov_head.gate_proj.weight"] = (rank, hidden + rank)
            shapes["markov_head.gate_proj.bias"] = (rank,)
        if self.markov is Markov.RNN:
            shapes["markov_head.joint_proj.weight"] = (3 * rank, 2 * rank + hidden)
            shapes["markov_head.joint_proj.bias"] = (3 * rank,)
        return shapes

    @override
    def norms(self, layer: int) -> list[str]:
        """See `DecoderConfig`; Gemma 4 also normalises the outputs of attention and MLP."""
        more = ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        return DecoderConfig.norms(self, layer) + (more if self.gemma else [])


class BlockNetwork(nn.Module):
    """The network; see the module's docstring.

    Args:
        config: Its sizes and switches.
    """

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.config, shapes = config, config.shapes()
        add_modules(self, shapes, config.norm_epsilon)
        self.layers = [_Layer(config, below(shapes, f"layers.{number}")) for number in range(config.layers)]
        if config.markov is not Markov.NONE:
            self.markov_head = MarkovHead(below(shapes, "markov_head"))

    def context_rows(self, hidden: mx.array, positions: RowPositions) -> list[Rows]:
        """Return each layer's keys and values for tokens before a block.

        Args:
            hidden: (n, target layers x target_width): the target's hidden states at these tokens.
            positions: Positions of these tokens.
        """
        context = self.hidden_norm(self.fc(hidden))
        return [layer.self_attn.rows(context, positions) for layer in self.layers]

    def block(self, embeddings: mx.array, positions: RowPositions, extend: Extend) -> mx.array:
        """Return the hidden states, (n, hidden_size), from which a block's logits are computed.

        Args:
            embeddings: (n, hidden_size) of the root and the masks.
            positions: Their positions.
            extend: Takes a layer's number and the block's rows; returns the mask and all rows that the layer attends
                to, with the block's own last.
        """
        x = embeddings
        for number, layer in enumerate(self.layers):
            x = layer(x, positions, partial(extend, number))
        hidden: mx.array = self.norm(x)
        return hidden


class _Layer(DecoderLayer):
    """A decoder layer; Gemma 4's also normalises the outputs of attention and MLP, and scales its output."""

    def __call__(
        self, x: mx.array, positions: RowPositions, extend: Callable[[Rows], tuple[Rows, "mx.array | str | None"]]
    ) -> mx.array:
        normal = self.input_layernorm(x)
        rows, mask = extend(self.self_attn.rows(normal, positions))
        attended = self.self_attn(normal, positions, rows, mask)
        if "layer_scalar" not in self:
            return self.outputs(x, attended)
        x = x + self.post_attention_layernorm(attended)
        x = x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        scaled: mx.array = x * self.layer_scalar
        return scaled


class MarkovHead(nn.Module):
    """Computes what the previous token adds to a token's logits: a low-rank bias, by `markov_head_type`."""

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        super().__init__()
        add_modules(self, shapes, 0.0)

    def __call__(self, tokens: mx.array, hidden: mx.array, state: mx.array | None) -> tuple[mx.array, mx.array | None]:
        """Return each beam's bias, (beams, draft_vocabulary_size), and its recurrent state after the token.

        Args:
            tokens: (beams,) the last tokens, ids of the whole vocabulary.
            hidden: (hidden_size,): hidden state of the token that is drafted.
            state: (beams, rank); None at the beginning of a block.
        """
        before: mx.array = self.markov_w1(tokens)
        if "gate_proj" in self:
            before = mx.sigmoid(self.gate_proj(_joined(hidden, before))) * before
        elif "joint_proj" in self:
            past = mx.zeros_like(before) if state is None else state
            gate, candidate, output = mx.split(self.joint_proj(_joined(past, before, hidden)), 3, axis=-1)
            before, state = mx.tanh(output), _updated(gate, past, candidate)
        return self.markov_w2(before), state


def _joined(*parts: mx.array) -> mx.array:
    """Concatenate arrays, (beams, n) or (n,), along the last axis."""
    beams = max(part.shape[0] for part in parts if part.ndim == 2)
    return mx.concatenate([mx.broadcast_to(part, (beams, part.shape[-1])) for part in parts], axis=-1)


@partial(mx.compile, shapeless=True)
def _updated(gate: mx.array, past: mx.array, candidate: mx.array) -> mx.array:
    keep = mx.sigmoid(gate)
    return keep * past + (1 - keep) * mx.tanh(candidate)
