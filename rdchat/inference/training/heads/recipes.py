"""The hyperparameters of each kind of head."""

from dataclasses import dataclass, replace

from rdchat.inference.api.training import TrainedKind

# Most tokens that can be drafted. EAGLE-3 and DSpark heads store an output row for each; with these numbers the
# default model's drafters stay below 16 MB. An MTP layer drafts all tokens, and is trained on these.
DRAFT_VOCABULARY = {
    TrainedKind.RECURRENT: 12288,
    TrainedKind.EAGLE3: 7168,
    TrainedKind.DSPARK: 6144,
    TrainedKind.MTP: 6144,
}

_FURTHER_RATE = 1.5e-4  # highest learning rate for a head that is trained further; chosen, not tuned
_LITTLE_DATA, _MORE_EPOCHS = 50_000, 8


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of a recurrent head."""

    epochs: int = 2  # passes over the data
    batch: int = 128  # samples of a step
    learning_rate: float = 3.5e-4  # the highest; it rises linearly over `warm_up` steps, then falls to 0 as a cosine
    warm_up: int = 100  # steps
    weight_decay: float = 0.05  # of AdamW, for matrices only
    clip: float = 1.0  # largest norm of a gradient
    dropout: float = 0.2  # share of each layer's inputs that is dropped
    steps: int = 4  # tokens drafted after the root
    step_decay: float = 0.8  # factor on the loss of each further token, since fewer drafts reach it
    seed: int = 0  # of all random draws


@dataclass(frozen=True, slots=True)
class SequenceRecipe(Recipe):
    """Hyperparameters of a head whose samples are whole conversations."""

    epochs: int = 3
    batch: int = 1
    learning_rate: float = 1e-3
    warm_up: int = 50
    dropout: float = 0.1
    steps: int = 5  # tokens drafted after a root: those of a block, or EAGLE-3's steps on its own features
    roots: int = 64  # most roots of a conversation in a step of a block drafter; EAGLE-3 uses all
    question_tokens: int = 512  # tokens at the end of a question that the drafter attends to; the target reads all


def default_recipe(kind: TrainedKind, seed: int = 0, tokens: int = 1_000_000, *, further: bool = False) -> Recipe:
    """Return the recipe of a kind of head for a number of answer tokens.

    A step of EAGLE-3 and DSpark is a conversation. With the default model they learn only word frequencies in the first
    80 steps or so, so a training on little data takes more passes. A recurrent head that is trained `further` learns
    more slowly, so that it keeps what it knows.
    """
    if kind is TrainedKind.RECURRENT:
        return Recipe(seed=seed, learning_rate=_FURTHER_RATE) if further else Recipe(seed=seed)
    steps = {TrainedKind.DSPARK: 7, TrainedKind.MTP: 3}.get(kind, 5)
    recipe = SequenceRecipe(steps=steps, seed=seed)
    return replace(recipe, epochs=_MORE_EPOCHS) if tokens <= _LITTLE_DATA else recipe
