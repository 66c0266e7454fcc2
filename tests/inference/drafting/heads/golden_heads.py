"""Heads against reference implementations: logits of a prompt's rows, and of a chain and a tree below its root."""

from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.drafting.heads.head import Head, HeadState, Root


class GoldenHead:
    """One case: a head that is bound to a target, and what the reference computes.

    Args:
        head: The head.
        folder: Has the file `expected.npz`.
        hidden: Name of the target's hidden states in it.
        atol: Most that a logit may differ by.
    """

    def __init__(self, head: Head, folder: Path, hidden: str, atol: float) -> None:
        self.head = head
        self._atol = atol
        self.expected: dict[str, npt.NDArray] = dict(np.load(folder / "expected.npz"))
        self._hidden = mx.array(self.expected[hidden])
        self._following = self.expected["following"].tolist()

    def state(self, rows: int) -> HeadState:
        """Return the state of the root whose row is the last of some; 0 is the first token."""
        memory = self.head.memory()
        tokens = [0, *self._following[: rows - 1]]
        memory.begin_reply(tokens)
        memory.take_committed(tokens, self._hidden[:rows], 0)
        return memory.root_state(Root(self._following[rows - 1], rows, self._hidden[rows - 1]))

    def assert_same(self, state: HeadState, name: str, rows: slice) -> None:
        np.testing.assert_allclose(np.array(state.logits()), self.expected[name][rows], atol=self._atol)

    def assert_all(self) -> None:
        self.assert_each_row()
        self.assert_rows_one_by_one()
        self.assert_chain()
        self.assert_tree()

    def assert_each_row(self) -> None:
        for rows in range(1, len(self._following) + 1):
            self.assert_same(self.state(rows), "logits", slice(rows - 1, rows))

    def assert_rows_one_by_one(self) -> None:
        memory = self.head.memory()
        memory.begin_reply([0])
        token = 0
        for place, following in enumerate(self._following):
            memory.take_committed([token], self._hidden[place : place + 1], place)
            state = memory.root_state(Root(following, place + 1, self._hidden[place]))
            self.assert_same(state, "logits", slice(place, place + 1))
            token = following

    def assert_chain(self, name: str = "chain_logits") -> None:
        state = self.state(len(self._following))
        for place, token in enumerate(self.expected.get("chain", ())):
            state = state.after(mx.array([0]), mx.array([int(token)]))
            self.assert_same(state, name, slice(place, place + 1))

    def assert_tree(self) -> None:
        state = self.state(len(self._following))
        tokens, parents = (self.expected.get(name, np.zeros(0, int)) for name in ("tree", "parents"))
        level = [-1]
        while (nodes := np.flatnonzero(np.isin(parents, level))).size:
            beams = mx.array([level.index(parents[node]) for node in nodes])
            state = state.after(beams, mx.array(tokens[nodes]))
            self.assert_same(state, "tree_logits", slice(nodes[0], nodes[-1] + 1))
            level = nodes.tolist()
        assert not parents.size or level[-1] == len(parents) - 1, "all nodes were drafted"
