"""Checks what kind of draft a model can verify: trees, chains, or none.

A tree of six nodes is verified in one call and compared with its two chains, fed token by token through stock caches.
How far rounding alone separates the two is shown by a chain of six nodes. As a control, the same tree with a plain
causal mask, or without its positions, must give other logits.

Some families read positions elsewhere than in their rope, and scale attention by how many thousand tokens lie before.
What they do with a packed tree is wrong only in a round across such a border, so the tree is tried once more there. In
16 bits that error is smaller than rounding and not found out; it does no more harm than rounding either.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.hooks import ModelHooks
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.round_cache import (
    RoundCacheList,
    RoundShape,
    UnsupportedCacheError,
    has_state,
    round_cache,
)
from rdchat.inference.target.rounding import most, row_errors, typical

_PROMPT = 11  # tokens before the tree
_FAR = 2**15  # position where everything changes that changes every 2^n tokens, up to this many
_CONTROL = 4  # how many times larger the error of a control must be
_STATE = "its layers keep state that follows one chain"
_TRIALS = 5  # with other tokens each, before a model is refused: a router may have picked other experts

_Rows = npt.NDArray[np.float32]  # (rows, vocabulary) logits


class DraftKind(IntEnum):
    """The most that a model can verify."""

    NONE = 0
    CHAIN = 1
    TREE = 2


@dataclass(frozen=True, slots=True)
class Capability:
    """The most that a model can verify.

    Attributes:
        kind: That.
        reason: A clause that says why not trees; empty where it takes them.
        errors: Medians of what was found on the way, in standard deviations of the logits: `limit` is what rounding
            explains, the other names are those of `_Errors`.
    """

    kind: DraftKind
    reason: str = ""
    errors: Mapping[str, float] = field(default_factory=dict, compare=False)


def check_capability(network: nn.Module, hooks: ModelHooks, vocabulary_size: int) -> Capability:
    """Verify trees and chains on the network, in some twenty-five calls of it; five times that before it is refused."""
    try:
        stateful = has_state([round_cache(cache) for cache in make_prompt_cache(network)])
        found, best = _Errors(), DraftKind.CHAIN if stateful else DraftKind.TREE
        for number in range(_TRIALS):
            trial = _Trial(network, hooks, vocabulary_size, number)
            trial.try_chain(found)
            hooks.leave_out_logits(vocabulary_size)
            capability = _judge_chain(found, _STATE) if stateful else _try_tree(trial, found)
            if capability.kind is best:
                break
        return replace(capability, errors=found.medians())
    except UnsupportedCacheError as error:
        return Capability(DraftKind.NONE, str(error))
    except Exception as error:  # unmodified models do what they like with caches and masks
        reason = " ".join(str(error).split())[:120]
        return Capability(DraftKind.NONE, f"it cannot verify several tokens at once ({reason})")


@dataclass(slots=True)
class _Errors:
    """How far rows are from those fed token by token, in standard deviations of the logits; see `row_errors`.

    Attributes:
        stock: A chain of six in one call, through mlx-lm's own caches.
        chain: The same through caches with rounds.
        first, second: The tree's rows of its first branch, and those that its second has for itself.
        mask, position: The latter without the tree's mask, and without its positions.
        before: The same tokens with other ones before them: what they lose who do not know what came before.
        far: The second branch far into a text, against a chain there.
        dtype: Of the logits.
    """

    stock: list[float] = field(default_factory=list)
    chain: list[float] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    second: list[float] = field(default_factory=list)
    mask: list[float] = field(default_factory=list)
    position: list[float] = field(default_factory=list)
    before: list[float] = field(default_factory=list)
    far: list[float] = field(default_factory=list)
    dtype: mx.Dtype = mx.float32

    def medians(self) -> dict[str, float]:
        """Return the typical error of each kind that was tried, and what rounding explains of a tree's."""
        kinds = ("stock", "chain", "first", "second", "mask", "position", "before", "far")
        found = {kind: typical(errors) for kind in kinds if (errors := getattr(self, kind))}
        return found | {"limit": most(self.chain, self.dtype)}


