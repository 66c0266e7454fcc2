"""Training of a recurrent head on single roots.

At answer token i the head gets the hidden state that token i was chosen from, and token i as its root; it is to predict
tokens i+1, i+2, ... User tokens are never predicted.
"""

from collections.abc import Iterator
from dataclasses import replace

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx.utils import tree_map

from rdchat.inference.drafting.checkpoints.drafter_files import PublishedDrafter
from rdchat.inference.drafting.checkpoints.recurrent_layout import StoredDrafter
from rdchat.inference.drafting.heads.recurrent_head import HeadConfig, RecurrentHead
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.target.fetch import fetch
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.inverse_temperature import CHOICES, agreed, best_of
from rdchat.inference.training.heads.loss import Candidates, drop_inputs, unroll
from rdchat.inference.training.heads.objective import Goals, Objective, Target, TrainingData
from rdchat.inference.training.heads.recipes import Recipe
from rdchat.inference.training.heads.samples import Halves, Ints
from rdchat.inference.training.heads.whitening import Whitening, fold_weights, unfold_weights

_MEASURED_STATES = 20_000  # hidden states that the standardisation is measured on
_LOOKED_AT = 8192  # held-out roots that are drafted from while training
_ROWS = 512  # roots drafted from at a time
_FITTED, _FITTED_ROWS = 2048, 256  # held-out roots that the inverse temperature is fitted on, and those at a time
_FIRST_OUTPUT = 0.1  # a fresh output layer is made this small: logits near 0 to begin with

Inputs = tuple[mx.array, mx.array]
"""(n, width) float32: the hidden states that roots were chosen from; (n, steps) int32: roots and the tokens after them
but the last one to be predicted."""


