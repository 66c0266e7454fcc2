"""The hyperparameters of a training."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Recipe:
    """Hyperparameters of a training.

    Attributes:
        epochs: Passes over the data.
        batch: Roots of a step; see `trainer`.
        learning_rate: The highest rate: it rises linearly over `warm_up` steps, then falls to 0 as a cosine.
        warm_up: Steps until the highest rate.
        weight_decay: Weight decay of AdamW, for all weights.
        clip: Largest norm of a gradient.
        dropout: Share of each layer's inputs that is dropped.
        steps: Tokens drafted after the root.
        step_decay: Factor on the loss of each further token, since fewer drafts reach it.
        vocabulary: Limit of the tokens that can be drafted.
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
    vocabulary: int = 12288
    seed: int = 0