class _Trial:
    """One prompt, a tree of six nodes, and a chain of the same tokens."""

    def __init__(self, network: nn.Module, hooks: ModelHooks, vocabulary_size: int, number: int) -> None:
        self._network, self._hooks = network, hooks
        rng = np.random.default_rng(7 + number)
        tokens = [1 + int(t) for t in rng.permutation(min(vocabulary_size, 1000) - 1)[: _PROMPT + 6]]
        self._prompt, (r, a, b, c, d, e) = tokens[:_PROMPT], tokens[_PROMPT:]
        self._chain = PrefixTree.from_beams([[r, a, b, c, d, e]])
        self._tree = PrefixTree.from_beams([[r, a, b, c], [r, a, d, e]])
        self._branch = PrefixTree.from_beams([[r, a, d, e, b, c]])  # as many rows as the tree has

    def try_chain(self, found: _Errors) -> None:
        """Verify the chain, in all ways that there are."""
        self._along_chain = chain = self._one_by_one(self._chain.tokens)
        self._along_branch = branch = self._one_by_one(self._branch.tokens[:4])
        found.dtype = self._dtype
        found.stock += row_errors(self._at_once(self._chain.tokens), chain)
        found.chain += row_errors(self._packed(self._chain), chain)
        found.before += row_errors(chain[4:], branch[2:])

    def try_tree(self, found: _Errors) -> None:
        """Verify the tree, and the controls."""
        tree, second = self._packed(self._tree), self._along_branch[2:]
        found.first += row_errors(tree[:4], self._along_chain[:4])
        found.second += row_errors(tree[4:], second)
        found.mask += row_errors(self._packed(self._tree, mask=False)[4:], second)
        found.position += row_errors(self._packed(self._tree, positions=False)[4:], second)

    def try_far(self, found: _Errors) -> None:
        """Verify the tree with its second branch at positions on both sides of `_FAR`."""
        start = _FAR - _PROMPT - 4  # packed as nodes 0, 1, 4, 5: by depth before the border, in packed order across it
        second = self._packed(self._branch, start=start)[2:4]
        found.far += row_errors(self._packed(self._tree, start=start)[4:], second)

    def _one_by_one(self, tokens: Iterable[int]) -> _Rows:
        caches = make_prompt_cache(self._network)
        self._network(mx.array([self._prompt]), cache=caches)
        logits = [self._network(mx.array([[int(token)]]), cache=caches)[0, 0] for token in tokens]
        self._dtype = logits[0].dtype
        return _host(mx.stack(logits))

    def _at_once(self, tokens: npt.NDArray[np.int32]) -> _Rows:
        caches = make_prompt_cache(self._network)
        self._network(mx.array([self._prompt]), cache=caches)
        return _host(self._network(mx.array(tokens)[None], cache=caches)[0])

    def _packed(self, tree: PrefixTree, mask: bool = True, positions: bool = True, start: int = 0) -> _Rows:
        """Feed the prompt, from position `start` on, and the tree; return the tree's logits."""
        caches = self._caches(start)
        self._network(mx.array([self._prompt]), cache=caches)
        depths = mx.array(tree.depths)
        ancestors = None if tree.is_chain or not mask else mx.array(tree.ancestors())
        for cache in caches:
            cache.begin(RoundShape(depths, ancestors))
        with self._hooks.packed(depths if positions and not tree.is_chain else None):
            return _host(self._network(mx.array(tree.tokens)[None], cache=caches)[0])

    def _caches(self, start: int) -> list[Any]:
        """Return caches with rounds, empty, whose first row will have the position `start`."""
        caches = [round_cache(cache) for cache in make_prompt_cache(self._network)]
        for cache in _flat(caches) if start else ():
            cache.offset = cache.buffer.first = start
        return caches


def _host(logits: mx.array) -> _Rows:
    return fetch(logits.astype(mx.float32))


def _flat(caches: Iterable[Any]) -> Iterator[Any]:
    for cache in caches:
        yield from _flat(cache.caches) if isinstance(cache, RoundCacheList) else (cache,)


def _try_tree(trial: _Trial, found: _Errors) -> Capability:
    trial.try_tree(found)
    limit = most(found.chain, found.dtype)
    error = max(typical(found.first), typical(found.second))
    if not error <= limit:  # also where it is NaN
        return _judge_chain(found, f"a packed tree's logits were not its branches' (off by {error:.2g} deviations)")
    for name, control in (("mask", found.mask), ("position", found.position)):
        if typical(control) < _CONTROL * typical(found.second):
            return _judge_chain(found, f"the check of trees cannot tell a wrong {name} from a right one")
    trial.try_far(found)
    far = typical(found.far)
    if not far <= limit:
        return _judge_chain(found, f"far into a text a packed tree's logits were not its branches' (off by {far:.2g})")
    return Capability(DraftKind.TREE)


def _judge_chain(found: _Errors, reason: str) -> Capability:
    error = typical(found.chain)
    blurred = error > most([0.0], found.dtype) and _CONTROL * error > typical(found.before)
    if blurred or not error <= most(found.stock, found.dtype):
        return Capability(DraftKind.NONE, f"tokens fed together gave other logits (off by {error:.2g} deviations)")
    return Capability(DraftKind.CHAIN, reason)
