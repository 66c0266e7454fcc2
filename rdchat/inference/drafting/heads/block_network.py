"""The network of block drafters: DFlash (Chen et al. 2026, arXiv 2602.06036) and DSpark (deepseek-ai/DeepSpec).

A block is the root and masks behind it. One pass of a few decoder layers over it gives the logits of all its tokens at
once. The text before the block is known from the hidden states of several layers of the target: brought to one width
(`context`), they give each layer keys and values, which are kept. The block's own rows are never kept.

DSpark then corrects the logits of each token by the token before it (`MarkovHead`), so a path can be searched with one
cheap step a token.

A published DSpark may have a confidence head: `sigmoid(proj([hidden, w1(token before)]))` is how likely it holds the
target to take a token, given those before it. It is read by nobody here: the cut by scores knows as much without a
product of its own. Where it turns out to know more, its logarithm could be added to all steps below a beam.

Parameters have the names of the published tensors.
"""

from collections.abc import Callable
from functools import partial

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.rope_utils import initialize_rope

from rdchat.inference.drafting.heads.block_config import BlockConfig, LayerStyle, Markov

Rows = tuple[mx.array, mx.array]  # keys and values, each (1, kv_heads, n, head_size)
Place = Callable[[mx.array], mx.array]  # gives queries or keys, (1, heads, n, head_size), their positions
Extend = Callable[[int, Rows], tuple[Rows, "mx.array | str | None"]]


class BlockNetwork(nn.Module):
    """The network; see the module.

    Args:
        config: Its shape.
    """

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        self.config = config
        hidden, epsilon = config.hidden_size, config.norm_epsilon
        self.fc = nn.Linear(len(config.target_layers) * hidden, hidden, bias=False)
        self.hidden_norm = nn.RMSNorm(hidden, epsilon)
        self.layers = [_Layer(config) for _ in range(config.layers)]
        self.norm = nn.RMSNorm(hidden, epsilon)
        if config.own_embeddings:
            self.embed_tokens = nn.Embedding(config.vocabulary_size, hidden)
        if config.own_output:
            self.lm_head = nn.Linear(hidden, config.draft_vocabulary_size, bias=False)
        if config.markov is not Markov.NONE:
            self.markov_head = MarkovHead(config)
        rope = config.rope
        self.rope = initialize_rope(config.head_size, rope.theta, rope.traditional, rope.scaling, rope.max_positions)

    def context_rows(self, hidden: mx.array, place: Place) -> list[Rows]:
        """Return each layer's keys and values of tokens before a block.

        Args:
            hidden: (n, target layers x hidden_size): the target's hidden states at these tokens.
            place: Gives keys their positions.
        """
        context = self.hidden_norm(self.fc(hidden))[None]
        return [layer.self_attn.rows(context, place) for layer in self.layers]

    def block(self, embeddings: mx.array, place: Place, extend: Extend) -> mx.array:
        """Return the hidden states, (n, hidden_size), that a block's logits are read from.

        Args:
            embeddings: (n, hidden_size) of the root and the masks.
            place: Gives queries and keys their positions.
            extend: Takes a layer's number and the block's rows; returns all rows that the layer attends to, those of
                the block last, and the mask.
        """
        x = embeddings[None]
        for number, layer in enumerate(self.layers):
            x = layer(x, place, partial(extend, number))
        hidden: mx.array = self.norm(x)[0]
        return hidden


class _Layer(nn.Module):
    """A decoder layer; Gemma 4's normalises what attention and MLP return as well, and scales its output."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        hidden, epsilon = config.hidden_size, config.norm_epsilon
        self.self_attn = _Attention(config)
        self.mlp = _MLP(config)
        self.input_layernorm = nn.RMSNorm(hidden, epsilon)
        self.post_attention_layernorm = nn.RMSNorm(hidden, epsilon)
        if config.style is LayerStyle.GEMMA4:
            self.pre_feedforward_layernorm = nn.RMSNorm(hidden, epsilon)
            self.post_feedforward_layernorm = nn.RMSNorm(hidden, epsilon)
            self.layer_scalar = mx.ones((1,))

    def __call__(
        self, x: mx.array, place: Place, extend: Callable[[Rows], tuple[Rows, "mx.array | str | None"]]
    ) -> mx.array:
        attended = self.self_attn(self.input_layernorm(x), place, extend)
        if "layer_scalar" not in self:
            x = x + attended
            result: mx.array = x + self.mlp(self.post_attention_layernorm(x))
            return result
        x = x + self.post_attention_layernorm(attended)
        x = x + self.post_feedforward_layernorm(self.mlp(self.pre_feedforward_layernorm(x)))
        return x * self.layer_scalar


class _Attention(nn.Module):
    """Attention of a block's rows to the text before it and to each other."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        hidden, size = config.hidden_size, config.head_size
        queries, rows = config.heads * size, config.kv_heads * size
        self._size, self._epsilon = size, config.norm_epsilon
        self._gemma = config.style is LayerStyle.GEMMA4
        self._scale = 1.0 if self._gemma else size**-0.5
        self.q_proj = nn.Linear(hidden, queries, bias="self_attn.q_proj" in config.biases)
        self.k_proj = nn.Linear(hidden, rows, bias="self_attn.k_proj" in config.biases)
        if not config.values_from_keys:
            self.v_proj = nn.Linear(hidden, rows, bias="self_attn.v_proj" in config.biases)
        self.o_proj = nn.Linear(queries, hidden, bias="self_attn.o_proj" in config.biases)
        if config.qk_norm:
            self.q_norm = nn.RMSNorm(size, config.norm_epsilon)
            self.k_norm = nn.RMSNorm(size, config.norm_epsilon)

    def rows(self, x: mx.array, place: Place) -> Rows:
        """Return keys and values of (1, n, hidden_size)."""
        keys = self._heads(self.k_proj(x))
        values = self._heads(self.v_proj(x)) if "v_proj" in self else keys
        if self._gemma:
            values = mx.fast.rms_norm(values, None, self._epsilon)
        if "k_norm" in self:
            keys = self.k_norm(keys)
        return place(keys.transpose(0, 2, 1, 3)), values.transpose(0, 2, 1, 3)

    def __call__(
        self, x: mx.array, place: Place, extend: Callable[[Rows], tuple[Rows, "mx.array | str | None"]]
    ) -> mx.array:
        (keys, values), mask = extend(self.rows(x, place))
        queries = self._heads(self.q_proj(x))
        if "q_norm" in self:
            queries = self.q_norm(queries)
        queries = place(queries.transpose(0, 2, 1, 3))
        attended = mx.fast.scaled_dot_product_attention(queries, keys, values, scale=self._scale, mask=mask)
        result: mx.array = self.o_proj(attended.transpose(0, 2, 1, 3).flatten(2))
        return result

    def _heads(self, x: mx.array) -> mx.array:
        return x.reshape(*x.shape[:2], -1, self._size)


