"""The sizes of a fresh sequence head, from those of its target."""

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.heads.block_config import BlockConfig, Markov
from rdchat.inference.drafting.heads.eagle3_network import Eagle3Config, Eagle3Layer
from rdchat.inference.drafting.heads.rope_config import RopeConfig
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.head.samples import Ints
from rdchat.inference.training.sequence_heads.shared_tables import SharedTables

_HEAD_WIDTH = 64
_THETA, _POSITIONS = 10_000.0, 8192
_EPSILON = 1e-6
_MARKOV_RANK = 32
_DSPARK_LAYERS = 1


def sequence_layers(model: LoadedModel) -> tuple[int, ...]:
    """Return the layers that are read: after a quarter, after a half, and the last but one.

    Others' tools read what goes into a layer, so they cannot read the last one's output. EAGLE-3's own choice ends
    three layers before that; a head with one layer of its own is better off with what is almost done.
    """
    count = len(getattr(model.network, "layers", ()))
    return tuple(sorted({min(layer, count - 1) for layer in (count // 4, count // 2, max(count - 2, 0))}))


def eagle3_config(model: LoadedModel, width: int, layers: tuple[int, ...]) -> Eagle3Config:
    """Return a head of one layer without tables; its output rows are stored, so its MLP is smaller than usual."""
    heads, kv_heads = _heads(width)
    size = model.info.vocabulary_size
    return Eagle3Config(
        hidden_size=width,
        intermediate_size=4 * width // 3,
        heads=heads,
        kv_heads=kv_heads,
        head_width=width // heads,
        norm_epsilon=_EPSILON,
        layers=(Eagle3Layer(takes_embedding=True),),
        target_layers=layers,
        target_width=width,
        vocabulary_size=size,
        candidates=size,
        own_output=False,
        rope=RopeConfig(_THETA, max_positions=_POSITIONS),
    )


def dspark_config(
    model: LoadedModel, tables: SharedTables, counts: Ints, layers: tuple[int, ...], steps: int
) -> BlockConfig:
    """Return a head of one layer that drafts from the root's place, with a vanilla Markov head.

    Its output rows are stored, as EAGLE-3's are, so its MLP is as small.

    Args:
        model: The target.
        tables: Its.
        counts: (vocabulary size,) how often each token occurs in the answers.
        layers: Layers of the target that are read.
        steps: Tokens of a block.
    """
    width, size = int(tables.rows.shape[1]), model.info.vocabulary_size
    heads, kv_heads = _heads(width)
    return BlockConfig(
        hidden_size=width,
        vocabulary_size=size,
        draft_vocabulary_size=int(tables.rows.shape[0]),
        heads=heads,
        kv_heads=kv_heads,
        head_size=width // heads,
        inner_size=4 * width // 3,
        norm_epsilon=_EPSILON,
        rope=RopeConfig(_THETA, max_positions=_POSITIONS),
        windows=(None,) * _DSPARK_LAYERS,
        causal=(False,) * _DSPARK_LAYERS,
        target_layers=layers,
        target_depth=len(model.network.layers),
        block_size=steps,
        mask_token=_mask_token(tables, counts),
        from_anchor=True,
        markov=Markov.VANILLA,
        markov_rank=min(_MARKOV_RANK, width),
        reduced=True,
    )


def _heads(width: int) -> tuple[int, int]:
    """Return the numbers of query heads and of key heads: heads of a width of about 64, keys shared by three or two."""
    heads = max(width // _HEAD_WIDTH, 1)
    while width % heads or (width // heads) % 2:
        heads -= 1
    return heads, next(heads // shared for shared in (3, 2, 1) if heads % shared == 0)


def _mask_token(tables: SharedTables, counts: Ints) -> int:
    """Return the token that stands for those to be drafted: one that never occurs, with an embedding that is not 0."""
    rarest = np.flatnonzero(counts == counts.min())
    sizes = mx.linalg.norm(tables.embed(mx.array(rarest)), axis=-1)
    return int(rarest[int(mx.argmax(sizes))])
