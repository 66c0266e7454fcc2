"""Measures what rounds with Gemma 4's assistant cost behind a long text, on a tiny model.

    python scripts/bench_assistant.py --tokens 8192

The assistant attends to the target's own keys and values. MLX copies a buffer that is written while somebody else still
refers to it, so drafts must not keep views. Each round verifies a tree, and commits its likeliest path or another
branch; the next draft begins after the commit, or before it as in rdchat. The memory is the most that a round took
beyond what was held before it. In the rows `held` the draft's views are evaluated and kept until the next call has
written: what rdchat must not do. The sizes of heads and window are those of Gemma 4 E2B; weights and text are random.
"""

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx
import numpy as np
from mlx.utils import tree_flatten
from mlx_lm.models import gemma4_text

from rdchat.inference.api.events import ModelInfo
from rdchat.inference.api.model_facts import Capability, DraftKind
from rdchat.inference.drafting.heads.assistant_head import (
    FULL,
    SLIDING,
    AssistantConfig,
    AssistantMemory,
    AssistantNetwork,
    BoundAssistant,
)
from rdchat.inference.drafting.heads.decoder import RopeConfig
from rdchat.inference.drafting.heads.head import HeadState, Root
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.target import LoadedModel, PrefillPace
from rdchat.inference.verification.verifier import PackedTree, Verifier

VOCABULARY, WIDTH, WINDOW, DRAFTED = 64, 64, 512, 4
HEADS, SIZES = 4, {SLIDING: 256, FULL: 512}
ROPES = {
    FULL: {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 1000000.0},
    SLIDING: {"rope_type": "default", "rope_theta": 10000.0},
}
TREE = PackedTree.of(PrefixTree.from_beams([[5, 7, 8, 9], [5, 10, 11, 12]]))
PATHS = {"chain": [0, 1, 2, 3], "branch": [0, 4, 5, 6]}


def target() -> LoadedModel:
    """Return a Gemma 4 of random weights whose last two of four layers share the keys of the first two."""
    config = {
        "model_type": "gemma4_text", "hidden_size": WIDTH, "num_hidden_layers": 4, "num_kv_shared_layers": 2,
        "intermediate_size": 2 * WIDTH, "num_attention_heads": HEADS, "num_key_value_heads": 1,
        "head_dim": SIZES[SLIDING], "global_head_dim": SIZES[FULL], "sliding_window": WINDOW, "rope_parameters": ROPES,
        "layer_types": [SLIDING, FULL] * 2, "vocab_size": VOCABULARY, "hidden_size_per_layer_input": 0,
    }  # fmt: skip
    network = gemma4_text.Model(gemma4_text.ModelArgs.from_dict(config))
    mx.eval(network.parameters())
    info = ModelInfo("tiny", Path("tiny"), "gemma4_text", "float32", "CPU", 131072, VOCABULARY, 0, 0, 0.0)
    nothing: Any = None
    capability = Capability(DraftKind.TREE)
    return LoadedModel(network, nothing, info, PrefillPace(8), ModelHooks(network), lambda: capability, nothing)


def assistant(model: LoadedModel) -> BoundAssistant:
    """Return an assistant of random weights."""
    config = AssistantConfig(
        hidden_size=WIDTH,
        target_width=WIDTH,
        vocabulary_size=VOCABULARY,
        heads=HEADS,
        head_sizes=SIZES,
        inner_size=2 * WIDTH,
        norm_epsilon=1e-6,
        kinds=(SLIDING, SLIDING, SLIDING, FULL),
        window=WINDOW,
        ropes={
            FULL: RopeConfig(1000000.0, ROPES[FULL], max_positions=131072),
            SLIDING: RopeConfig(10000.0, max_positions=131072),
        },
    )
    weights = dict(tree_flatten(AssistantNetwork(config).parameters()))
    return BoundAssistant(config, lambda: weights, None, model)


def long_text(model: LoadedModel, tokens: int) -> KVCache:
    """Return a cache of random rows whose sliding layer has wrapped."""
    cache = KVCache(model.network)
    for layer, kind in zip(cache.layers, (SLIDING, FULL), strict=True):
        for start in range(0, tokens, WINDOW):
            rows = min(WINDOW, tokens - start)
            layer.update_and_fetch(*(mx.random.normal((1, 1, rows, SIZES[kind])) for _ in range(2)))
            mx.eval(layer.state)
    cache.tokens = [1] * tokens
    return cache


def drafted(state: HeadState) -> list[mx.array]:
    """Return the logits of each level of a chain."""
    levels = [state.logits()]
    for _ in range(DRAFTED - 1):
        state = state.after(mx.array([0]), mx.argmax(levels[-1], axis=-1))
        levels.append(state.logits())
    return levels


def measure(tokens: int, rounds: int, path: list[int], when: str) -> tuple[float, float]:
    """Return the shortest time of a round, in ms, and the median of the memory that it took, in MB.

    Args:
        tokens: Tokens before the first round.
        rounds: Rounds.
        path: Committed in each.
        when: A draft begins `behind` a commit, before it (`ahead`), or behind it and its views are `held`.
    """
    model = target()
    head, cache = assistant(model), long_text(model, tokens)
    model.hooks.read(head.reads)
    memory, verifier = head.memory(), Verifier(model, cache)
    assert isinstance(memory, AssistantMemory)
    memory.use_cache(cache)
    on_path = mx.array([node in path for node in range(len(TREE))])
    last, hidden, levels, held = mx.array(len(path) - 1), mx.zeros(WIDTH), list[mx.array](), list[Any]()
    times, peaks = [], []
    for _ in range(rounds):
        held.clear()
        mx.reset_peak_memory()
        began, before = perf_counter(), mx.get_active_memory()
        position = verifier.position
        if when != "ahead":
            state: Any = memory.state(Root(5, position, hidden))
            levels = drafted(state)
            mx.async_eval(levels)
            if when == "held":
                held = [array for rows in state.rows.values() for array in (rows.keys, rows.values)]
                mx.eval(held)
            del state
        verified = verifier.verify(TREE)
        assert verified.hidden is not None
        hidden = verified.hidden[path[-1]]
        if when == "ahead":
            root = Root(mx.array(5), position + 1, hidden, last, len(path) - 1, on_path)
            levels = drafted(memory.state(root))
        mx.eval(levels, verified.logits, hidden)
        del verified
        verifier.commit([int(token) for token in np.array(TREE.tokens)[path]], path)
        times.append((perf_counter() - began) * 1000)
        peaks.append((mx.get_peak_memory() - before) / 1e6)
    # The first ones make room in the buffers.
    return min(times[2:]), median(peaks[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=8192)
    parser.add_argument("--rounds", type=int, default=24)
    arguments = parser.parse_args()
    print("| draft | committed | ms a round | MB a round |\n|---|---|---|---|")
    for when in ("ahead", "behind", "held"):
        for name, path in PATHS.items():
            ms, megabytes = measure(arguments.tokens, arguments.rounds, path, when)
            print(f"| {when} | {name} | {ms:.1f} | {megabytes:.1f} |")


if __name__ == "__main__":
    main()
