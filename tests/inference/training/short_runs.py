"""Trainings that end in little evaluation, which is most of their time."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from rdchat.inference.api import EVERYDAY_PROMPTS


@contextmanager
def short_evaluation() -> Iterator[pytest.MonkeyPatch]:
    """Have trainings decode one question at their end, two to compare drafters, and few tokens of each."""
    run = "rdchat.inference.training.training_run"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{run}.EVERYDAY_PROMPTS", EVERYDAY_PROMPTS[:2])
        patch.setattr(f"{run}._COMPARED_TOKENS", 8)
        patch.setattr(f"{run}._EVALUATED", 1)
        patch.setattr(f"{run}._EVALUATED_TOKENS", 8)
        yield patch
