"""Checks what kind of draft a model can verify: trees, chains, chains whose accepted part is fed again, or none.

A tree of six nodes is verified in one call and compared with its two chains, fed token by token through stock caches.
A chain of six nodes shows how much of the difference is rounding. As a control, the same tree with a plain causal mask,
or with wrong positions, must give other logits. With recurrent state a part of the chain, and a branch of the tree, is
committed too, and the next tokens' logits are compared.

Some families read positions outside their rope, and scale attention in steps of some thousand tokens. A packed tree is
then wrong only in a round across such a step, so the tree is tried once more there. In 16 bits that error is smaller
than rounding and not detected; it does no more harm than rounding either.

Rounding itself is measured: a device chooses kernels by the number of rows, and each adds in an order of its own, so a
row's logits differ slightly between a call of one row and a call of several. How much depends on device, precision and
model.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.api.model_facts import Capability, DraftKind
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.memory_errors import is_device_error
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.round_cache import UnsupportedCacheError, round_cache
from rdchat.inference.verification.verifier import PackedTree

# Tokens before the tree.
_PROMPT = 11
# A multiple of 2^n: a family that changes something every 2^n tokens changes it here.
_FAR = 2**15
# Wrong positions are so many apart. With those of packed order, which are off by two, some hybrids differ too little.
_SPREAD = 50
# The error of a control must be so many times larger.
_CONTROL = 4
_STATE = "its layers keep state that cannot go back to the middle of a draft"
# Trials with other tokens before a model is refused: in one of them a router may have picked other experts.
_TRIALS = 5
# Errors up to this many times the typical one still count as rounding.
_FACTOR = 4
# Steps of the precision by which any kernel may be off.
_MIN_STEPS = 4
# The steps of float32 are too small for the reordered sums of a deep model.
_MIN = 1e-4

# Logits, (rows, vocabulary).
_Rows = npt.NDArray[np.float32]


def check_capability(network: nn.Module, hooks: ModelHooks, vocabulary_size: int) -> Capability:
    """Try trees and chains on the network, in some 25 calls of it, and some 35 with recurrent state.

    Before it is refused they are five times as many. Afterwards the hooks record recurrent state only where that works.

    Raises:
        RuntimeError: If the device failed, memory ran out, or the system stopped the work.
    """
    try:
        for cache in make_prompt_cache(network):
            round_cache(cache)
        errors = _Errors()
        for number in range(_TRIALS):
            trial = _Trial(network, hooks, vocabulary_size, number)
            trial.try_chain(errors)
            hooks.leave_out_logits(vocabulary_size)
            capability = _try_tree(trial, errors) if trial.commits else _judge_chain(errors, _STATE, commits=False)
            if capability.kind is (DraftKind.TREE if trial.commits else DraftKind.FED_AGAIN):
                break
        hooks.states.recorded = capability.kind in {DraftKind.TREE, DraftKind.CHAIN}
        return replace(capability, errors=errors.medians())
    except UnsupportedCacheError as error:
        return Capability(DraftKind.NONE, str(error))
    except Exception as error:
        # Unmodified models may do anything with caches and masks.
        if is_device_error(error):
            raise
        reason = " ".join(str(error).split())[:120]
        return Capability(DraftKind.NONE, f"it cannot verify several tokens at once ({reason})")


def use_capability(network: nn.Module, hooks: ModelHooks, vocabulary_size: int, known: Capability) -> None:
    """Leave the hooks as `check_capability` did when it found this; nothing is evaluated."""
    network(mx.array([[0]]), cache=KVCache(network).layers)
    hooks.leave_out_logits(vocabulary_size)
    hooks.states.recorded = known.kind in {DraftKind.TREE, DraftKind.CHAIN}


class _Errors(defaultdict[str, list[float]]):
    """How far rows are from those fed token by token, in standard deviations of the logits; see `row_errors`.

    `stock`: a chain of six in one call, through mlx-lm's own caches. `chain`: the same through caches with rounds.
    `first`: the tree's rows of its first branch. `second`: the rows that only its second branch has. `mask`,
    `position`: `second` without the tree's mask, and with wrong positions. `before`: the same tokens after another
    prefix, to show the effect of a wrong prefix. `far`: the second branch far into a text, compared with a chain there.
    `commit`, `branch`: with recurrent state, the rows after a part of the chain or a branch of the tree was committed.

    Attributes:
        dtype: Type of the logits.
    """

    def __init__(self) -> None:
        super().__init__(list)
        self.dtype = mx.float32

    @property
    def limit(self) -> float:
        """The largest error of a tree that rounding explains."""
        return rounding_limit(self["chain"], self.dtype)

    def medians(self) -> dict[str, float]:
        """Return the typical error of each kind that was tried, and the limit."""
        return {kind: median_error(errors) for kind, errors in self.items()} | {"limit": self.limit}


class _Trial:
    """One prompt, a tree of six nodes, and a chain of the same tokens.

    Attributes:
        has_state: Whether the model has recurrent or convolutional state.
        has_positions: Whether the hooks give positions.
        commits: Whether a part of a chain can be committed; known after `try_chain`.
    """

    def __init__(self, network: nn.Module, hooks: ModelHooks, vocabulary_size: int, number: int) -> None:
        self._network, self._hooks = network, hooks
        self.has_state, self.has_positions = KVCache(network).has_state, hooks.gives_positions
        self.commits = True
        rng = np.random.default_rng(7 + number)
        tokens = [1 + int(t) for t in rng.permutation(min(vocabulary_size, 1000) - 1)[: _PROMPT + 6]]
        self._prompt, (r, a, b, c, d, e) = tokens[:_PROMPT], tokens[_PROMPT:]
        self._chain = PrefixTree.from_beams([[r, a, b, c, d, e]])
        self._tree = PrefixTree.from_beams([[r, a, b, c], [r, a, d, e]])
        # It has as many rows as the tree.
        self._branch = PrefixTree.from_beams([[r, a, d, e, b, c]])

    def try_chain(self, errors: _Errors) -> None:
        """Verify the chain in every way."""
        self._along_chain = chain = self._one_by_one(self._chain.tokens)
        self._along_branch = branch = self._one_by_one(
            self._branch.tokens if self.has_state else self._branch.tokens[:4]
        )
        errors.dtype = self._dtype
        errors["stock"] += row_errors(self._at_once(self._chain.tokens), chain)
        errors["chain"] += row_errors(self._packed(self._chain), chain)
        errors["before"] += row_errors(chain[4:], branch[2:4])
        if self.has_state:
            errors["commit"] += row_errors(self._committed(self._chain, [0, 1, 2], self._chain.tokens[3:]), chain[3:])

    def try_tree(self, errors: _Errors) -> None:
        """Verify the tree and the controls."""
        tree, second = self._packed(self._tree), self._along_branch[2:4]
        errors["first"] += row_errors(tree[:4], self._along_chain[:4])
        errors["second"] += row_errors(tree[4:], second)
        errors["mask"] += row_errors(self._packed(self._tree, mask=False)[4:], second)
        errors["position"] += row_errors(self._packed(self._tree, spread=_SPREAD)[4:], second)
        if self.has_state:
            after = self._committed(self._tree, [0, 1, 4, 5], self._branch.tokens[4:])
            errors["branch"] += row_errors(after, self._along_branch[4:])

    def try_far(self, errors: _Errors) -> None:
        """Verify the tree with its second branch at positions on both sides of `_FAR`."""
        # The nodes 0, 1, 4, 5 lie before the border by depth, and on both sides in packed order.
        start = _FAR - _PROMPT - 4
        second = self._packed(self._branch, start=start)[2:4]
        errors["far"] += row_errors(self._packed(self._tree, start=start)[4:], second)

    def _one_by_one(self, tokens: Iterable[int]) -> _Rows:
        caches = make_prompt_cache(self._network)
        self._network(mx.array([self._prompt]), cache=caches)
        logits = [self._network(mx.array([[int(token)]]), cache=caches)[0, 0] for token in tokens]
        self._dtype = logits[0].dtype
        return on_host(mx.stack(logits))

    def _at_once(self, tokens: npt.NDArray[np.int32]) -> _Rows:
        caches = make_prompt_cache(self._network)
        self._network(mx.array([self._prompt]), cache=caches)
        return on_host(self._network(mx.array(tokens)[None], cache=caches)[0])

    def _packed(self, tree: PrefixTree, mask: bool = True, spread: int = 1, start: int = 0) -> _Rows:
        """Feed the prompt, from position `start` on, and the tree, `spread` positions a level; return its logits."""
        self._cache = cache = KVCache(self._network)
        if start:
            cache.start_at(start)
        self._network(mx.array([self._prompt]), cache=cache.layers)
        packed = PackedTree.of(tree)
        cache.begin(packed.depths, packed.ancestors if mask else None, packed.deepest, packed.leaves)
        with self._hooks.packed(None if tree.is_chain else packed.depths * spread):
            return on_host(self._network(packed.tokens[None], cache=cache.layers)[0])

    def _committed(self, tree: PrefixTree, path: list[int], tokens: npt.NDArray[np.int32]) -> _Rows:
        """Feed the prompt and the tree, and commit a path of it; return the logits of the next tokens."""
        self._packed(tree)
        self.commits = self._cache.can_commit_part
        self._cache.commit(path)
        return on_host(self._network(mx.array(tokens)[None], cache=self._cache.layers)[0])


def on_host(array: mx.array) -> _Rows:
    """Return an array on the host, in float32."""
    return fetch(array.astype(mx.float32))


def _try_tree(trial: _Trial, errors: _Errors) -> Capability:
    # These are also true for NaN.
    if trial.has_state and not median_error(errors["commit"]) <= errors.limit:
        return _judge_chain(errors, f"{_STATE} (off by {median_error(errors['commit']):.2g})", commits=False)
    trial.try_tree(errors)
    kinds = ("first", "second", "branch") if trial.has_state else ("first", "second")
    error = max(median_error(errors[kind]) for kind in kinds)
    if not error <= errors.limit:
        return _judge_chain(
            errors, f"the logits of a packed tree were not those of its branches (off by {error:.2g} deviations)"
        )
    for name in ("mask", "position") if trial.has_positions or not trial.has_state else ("mask",):
        if median_error(errors[name]) < _CONTROL * median_error(errors["second"]):
            return _judge_chain(errors, f"the check of trees cannot tell a wrong {name} from a right one")
    trial.try_far(errors)
    far = median_error(errors["far"])
    if not far <= errors.limit:
        return _judge_chain(
            errors, f"far into a text the logits of a packed tree were not those of its branches (off by {far:.2g})"
        )
    return Capability(DraftKind.TREE)


def _judge_chain(errors: _Errors, reason: str, commits: bool = True) -> Capability:
    error = median_error(errors["chain"])
    blurred = error > rounding_limit([0.0], errors.dtype) and _CONTROL * error > median_error(errors["before"])
    if blurred or not error <= rounding_limit(errors["stock"], errors.dtype):
        return Capability(DraftKind.NONE, f"tokens fed together gave other logits (off by {error:.2g} deviations)")
    return Capability(DraftKind.CHAIN if commits else DraftKind.FED_AGAIN, reason)


def row_errors(actual: npt.NDArray[np.float32], expected: npt.NDArray[np.float32]) -> list[float]:
    """Return how far each row is off.

    Args:
        actual: (n, width).
        expected: (n, width).

    Returns:
        The root mean square of each row's difference, in standard deviations of all expected values.
    """
    errors = np.sqrt(np.square(actual - expected).mean(axis=-1)) / (expected.std() or 1.0)
    return [float(error) for error in errors]


def median_error(errors: Sequence[float]) -> float:
    """Return the median, since a row for which a router picked other experts is not typical of the others."""
    return float(np.median(errors))


def rounding_limit(noise: Sequence[float], dtype: mx.Dtype) -> float:
    """Return the largest typical error that rounding explains.

    Args:
        noise: Errors of rows that are due to rounding alone.
        dtype: Type of the computation.
    """
    steps = float(mx.finfo(dtype).eps) if mx.issubdtype(dtype, mx.floating) else 0.0
    return _FACTOR * median_error(noise) + max(_MIN_STEPS * steps, _MIN)
