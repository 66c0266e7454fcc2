"""The shape of a block drafter's network, and the tensors that it consists of: plain data, without MLX."""

from dataclasses import dataclass
from enum import StrEnum

from rdchat.inference.drafting.heads.rope_config import RopeConfig

Shape = tuple[int, ...]


class Markov(StrEnum):
    """How the token before a drafted one corrects its logits; the kinds of DeepSpec's `markov_head_type`.

    `vanilla` adds a low-rank bias of that token, `gated` scales it by the hidden state, `rnn` keeps a recurrent state
    along the block. `none` is DFlash: all tokens of a block are drafted apart from each other.
    """

    NONE = "none"
    VANILLA = "vanilla"
    GATED = "gated"
    RNN = "rnn"


class LayerStyle(StrEnum):
    """Whose decoder layers the drafter has: Qwen3's, or those of Gemma 4's full attention."""

    QWEN3 = "qwen3"
    GEMMA4 = "gemma4"


@dataclass(frozen=True, slots=True)
class BlockConfig:
    """A block drafter.

    Attributes:
        hidden_size: Width of the drafter, and of the target's hidden states.
        vocabulary_size: Tokens of the target.
        draft_vocabulary_size: Tokens that it can draft.
        heads: Query heads of a layer.
        kv_heads: Key and value heads.
        head_size: Width of a head.
        inner_size: Width inside a layer's MLP.
        norm_epsilon: Of all RMS norms.
        rope: Positions of queries and keys.
        windows: For each layer how many positions before the block it sees; None for all.
        causal: For each layer whether a token of the block sees only those before it in the block; else all of them.
        target_layers: Layers of the target, from 0, whose outputs are read.
        target_depth: Number of the target's layers; None where the checkpoint does not say.
        block_size: Tokens of a block, the root included.
        mask_token: Id of the token that stands for those to be drafted.
        from_anchor: Whether the root's own place drafts the first token (DSpark); else the first mask's (DFlash).
        markov: The correction by the token before.
        markov_rank: Its rank.
        confidence_inputs: Inputs of a confidence head; 0 for none.
        own_embeddings: Whether the checkpoint has token embeddings; else the target's are used.
        own_output: Whether it has output rows; else the target's are used.
        reduced: Whether it lists the tokens that it can draft (`d2t`).
        style: Kind of the decoder layers.
        biases: Names of projections that have a bias, such as `self_attn.q_proj`.
        qk_norm: Whether queries and keys are normalised.
        values_from_keys: Whether values are the projected keys (Gemma 4).
        softcap: The logits' bound before the correction; None for none.
    """

    hidden_size: int
    vocabulary_size: int
    draft_vocabulary_size: int
    heads: int
    kv_heads: int
    head_size: int
    inner_size: int
    norm_epsilon: float
    rope: RopeConfig
    windows: tuple[int | None, ...]
    causal: tuple[bool, ...]
    target_layers: tuple[int, ...]
    target_depth: int | None
    block_size: int
    mask_token: int
    from_anchor: bool
    markov: Markov = Markov.NONE
    markov_rank: int = 0
    confidence_inputs: int = 0
    own_embeddings: bool = False
    own_output: bool = False
    reduced: bool = False
    style: LayerStyle = LayerStyle.QWEN3
    biases: frozenset[str] = frozenset()
    qk_norm: bool = True
    values_from_keys: bool = False
    softcap: float | None = None

    @property
    def layers(self) -> int:
        """Number of decoder layers."""
        return len(self.windows)

    @property
    def most_drafted(self) -> int:
        """Tokens that one block drafts."""
        return self.block_size - (not self.from_anchor)

    def shapes(self) -> dict[str, Shape]:
        """Return the shapes of all tensors of the network, by their published names."""
        hidden = self.hidden_size
        shapes: dict[str, Shape] = {
            "fc.weight": (hidden, len(self.target_layers) * hidden),
            "hidden_norm.weight": (hidden,),
            "norm.weight": (hidden,),
        }
        for layer in range(self.layers):
            shapes |= {f"layers.{layer}.{name}": shape for name, shape in self._layer_shapes().items()}
        if self.own_embeddings:
            shapes["embed_tokens.weight"] = (self.vocabulary_size, hidden)
        if self.own_output:
            shapes["lm_head.weight"] = (self.draft_vocabulary_size, hidden)
        if self.markov is not Markov.NONE:
            shapes |= {f"markov_head.{name}": shape for name, shape in self._markov_shapes().items()}
        return shapes

    def side_shapes(self) -> dict[str, Shape]:
        """Return the shapes of tensors that a checkpoint has beside the network's: the vocabulary, the confidence."""
        shapes: dict[str, Shape] = {}
        if self.reduced:
            shapes["d2t"] = (self.draft_vocabulary_size,)
        if self.confidence_inputs:
            shapes |= {"confidence_head.proj.weight": (1, self.confidence_inputs), "confidence_head.proj.bias": (1,)}
        return shapes

    def _layer_shapes(self) -> dict[str, Shape]:
        hidden, inner = self.hidden_size, self.inner_size
        queries, rows = self.heads * self.head_size, self.kv_heads * self.head_size
        matrices: dict[str, Shape] = {
            "self_attn.q_proj": (queries, hidden),
            "self_attn.k_proj": (rows, hidden),
            "self_attn.v_proj": (rows, hidden),
            "self_attn.o_proj": (hidden, queries),
            "mlp.gate_proj": (inner, hidden),
            "mlp.up_proj": (inner, hidden),
            "mlp.down_proj": (hidden, inner),
        }
        if self.values_from_keys:
            del matrices["self_attn.v_proj"]
        norms = ["input_layernorm", "post_attention_layernorm"]
        if self.style is LayerStyle.GEMMA4:
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        shapes = {f"{name}.weight": shape for name, shape in matrices.items()}
        shapes |= {f"{name}.bias": shape[:1] for name, shape in matrices.items() if name in self.biases}
        shapes |= {f"{name}.weight": (hidden,) for name in norms}
        if self.qk_norm:
            shapes |= {f"self_attn.{name}.weight": (self.head_size,) for name in ("q_norm", "k_norm")}
        if self.style is LayerStyle.GEMMA4:
            shapes["layer_scalar"] = (1,)
        return shapes

    def _markov_shapes(self) -> dict[str, Shape]:
        rank = self.markov_rank
        shapes: dict[str, Shape] = {
            "markov_w1.weight": (self.vocabulary_size, rank),
            "markov_w2.weight": (self.draft_vocabulary_size, rank),
        }
        if self.markov is Markov.GATED:
            shapes |= {"gate_proj.weight": (rank, self.hidden_size + rank), "gate_proj.bias": (rank,)}
        if self.markov is Markov.RNN:
            shapes |= {"joint_proj.weight": (3 * rank, 2 * rank + self.hidden_size), "joint_proj.bias": (3 * rank,)}
        return shapes