class _MLP(nn.Module):
    """A gated MLP: SiLU with Qwen3's layers, the approximate GELU with Gemma's."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        hidden, inner = config.hidden_size, config.inner_size
        self._gated = _gelu_gate if config.style is LayerStyle.GEMMA4 else _silu_gate
        self.gate_proj = nn.Linear(hidden, inner, bias="mlp.gate_proj" in config.biases)
        self.up_proj = nn.Linear(hidden, inner, bias="mlp.up_proj" in config.biases)
        self.down_proj = nn.Linear(inner, hidden, bias="mlp.down_proj" in config.biases)

    def __call__(self, x: mx.array) -> mx.array:
        result: mx.array = self.down_proj(self._gated(self.gate_proj(x), self.up_proj(x)))
        return result


class MarkovHead(nn.Module):
    """What the token before adds to a token's logits: a low-rank bias, by DeepSpec's `markov_head_type`."""

    def __init__(self, config: BlockConfig) -> None:
        super().__init__()
        rank, hidden = config.markov_rank, config.hidden_size
        self.markov_w1 = nn.Embedding(config.vocabulary_size, rank)
        self.markov_w2 = nn.Linear(rank, config.draft_vocabulary_size, bias=False)
        if config.markov is Markov.GATED:
            self.gate_proj = nn.Linear(hidden + rank, rank)
        if config.markov is Markov.RNN:
            self.joint_proj = nn.Linear(2 * rank + hidden, 3 * rank)

    def __call__(self, tokens: mx.array, hidden: mx.array, state: mx.array | None) -> tuple[mx.array, mx.array | None]:
        """Return the bias of each beam, (beams, draft_vocabulary_size), and its recurrent state behind the token.

        Args:
            tokens: (beams,) the tokens before, ids of the whole vocabulary.
            hidden: (hidden_size,) at the place that is drafted.
            state: (beams, rank); None at the beginning of a block.
        """
        before: mx.array = self.markov_w1(tokens)
        if "gate_proj" in self:
            gate = self.gate_proj(_beside(hidden, before))
            before = _scaled(gate, before)
        elif "joint_proj" in self:
            past = mx.zeros_like(before) if state is None else state
            gate, candidate, output = mx.split(self.joint_proj(_beside(past, before, hidden)), 3, axis=-1)
            before, state = mx.tanh(output), _updated(gate, past, candidate)
        return self.markov_w2(before), state


def _beside(*parts: mx.array) -> mx.array:
    """Return arrays, (beams, n) or (n,), side by side."""
    beams = max(part.shape[0] for part in parts if part.ndim == 2)
    return mx.concatenate([mx.broadcast_to(part, (beams, part.shape[-1])) for part in parts], axis=-1)


@partial(mx.compile, shapeless=True)
def _silu_gate(gate: mx.array, up: mx.array) -> mx.array:
    return gate * mx.sigmoid(gate) * up


@partial(mx.compile, shapeless=True)
def _gelu_gate(gate: mx.array, up: mx.array) -> mx.array:
    result: mx.array = nn.gelu_approx(gate) * up
    return result


@partial(mx.compile, shapeless=True)
def _scaled(gate: mx.array, x: mx.array) -> mx.array:
    return mx.sigmoid(gate) * x


@partial(mx.compile, shapeless=True)
def _updated(gate: mx.array, past: mx.array, candidate: mx.array) -> mx.array:
    keep = mx.sigmoid(gate)
    return keep * past + (1 - keep) * mx.tanh(candidate)