class RecurrentObjective(Objective):
    """Data, loss and head of a recurrent drafter's training; see `Objective` for the other arguments.

    Args:
        shape: Of the head; the draft vocabulary's size is that of the data.
        start: A drafter of that shape whose head is trained further; None for a fresh one.

    Attributes:
        whitening: Of hidden states, embeddings and output rows.
        held_out: (n,) int64: roots of held-out answers at temperature 0.
    """

    licence = "The head holds no weights of the target."
    compiled = True
    network: RecurrentHead
    whitening: Whitening

    def __init__(
        self, target: Target, data: TrainingData, recipe: Recipe, shape: HeadConfig, start: StoredDrafter | None = None
    ) -> None:
        if start is not None:
            data = replace(data, candidates=start.head.config.draft_vocabulary_size)
        super().__init__(target, data, recipe, None if start is None else fetch(start.vocabulary))
        self._shape, self._start, self._dropout = shape, start, recipe.dropout
        self.batch_size = self.tokens_per_step = recipe.batch
        self._some: list[Halves] = []
        self.held_out = np.empty(0, np.int64)
        self._held_out_states: list[Halves] = []
        self._random = np.random.default_rng(0)

    @staticmethod
    def state_tokens(item: TrainingConversation) -> int:
        """See `Objective`: only answers are read."""
        return len(item.answer)

    def trunk_states(self, window: int) -> Halves:
        """See `Objective`."""
        return self.windows.load(window)[:, : self.rows.shape[1]]

    def measure(self, window: int) -> npt.NDArray[np.integer]:
        """See `Objective`; samples are roots."""
        (start, stop), states = self.windows.span(window), self.windows.load(window)
        share = -(-_MEASURED_STATES * (stop - start) // len(self.answers))
        self._some.append(states[self._random.permutation(stop - start)[:share]])
        roots = self.roots(start, stop, held_out=True)
        roots = roots[self.answers.greedy[roots]][: _LOOKED_AT - len(self.held_out)]
        self.held_out = np.concatenate([self.held_out, roots])
        self._held_out_states.append(states[roots - start])
        return self.roots(start, stop, held_out=False)

    def roots(self, start: int, stop: int, *, held_out: bool) -> npt.NDArray[np.int64]:
        """Return (n,) int64: those of the tokens from `start` to `stop` that are not the last of their answer."""
        here = slice(start, stop)
        return start + np.flatnonzero((self.answers.left[here] > 0) & (self.answers.held_out[here] == held_out))

    def make_head(self) -> None:
        """See `Objective`."""
        embeddings = self.target.embeddings
        table = fetch(embeddings.embed(mx.arange(self.target.vocabulary_size)).astype(mx.float32))
        measured = np.concatenate(self._some).astype(np.float32)
        self._some = []
        self.whitening = Whitening.of(measured, table, self.counts, fetch(self.rows))
        mx.random.seed(self._seed)
        if self._start is None:
            self.network = RecurrentHead(replace(self._shape, draft_vocabulary_size=len(self.vocabulary)))
            self.network.output.weight = self.network.output.weight * _FIRST_OUTPUT
        else:
            self.network = unfold_weights(self._start.head, self.whitening)
        head = self.network  # the recurrence keeps all of its inputs: its errors would add up
        drop_inputs((head.from_token, head.from_hidden, head.from_state, *head.blocks, head.output), self._dropout)

    def steps_in(self, window: int) -> int:
        """See `Objective`; samples that do not fill a batch are left for another epoch."""
        there = len(self.samples[window])
        return max(there // self.batch_size, min(there, 1))

    def batch(self, window: int, numbers: Ints, step: int) -> tuple[Inputs, Goals, Candidates | None]:
        """See `Objective`."""
        states = self.windows.load(window)[numbers - self.windows.span(window)[0]]
        return self.inputs(numbers, states), self.goals(numbers), self._draw(step)

    def inputs(self, roots: npt.NDArray[np.integer], states: Halves) -> Inputs:
        """Return the arguments of `features` for roots, (n,), with their hidden states, (n, width)."""
        path = np.minimum(np.add.outer(roots, np.arange(self._steps)), len(self.answers) - 1)
        return mx.array(states.astype(np.float32)), mx.array(self.answers.tokens[path])

    def features(self, hidden: mx.array, path: mx.array) -> mx.array:
        """See `Objective`."""
        return unroll(self.network, self.whitening.hidden(hidden), self.whitening.embed(path))

    def output_rows(self) -> mx.array:
        """See `Objective`."""
        return self.whitening.rows

    def held_out_inputs(self) -> Iterator[tuple[npt.NDArray[np.integer], Inputs]]:
        """See `Objective`."""
        return self._held_out_parts(np.arange(len(self.held_out)), _ROWS)

    def _held_out_parts(
        self, chosen: npt.NDArray[np.integer], rows: int
    ) -> Iterator[tuple[npt.NDArray[np.integer], Inputs]]:
        """Yield those at the places `chosen` of `held_out`, and their inputs, `rows` at a time."""
        states = np.concatenate(self._held_out_states)
        for start in range(0, len(chosen), rows):
            some = chosen[start : start + rows]
            yield self.held_out[some], self.inputs(self.held_out[some], states[some])

    def fit_inverse_temperature(self) -> float:
        """Return the inverse temperature at which drafter and target agree most often on held-out answers."""
        self.network.eval()
        count, found = len(self.held_out), mx.zeros(len(CHOICES))
        chosen = np.linspace(0, count - 1, min(_FITTED, count)).astype(np.int64)
        for roots, inputs in self._held_out_parts(chosen, _FITTED_ROWS):
            found += agreed(self.features(*inputs) @ self.output_rows().T, *self.goals(roots))
            mx.eval(found)
        self.network.train()
        return best_of(CHOICES, fetch(found).tolist())

    def drafter(self, binding: TargetBinding) -> PublishedDrafter:
        """See `Objective`; no loss of acceptance by float16 was measured."""
        head = fold_weights(self.network, self.whitening)
        head.update(tree_map(lambda array: array.astype(mx.float16), head.parameters()))
        mx.eval(head.parameters())
        head.config = replace(head.config, inverse_temperature=self.fit_inverse_temperature())
        return StoredDrafter(head, mx.array(self.vocabulary), binding).written()
