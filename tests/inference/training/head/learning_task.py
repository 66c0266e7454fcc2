"""A rule that a small drafter's head can learn, prepared as a training's data are."""

from functools import partial

import mlx.core as mx
import numpy as np

from rdchat.inference.drafting.heads.recurrent_head import HeadConfig
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.head.preparation import at_once, prepare
from rdchat.inference.training.head.trainer import Recipe, Trainer, fresh_head

WIDTH, TOKENS = 8, 30


class Table:
    """A target's embeddings, which are its output rows too."""

    def __init__(self, rows: mx.array) -> None:
        self._rows = rows

    def embed(self, tokens: mx.array) -> mx.array:
        return self._rows[tokens]

    output_rows = embed


class Task:
    """Answers in which token t is followed by 3 t + 1, of a target whose states say so; in four shards."""

    def __init__(self, recipe: Recipe) -> None:
        draw = np.random.default_rng(0)
        table = draw.normal(size=(TOKENS, WIDTH)).astype(np.float32)
        shards = [
            [self._conversation(number, draw) for number in range(first, first + 15)] for first in range(0, 60, 15)
        ]
        states = [np.concatenate([4 * table[item.answer] for item in shard]).astype(np.float16) for shard in shards]
        self.prepare = partial(
            prepare,
            Table(mx.array(table)),  # type: ignore[arg-type]
            np.asarray,
            TOKENS,
            shards,
            states.__getitem__,
            candidates=TOKENS,
            steps=recipe.steps,
            window_tokens=700,
        )
        self.prepared = at_once(self.prepare())
        assert len(self.prepared.windows) == 2
        self._recipe = recipe

    @staticmethod
    def _conversation(number: int, draw: np.random.Generator) -> TrainingConversation:
        answer = [int(draw.integers(TOKENS))]
        for _ in range(19):
            answer.append((3 * answer[-1] + 1) % TOKENS)
        return TrainingConversation(number, [0, *answer], 1, 0.0)

    def trainer(self) -> Trainer:
        mx.random.seed(0)
        head = fresh_head(HeadConfig(WIDTH, len(self.prepared.vocabulary), exit_size=16, state_size=16))
        return Trainer(head, self._recipe, self.prepared)


def quick(**changes: object) -> Recipe:
    """Return a recipe that learns the rule in seconds; `changes` are fields of it."""
    options = {"epochs": 12, "batch": 32, "learning_rate": 1e-2, "warm_up": 10, "dropout": 0.1, "steps": 3}
    return Recipe(**(options | changes))  # type: ignore[arg-type]
