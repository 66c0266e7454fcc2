"""Prints the milliseconds of one verified call of the default model, by part: look here first when a call is too dear.

    python scripts/call_parts.py --rows 1 4 16 --contexts 120 1000 --repeats 20

A part is timed inside real calls: MLX is lazy, so while parts are timed each one's inputs are computed first, then the
part alone, by the clock. That waits some 300 times in a call, so `whole` is the time of the same call as it is, without
any of it, and `rest` is what the parts leave of that: norms, sums, choosing tokens, and the overlap that waiting
prevents, by which it may be below zero. Calls of both kinds take turns, and the shortest of each counts. A tree is
measured where the model verifies trees.
"""

import argparse
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import perf_counter
from typing import Any

from rdchat.inference.loading import load_model

# isort: split
import mlx.core as mx
import mlx.nn as nn
from mlx.utils import tree_flatten
from mlx_lm.models import llama

from rdchat.inference.auto.measuring import TimingCache
from rdchat.inference.device import cpu_kernels

PARTS = "products", "attention", "SwiGLU", "rope", "head"


def timed(call: Callable[..., Any], part: str, spent: dict[str, float]) -> Callable[..., Any]:
    """Return a function that computes its arguments first, and adds the milliseconds of the call to its part."""

    def measured(*args: Any, **kwargs: Any) -> Any:
        mx.eval([array for _, array in tree_flatten([args, kwargs]) if isinstance(array, mx.array)])
        began = perf_counter()
        result = call(*args, **kwargs)
        mx.eval(result)
        spent[part] += (perf_counter() - began) * 1000
        return result

    return measured


@contextmanager
def parts_timed(network: Any) -> Iterator[dict[str, float]]:
    """Time the parts of the network's calls in this block; the result is milliseconds by part."""
    spent: dict[str, float] = defaultdict(float)
    # Each layer's has a class of its own; see `verification.hooks`.
    ropes = {type(layer.self_attn.rope) for layer in network.layers}
    places = [
        (nn.Linear, "__call__", "products"),
        (llama, "scaled_dot_product_attention", "attention"),
        (llama, "swiglu", "SwiGLU"),
        *((rope, "__call__", "rope") for rope in ropes),
        (nn.Embedding, "as_linear", "head"),
    ]
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in places]
    try:
        for owner, name, part in places:
            setattr(owner, name, timed(getattr(owner, name), part, spent))
        yield spent
    finally:
        for owner, name, call in before:
            setattr(owner, name, call)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 16])
    parser.add_argument("--contexts", type=int, nargs="+", default=[120, 1000])
    parser.add_argument("--repeats", type=int, default=20)
    options = parser.parse_args()
    model = load_model()
    print(f"{model.info.name}, {model.info.dtype}, {cpu_kernels() or model.info.device}")
    print(f"{'context':>8}{'rows':>6}" + "".join(f"{name:>11}" for name in (*PARTS, "rest", "whole")))
    scratch = TimingCache(model, max(options.contexts))
    for context in sorted(options.contexts):
        for _ in scratch.fill(context):
            pass
        trees = scratch.trees(options.rows, model.capability.kind)
        for rows, tree in trees.items():
            whole: list[float] = []
            spent: list[dict[str, float]] = []
            for _ in range(options.repeats):
                whole.append(scratch.call_ms(tree))
                with parts_timed(model.network) as parts:
                    scratch.call_ms(tree)
                spent.append(parts)
            best = {name: min(each[name] for each in spent) for name in PARTS}
            figures = [*best.values(), min(whole) - sum(best.values()), min(whole)]
            print(f"{context:>8}{rows:>6}" + "".join(f"{figure:>11.1f}" for figure in figures), flush=True)


if __name__ == "__main__":
    main()
