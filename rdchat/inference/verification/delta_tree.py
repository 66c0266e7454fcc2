"""The gated delta rule at all nodes of a tree, with the state read once in place of once for each path.

The rule is `S <- g S; d = beta (v - S k); S <- S + d k^T; y = S q` (Yang et al. 2024, arXiv 2412.06464). A node adds
its own d to what its ancestors left, so all d of a tree follow from one triangular system:

    d = (I - N)^-1 R        R[i] = beta[i] (v[i] - G[i] S0 k[i])        N[i, j] = -beta[i] D[i, j] (k[i] k[j])
    y[i] = G[i] S0 q[i] + sum_j D[i, j] (q[i] k[j]) d[j]

over the ancestors j of node i, where D[i, j] is the product of the gates behind j up to i, and G[i] that from the root.
Levels of the tree are folded into the small matrices, `W <- M + W N`. Decays are sums of logarithms over a table of
ways, so nothing is subtracted and nothing cancels.

| way of 16 nodes, 8 leaves, depth 5 | launches | MB of a layer with 48 heads | error in float32, hard inputs |
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

from collections.abc import Callable
from functools import cache, partial

import mlx.core as mx

from rdchat.inference.verification.state_round import Rows, TreePaths

MAX_DEPTH = 8
_MIN_LEAVES = 4
_SMALLEST_GATE = 1e-30


def delta_outputs(rows: Rows, state: mx.array, paths: TreePaths | None) -> mx.array | None:
    """Return the outputs of a tree's nodes, (1, nodes, value heads, width of v); None where paths are better.

    Args:
        rows: q and k, (1, nodes, heads, width); v, (1, nodes, value heads, width of v); g and beta, (1, nodes, value
            heads). Gates by channel are not taken.
        state: (1, value heads, width of v, width).
        paths: The tree's; None for a chain.
    """
    if paths is None or paths.leaves < _MIN_LEAVES or paths.deepest > MAX_DEPTH or rows[3].ndim != 3:
        return None
    return _of_depth(paths.deepest)([*rows], state, [paths.between, paths.above])


@cache
def _of_depth(deepest: int) -> Callable[[list[mx.array], mx.array, list[mx.array]], mx.array]:
    return mx.compile(partial(_outputs, deepest))


def _outputs(deepest: int, rows: list[mx.array], state: mx.array, tables: list[mx.array]) -> mx.array:
    q, k, v, g, beta = rows
    between, above = tables
    _, nodes, heads, width = k.shape
    value_heads, value_width = v.shape[2:]
    group = value_heads // heads
    # One launch, where `concatenate` and a cast are three.
    both = (
        mx.where(mx.array([[[[0]]], [[[1]]]]), k, q).astype(mx.float32).reshape(2 * nodes, heads, width).swapaxes(0, 1)
    )
    gates = mx.log(mx.maximum(g, _SMALLEST_GATE)).squeeze(0).T
    logs = (gates @ between).reshape(heads, group, nodes, nodes)
    products = both @ both[:, nodes:].swapaxes(1, 2)
    own = products.flatten(1)[:, : nodes * nodes : nodes + 1][:, None, :, None]
    read = both @ state.reshape(heads, group * value_width, width).swapaxes(1, 2)
    read = read.reshape(heads, 2 * nodes, group, value_width).swapaxes(1, 2)
    beta, v = (mx.unflatten(each.squeeze(0), 1, (heads, group)).transpose(1, 2, 0, 3) for each in (beta[..., None], v))
    decay = mx.exp(logs)
    links = mx.where(above, -beta * decay * products[:, None, nodes:], 0)
    # A node's own d is in `first` and `base`, so there is a level less.
    first = mx.where(above, decay * products[:, None, :nodes], 0) + own * links
    start = mx.exp(logs[..., :1] + gates[:, :1].reshape(heads, group, 1, 1))
    right = beta * (v - start * read[:, :, nodes:])
    base = start * read[:, :, :nodes] + own * right
    weights = first
    for _ in range(deepest - 1):
        weights = mx.addmm(first, weights, links)
    out = mx.addmm(base, weights, right).reshape(value_heads, nodes, value_width).swapaxes(0, 1)
    return out.astype(q.dtype)[None]
