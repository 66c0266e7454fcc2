"""The recipe of each kind of head."""

from dataclasses import replace

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.training.head.trainer import Recipe
from rdchat.inference.training.sequence_heads.recipe import SequenceRecipe

# Tokens that can be drafted, at most. EAGLE-3 and DSpark heads store an output row for each: so many, and the default
# model's drafters stay below 16 MB.
DRAFT_VOCABULARY = {TrainedKind.RECURRENT: 12288, TrainedKind.EAGLE3: 7168, TrainedKind.DSPARK: 6144}


_FURTHER_RATE = 1.5e-4  # the highest learning rate of a head that goes on from trained weights; chosen, not tuned
_LITTLE_DATA, _MORE_EPOCHS = 50_000, 8


def default_recipe(
    kind: TrainedKind, seed: int = 0, tokens: int = 1_000_000, *, further: bool = False
) -> Recipe | SequenceRecipe:
    """Return how a kind of head is trained on so many answer tokens.

    A step of the sequence heads is a conversation. With the default model they know no more than how frequent words are
    for some 80 steps, so a training on little data takes more passes. A recurrent head that is trained `further` keeps
    what it knows: it learns more slowly.
    """
    if kind is TrainedKind.RECURRENT:
        return Recipe(seed=seed, learning_rate=_FURTHER_RATE) if further else Recipe(seed=seed)
    recipe = SequenceRecipe(steps=7 if kind is TrainedKind.DSPARK else 5, seed=seed)
    return replace(recipe, epochs=_MORE_EPOCHS) if tokens <= _LITTLE_DATA else recipe
