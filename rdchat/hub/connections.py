"""What all connections to the hub share."""

import ssl
from functools import cache

import httpx2


@cache
def tls_context() -> ssl.SSLContext:
    """Return the certificates that are trusted, read once: that takes a sixth of a second."""
    return httpx2.create_ssl_context()
