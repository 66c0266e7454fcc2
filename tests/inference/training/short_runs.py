"""Trainings that end in little evaluation, which is most of their time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def short_evaluation(questions: int = 2) -> Iterator[pytest.MonkeyPatch]:
    """Have trainings decode so few questions at their end, and few tokens of each."""
    run = "rdchat.inference.training.training_run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{run}._EVALUATED", questions)
        patch.setattr(f"{run}._EVALUATED_TOKENS", 8)
        yield patch
