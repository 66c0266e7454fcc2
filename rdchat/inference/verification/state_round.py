"""A round on a layer with recurrent or convolutional state: its inputs are recorded, so that a path can be committed.

A layer of mlx-lm changes its state at two places: a causal convolution keeps a window of its last inputs, and a
recurrence folds each row into a matrix. A round records the inputs of both. After it, the window is a slice of what the
convolution read, and the matrix comes from the recurrence alone, run again over the accepted rows. No token is fed to
the model again. Inputs are recorded and not states, since the state after each row takes megabytes a layer.

In a tree the convolution reads, for each node, the last inputs along its path, and the recurrence runs along all paths
from the root to a leaf, as a batch. The rows of a path are computed in order, as token by token. A recurrence that only
decays its state, as that of Mamba-2, needs no paths: it is a sum over the ancestors.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import mlx.core as mx

from rdchat.inference.device import fetch

# Inputs by row, each (batch, rows, ...).
type Rows = tuple[mx.array, ...]
# From rows and the state before them to their outputs, (batch, rows, ...), and the state after them.
type Recurrence = Callable[[Rows, mx.array | None], tuple[mx.array, mx.array]]
# The same, for the state alone, after those rows for which (rows,) bool says so; None for all.
type StateAfter = Callable[[Rows, mx.array | None, mx.array | None], mx.array]
# From rows, the state before them and a tree's paths to the outputs, (1, rows, ...); None where it is no help.
type Sums = Callable[[Rows, mx.array, TreePaths | None], mx.array | None]


class TreePaths:
    """The paths of a tree from the root to its leaves, as lazy indices of fixed shapes; made once for all layers.

    Nodes that are not below the root, as those of padding, are on no path. They read the root's row.

    Args:
        depths: (nodes,) int32 distance of each node from the root.
        ancestors: (nodes, nodes) bool: whether node j lies on the way from the root to node i, i itself included.
        deepest: Upper bound of the depths.
        leaves: Upper bound of the number of leaves.

    Attributes:
        rows: (leaves, deepest + 1) node at each depth of each path; behind a path's end the root.
        ancestors: As given.
        reached: `ancestors` as float32.
        deepest: As given.
        leaves: As given.

    Example: the parents `[-1, 0, 1, 0]`, with two leaves, give the rows `[[0, 1, 2], [0, 3, 0]]`. Two rows of inputs
    before the root have the indices 0 and 1, so a kernel of 3 reads `[[0, 1, 2], [1, 2, 3], [2, 3, 4], [1, 2, 5]]`.
    """

    def __init__(self, depths: mx.array, ancestors: mx.array, deepest: int, leaves: int) -> None:
        nodes = mx.arange(depths.shape[0])
        # A leaf is below the root, and an ancestor of itself alone.
        is_leaf = ancestors[:, 0] & (mx.sum(ancestors, axis=0) == 1)
        # Leaves in ascending order, then all other nodes.
        order = mx.argsort(mx.where(is_leaf, nodes, nodes + nodes.shape[0]))
        # (leaves, nodes) bool: the nodes of each path. Fewer leaves than the bound are followed by other nodes' paths.
        paths = ancestors[order[:leaves]]
        # (leaves, deepest + 1, nodes) bool: one node at each depth, and none behind a path's end, where argmax gives 0.
        at_depth = paths[:, None] & (depths == mx.arange(deepest + 1)[:, None])
        self.rows = mx.argmax(at_depth.astype(mx.uint8), axis=-1).astype(mx.int32)
        self.ancestors = ancestors
        self.deepest = deepest
        self.leaves = leaves
        self.reached = ancestors.astype(mx.float32)
        self._depths = depths
        # (nodes,) the first path that has each node.
        self._path_of = mx.argmax(paths.astype(mx.uint8), axis=0).astype(mx.int32)
        # (nodes,) index of each node in `rows`, flattened.
        self._cells = self._path_of * (deepest + 1) + depths
        # By length of the kernel.
        self._windows: dict[int, mx.array] = {}

    @cached_property
    def above(self) -> mx.array:
        """(nodes, nodes) bool: `ancestors` without the nodes themselves."""
        return self.ancestors & ~mx.eye(self.ancestors.shape[0], dtype=mx.bool_)

    @cached_property
    def between(self) -> mx.array:
        """(nodes, nodes * nodes) float32: at m, i * nodes + j whether node m lies behind node j on the way to i."""
        ancestors = self.ancestors
        nodes = ancestors.shape[0]
        ways = ancestors[:, None, :] & ~ancestors[None, :, :] & ancestors[:, :, None]
        return ways.reshape(nodes * nodes, nodes).T.astype(mx.float32)

    def windows(self, kernel: int) -> mx.array:
        """Return for each node the inputs that a kernel reads, (nodes, kernel): indices behind a window of inputs."""
        if kernel not in self._windows:
            steps = self._depths[:, None] + mx.arange(1 - kernel, 1)
            nodes = mx.take_along_axis(self.rows[self._path_of], mx.maximum(steps, 0), axis=1)
            self._windows[kernel] = mx.where(steps < 0, steps, nodes) + (kernel - 1)
        return self._windows[kernel]

    def by_node(self, outputs: mx.array) -> mx.array:
        """Return the outputs of the paths' rows, (leaves, deepest + 1, ...), by node: (1, nodes, ...)."""
        return mx.take(outputs.flatten(0, 1), self._cells, axis=0)[None]

    def path_of(self, node: int) -> int:
        """Return the index of a path with this node; the indices are evaluated with the round."""
        return self._paths_on_host[node]

    @cached_property
    def _paths_on_host(self) -> list[int]:
        paths: list[int] = fetch(self._path_of).tolist()
        return paths


