"""A port that nothing listens on."""

import socket


def free_port() -> int:
    """Return one; another program could take it meanwhile, which none here does."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return port
