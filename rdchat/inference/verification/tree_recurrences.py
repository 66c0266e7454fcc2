"""Recurrences of layers with state, for all nodes of a tree or all rows of a path in one computation.

`hooks` calls them in rounds, in place of mlx-lm's functions.

Mamba-2: the outputs at the rows of a chain or a tree, and the state after a path. mlx-lm has a kernel for one row; for
several it needs 25 launches. Here they are 7, and in a tree no state is computed for its paths.
Lightning attention: the state after a path.

The gated delta rule, with the state read once in place of once for each path:
`S <- g S; d = beta (v - S k); S <- S + d k^T; y = S q` (Yang et al. 2024, arXiv 2412.06464). A node adds
its own d to what its ancestors left, so all d of a tree follow from one triangular system:

    d = (I - N)^-1 R        R[i] = beta[i] (v[i] - G[i] S0 k[i])        N[i, j] = -beta[i] D[i, j] (k[i] k[j])
    y[i] = G[i] S0 q[i] + sum_j D[i, j] (q[i] k[j]) d[j]

over the ancestors j of node i, where D[i, j] is the product of the gates behind j up to i, and G[i] that from the root.
Levels of the tree are folded into the small matrices, `W <- M + W N`, where M[i, j] = D[i, j] (q[i] k[j]). Decays are
sums of logarithms, of which `TreePaths.between` has the terms, so nothing is subtracted and nothing cancels.

| method, for 16 nodes, 8 leaves, depth 5 | launches | MB of a layer with 48 heads | error in float32, hard inputs |
|---|---|---|---|
| along all paths | 8 | 83 | 1e-6 |
| levels folded into matrices | 14 | 10 | 6e-6 |
| levels on the values | 14 | 14 | 6e-6 |
| powers, `(I + N)(I + N^2)(I + N^4)` | 13 | 10 | 2e5 behind deep chains of parallel keys |

Paths need fewer launches and less of the matrices where there are few leaves, or many levels. The host takes 25 us a
layer to build a solve and 110 us for paths (two cores of an AMD EPYC), as the solve is compiled whole.

On an H100 such a tree takes 0.18 ms a layer of 48 heads in float32, and 0.79 along paths, which are plain operations
there. The largest error was 1e-6; with TF32, which rdchat switches off, it is 8e-4.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.verification.state_round import Rows, TreePaths

# Shortest and longest step where a family names none, as in mlx-lm's `ssm_update`.
_TIME_STEPS = 0.001, 100.0
# Rows of lightning attention that one launch adds: `mx.compile` splits a function of more than eleven steps.
_ROWS_AT_ONCE = 5
# The deepest tree of the delta rule, and the fewest leaves, that are solved; others are computed along their paths.
MAX_DEPTH = 8
_MIN_LEAVES = 4
# Keeps the logarithm of a gate finite.
_SMALLEST_GATE = 1e-30


def state_space_sums(given: Mapping[str, Any], rows: Rows, state: mx.array, paths: TreePaths | None) -> mx.array:
    """Return the outputs of Mamba-2, (1, rows, heads, head_dim), in seven launches.

    It is the quadratic form of Dao and Gu 2024, arXiv 2405.21060, section 6, in a tree with a node's ancestors instead
    of all earlier rows, as in STree (Wu et al. 2025, arXiv 2505.14969). The output of row i is `exp(s[i]) state c[i] +
    sum_j exp(s[i] - s[j]) dt[j] (b[j] c[i]) x[j] + D x[i]` over its ancestors j, where s sums the log-decays of the
    ancestors. A row counts as an ancestor of itself.

    Args:
        given: The other arguments of `ssm_update`.
        rows: As for `state_space_after`.
        state: (1, heads, head_dim, state_size).
        paths: Of a tree; None for a chain.
    """
    x, b, c, dt = rows
    groups = b.shape[2]
    ancestors = mx.array(np.tri(x.shape[1], dtype=np.float32)) if paths is None else paths.reached

    def by_group(array: mx.array) -> mx.array:
        """(1, rows, heads, ...) -> (1, groups, heads of a group, rows, ...)."""
        return mx.moveaxis(mx.unflatten(array, 2, (groups, -1)), 1, 3)

    # `inner` is the sum over the ancestors, `before` what the state gives, before its decay, and `direct` is D.
    steps, decays = _steps(dt, given, None)
    sums = ancestors @ decays
    products = c.swapaxes(1, 2) @ b.transpose(0, 2, 3, 1)
    inner = _weights(products[:, :, None], by_group(sums), by_group(steps), ancestors) @ by_group(x)
    before = c.swapaxes(1, 2) @ state.reshape(1, groups, -1, state.shape[-1]).swapaxes(2, 3)
    before = mx.unflatten(before, 3, (-1, x.shape[-1])).swapaxes(2, 3)
    direct = mx.unflatten(given["D"], 0, (groups, -1))[:, :, None, None]
    out = _outputs(inner, before, by_group(sums)[..., None], by_group(x), direct)
    return mx.moveaxis(out, 3, 1).flatten(2, 3)


def state_space_after(rows: Rows, state: mx.array, given: Mapping[str, Any], taken: mx.array | None) -> mx.array:
    """Return the state of Mamba-2 after some rows, in five launches; Dao and Gu 2024, arXiv 2405.21060, section 6.

    The state after row n is `exp(s[n]) state + sum_i exp(s[n] - s[i]) dt[i] x[i] b[i]^T`, where s is the running sum of
    the log-decays `-exp(A_log) dt`.

    Args:
        rows: x, (1, n, heads, head_dim); b, (1, n, groups, state_size), each group for as many consecutive heads; c,
            which the state does not need; and dt, (1, n, heads), before its bias and softplus.
        state: (1, heads, head_dim, state_size).
        given: The other arguments of `ssm_update`.
        taken: (n,) bool: the rows that count; None for all.
    """
    x, b, _, dt = rows
    steps, decays = _steps(dt, given, taken)
    sums = mx.cumsum(decays, axis=1)
    weighted = _weighted(x, steps[..., None], sums[..., None], sums[:, -1:, :, None])
    left = weighted.reshape(*b.shape[:3], -1).transpose(0, 2, 3, 1)
    added = (left @ b.transpose(0, 2, 1, 3)).reshape(state.shape)
    return _decayed(state, sums[:, -1, :, None, None], added)


def decayed_state(rows: Rows, state: mx.array, given: Mapping[str, Any], _taken: mx.array | None) -> mx.array:
    """Return the state of lightning attention after some rows, rounded as when they are added one by one.

    The state after row i is `exp(g) state + k[i]^T v[i]`, where state is that after row i - 1 (Qin et al. 2024, arXiv
    2401.04658). It takes a launch for each five rows and one for the decay, in 16 bits another one.

    Args:
        rows: q, which the state does not need; k and v, (1, n, heads, head_dim).
        state: (1, heads, head_dim of k, head_dim of v).
        given: The other arguments of `recurrent_gla`.
    """
    _, k, v = rows
    decay = mx.exp(given["g"])[:, None, None].astype(state.dtype)
    for start in range(0, k.shape[1], _ROWS_AT_ONCE):
        some = range(start, min(start + _ROWS_AT_ONCE, k.shape[1]))
        state = _decayed_sum(state, decay, [k[:, i, :, :, None] for i in some], [v[:, i, :, None] for i in some])
    return state


@mx.compile
def _decayed_sum(state: mx.array, decay: mx.array, keys: list[mx.array], values: list[mx.array]) -> mx.array:
    for key, value in zip(keys, values, strict=True):
        state = state * decay + key * value
    return state


def _steps(dt: mx.array, given: Mapping[str, Any], taken: mx.array | None) -> tuple[mx.array, mx.array]:
    """Return the steps and the log-decays of Mamba-2, (1, n, heads) float32; 0 in rows that are not taken."""
    shortest, longest = (mx.array(limit, mx.float32) for limit in given.get("time_step_limit", _TIME_STEPS))
    counts = mx.array(True) if taken is None else taken[:, None]
    return _compiled_steps(dt, given["dt_bias"], given["A_log"], counts, (shortest, longest))


@mx.compile
def _compiled_steps(
    dt: mx.array, dt_bias: mx.array, a_log: mx.array, counts: mx.array, limits: tuple[mx.array, mx.array]
) -> tuple[mx.array, mx.array]:
    steps = mx.clip(mx.logaddexp(dt.astype(mx.float32) + dt_bias, 0), *limits)
    steps = mx.where(counts, steps, 0)
    return steps, -mx.exp(a_log.astype(mx.float32)) * steps


@mx.compile
def _weights(products: mx.array, sums: mx.array, steps: mx.array, ancestors: mx.array) -> mx.array:
    """Return what each row reads of each, (1, groups, heads of a group, rows, rows) float32."""
    # From a row that is no ancestor the difference may be positive and large, and infinity times 0 is no number.
    decays = mx.exp(mx.minimum(sums[..., None] - sums[..., None, :], 0))
    return products * decays * steps[..., None, :] * ancestors


@mx.compile
def _outputs(inner: mx.array, before: mx.array, sums: mx.array, x: mx.array, d: mx.array) -> mx.array:
    return (inner + mx.exp(sums) * before).astype(x.dtype) + x * d


@mx.compile
def _weighted(x: mx.array, steps: mx.array, sums: mx.array, total: mx.array) -> mx.array:
    return x * (steps * mx.exp(total - sums))


@mx.compile
def _decayed(state: mx.array, total: mx.array, added: mx.array) -> mx.array:
    return (mx.exp(total) * state + added).astype(state.dtype)


def delta_outputs(rows: Rows, state: mx.array, paths: TreePaths | None) -> mx.array | None:
    """Return the outputs of a tree's nodes, (1, nodes, value heads, width of v); None where paths are better or needed.

    Args:
        rows: q and k, (1, nodes, heads, width); v, (1, nodes, value heads, width of v); g and beta, (1, nodes, value
            heads). Gates by channel have an axis more, and give None.
        state: (1, value heads, width of v, width).
        paths: The tree's; None for a chain.
    """
    if paths is None or paths.leaves < _MIN_LEAVES or paths.deepest > MAX_DEPTH or rows[3].ndim != 3:
        return None
    return _of_depth(paths.deepest)([*rows], state, [paths.between, paths.above])


@cache
def _of_depth(deepest: int) -> Callable[[list[mx.array], mx.array, list[mx.array]], mx.array]:
    """Return `_delta_outputs` for trees of a depth, compiled."""
    return mx.compile(partial(_delta_outputs, deepest))


def _delta_outputs(deepest: int, rows: list[mx.array], state: mx.array, tables: list[mx.array]) -> mx.array:
    """Compute `delta_outputs` by the formulas of the module's docstring.

    There `decay` is D, `start` is G, `links` is N and `right` is R. M has only the ancestors above, so y also needs a
    node's own d, times `own`. As `d = right + links d`, it is split: `own * links` goes into `first`, with M, and
    `own * right` into `base`, with the part of y from the state. Then `y = base + first d`. Value heads are grouped by
    the head of q and k that they share; what depends on the value head is (heads, group, nodes, ...).
    """
    q, k, v, g, beta = rows
    between, above = tables
    _, nodes, heads, width = k.shape
    value_heads, value_width = v.shape[2:]
    # (heads, 2 * nodes, width): q, and then k. One launch, where `concatenate` and a cast are three.
    both = mx.where(mx.array([[[[0]]], [[[1]]]]), k, q).astype(mx.float32)
    both = both.reshape(2 * nodes, heads, width).swapaxes(0, 1)
    # (heads, 2 * nodes, nodes): q[i] k[j], and then k[i] k[j].
    products = both @ both[:, nodes:].swapaxes(1, 2)
    # q[i] k[i], the diagonal of the upper half.
    own = products.flatten(1)[:, : nodes * nodes : nodes + 1][:, None, :, None]
    # S0 q, and then S0 k, as (heads, group, 2 * nodes, width of v).
    read = both @ state.reshape(heads, -1, width).swapaxes(1, 2)
    read = read.reshape(heads, 2 * nodes, -1, value_width).swapaxes(1, 2)
    beta, v = (mx.unflatten(each.squeeze(0), 1, (heads, -1)).transpose(1, 2, 0, 3) for each in (beta[..., None], v))
    decay, start = _decays(g, between, heads)
    links = mx.where(above, -beta * decay * products[:, None, nodes:], 0)
    first = mx.where(above, decay * products[:, None, :nodes], 0) + own * links
    right = beta * (v - start * read[:, :, nodes:])
    base = start * read[:, :, :nodes] + own * right
    # W of the module's docstring: each turn adds the paths with a node more between. `first` has the first level.
    weights = first
    for _ in range(deepest - 1):
        weights = mx.addmm(first, weights, links)
    out = mx.addmm(base, weights, right).reshape(value_heads, nodes, value_width).swapaxes(0, 1)
    return out.astype(q.dtype)[None]


def _decays(g: mx.array, between: mx.array, heads: int) -> tuple[mx.array, mx.array]:
    """Return D, (heads, group, nodes, nodes), and G, (heads, group, nodes, 1), from the gates and `TreePaths.between`.

    D is correct only where the second node is an ancestor of the first; the callers use no other place. G has the gates
    from the root on, the root's included: `between` leaves it out, so it is added.
    """
    # (value heads, nodes).
    gates = mx.log(mx.maximum(g, _SMALLEST_GATE)).squeeze(0).T
    logs = (gates @ between).reshape(heads, -1, g.shape[1], g.shape[1])
    return mx.exp(logs), mx.exp(logs[..., :1] + gates[:, :1].reshape(heads, -1, 1, 1))