@dataclass(frozen=True, slots=True)
class _Accepted:
    """The accepted rows of a round.

    Attributes:
        count: Number of rows.
        last: In a tree the last node; in a chain 0.
        path: In a tree the path of that node; in a chain 0.
        start: First input of the window that follows the rows. A chain's inputs are in one run, so it is the number of
            rows; a tree's node has its own inputs, the node's last, so it is 1.
    """

    count: int
    last: int
    path: int
    start: int


@dataclass(frozen=True, slots=True)
class _Window:
    """The inputs of a convolution: (1, kernel - 1 + rows, channels), or in a tree (nodes, kernel, channels)."""

    inputs: mx.array
    kernel: int

    def after_rows(self, accepted: _Accepted) -> mx.array:
        """Return the window after the accepted rows, (1, kernel - 1, channels)."""
        return self.inputs[accepted.last : accepted.last + 1, accepted.start : accepted.start + self.kernel - 1]


@dataclass(frozen=True, slots=True)
class _Recursion:
    """A call of a recurrence.

    Attributes:
        rows: Its inputs: one batch entry, or along the paths of a tree one for each.
        state: The state before it.
        result: The state that it returned.
        state_after: Computes the state after other rows.
        ancestors: Those of a tree whose rows are by node; else None.
    """

    rows: Rows
    state: mx.array | None
    result: mx.array
    state_after: StateAfter
    ancestors: mx.array | None = None

    def after_rows(self, accepted: _Accepted) -> mx.array:
        """Return the state after the accepted rows."""
        if self.ancestors is not None:
            return self.state_after(self.rows, self.state, self.ancestors[accepted.last : accepted.last + 1].squeeze(0))
        rows = tuple(part[accepted.path : accepted.path + 1, : accepted.count] for part in self.rows)
        return self.state_after(rows, self.state, None)


