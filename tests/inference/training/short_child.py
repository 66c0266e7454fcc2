"""The training process with little to do: `python -m tests.inference.training.short_child`."""

import sys
from dataclasses import replace
from pathlib import Path

from rdchat.inference.api import TrainingOrder, TrainingSettings
from rdchat.inference.training import data_maker, phases, training_child
from rdchat.inference.training.phases import Pace
from tests.inference.training.short_runs import short_evaluation

COMMAND = [sys.executable, "-m", "tests.inference.training.short_child"]
_plain_settings = training_child.settings_of


def _short(order: TrainingOrder, folder: Path, chat_questions: tuple[str, ...]) -> TrainingSettings:
    settings = _plain_settings(order, folder, chat_questions)
    return replace(settings, sequences=16, recipe=replace(settings.recipe, epochs=4, vocabulary=64))


def main() -> None:
    """Be the training process."""
    training_child.settings_of = _short
    training_child._NICENESS = 0  # where tests keep all processors busy, it would wait for them
    data_maker.MAX_ANSWER_TOKENS = 64
    phases._EVALUATE_EVERY = 0.5
    Pace.EVERY = 0.05
    with short_evaluation():
        training_child.main()


if __name__ == "__main__":
    main()
