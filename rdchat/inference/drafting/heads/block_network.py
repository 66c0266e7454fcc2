"""The network of block drafters: DFlash (Chen et al. 2026, arXiv 2602.06036) and what was built on it.

A block is the root followed by mask tokens. One pass of a few decoder layers gives the logits of all its tokens at
once. The text before the block is read through hidden states of several layers of the target: projected to one width
(`fc`), they give each layer keys and values, which are kept. The block's own rows are not kept.

The others correct these logits by the tokens before, so a path is searched with one cheap step per token: DSpark
(deepseek-ai/DeepSpec), Domino (arXiv 2605.29707), XPress (arXiv 2608.02438) and DFlash 2 (z-lab/dflash, 2026). In
DFlash 2 each token of a block also sees its neighbour directly (`Convolution`). A published DSpark's confidence head is
not used: cutting by scores serves as well.

JetSpec (arXiv 2606.18394; hao-ai-lab/JetSpec at 2c7b3fa, `jetspec/draft_head_adapter.py`) is a DFlash whose tokens see
only earlier ones of the block, so that each is drafted as the target would. The authors make a tree of the scores of
one pass, as beam search does here. A further pass for each path is a plan of theirs that they have not built: they
found no gain.

Parameters have the names of the published tensors.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import partial
from typing import override

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.activations import swiglu

from rdchat.inference.decoding.reductions import top_k
from rdchat.inference.drafting.heads.decoder import (
    DecoderConfig,
    DecoderLayer,
    RowPositions,
    Rows,
    Shape,
    ShapedModule,
    below,
)

Extend = Callable[[int, Rows], tuple[Rows, "mx.array | str | None"]]
"""See `BlockNetwork.block`."""


class MarkovHead(ShapedModule):
    """Computes what the previous token adds to a token's logits: a low-rank bias, by `markov_head_type`."""

    def __call__(self, tokens: mx.array, hidden: mx.array, state: mx.array | None) -> tuple[mx.array, mx.array | None]:
        """Return each beam's bias, (beams, draft_vocabulary_size), and its recurrent state after the token.

        Args:
            tokens: (beams,) the last tokens, ids of the whole vocabulary.
            hidden: (hidden_size,): hidden state of the token that is drafted.
            state: (beams, rank); None at the beginning of a block.
        """
        before: mx.array = self.markov_w1(tokens)
        if "gate_proj" in self:
            before = mx.sigmoid(self.gate_proj(joined(hidden, before))) * before
        elif "joint_proj" in self:
            past = mx.zeros_like(before) if state is None else state
            gate, candidate, output = mx.split(self.joint_proj(joined(past, before, hidden)), 3, axis=-1)
            before = mx.tanh(output)
            state = _updated(gate, past, candidate)
        return self.markov_w2(before), state


def joined(*parts: mx.array) -> mx.array:
    """Concatenate arrays, (beams, n) or (n,), along the last axis."""
    beams = max(part.shape[0] for part in parts if part.ndim == 2)
    return mx.concatenate([mx.broadcast_to(part, (beams, part.shape[-1])) for part in parts], axis=-1)


