"""Sequence heads in training for a small model: its data are random texts, or such as follow a rule."""

from dataclasses import replace
from typing import Any

import numpy as np

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.models.fingerprint import TargetBinding
from rdchat.inference.target.hooks import HiddenReads
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.head_training import at_once
from rdchat.inference.training.run.recipes import default_recipe
from rdchat.inference.training.sequence_heads.head_shapes import sequence_layers
from rdchat.inference.training.sequence_heads.recipe import SequenceRecipe
from rdchat.inference.training.sequence_heads.sequence_training import SequenceTraining
from rdchat.inference.training.sequence_heads.trainer import SequenceTrainer

KINDS = (TrainedKind.EAGLE3, TrainedKind.DSPARK)
QUESTION, ANSWER = 6, 14


def shards(model: LoadedModel, count: int, *, ruled: bool) -> list[list[TrainingConversation]]:
    """Return shards of 15 conversations; with a rule, token t of an answer is followed by 3 t + 1 of 23 tokens."""
    draw, size = np.random.default_rng(4), model.info.vocabulary_size
    conversations = []
    for number in range(15 * count):
        tokens = draw.integers(size, size=QUESTION + ANSWER).tolist()
        for place in range(QUESTION, QUESTION + ANSWER if ruled else 0):
            tokens[place] = (3 * tokens[place - 1] + 1) % 23
        conversations.append(TrainingConversation(number, tokens, QUESTION, 0.0))
    return [conversations[first : first + 15] for first in range(0, 15 * count, 15)]


def recipe_of(kind: TrainedKind, **changes: Any) -> SequenceRecipe:
    recipe = default_recipe(kind)
    assert isinstance(recipe, SequenceRecipe)
    return replace(recipe, **{"candidates": 20, "warm_up": 5, **changes})


def learner(
    kind: TrainedKind,
    model: LoadedModel,
    recipe: SequenceRecipe,
    *,
    count: int = 1,
    ruled: bool = False,
    window_tokens: int = 10_000,
) -> SequenceTrainer:
    reads = HiddenReads(sequence_layers(model), normalised=False)
    binding = TargetBinding.of(model.info)
    training = SequenceTraining(kind, model, reads, recipe, binding, candidates=30, window_tokens=window_tokens)
    found = at_once(training.prepare(shards(model, count, ruled=ruled)))
    assert isinstance(found, SequenceTrainer)
    return found
