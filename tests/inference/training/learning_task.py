"""A rule that a small drafter's head can learn, prepared as a training's data are."""

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.shipped_answers import TrainingConversation
from rdchat.inference.training.objective import Objective, Target, TrainingData
from rdchat.inference.training.phases import Trainer
from rdchat.inference.training.training_plan import Recipe

WIDTH = 8
TOKENS = 30


class Table:
    """A target's embeddings, which are its output rows too."""

    def __init__(self, rows: mx.array) -> None:
        self._rows = rows
        self.width = rows.shape[1]

    def embed(self, tokens: mx.array) -> mx.array:
        return self._rows[tokens]

    output_rows = embed


class Task:
    """Answers in which token t is followed by 3 t + 1, of a target whose states say so."""

    def __init__(self, recipe: Recipe) -> None:
        draw = np.random.default_rng(0)
        table = draw.normal(size=(TOKENS, WIDTH)).astype(np.float32)
        self._conversations = [self._conversation(number, draw) for number in range(60)]
        self._states = [4 * table[[*item.tokens[1:], 0]].astype(np.float16) for item in self._conversations]
        self._target = Target(Table(mx.array(table)), np.asarray, TOKENS)  # type: ignore[arg-type]
        self._recipe = recipe

    def objective(self) -> Objective:
        """Return the data and head that are still to be prepared."""
        data = TrainingData(
            self._conversations, lambda numbers: enumerate(self._states[numbers.start : numbers.stop]), 700
        )
        return Objective(self._target, data, self._recipe, ())

    @staticmethod
    def _conversation(number: int, draw: np.random.Generator) -> TrainingConversation:
        answer = [int(draw.integers(TOKENS))]
        for _ in range(19):
            answer.append((3 * answer[-1] + 1) % TOKENS)
        return TrainingConversation(number, [0, *answer], 1, 0.0)

    def prepared(self) -> Objective:
        objective = self.objective()
        assert len(list(objective.read_data())) == 60
        assert len(objective.windows) == 2
        return objective

    def trainer(self) -> Trainer:
        return Trainer(self.prepared())


def quick(**changes: object) -> Recipe:
    """Return a recipe that learns the rule in seconds; `changes` are fields of it."""
    options = {
        "epochs": 12,
        "batch": 32,
        "learning_rate": 1e-2,
        "warm_up": 10,
        "dropout": 0.1,
        "steps": 3,
        "vocabulary": TOKENS,
    }
    return Recipe(**(options | changes))  # type: ignore[arg-type]
