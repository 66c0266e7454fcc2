"""A port that nothing listens on."""

import socket


def free_port(*, other_than: int = 0) -> int:
    """Return one; another program could take it meanwhile, which none here does.

    Args:
        other_than: A port that was free before. A system may give the same one twice.
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port: int = probe.getsockname()[1]
        return free_port(other_than=other_than) if port == other_than else port
