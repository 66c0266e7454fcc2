"""The hyperparameters of a training on whole conversations."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SequenceRecipe:
    """Hyperparameters.

    Attributes:
        epochs: Passes over the data.
        conversations: Those of a step.
        learning_rate: The highest; it rises linearly over `warm_up` steps and falls to 0 as a cosine.
        warm_up: Steps.
        weight_decay: Of AdamW.
        clip: Largest norm of a gradient.
        dropout: Share of the inputs of the layers that read which is dropped.
        steps: Tokens drafted below a root: those of a block, or EAGLE-3's steps on its own features.
        step_decay: Factor on the loss of each further token, since fewer drafts get there.
        roots: Roots of a conversation in a step of a block drafter, at most; EAGLE-3 takes all.
        question_tokens: Tokens of a question that the drafter attends to, the last ones; the target reads all.
        candidates: Tokens over which the softmax denominator is summed; 0 is all of them.
        whiten: Whether training works on whitened inputs and output rows; see `shared_tables`.
        seed: Of everything drawn.
    """

    epochs: int = 3
    conversations: int = 1
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
    whiten: bool = True
    seed: int = 0
