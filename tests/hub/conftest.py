"""Gives every test here a hub; none reaches the person's keychain or another machine."""

import pytest

from tests.hub.surroundings import hub, this_machine_only

__all__ = ["hub", "this_machine_only"]


@pytest.fixture(autouse=True)
def alone(this_machine_only: None) -> None:
    """Keep to this machine."""
