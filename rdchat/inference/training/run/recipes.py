"""The recipe of each kind of head."""

from rdchat.inference.api.trained_kind import TrainedKind
from rdchat.inference.training.head.trainer import Recipe
from rdchat.inference.training.sequence_heads.recipe import SequenceRecipe

# Tokens that can be drafted, at most. EAGLE-3's layout stores an output row for each: so many, and the default model's
# drafter stays below 16 MB.
DRAFT_VOCABULARY = {TrainedKind.RECURRENT: 12288, TrainedKind.EAGLE3: 7168, TrainedKind.DSPARK: 12288}


def default_recipe(kind: TrainedKind, seed: int = 0) -> Recipe | SequenceRecipe:
    """Return how a kind of head is trained."""
    if kind is TrainedKind.RECURRENT:
        return Recipe(seed=seed)
    return SequenceRecipe(steps=7 if kind is TrainedKind.DSPARK else 5, seed=seed)