class TokenGru(ShapedModule):
    """Domino's GRU over the tokens of a block, the root first; without biases, as in torch's `GRU`."""

    def __call__(self, embeddings: mx.array, past: mx.array | None) -> mx.array:
        """Return the state after one more token, (beams, gru_size).

        Args:
            embeddings: (beams, hidden_size) of the tokens.
            past: (beams, gru_size) state before them; None at the beginning of a block.
        """
        inputs = self.weight_ih_l0(embeddings)
        past = mx.zeros((inputs.shape[0], inputs.shape[1] // 3), inputs.dtype) if past is None else past
        return _gru([*mx.split(inputs, 3, axis=-1)], [*mx.split(self.weight_hh_l0(past), 3, axis=-1)], past)


class CandidateSelector(ShapedModule):
    """DFlash 2's choice among the likeliest tokens of a step.

    Token b after token a scores `U(b) + <A(a) * H(h), B(b)>`: its own logit, and how the two go together at the hidden
    state h, by the tables `predecessor_codebook` (A) and `successor_codebook` (B) and the projection H.
    """

    def candidates(self, hidden: mx.array, logits: mx.array, count: int) -> tuple[mx.array, mx.array, mx.array]:
        """Return a block's candidates, and what their scores need.

        Args:
            hidden: (n, hidden_size) of the tokens that are drafted.
            logits: (n, vocabulary_size) their logits.
            count: Candidates of each token.

        Returns:
            (n, count) int32 ids, (n, count) float32 logits, and (n, count, rank) the products `H(h) * B(b)`.
        """
        ids, values = top_k(logits.astype(mx.float32), count)
        return ids.astype(mx.int32), values, self.hidden_projection(hidden)[:, None] * self.successor_codebook(ids)

    def __call__(self, tokens: mx.array, products: mx.array, _past: object = None) -> tuple[mx.array, None]:
        """Return what the last tokens add to each candidate's logit, (beams, count), and no state.

        Args:
            tokens: (beams,) the last tokens.
            products: (count, rank) of the token that is drafted.
        """
        return self.predecessor_codebook(tokens) @ products.T, None


class CausalRefiner(ShapedModule):
    """XPress's refiner (arXiv 2608.02438; `XPressRefinerHead` in speculators 0.9), computed token by token.

    Each place of a block has a row: a projection of its own hidden state, of the mean of all, and of the token before
    it. To its own row it adds all rows up to and with that one, weighted channel by channel (`mix_l`: channel, place
    that adds up, place of the row), and an MLP makes its bias of the sum. So a place depends on the tokens before it
    alone. The authors refine a whole block a few times, each time with the tokens of the time before (Jacobi
    iteration); this is where that ends, and it gives each path of a tree its own.
    """

    def features(self, hidden: mx.array) -> mx.array:
        """Return what does not depend on tokens, (block_size, 2 * rank), from a block's (block_size, hidden_size)."""
        return joined(self.down_h(hidden), self.down_g(mx.mean(hidden, axis=0)))

    def __call__(self, tokens: mx.array, features: mx.array, past: mx.array | None) -> tuple[mx.array, mx.array]:
        """Return each beam's bias, (beams, draft_vocabulary_size), and its rows with the new one.

        Args:
            tokens: (beams,) the tokens before this place.
            features: (2 * rank,) of this place.
            past: (beams, n, rank): rows of the block's n places before it; None at the first.
        """
        row = self.in_proj(joined(features, self.token_embed(tokens)))[:, None]
        rows = row if past is None else mx.concatenate([past, row], axis=1)
        position = rows.shape[1] - 1
        x = mx.sum(rows * self.mix_l[:, position, : position + 1].T, axis=1) + row[:, 0]
        return self.readout(x + self.mlp_down(swiglu(self.mlp_gate(x), self.mlp_up(x)))), rows


@partial(mx.compile, shapeless=True)
def _updated(gate: mx.array, past: mx.array, candidate: mx.array) -> mx.array:
    """Return the recurrent state of a Markov head after a token."""
    keep = mx.sigmoid(gate)
    return keep * past + (1 - keep) * mx.tanh(candidate)


@partial(mx.compile, shapeless=True)
def _gru(inputs: Sequence[mx.array], recurrent: Sequence[mx.array], past: mx.array) -> mx.array:
    """Return a GRU's next state; both sequences are what its reset, update and new gates are given."""
    candidate = mx.tanh(inputs[2] + mx.sigmoid(inputs[0] + recurrent[0]) * recurrent[2])
    return candidate + mx.sigmoid(inputs[1] + recurrent[1]) * (past - candidate)


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
    """Sizes and switches of a block drafter; `windows` counts the positions before the root.

    Attributes:
        causal: For each layer: whether a token sees only earlier ones of its block, or all of the block.
        rolling: Whether windows move along the block, token by token; otherwise all its tokens see the root's.
        block_size: Tokens of a block, the root included.
        mask_token: Id of the mask token.
        from_anchor: Whether the root drafts the first token (DSpark), or the first mask (DFlash).
        markov: Kind of DSpark's correction.
        markov_rank: Width in which it relates two tokens; 0 without it.
        input_scale: The block's embeddings are multiplied by it; None for the target's own scale.
        output_scale: The logits are multiplied by it, before they are bounded.
        taps: Rows that each of DFlash 2's convolutions adds up; 0 without them.
        channels: Neighbouring channels of a convolution that share the weights which depend on the row.
        selected: Likeliest tokens of a step among which DFlash 2 chooses; 0 without its selector.
        selector_rank: Width in which the selector compares two tokens.
        gru_size: Width of Domino's recurrent state; 0 without it.
        gru_rank: Width in front of the GRU's output rows.
        uncorrected: First drafted tokens that the GRU does not correct.
        refiner_rank: Width of the rows of XPress's refiner; 0 without it.
        refiner_inner: Width inside its MLP.
    """

    causal: tuple[bool, ...]
    rolling: bool = False
    block_size: int
    mask_token: int
    from_anchor: bool
    markov: Markov = Markov.NONE
    markov_rank: int = 0
    input_scale: float | None = None
    output_scale: float = 1.0
    taps: int = 0
    channels: int = 0
    selected: int = 0
    selector_rank: int = 0
    gru_size: int = 0
    gru_rank: int = 0
    uncorrected: int = 0
    refiner_rank: int = 0
    refiner_inner: int = 0

    @property
    def max_drafted(self) -> int:
        """Tokens that one block drafts."""
        return self.block_size - (not self.from_anchor)

    def block_rows(self, drafted: int | None) -> int:
        """Return the rows of a block of which so many tokens are needed; None for all.

        Where no row sees a later one, the rows behind are left out: a Mac's GPU multiplies few rows much faster. The
        refiner takes the mean of all rows, so it needs them.
        """
        if drafted is None or self.refiner_rank or not all(self.causal):
            return self.block_size
        return min(self.block_size, drafted + (not self.from_anchor))

    @override
    def shapes(self) -> dict[str, Shape]:
        rank = self.markov_rank
        hidden = self.hidden_size
        shapes = DecoderConfig.shapes(self) | {"hidden_norm.weight": (hidden,)}
        if self.taps:
            groups = hidden // self.channels
            for name in [f"layers.{n}.{part}" for n in range(self.layers) for part in ("attention_conv", "mlp_conv")]:
                shapes[f"{name}.base_kernel"] = (2, self.taps, hidden)
                shapes[f"{name}.kernel_projection.weight"] = (2 * self.taps * groups, hidden)
        if self.selected:
            shapes["candidate_selector.hidden_projection.weight"] = (self.selector_rank, hidden)
            for side in ("predecessor", "successor"):
                shapes[f"candidate_selector.{side}_codebook.weight"] = (self.vocabulary_size, self.selector_rank)
        if self.gru_size:
            shapes["prefix_gru.weight_ih_l0.weight"] = (3 * self.gru_size, hidden)
            shapes["prefix_gru.weight_hh_l0.weight"] = (3 * self.gru_size, self.gru_size)
            shapes["embed_proj.0.weight"] = (self.gru_rank, hidden + self.gru_size)
            shapes["embed_proj.2.weight"] = (self.draft_vocabulary_size, self.gru_rank)
        if self.refiner_rank:
            shapes |= {f"refiner_head.{name}": shape for name, shape in self._refiner_shapes().items()}
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

    def _refiner_shapes(self) -> dict[str, Shape]:
        """Return the shapes of XPress's refiner, by the names inside it."""
        rank = self.refiner_rank
        inner = self.refiner_inner
        hidden = self.hidden_size
        return {
            "token_embed.weight": (self.vocabulary_size, rank),
            "down_h.weight": (rank, hidden),
            "down_g.weight": (rank, hidden),
            "in_proj.weight": (rank, 3 * rank),
            "mix_l": (rank, self.block_size, self.block_size),
            "mlp_gate.weight": (inner, rank),
            "mlp_up.weight": (inner, rank),
            "mlp_down.weight": (rank, inner),
            "readout.weight": (self.draft_vocabulary_size, rank),
        }


class BlockNetwork(ShapedModule):
    """The network; see the module's docstring.

    Args:
        config: Its sizes and switches.
    """

    def __init__(self, config: BlockConfig) -> None:
        super().__init__(shapes := config.shapes(), config.norm_epsilon)
        self.config = config
        self.layers = [_Layer(config, below(shapes, f"layers.{number}")) for number in range(config.layers)]
        if config.markov is not Markov.NONE:
            self.markov_head = MarkovHead(below(shapes, "markov_head"))
        if config.refiner_rank:
            self.refiner_head = CausalRefiner(below(shapes, "refiner_head"))
        if config.selected:
            self.candidate_selector = CandidateSelector(below(shapes, "candidate_selector"))
        if config.gru_size:
            self.prefix_gru = TokenGru(below(shapes, "prefix_gru"))
            sizes = config.hidden_size + config.gru_size, config.gru_rank, config.draft_vocabulary_size
            self.embed_proj = [nn.Linear(*sizes[:2], bias=False), nn.SiLU(), nn.Linear(*sizes[1:], bias=False)]

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
    """A decoder layer; DFlash 2's has convolutions around attention and MLP."""

    def __init__(self, config: BlockConfig, shapes: Mapping[str, Shape]) -> None:
        super().__init__(config, shapes)
        if config.taps:
            self.attention_conv = Convolution(below(shapes, "attention_conv"))
            self.mlp_conv = Convolution(below(shapes, "mlp_conv"))

    def __call__(
        self, x: mx.array, positions: RowPositions, extend: Callable[[Rows], tuple[Rows, "mx.array | str | None"]]
    ) -> mx.array:
        normal = self.input_layernorm(x)
        convolved = "attention_conv" in self
        if convolved:
            normal, kernel = self.attention_conv.before(normal)
        rows, mask = extend(self.self_attn.rows(normal, positions))
        attended = self.self_attn(normal, positions, rows, mask)
        if convolved:
            x = x + self.attention_conv.convolve(attended, kernel)
            normal, kernel = self.mlp_conv.before(self.post_attention_layernorm(x))
            output: mx.array = x + self.mlp_conv.convolve(self.mlp(normal), kernel)
            return output
        return self.outputs(x, attended)


class Convolution(ShapedModule):
    """DFlash 2's pair of causal convolutions along a block, before and after a part of a layer.

    Each channel of a row is a weighted sum of that channel in the row and in those before it in the block. The weights
    are the sum of learnt ones and of a projection of the part's input, which several channels share.
    """

    def __init__(self, shapes: Mapping[str, Shape]) -> None:
        super().__init__(shapes)
        self._taps = shapes["base_kernel"][1]

    def before(self, x: mx.array) -> tuple[mx.array, mx.array]:
        """Return the convolved input of the part, (n, hidden_size), and the weights for `convolve`."""
        projected = self.kernel_projection(x).reshape(x.shape[0], 2, self._taps, -1)
        return _convolved(x, projected[:, 0], self.base_kernel[0]), projected[:, 1]

    def convolve(self, x: mx.array, kernel: mx.array) -> mx.array:
        """Return the convolved output of the part, (n, hidden_size)."""
        return _convolved(x, kernel, self.base_kernel[1])


@partial(mx.compile, shapeless=False)
def _convolved(x: mx.array, kernel: mx.array, base: mx.array) -> mx.array:
    """Convolve the rows of a block.

    Args:
        x: (n, width).
        kernel: (n, taps, groups): weights of each row; tap 0 is the row's own.
        base: (taps, width): is added to them.
    """
    count, taps, groups = kernel.shape
    values = x.reshape(count, groups, -1)
    rows = np.arange(count)
    total = values * (base[0].reshape(groups, -1) + kernel[:, 0, :, None])
    for tap in range(1, taps):
        # A gather is one launch; padding would be two.
        earlier = values[mx.array(np.maximum(rows - tap, 0))] * mx.array(rows >= tap)[:, None, None]
        total = total + earlier * (base[tap].reshape(groups, -1) + kernel[:, tap, :, None])
    return total.reshape(x.shape)
