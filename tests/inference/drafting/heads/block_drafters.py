"""Block drafters of random weights for small targets, in memory and on disk, and replies that they draft."""

import json
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten, tree_map

from rdchat.inference.api import BeamShape, GenerationRequest, ReplyEnd
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.drafting.head_drafter import HeadDrafter
from rdchat.inference.drafting.heads.block_network import BlockConfig, BlockNetwork, Markov
from rdchat.inference.drafting.heads.decoder import RopeConfig
from rdchat.inference.drafting.heads.head import Root
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from tests.inference.fakes import StoredBlockHead, reply_end, tiny_llama, with_beams
from tests.inference.plain_replies import plain

KINDS: list[dict[str, Any]] = [
    {},
    {"markov": Markov.VANILLA, "own_embeddings": True, "own_output": True},
    {"markov": Markov.GATED, "windows": (None, 4), "reduced": True},
    {"markov": Markov.RNN, "own_output": True, "reduced": True},
    {"gru_size": 6, "gru_rank": 7, "uncorrected": 1, "from_anchor": True, "windows": (None, 4), "causal": (False, True)}
    | {"rolling": True},
    {"taps": 2, "channels": 4, "selected": 16, "selector_rank": 8, "windows": (6, 6), "rolling": True},
    {"causal": (True, True)},
    {"refiner_rank": 6, "refiner_inner": 9},
    {"refiner_rank": 6, "refiner_inner": 12, "from_anchor": True, "own_output": True, "reduced": True},
]

JETSPEC, XPRESS = KINDS[6:8]


def block_config(model: LoadedModel, **changes: Any) -> BlockConfig:
    """Return a drafter of a target's sizes: DFlash's kind, or with a Markov head DSpark's."""
    vocabulary = model.info.vocabulary_size
    depth = len(model.network.layers)
    markov = changes.get("markov", Markov.NONE)
    shape: dict[str, Any] = {
        "hidden_size": TargetEmbeddings(model.network, vocabulary).width,
        "vocabulary_size": vocabulary,
        "draft_vocabulary_size": vocabulary - 5 if changes.get("reduced") else vocabulary,
        "heads": 4,
        "kv_heads": 2,
        "head_size": 8,
        "inner_size": 32,
        "norm_epsilon": 1e-6,
        "rope": RopeConfig(10_000.0),
        "windows": (None, None),
        "causal": (False, False),
        "target_layers": (0, depth - 2),
        "target_width": TargetEmbeddings(model.network, vocabulary).width,
        "target_depth": depth,
        "block_size": 5,
        "mask_token": vocabulary - 1,
        "from_anchor": markov is not Markov.NONE,
        "qk_norm": True,
        "markov_rank": 0 if markov is Markov.NONE else 8,
    }
    return BlockConfig(**(shape | {name: value for name, value in changes.items() if name != "reduced"}))


def stored_block(model: LoadedModel, **changes: Any) -> StoredBlockHead:
    """Return a drafter of random weights; `changes` are fields of its `BlockConfig`."""
    config = block_config(model, **changes)
    reduced = mx.arange(5, config.vocabulary_size, dtype=mx.int32) if config.reduced else None
    return stored_of(random_block(config), reduced)


@cache
def random_block(config: BlockConfig) -> BlockNetwork:
    """Return a network with random weights; made once, so none may change it."""
    mx.random.seed(3)
    with mx.stream(mx.cpu):
        network = BlockNetwork(config)
        network.update(tree_map(lambda array: array + 0.2 * mx.random.normal(array.shape), network.parameters()))
    mx.eval(network.parameters())
    return network


def stored_of(network: BlockNetwork, reduced: mx.array | None = None) -> StoredBlockHead:
    """Return a drafter with the weights of a network."""
    return StoredBlockHead(network.config, lambda: dict(tree_flatten(network.parameters())), reduced)