class StateRound:
    """The inputs from which one layer computed its state in an open round.

    Args:
        paths: Of the round's tree; None for a chain.
    """

    def __init__(self, paths: TreePaths | None) -> None:
        self._paths = paths
        self._windows: list[_Window] = []
        self._recursions: list[_Recursion] = []
        # Rows of the recorded call, 0 before it, and whether its outputs were computed as sums.
        self._recorded_rows = 0
        self._used_sums = False

    def convolve(self, convolution: Callable[[mx.array], mx.array], inputs: mx.array, kernel: int) -> mx.array:
        """Return what a causal convolution makes of its inputs, and record them.

        Args:
            convolution: The layer's own, which pads nothing.
            inputs: (1, kernel - 1 + rows, channels): the saved window, then the rows.
            kernel: Its length.

        Returns:
            (1, rows, channels).
        """
        rows = inputs.shape[1] - kernel + 1
        # The state after a call of one row is kept or rolled back.
        if rows == 1:
            return convolution(inputs)
        self._recorded_rows = rows
        if self._paths is not None:
            inputs = mx.take(inputs.squeeze(0), self._paths.windows(kernel), axis=0)
        self._windows.append(_Window(inputs, kernel))
        return convolution(inputs).reshape(1, rows, -1)

    def recur(
        self,
        rows: Rows,
        state: mx.array | None,
        recurrence: Recurrence,
        state_after: StateAfter,
        sums: Sums | None,
    ) -> tuple[mx.array, mx.array]:
        """Return the outputs, (1, rows, ...), and the state that a recurrence makes of rows, and record its inputs.

        A single row is computed as without a round. Several are computed by `sums` where that gives outputs, else as a
        chain in order, or a tree along its paths.

        In a tree, and with sums, the state is a placeholder: `after_rows` computes that of the accepted rows.

        Args:
            rows: Its inputs by row, each (1, rows, ...).
            state: The state before them, (1, ...); None for the first.
            recurrence: The layer's own.
            state_after: Computes the state alone.
            sums: Computes the outputs as sums over a row's ancestors; None where that is another recurrence.
        """
        if rows[0].shape[1] == 1:
            return recurrence(rows, state)
        self._recorded_rows = rows[0].shape[1]
        paths = self._paths
        ancestors = None
        summed = sums(rows, state, paths) if sums is not None and state is not None else None
        if summed is not None and state is not None:
            self._used_sums = True
            ancestors = None if paths is None else paths.ancestors
            out = summed
            result = mx.zeros_like(state)
        elif paths is None:
            out, result = recurrence(rows, state)
        else:
            rows = tuple(mx.take(part.squeeze(0), paths.rows, axis=0) for part in rows)
            before = None if state is None else mx.broadcast_to(state, (paths.rows.shape[0], *state.shape[1:]))
            out, results = recurrence(rows, before)
            # A slice of the results would keep the states of all paths until the commit, which reads none of them.
            out = paths.by_node(out)
            result = mx.zeros((1, *results.shape[1:]), results.dtype)
        self._recursions.append(_Recursion(rows, state, result, state_after, ancestors))
        return out, result

    def is_complete(self, arrays: Sequence[mx.array | None]) -> bool:
        """Return whether the inputs of all of a layer's state are recorded.

        Args:
            arrays: The layer's state after the call.
        """
        return self._parts(arrays) is not None

    def after_rows(self, arrays: Sequence[mx.array | None], count: int, last: int) -> list[mx.array | None]:
        """Return the layer's state after the accepted rows.

        Args:
            arrays: The layer's state after the call. It is returned where an input is not recorded, and for a chain
                that is accepted completely: except after sums, which leave a placeholder there.
            count: Number of the rows, at least one.
            last: The last one's node.
        """
        parts = self._parts(arrays)
        if parts is None or (self._paths is None and count == self._recorded_rows and not self._used_sums):
            return [*arrays]
        if self._paths is None:
            accepted = _Accepted(count, 0, 0, count)
        else:
            accepted = _Accepted(count, last, self._paths.path_of(last), 1)
        return [part.after_rows(accepted) for part in parts]

    def _parts(self, arrays: Sequence[mx.array | None]) -> list[_Window | _Recursion] | None:
        """Return each array's record, by a recurrence's result or the convolutions' order; None if one is missing.

        A recurrence's result is the very array that the layer keeps as its state; all other arrays are windows, in the
        order of the convolutions. A layer that was called twice has too many records.
        """
        by_result = {id(recursion.result): recursion for recursion in self._recursions}
        if len(arrays) != len(self._windows) + len(by_result):
            return None
        windows = iter(self._windows)
        parts = list[_Window | _Recursion]()
        for array in arrays:
            part = by_result.get(id(array)) or next(windows, None)
            if part is None:
                return None
            parts.append(part)
        return parts
