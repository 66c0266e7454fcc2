"""The way to the hub, in words for people: which one is asked, and through which proxy."""

import os
from dataclasses import dataclass
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from rdchat.hub.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class Route:
    """How the hub is reached.

    Attributes:
        host: Of the hub.
        is_mirror: Whether `HF_ENDPOINT` names it.
        proxy: Host and port of the proxy, without name and password; empty where there is none.
        proxy_variable: The variable of the environment that names it; empty where the system's settings do.
    """

    host: str
    is_mirror: bool
    proxy: str = ""
    proxy_variable: str = ""


def find_route(endpoint: Endpoint) -> Route:
    """Return the way that connections to a hub take now; the system's own settings count too.

    On a Mac asking for these may take a moment, so this is not for the main thread. Not yet tried on a Mac.
    """
    parts = urlsplit(endpoint.url)
    proxies = getproxies()
    scheme = next((name for name in (parts.scheme, "all") if proxies.get(name)), "")
    if not scheme or proxy_bypass(parts.netloc):
        return Route(endpoint.host, endpoint.is_mirror)
    address = proxies[scheme]
    proxy = urlsplit(address if "//" in address else f"//{address}").netloc.rpartition("@")[2]
    variable = f"{scheme}_proxy"
    named = next((name for name in (variable, variable.upper()) if os.environ.get(name)), "")
    return Route(endpoint.host, endpoint.is_mirror, proxy, named)
