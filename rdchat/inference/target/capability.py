"""Checks what kind of draft a model can verify: trees, chains, or none.

A tree of six nodes is verified in one call and compared with its two chains, fed token by token through stock caches.
As a control, the same tree with a plain causal mask, or without its positions, must give other logits.

Some families read positions elsewhere than in their rope, and scale attention by how many thousand tokens lie before.
What they do with a packed tree is wrong only in a round across such a border, so the tree is tried once more there.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.target.hooks import ModelHooks
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.round_cache import (
    RoundCacheList,
    RoundShape,
    UnsupportedCacheError,
    has_state,
    round_cache,
)

_PROMPT = 11  # tokens before the tree
TOLERANCE = {mx.float32: 2e-3, mx.float16: 5e-2, mx.bfloat16: 2e-1}  # of the logits' standard deviation
_FAR = 2**15  # position where everything changes that changes every 2^n tokens, up to this many
_CONTROL = 4  # how many times larger the error of a control must be


class DraftKind(IntEnum):
    """The most that a model can verify."""

    NONE = 0
    CHAIN = 1
    TREE = 2


@dataclass(frozen=True, slots=True)
class Capability:
    """The most that a model can verify; `reason` is a clause that says why not trees, empty where it takes them."""

    kind: DraftKind
    reason: str = ""


def check_capability(network: nn.Module, hooks: ModelHooks, vocabulary_size: int) -> Capability:
    """Verify a tree and a chain on the network, in some twenty calls of it."""
    try:
        stateful = has_state([round_cache(cache) for cache in make_prompt_cache(network)])
        check = _Check(network, hooks, vocabulary_size)
        hooks.leave_out_logits(vocabulary_size)
        if stateful:
            return _check_chain(check, "its layers keep state that follows one chain")
        return _check_tree(check)
    except UnsupportedCacheError as error:
        return Capability(DraftKind.NONE, str(error))
    except Exception as error:  # unmodified models do what they like with caches and masks
        reason = " ".join(str(error).split())[:120]
        return Capability(DraftKind.NONE, f"it cannot verify several tokens at once ({reason})")


class _Check:
    """One prompt, one tree, and the logits of its two chains."""

    def __init__(self, network: nn.Module, hooks: ModelHooks, vocabulary_size: int) -> None:
        self._network, self._hooks = network, hooks
        tokens = [
            1 + int(t) for t in np.random.default_rng(7).permutation(min(vocabulary_size, 1000) - 1)[: _PROMPT + 6]
        ]
        self._prompt, (r, a, b, c, d, e) = tokens[:_PROMPT], tokens[_PROMPT:]
        self._branch = [r, a, d, e]
        self.chain = PrefixTree.from_beams([[r, a, b, c]])
        self.tree = PrefixTree.from_beams([[r, a, b, c], [r, a, d, e]])
        self._expected = {beam: self._one_by_one(list(beam)) for beam in ((r, a, b, c), (r, a, d, e))}
        values = next(iter(self._expected.values()))
        self._scale = float(values.std()) or 1.0
        self.tolerance = TOLERANCE.get(self._dtype, TOLERANCE[mx.float32])

    def _one_by_one(self, beam: list[int]) -> np.ndarray:
        caches = make_prompt_cache(self._network)
        self._network(mx.array([self._prompt]), cache=caches)
        logits = [self._network(mx.array([[token]]), cache=caches)[0, 0] for token in beam]
        self._dtype = logits[0].dtype
        return np.array(mx.stack(logits).astype(mx.float32))

    def error(self, tree: PrefixTree, mask: bool = True, positions: bool = True) -> float:
        """Return the largest difference from the chains, in standard deviations of the logits."""
        found = self._packed(tree, mask, positions)
        beams = [tuple(tree.tokens[nodes].tolist()) for nodes in tree.beam_nodes]
        errors = [
            np.abs(found[nodes] - self._expected[beam]).max()
            for nodes, beam in zip(tree.beam_nodes, beams, strict=True)
        ]
        return float(max(errors)) / self._scale

    def far_error(self) -> float:
        """Return the tree's largest difference from its second branch, at positions on both sides of `_FAR`."""
        start = _FAR - _PROMPT - 4  # packed as nodes 0, 1, 4, 5: by depth before the border, in packed order across it
        caches = self._caches(start)
        expected = self._network(mx.array([[*self._prompt, *self._branch]]), cache=caches)[0, _PROMPT:]
        found = self._packed(self.tree, start=start)[self.tree.beam_nodes[1]]
        return float(np.abs(found - np.array(expected.astype(mx.float32))).max()) / self._scale

    def _packed(self, tree: PrefixTree, mask: bool = True, positions: bool = True, start: int = 0) -> np.ndarray:
        """Feed the prompt, from position `start` on, and the tree; return the tree's (nodes, vocabulary) logits."""
        caches = self._caches(start)
        self._network(mx.array([self._prompt]), cache=caches)
        depths = mx.array(tree.depths)
        ancestors = None if tree.is_chain or not mask else mx.array(tree.ancestors())
        for cache in caches:
            cache.begin(RoundShape(depths, ancestors))
        with self._hooks.packed(depths if positions and not tree.is_chain else None):
            logits = self._network(mx.array(tree.tokens)[None], cache=caches)[0]
        return np.array(logits.astype(mx.float32))

    def _caches(self, start: int) -> list[Any]:
        """Return caches with rounds, empty, whose first row will have the position `start`."""
        caches = [round_cache(cache) for cache in make_prompt_cache(self._network)]
        for cache in _flat(caches) if start else ():
            cache.offset = cache.buffer.first = start
        return caches


def _flat(caches: Iterable[Any]) -> Iterator[Any]:
    for cache in caches:
        yield from _flat(cache.caches) if isinstance(cache, RoundCacheList) else (cache,)


def _check_tree(check: _Check) -> Capability:
    error = check.error(check.tree)
    if error > check.tolerance:
        return _check_chain(check, f"a packed tree's logits were not its branches' (off by {error:.2g} deviations)")
    controls = {"mask": check.error(check.tree, mask=False), "position": check.error(check.tree, positions=False)}
    for name, control in controls.items():
        if control < _CONTROL * error:
            return _check_chain(check, f"the check of trees cannot tell a wrong {name} from a right one")
    error = check.far_error()
    if error > check.tolerance:
        return _check_chain(
            check, f"far into a text a packed tree's logits were not its branches' (off by {error:.2g})"
        )
    return Capability(DraftKind.TREE)


def _check_chain(check: _Check, reason: str) -> Capability:
    error = check.error(check.chain)
    if error > check.tolerance:
        return Capability(DraftKind.NONE, f"tokens fed together gave other logits (off by {error:.2g} deviations)")
    return Capability(DraftKind.CHAIN, reason)
