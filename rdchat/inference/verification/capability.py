"""Checks what kind of draft a model can verify: trees, chains, chains whose accepted part is fed again, or none.

A tree of eight nodes is verified in one call and compared with its branches, each fed through stock caches. A chain of
the same tokens is compared with these tokens one by one, which shows how much of the difference is rounding. As a
control, the first tree with a plain causal mask, or with wrong positions, must give other logits. With recurrent state
a part of the chain, and a branch of the tree, is committed too, and the next tokens' logits are compared.

A kind counts when three inputs have shown it, each by its own errors: a tree may be wrong for some tokens only. The
three trees differ in shape, since recurrent state is computed in another way where a tree has four leaves. There are up
to five inputs, because in some a router may pick other experts in one of the two calls, which is no mistake.

Some families read positions outside their rope, and scale attention in steps of some thousand tokens. A packed tree is
then wrong only in a round across such a step, so the first tree is tried once more there. In 16 bits that error is
smaller than rounding and not detected; it does no more harm than rounding either.

Rounding itself is measured. A row is a token of a call, and its logits. A device chooses kernels by the number of rows,
and each adds in an order of its own, so a row's logits differ slightly between a call of one row and a call of several.
How much depends on device, precision and model.
"""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.api import Capability, DraftKind
from rdchat.inference.device import fetch, is_device_error
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_tree import Ints, PrefixTree
from rdchat.inference.verification.round_cache import UnsupportedCacheError, round_cache
from rdchat.inference.verification.verifier import PackedTree

# Tokens of the prompt before the tree.
_PROMPT = 11
# A multiple of 2^n: a family that changes something every 2^n tokens changes it here.
_FAR = 2**15
# The control with wrong positions has them so many apart. With those of packed order, which are off by two, the logits
# of some hybrids differ too little.
_SPREAD = 50
# The error of a control must be so many times larger.
_CONTROL = 4
_STATE = "its layers keep state that cannot go back to the middle of a draft"
# Inputs that must show a kind of draft, and inputs that are tried.
_INPUTS = 3
_TRIALS = 5
# Tokens of a chain, and the parents of the same tokens in each of the three trees. The first tree has the branches
# 0 1 2 3 6 and 0 1 4 5 7; the others have four leaves. The last node is a leaf behind other branches.
_ROWS = 8
_SHAPES = (-1, 0, 1, 2, 1, 4, 3, 5), (-1, 0, 1, 2, 2, 1, 5, 5), (-1, 0, 1, 2, 3, 0, 2, 3)
# Tokens after a branch of the tree.
_AFTER = 3
# Errors up to this many times the typical one still count as rounding.
_FACTOR = 4
# Lowest limit of rounding, in steps of the precision: any kernel may be off by so much.
_MIN_STEPS = 4
# Lowest limit in any precision: the steps of float32 are too small for the reordered sums of a deep model.
_MIN_LIMIT = 1e-4

# Logits, (rows, vocabulary).
_Rows = npt.NDArray[np.float32]


