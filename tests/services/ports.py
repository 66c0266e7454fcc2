"""Servers of tests listen where the system chooses: a port that is looked for first may be taken meanwhile."""

import pytest

from rdchat.chat.settings import Settings
from rdchat.inference.api import DEFAULT_PORT
from rdchat.services.servers import server_control


@pytest.fixture(autouse=True)
def any_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the port of fresh settings stand for any that is free."""
    fields_of = server_control._fields_of

    def fields(settings: Settings) -> dict[str, object]:
        return fields_of(settings) | ({"port": 0} if settings.server_port == DEFAULT_PORT else {})

    monkeypatch.setattr(server_control, "_fields_of", fields)
