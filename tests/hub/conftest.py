"""Gives every test here a hub; none reaches the person's keychain or another machine."""

import pytest

from tests.hub.surroundings import hub, no_keychain, this_machine_only

__all__ = ["hub", "no_keychain", "this_machine_only"]


@pytest.fixture(autouse=True)
def alone(no_keychain: None, this_machine_only: None) -> None:
    """Keep to this machine."""