def check_capability(network: nn.Module, hooks: ModelHooks, vocabulary_size: int) -> Capability:
    """Try trees and chains on the network, in some 60 calls of it, and some 75 with recurrent state.

    Up to five inputs are tried until three of them have shown the same kind of draft, which may take twice as many
    calls. If no kind is shown three times, the middle one counts, which three inputs can take. Afterwards the hooks
    record recurrent state only where that works.

    Raises:
        RuntimeError: If the device failed, memory ran out, or the system stopped the work.
    """
    try:
        for cache in make_prompt_cache(network):
            round_cache(cache)
        results = list[Capability]()
        errors = _Errors()
        kinds = Counter[DraftKind]()
        while len(results) < _TRIALS and max(kinds.values(), default=0) < _INPUTS:
            trial = _Trial(network, hooks, vocabulary_size, len(results), kinds[DraftKind.TREE])
            results.append(_judge(trial))
            hooks.leave_out_logits(vocabulary_size)
            kinds[results[-1].kind] += 1
            errors.add_errors(trial.errors)
        middle = sorted(results, key=lambda each: [*DraftKind].index(each.kind))[len(results) // 2]
        hooks.states.recorded = middle.kind in {DraftKind.TREE, DraftKind.CHAIN}
        return replace(middle, inputs=len(results), errors=errors.medians())
    except UnsupportedCacheError as error:
        return Capability(DraftKind.NONE, str(error))
    except Exception as error:
        # Unmodified models may do anything with caches and masks.
        if is_device_error(error):
            raise
        reason = " ".join(str(error).split())[:120]
        return Capability(DraftKind.NONE, f"it cannot verify several tokens at once ({reason})")


def use_capability(network: nn.Module, hooks: ModelHooks, vocabulary_size: int, known: Capability) -> None:
    """Leave the hooks as `check_capability` did when it found this.

    The call shows them the width of the trunk's output; nothing is evaluated.
    """
    network(mx.array([[0]]), cache=KVCache(network).layers)
    hooks.leave_out_logits(vocabulary_size)
    hooks.states.recorded = known.kind in {DraftKind.TREE, DraftKind.CHAIN}


class _Errors(defaultdict[str, list[float]]):
    """How far rows are from those of stock caches, by what was fed, in standard deviations; see `row_errors`.

    `stock`: where trees are refused, a chain in one call, through mlx-lm's own caches. `chain`: the same through caches
    with rounds. `first`: the tree's rows of its first branch. `others`: those of its other branches. `mask`,
    `position`: `others` without the tree's mask, and with wrong positions. `before`: the same tokens after another
    prefix, to show the effect of a wrong prefix. `far`: the second branch far into a text, compared with a chain there.
    `commit`, `branch`: with recurrent state, the rows after a part of the chain or a branch of the tree was committed.

    Attributes:
        dtype: Type of the logits.
    """

    def __init__(self) -> None:
        super().__init__(list)
        self.dtype = mx.float32

    def add_errors(self, others: "_Errors") -> None:
        """Add the errors of one input."""
        self.dtype = others.dtype
        for kind, errors in others.items():
            self[kind] += errors

    @property
    def limit(self) -> float:
        """The largest error of a tree that rounding explains."""
        return rounding_limit(self["chain"], self.dtype)

    def medians(self) -> dict[str, float]:
        """Return the typical error of each kind that was tried, and the limit."""
        return {kind: median_error(errors) for kind, errors in self.items()} | {"limit": self.limit}


class _Trial:
    """One input: a prompt, a chain, and a tree of the same tokens.

    Args:
        network: The model.
        hooks: Its hooks.
        vocabulary_size: Columns of its logits.
        number: How many inputs were tried before; each has tokens of its own.
        shape: Index of the tree in `_SHAPES`: how many inputs have shown trees so far.

    Attributes:
        errors: Those of this input.
        has_state: Whether the model has recurrent or convolutional state.
        has_positions: Whether the hooks give positions.
        has_controls: Whether controls are tried too; once is enough, as they show what the check can tell.
        commits: Whether a part of a round can be committed. The cache says it in `try_chain`, and `try_tree` only
            runs where it is so; `_judge` withdraws it where the committed rows were wrong.
    """

    def __init__(self, network: nn.Module, hooks: ModelHooks, vocabulary_size: int, number: int, shape: int) -> None:
        self._network = network
        self._hooks = hooks
        self.errors = _Errors()
        self.has_state = KVCache(network).has_state
        self.has_positions = hooks.gives_positions
        self.has_controls = shape == 0
        self.commits = True
        rng = np.random.default_rng(7 + number)
        tokens = 1 + rng.permutation(min(vocabulary_size, 1000) - 1).astype(np.int32)[: _PROMPT + _ROWS]
        self._prompt = tokens[:_PROMPT]
        self._tokens = tokens[_PROMPT:]
        self._chain = PrefixTree.from_tokens(self._tokens, np.arange(-1, _ROWS - 1))
        self._tree = PrefixTree.from_tokens(self._tokens, _SHAPES[shape])
        self._paths = [np.flatnonzero(row) for row in self._tree.ancestors()]
        # First node whose parent is another one than in the chain: the first branch ends before it.
        self._fork = int(np.argmax(self._tree.parents != self._chain.parents))

    def try_chain(self) -> None:
        """Verify the chain, and compute through stock caches what the tree's rows must be."""
        chain = self._one_by_one()
        # What a tree's first branch must give, and what its other branches must give.
        self._along_chain = chain
        cache = self._read()
        rows = self._packed(cache, self._chain, path=[0, 1, 2] if self.has_state else None)
        self.errors["chain"] = row_errors(rows, chain)
        # For each leaf of another branch, the rows of all nodes on its path.
        by_node = np.zeros_like(chain)
        for leaf in {*range(self._fork, _ROWS)}.difference(self._tree.parents.tolist()):
            by_node[self._paths[leaf]] = self._along(self._tokens[self._paths[leaf]])
        self._along_others = by_node[self._fork :]
        self.errors["before"] = row_errors(chain[self._fork :], self._along_others)
        if self.has_state:
            # Three rows of the chain were committed, so the tokens after them follow.
            self.errors["commit"] = row_errors(on_host(self._fed(cache.layers, self._tokens[3:])), chain[3:])

    def try_stock(self) -> None:
        """Feed the chain at once through stock caches."""
        self.errors["stock"] = row_errors(self._along(self._tokens), self._along_chain)

    def try_tree(self) -> None:
        """Verify the tree and the controls."""
        cache = self._read()
        fork = self._fork
        others = self._along_others
        if self.has_controls:
            self.errors["mask"] = row_errors(self._packed(cache, self._tree, mask=False)[fork:], others)
            self.errors["position"] = row_errors(self._packed(cache, self._tree, spread=_SPREAD)[fork:], others)
        path = self._paths[-1]
        tree = self._packed(cache, self._tree, path=path.tolist() if self.has_state else None)
        self.errors["first"] = row_errors(tree[:fork], self._along_chain[:fork])
        self.errors["others"] = row_errors(tree[fork:], others)
        if self.has_state:
            after = self._tokens[:_AFTER]
            expected = self._along(np.append(self._tokens[path], after))[-_AFTER:]
            self.errors["branch"] = row_errors(on_host(self._fed(cache.layers, after)), expected)

    def try_far(self) -> None:
        """Verify the tree with its second branch at positions on both sides of `_FAR`."""
        # The nodes 5 and 7 lie before the border by depth, and behind it in packed order. They are the nodes 3 and 4 of
        # their branch, to which three tokens are added, so that both calls have as many rows.
        start = _FAR - _PROMPT - 5
        path = self._paths[-1]
        branch = PrefixTree.from_tokens(self._tokens[[*path, 2, 3, 6]], self._chain.parents)
        second = self._packed(self._read(start), branch)[3:5]
        self.errors["far"] = row_errors(self._packed(self._read(start), self._tree)[5::2], second)

    def _one_by_one(self) -> _Rows:
        """Feed the chain token by token through stock caches."""
        layers = make_prompt_cache(self._network)
        self._fed(layers, self._prompt)
        logits = [self._fed(layers, self._tokens[i : i + 1])[0] for i in range(_ROWS)]
        self.errors.dtype = logits[0].dtype
        return on_host(mx.stack(logits))

    def _along(self, tokens: Ints) -> _Rows:
        """Feed tokens at once behind the prompt, through stock caches.

        The prompt has a call of its own, as before a tree: with more rows a device may round it otherwise.
        """
        layers = make_prompt_cache(self._network)
        self._fed(layers, self._prompt)
        return on_host(self._fed(layers, tokens))

    def _fed(self, layers: list[Any], tokens: Ints) -> mx.array:
        """Return the logits of tokens, (n, vocabulary), fed in one call behind what the caches hold."""
        logits: mx.array = self._network(mx.array(tokens)[None], cache=layers)
        return logits[0]

    def _read(self, start: int = 0) -> KVCache:
        """Return a cache with the prompt, from position `start` on."""
        cache = KVCache(self._network)
        if start:
            cache.start_at(start)
        self._fed(cache.layers, self._prompt)
        return cache

    def _packed(
        self, cache: KVCache, tree: PrefixTree, mask: bool = True, spread: int = 1, path: list[int] | None = None
    ) -> _Rows:
        """Feed the tree, `spread` positions a level, and commit a path of it, or nothing; return its logits."""
        packed = PackedTree.pack(tree)
        cache.open_round(packed.depths, packed.ancestors if mask else None, packed.deepest, packed.leaves)
        with self._hooks.packed(None if tree.is_chain else packed.depths * spread):
            rows = on_host(self._network(packed.tokens[None], cache=cache.layers)[0])
        if path is None:
            cache.rollback()
        else:
            self.commits = cache.can_commit_part
            cache.close_round(path)
        return rows


def on_host(array: mx.array) -> _Rows:
    """Return an array on the host, in float32."""
    return fetch(array.astype(mx.float32))


def _judge(trial: _Trial) -> Capability:
    """Return what one input shows.

    Trees, if the tree's rows are right and, with recurrent state, a part of the chain can be committed. Otherwise
    chains, if their rows are right; they are fed again where a part cannot be committed. Otherwise no drafts.
    """
    trial.try_chain()
    errors = trial.errors
    reason = _STATE
    # This is also true for NaN.
    if trial.commits and trial.has_state and not median_error(errors["commit"]) <= errors.limit:
        trial.commits = False
        reason = f"{_STATE} (off by {median_error(errors['commit']):.2g})"
    if trial.commits:
        reason = _problem_of_tree(trial)
        if not reason:
            return Capability(DraftKind.TREE)
    trial.try_stock()
    error = median_error(errors["chain"])
    # Rounding is so large that it hides the effect of a wrong prefix.
    blurred = error > rounding_limit([0.0], errors.dtype) and _CONTROL * error > median_error(errors["before"])
    if blurred or not error <= rounding_limit(errors["stock"], errors.dtype):
        return Capability(DraftKind.NONE, f"tokens fed together gave other logits (off by {error:.2g} deviations)")
    return Capability(DraftKind.CHAIN if trial.commits else DraftKind.FED_AGAIN, reason)


def _problem_of_tree(trial: _Trial) -> str:
    """Return a clause: why one input shows that the model cannot verify trees; empty if it can."""
    trial.try_tree()
    errors = trial.errors
    error = float(np.max([median_error(errors[kind]) for kind in ("first", "others", "branch") if kind in errors]))
    if not error <= errors.limit:
        return f"the logits of a packed tree were not those of its branches (off by {error:.2g} deviations)"
    if not trial.has_controls:
        return ""
    # Where the hooks give no positions, wrong ones change nothing: that refuses a model only if it has no state.
    for name in ("mask", "position") if trial.has_positions or not trial.has_state else ("mask",):
        if median_error(errors[name]) < _CONTROL * median_error(errors["others"]):
            return f"the check of trees cannot tell a wrong {name} from a right one"
    trial.try_far()
    far = median_error(errors["far"])
    if not far <= errors.limit:
        return f"far into a text the logits of a packed tree were not those of its branches (off by {far:.2g})"
    return ""


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
    return _FACTOR * median_error(noise) + max(_MIN_STEPS * steps, _MIN_LIMIT)
