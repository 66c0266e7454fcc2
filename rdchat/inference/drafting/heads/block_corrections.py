"""How block drafters correct a token's logits by the tokens before it, one step at a time."""

from collections.abc import Sequence
from functools import partial

import mlx.core as mx
from mlx_lm.models.activations import swiglu

from rdchat.inference.decoding.reductions import top_k
from rdchat.inference.drafting.heads.decoder import ShapedModule


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

    def __call__(self, tokens: mx.array, products: mx.array) -> mx.array:
        """Return what the last tokens add to each candidate's logit, (beams, count).

        Args:
            tokens: (beams,) the last tokens.
            products: (count, rank) of the token that is drafted.
        """
        bias: mx.array = self.predecessor_codebook(tokens) @ products.T
        return bias


class CausalRefiner(ShapedModule):
    """XPress's refiner (arXiv 2608.02438; `XPressRefinerHead` in speculators 0.9), computed token by token.

    Each place of a block has a row: a projection of its own hidden state, of the mean of all, and of the token before
    it. It adds up the rows to its own, weighted channel by channel (`mix_l`), and an MLP makes its bias of the sum. So
    a place depends on the tokens before it alone. The authors refine a whole block a few times, each time with the
    tokens of the time before (Jacobi iteration); this is where that ends, and it gives each path of a tree its own.
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
        rows = row = self.in_proj(joined(features, self.token_embed(tokens)))[:, None]
        if past is not None:
            rows = mx.concatenate([past, row], axis=1)
        place = rows.shape[1] - 1
        x = mx.sum(rows * self.mix_l[:, place, : place + 1].T, axis=1) + row[:, 0]
        return self.readout(x + self.mlp_down(swiglu(self.mlp_gate(x), self.mlp_up(x)))), rows


@partial(mx.compile, shapeless=True)
def _updated(gate: mx.array, past: mx.array, candidate: mx.array) -> mx.array:
    keep = mx.sigmoid(gate)
    return keep * past + (1 - keep) * mx.tanh(candidate)


@partial(mx.compile, shapeless=True)
def _gru(inputs: Sequence[mx.array], recurrent: Sequence[mx.array], past: mx.array) -> mx.array:
    """Return a GRU's next state; both sequences are what its reset, update and new gates are given."""
    candidate = mx.tanh(inputs[2] + mx.sigmoid(inputs[0] + recurrent[0]) * recurrent[2])
    return candidate + mx.sigmoid(inputs[1] + recurrent[1]) * (past - candidate)
