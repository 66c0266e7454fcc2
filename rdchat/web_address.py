"""Tells whether a text is the address of a web server: a hub, or a remote server of models."""

from urllib.parse import urlsplit


def is_server_address(address: str) -> bool:
    """Return whether an address is that of a web server, with a path at most: no user, no query, no fragment."""
    try:
        parts = urlsplit(address)
        # Both `hostname` and `port` may raise ValueError.
        has_host = bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return has_host and parts.scheme in {"http", "https"} and not (parts.username or parts.query or parts.fragment)
