"""EAGLE-3 in training for a small model: its data are random texts, or such as follow a rule."""

from dataclasses import replace
from typing import Any

import numpy as np

from rdchat.inference.api.model_facts import HeadKind
from rdchat.inference.training.data.batched_decoding import hidden_states
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.heads.eagle3_objective import Eagle3Objective
from rdchat.inference.training.heads.recipes import Recipe, default_recipe
from rdchat.inference.training.heads.trainer import Target, TrainingData
from rdchat.inference.training.run.training_plan import eagle3_layers
from rdchat.inference.verification.hooks import HiddenReads
from rdchat.inference.verification.target import LoadedModel

QUESTION, ANSWER = 6, 14


def conversations(model: LoadedModel, count: int, *, ruled: bool) -> list[TrainingConversation]:
    """Return some times 15 conversations; with a rule, token t of an answer is followed by 3 t + 1 of 23 tokens."""
    draw, size = np.random.default_rng(4), model.info.vocabulary_size
    made = []
    for number in range(15 * count):
        tokens = draw.integers(size, size=QUESTION + ANSWER).tolist()
        for place in range(QUESTION, QUESTION + ANSWER if ruled else 0):
            tokens[place] = (3 * tokens[place - 1] + 1) % 23
        made.append(TrainingConversation(number, tokens, QUESTION, 0.0))
    return made


def recipe_of(**changes: Any) -> Recipe:
    return replace(default_recipe(HeadKind.EAGLE3), **{"warm_up": 5, "vocabulary": 30, **changes})


def prepared(
    model: LoadedModel, recipe: Recipe, *, count: int = 1, ruled: bool = False, window_tokens: int = 10_000
) -> Eagle3Objective:
    """Return the data of some shards, with a fresh head."""
    layers, made = eagle3_layers(model), conversations(model, count, ruled=ruled)
    reads = HiddenReads(layers, normalised=False)
    model.hooks.read(reads)
    data = TrainingData(
        made, lambda numbers: hidden_states(model, made[numbers.start : numbers.stop], reads), window_tokens
    )
    objective = Eagle3Objective(Target.of(model), data, recipe, layers)
    list(objective.prepare())
    return objective
