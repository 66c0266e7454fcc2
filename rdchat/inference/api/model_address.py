"""Addresses of models that other machines run, as `Engine.load` and the settings have them; anything else is local."""

_REMOTE = "remote:"
_RANKS = "ranks:"


def remote_model(address: str | None) -> tuple[str, str] | None:
    """Return the remote server's name and the model's, of `remote:SERVER/MODEL`; None for other addresses."""
    server, separator, model = (address or "").removeprefix(_REMOTE).partition("/")
    is_remote = bool(address and address.startswith(_REMOTE) and separator and server and model)
    return (server, model) if is_remote else None


def remote_address(server: str, model: str) -> str:
    """Return the address of a model of a remote server; the server's name has no slash."""
    return f"{_REMOTE}{server}/{model}"


def ranked_model(address: str | None) -> tuple[tuple[str, ...], str | None] | None:
    """Return the hosts and the model of `ranks:HOST,HOST:MODEL`; None for other addresses.

    The first host is this Mac. The model is None for the default model.
    """
    if not address or not address.startswith(_RANKS):
        return None
    hosts, _, model = address.removeprefix(_RANKS).partition(":")
    return tuple(host for host in hosts.split(",") if host), model or None


def ranked_address(hosts: tuple[str, ...], model: str | None) -> str:
    """Return the address of a model over hosts, whose names have no comma and no colon."""
    return f"{_RANKS}{','.join(hosts)}:{model or ''}"
