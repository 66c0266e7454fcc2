"""Downloads from a hub on this machine, as the window has them."""

from collections.abc import Callable, Iterator

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub import Tokens
from tests.hub.hub_server import HubServer
from tests.services.models.followed_downloads import FollowedDownloads


@pytest.fixture
def open_downloads(hub: HubServer, qtbot: QtBot) -> Iterator[Callable[..., FollowedDownloads]]:
    """Make the service as a start of the app does; each is ended as a quitting app does."""
    opened: list[FollowedDownloads] = []

    def make(tokens: Tokens | None = None) -> FollowedDownloads:
        opened.append(FollowedDownloads(qtbot, tokens or Tokens()))
        return opened[-1]

    yield make
    for downloads in opened:
        downloads.service.end_process()


@pytest.fixture
def downloads(open_downloads: Callable[..., FollowedDownloads]) -> FollowedDownloads:
    return open_downloads()
