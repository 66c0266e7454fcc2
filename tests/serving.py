"""Servers of the standard library, each on a thread of its own."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from socketserver import BaseServer


@contextmanager
def in_background[Server: BaseServer](server: Server) -> Iterator[Server]:
    """Serve for as long as the block lasts."""
    with server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
