"""The hyperparameters of each kind of head."""

from dataclasses import dataclass, replace

from rdchat.inference.api.trained_kind import TrainedKind

# Tokens that can be drafted, at most. EAGLE-3 and DSpark heads store an output row for each; with these numbers the
# default model's drafters stay below 16 MB.
DRAFT_VOCABULARY = {TrainedKind.RECURRENT: 12288, TrainedKind.EAGLE3: 7168, TrainedKind.DSPARK: 6144}

_FURTHER_RATE = 1.5e-4  # highest learning rate of a head that goes on from trained weights; chosen, not tuned
_LITTLE_DATA, _MORE_EPOCHS = 50_000, 8


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of a recurrent head.

    Attributes:
        epochs: Passes over the data.
        batch: Samples of a step.
        learning_rate: The highest; it rises linearly over `warm_up` steps and falls to 0 as a cosine.
        warm_up: Steps.
        weight_decay: Of AdamW, for matrices alone.
        clip: Largest norm of a gradient.
        dropout: Share of each layer's inputs that is dropped.
        steps: Tokens drafted after the root.
        step_decay: Factor on the loss of each further token, since fewer drafts get there.
        candidates: Tokens over which the softmax denominator is summed; 0 is all of them.
        seed: Of all random draws.
    """

    epochs: int = 2
    batch: int = 128
    learning_rate: float = 3.5e-4
    warm_up: int = 100
    weight_decay: float = 0.05
    clip: float = 1.0
    dropout: float = 0.2
    steps: int = 4
    step_decay: float = 0.8
    candidates: int = 2400
    seed: int = 0


@dataclass(frozen=True, slots=True)
class SequenceRecipe:
    """Hyperparameters of a head whose steps are whole conversations; most are those of `Recipe`.

    Attributes:
        steps: Tokens drafted below a root: those of a block, or EAGLE-3's steps on its own features.
        roots: Roots of a conversation in a step of a block drafter, at most; EAGLE-3 takes all.
        question_tokens: Tokens at the end of a question that the drafter attends to; the target reads all.
    """

    epochs: int = 3
    learning_rate: float = 1e-3
    warm_up: int = 50
    weight_decay: float = 0.05
    clip: float = 1.0
    dropout: float = 0.1
    steps: int = 5
    step_decay: float = 0.8
    roots: int = 64
    question_tokens: int = 512
    candidates: int = 2400
    seed: int = 0


def default_recipe(
    kind: TrainedKind, seed: int = 0, tokens: int = 1_000_000, *, further: bool = False
) -> Recipe | SequenceRecipe:
    """Return the recipe of a kind of head for a number of answer tokens.

    A step of EAGLE-3 and DSpark is a conversation. With the default model they know no more than how frequent words are
    for some 80 steps, so a training on little data takes more passes. A recurrent head that is trained `further` keeps
    what it knows: it learns more slowly.
    """
    if kind is TrainedKind.RECURRENT:
        return Recipe(seed=seed, learning_rate=_FURTHER_RATE) if further else Recipe(seed=seed)
    recipe = SequenceRecipe(steps=7 if kind is TrainedKind.DSPARK else 5, seed=seed)
    return replace(recipe, epochs=_MORE_EPOCHS) if tokens <= _LITTLE_DATA else recipe