def written_block(folder: Path, model: LoadedModel, settings: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Write a drafter of random weights in DeepSpec's layout, or z-lab's where it has no Markov head."""
    stored = stored_block(model, **changes)
    config = stored.config
    facts: dict[str, Any] = {
        "architectures": ["Whatever"],
        "auto_map": {"AutoModel": "code.Model"},
        "model_type": "qwen3",
        "hidden_size": config.hidden_size,
        "intermediate_size": config.inner_size,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "vocab_size": config.vocabulary_size,
        "draft_vocab_size": config.draft_vocabulary_size,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-6,
        "rope_theta": 10000.0,
        "num_target_layers": config.target_depth,
        "block_size": config.block_size,
    }
    inner = {"target_layer_ids": list(config.target_layers), "mask_token_id": config.mask_token}
    if any(config.windows):
        kinds = ["full_attention" if window is None else "sliding_attention" for window in config.windows]
        facts |= {"layer_types": kinds, "sliding_window": 1 + max(window or 0 for window in config.windows)}
        facts["is_causal"] = None if any(config.causal) else False
    if config.gru_size:
        inner |= {"projector_type": "domino", "emb_dim": config.gru_rank, "gru_hidden_dim": config.gru_size}
        inner |= {"pure_draft_prefix_len": config.uncorrected, "shift_label": config.from_anchor}
    if all(config.causal) and not any(config.windows):
        inner["causal_head"] = True
    if config.refiner_rank:
        facts |= {"xpress_rank": config.refiner_rank, "xpress_mlp_hidden": config.refiner_inner}
        facts |= {"xpress_block_size": config.block_size, "sample_from_anchor": config.from_anchor}
    if config.selected:
        inner |= {"conv_kernel_size": config.taps, "conv_group_size": config.channels}
        inner |= {"selector_rank": config.selector_rank, "selector_top_k": config.selected}
    if config.markov is Markov.NONE:
        facts["dflash_config"] = inner
    else:
        facts |= inner | {"markov_rank": config.markov_rank, "markov_head_type": config.markov.value}
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(facts | (settings or {})))
    if config.reduced:
        del facts["draft_vocab_size"]  # d2t tells
    tensors = {published(name): tensor for name, tensor in stored.weights().items()}
    if stored.vocabulary is not None:
        tensors["d2t"] = stored.vocabulary - mx.arange(stored.vocabulary.shape[0])
    mx.save_safetensors(str(folder / "model.safetensors"), tensors)
    return folder


def published(name: str) -> str:
    """Return a tensor's name as it is published."""
    bare = name.endswith(("_codebook.weight", "_l0.weight"))
    return name.removesuffix(".weight") if bare else name


@cache
def memoryless_llama() -> LoadedModel:
    """Return a target whose layers do nothing: its next token follows from the last alone, and several are likely.

    It is made once, so none may change it.
    """
    model = tiny_llama()
    model.network.model.embed_tokens.weight *= 0.2
    for layer in model.network.layers:
        layer.self_attn.o_proj.weight = mx.zeros_like(layer.self_attn.o_proj.weight)
        layer.mlp.down_proj.weight = mx.zeros_like(layer.mlp.down_proj.weight)
    return model


def all_knowing(model: LoadedModel, kind: str = "dspark") -> StoredBlockHead:
    """Return a drafter that gives the logits of a memoryless target: its correction has them by heart."""
    size = model.info.vocabulary_size
    logits = model.network(mx.arange(size)[None])[0]
    table = np.array(model.network.model.embed_tokens.weight)
    sizes: dict[str, dict[str, Any]] = {
        "dspark": {"markov": Markov.VANILLA, "markov_rank": size, "from_anchor": True},
        "domino": {"gru_size": size, "gru_rank": size},
        "xpress": {"refiner_rank": size, "refiner_inner": 4},
        "dflash 2": {"taps": 2, "channels": 4, "selected": size, "selector_rank": size},
    }
    stored = stored_block(model, **sizes[kind], own_output=True)
    weights = dict(stored.weights())
    weights["lm_head.weight"] = mx.zeros_like(weights["lm_head.weight"])
    if kind == "dspark":
        weights["markov_head.markov_w1.weight"] = mx.eye(size)
        weights["markov_head.markov_w2.weight"] = logits.T
    elif kind == "xpress":
        # A place's row is the token before it, and nothing is added to it.
        weights |= {name: mx.zeros_like(value) for name, value in weights.items() if name.startswith("refiner_head")}
        weights["refiner_head.token_embed.weight"] = mx.eye(size)
        weights["refiner_head.in_proj.weight"] = mx.concatenate([mx.zeros((size, 2 * size)), mx.eye(size)], axis=1)
        weights["refiner_head.readout.weight"] = logits.T
    elif kind == "domino":
        # The state is the last token's place, 0 and 1: the update gate is closed, and the new gate knows the token.
        inverse = np.linalg.pinv(table).T
        closed = -40 * np.ones((size, size)) @ inverse
        known = 40 * inverse
        weights["prefix_gru.weight_ih_l0.weight"] = mx.array(np.concatenate([0 * closed, closed, known]), mx.float32)
        weights["prefix_gru.weight_hh_l0.weight"] = mx.zeros((3 * size, size))
        weights["embed_proj.0.weight"] = mx.concatenate([mx.zeros((size, table.shape[1])), mx.eye(size)], axis=1)
        weights["embed_proj.2.weight"] = logits.T / mx.sigmoid(mx.array(1.0))
    else:
        outputs = ("o_proj.weight", "down_proj.weight")
        weights |= {name: mx.zeros_like(value) for name, value in weights.items() if name.endswith(outputs)}
        # Then all drafted tokens have the hidden state of the mask.
        mask = mx.fast.rms_norm(mx.array(table[stored.config.mask_token]), weights["norm.weight"], 1e-6)
        weights["candidate_selector.hidden_projection.weight"] = mx.ones((size, 1)) * (mask / mx.sum(mask * mask))
        weights["candidate_selector.predecessor_codebook.weight"] = mx.eye(size)
        weights["candidate_selector.successor_codebook.weight"] = logits.T
    return StoredBlockHead(stored.config, lambda: weights)


@dataclass
class HeadPair:
    """A target and its drafter, with a KV cache and a memory that outlive replies."""

    target: LoadedModel
    head: Any
    cache: KVCache = field(init=False)
    memory: Any = field(init=False)

    def __post_init__(self) -> None:
        self.cache = KVCache(self.target.network)
        self.memory = self.head.memory()

    @classmethod
    def of(cls, target: LoadedModel, bits: int = 0, **changes: Any) -> "HeadPair":
        return cls(target, stored_block(target, **changes).bind(target, bits))

    def start(self, request: GenerationRequest, shape: BeamShape, branch: bool = False) -> ReplyIterator:
        prompt = self.target.encode_chat(request.messages)
        self.target.hooks.record_states(self.head.reads)
        self.cache.keep_prefix_of(prompt)
        self.memory.begin_reply(prompt)
        asked = with_beams(request, shape, branch)
        drafter = HeadDrafter(self.target, self.head, self.memory, prompt, request=asked, ledger=Ledger())
        return ReplyIterator(ReplyJob.fresh(self.target, prompt, request, self.cache), drafter)

    def reply(self, request: GenerationRequest, shape: BeamShape, branch: bool = False) -> ReplyEnd:
        """Return a reply, whose text must be that of plain decoding."""
        end = reply_end(self.start(request, shape, branch))
        assert end.token_ids == plain(self.target, request).token_ids
        assert end.statistics.drafted > 0
        return end

    def assert_in_step(self, text: list[int] | None = None) -> None:
        """The memory drafts what one drafts that saw just the cached tokens, or a text, in one call of the target."""
        tokens = text or self.cache.tokens
        held = self.memory.positions
        assert held == list(range(len(held)))
        assert len(held) <= len(tokens)  # the last rounds' rows wait for the next draft
        self.target.hooks.record_states(self.head.reads)
        self.target.network(mx.array([[*tokens, 1]]))
        hidden = self.target.hooks.hidden
        assert hidden is not None
        fresh = self.head.memory()
        fresh.take_committed(tokens, hidden[0, : len(tokens)], 0)
        root = Root(7, len(tokens), hidden[0, len(tokens) - 1])
        expected = fresh.root_state(root)
        found = self.memory.root_state(root)
        np.testing.assert_allclose(np.array(found.logits()), np.array(expected.logits()), atol=2e-4)
        assert self.memory.positions == list(range(len(tokens)))
