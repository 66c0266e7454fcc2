"""The hyperparameters of each kind of head."""

from dataclasses import dataclass, replace

from rdchat.inference.api.model_facts import HeadKind

_LITTLE_DATA, _MORE_EPOCHS = 50_000, 8


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of a training; the defaults are those of a recurrent head.

    Attributes:
        epochs: Passes over the data.
        batch: Samples of a step.
        learning_rate: The highest rate: it rises linearly over `warm_up` steps, then falls to 0 as a cosine.
        warm_up: Steps until the highest rate.
        weight_decay: Weight decay of AdamW, for matrices only.
        clip: Largest norm of a gradient.
        dropout: Share of each layer's inputs that is dropped.
        steps: Tokens drafted after the root.
        step_decay: Factor on the loss of each further token, since fewer drafts reach it.
        question_tokens: Tokens at the end of a question that an EAGLE-3 head attends to; the target reads all.
        vocabulary: Limit of the tokens that can be drafted. An EAGLE-3 head stores an output row for each of them, and
            stays below 16 MB with the default model.
        seed: Seed of all random draws.
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
    question_tokens: int = 512
    vocabulary: int = 12288
    seed: int = 0


_EAGLE3 = Recipe(epochs=3, batch=1, learning_rate=1e-3, warm_up=50, dropout=0.1, steps=5, vocabulary=7168)


def default_recipe(kind: HeadKind, seed: int = 0, tokens: int = 1_000_000) -> Recipe:
    """Return the recipe of a kind of head for a number of answer tokens.

    A step of EAGLE-3 is a conversation. With the default model it learns only word frequencies in the first 80 steps or
    so, so a training on little data takes more passes.
    """
    if kind is HeadKind.RECURRENT:
        return Recipe(seed=seed)
    return replace(_EAGLE3, seed=seed, epochs=_MORE_EPOCHS if tokens <= _LITTLE_DATA else _EAGLE3.epochs)
