import pytest

from tests.hub.surroundings import no_keychain

__all__ = ["no_keychain"]


@pytest.fixture(autouse=True)
def alone(no_keychain: None) -> None:
    """The key is in a file of the test's own folder."""
