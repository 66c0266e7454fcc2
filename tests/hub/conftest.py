"""Gives every test here a hub; none reaches the person's keychain or another machine."""

import pytest

from tests.hub.downloads.downloading import NAME, small_files
from tests.hub.hub_server import HubServer


@pytest.fixture(autouse=True)
def alone(this_machine_only: None) -> None:
    """Keep to this machine."""


@pytest.fixture
def files(hub: HubServer) -> dict[str, bytes]:
    """The files of the one model that the hub has."""
    hub.add(NAME, files := small_files())
    return files
