"""Values of the settings that start, open, send or allow something."""

from collections.abc import Sequence
from typing import Any

from rdchat.chat.settings import Consents, Settings, ToolApproval
from rdchat.inference.api import Host, RemoteServer
from rdchat.tools.definitions import ToolServer

USUAL = Settings()
OFF: dict[str, Sequence[Any]] = {
    "tool_servers": [
        ToolServer(
            "files", ("npx", "files", "/"), environment={"A": "b"}, secrets=("KEY",), enabled=True, confirmed=True
        ),
        ToolServer("web", url="https://tools.example", secrets=("TOKEN",), enabled=True, confirmed=True),
        ToolServer("rdchat-folder", ("rdchat:folder", "/home/me"), enabled=True, confirmed=True),
    ],
    "tool_approvals": [ToolApproval("files__read", "a" * 64), ToolApproval("files__list", "b" * 64)],
    "remote_servers": [RemoteServer("studio", "https://studio.example"), RemoteServer("b", "http://127.0.0.1:1")],
    "hosts": [Host("mini.local", ("10.0.0.2",)), Host("me@mini.local", ("10.0.0.3",))],
    "server_hosts": ["mac.example", "mac.test"],
    "server_at_start": [True],
    "server_on_network": [True],
    "server_loads_models": [True],
    "looks_for_updates": [True],
    "notes_everywhere": [True],
    "wired_memory": [True],
    "quick_shortcut": ["Ctrl+C", "Ctrl+Alt+Q"],
}
"""By the name of the setting; each value is on."""
EVERYTHING = Settings(
    **{name: tuple(values) if isinstance(getattr(USUAL, name), tuple) else values[0] for name, values in OFF.items()}
)


def on(settings: Consents) -> list[tuple[str, Any]]:
    """What is on, behind the name of its setting; a server of tools by what runs."""
    entries = list[tuple[str, Any]]()
    for name in OFF:
        value = getattr(settings, name)
        for item in value if isinstance(value, tuple) else (value,):
            is_server = isinstance(item, ToolServer)
            if item and (not is_server or (item.enabled and item.confirmed)) and item != "host.docker.internal":
                entries.append((name, item.origin if is_server else item))
    return entries
