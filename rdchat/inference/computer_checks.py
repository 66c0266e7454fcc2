"""Other computers that compute for this one, before a model of theirs is loaded: remote servers, and Macs for ranks.

A server is asked for its models, and gets its key; a Mac is looked up and tried.
"""

import socket
from collections.abc import Iterable
from contextlib import closing
from typing import Any

from rdchat import host as this_host
from rdchat.errors import InvalidSettingError, RdchatError, one_line
from rdchat.inference.api import THIS_MAC, Host, RemoteServer, ServerState
from rdchat.inference.rank_processes.processes import RankProcesses
from rdchat.inference.rank_processes.ring import ring_hosts
from rdchat.inference.remote.server_keys import key_of, store_key


def ask_servers(servers: Iterable[RemoteServer]) -> tuple[ServerState, ...]:
    """Ask servers for their models, one after the other; see `list_models`."""
    from rdchat.inference.remote.remote_engine import list_models  # noqa: PLC0415  it loads an HTTP client

    states = []
    for server in servers:
        try:
            models = tuple(each.name for each in list_models(server, key_of(server)))
            states.append(ServerState(server, models, "" if models else "It has no model now."))
        except RdchatError as error:
            states.append(ServerState(server, problem=str(error)))
    return tuple(states)


def accept_server(server: RemoteServer, key: str, *, until_quit: bool = True) -> tuple[str, ...]:
    """Ask a server that is to be added for its models, and store its key.

    Args:
        server: The server.
        key: Its key; empty for none, or the stored one.
        until_quit: Whether to keep the key in memory where there is no keychain.

    Returns:
        The names of its models.

    Raises:
        UntrustedCertificateError: If the person must accept its certificate first.
        RdchatError: If it does not answer, or its key cannot be stored.
    """
    from rdchat.inference.remote.remote_engine import list_models  # noqa: PLC0415  it loads an HTTP client

    models = list_models(server, key or key_of(server))
    if key and key != key_of(server):
        store_key(server, key, until_quit=until_quit)
    return tuple(each.name for each in models)


def forget_server(server: RemoteServer) -> None:
    """Remove a server's key from the keychain."""
    store_key(server, "")


def resolve_host(name: str, address: str | None = None) -> Host:
    """Return a Mac with its address; without one, the name is looked up.

    Raises:
        InvalidSettingError: If it is no name of another Mac, or has no private address.
    """
    if Host(name).is_this_mac:
        raise InvalidSettingError("This Mac is always there.", "Add another one.")
    if address is None:
        try:
            address = socket.gethostbyname(name.rpartition("@")[2])
        except OSError:
            hint = f"Check the name, or give its address. {this_host.LOCAL_NETWORK}"
            raise InvalidSettingError(f"{name} has no address here.", hint) from None
    return Host(name, (address,))


def check_mac(host: Host) -> dict[str, Any]:
    """Try another Mac: start a rank on it and one on this Mac, and measure the link between them.

    Returns:
        What the Mac says of itself, and how fast the link is; or why the two cannot run a model together, as `problem`.
    """
    try:
        with closing(RankProcesses(ring_hosts((THIS_MAC, host.ssh), [host]))) as ranks:
            facts = ranks.hello()
            link: dict[str, Any] = ranks.together("measure", **ranks.ring(facts))[0]
            return facts[1] | link
    except RdchatError as error:
        return {"problem": one_line(error)}
