"""The Macs that can run ranks of a model: their names for ssh, and their addresses in the ring.

The settings keep them as a list of objects with `ssh` and `ips`, which is MLX's own format of host files.
"""

import ipaddress
import re
from dataclasses import dataclass
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.wording import size_text

THIS_MAC = "localhost"
# ssh would take a name that begins with a hyphen for an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,252}")
# A slower link than a cable's.
_SLOW_GBIT_S = 2


@dataclass(frozen=True, slots=True)
class Host:
    """A Mac that can run a rank.

    Attributes:
        ssh: Its name for ssh, such as `studio.local` or `anna@studio.local`; `localhost` is this Mac.
        ips: Its IPv4 addresses for the ring; the first is used.

    Raises:
        InvalidSettingError: If it is no name, or if an address is not of a private network.
    """

    ssh: str
    ips: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.ssh):
            raise InvalidSettingError(f"{self.ssh[:100]!r} is not the name of a Mac.", "Give one such as studio.local.")
        for ip in self.ips:
            _check_private(self.ssh, ip)

    @property
    def is_this_mac(self) -> bool:
        return self.ssh == THIS_MAC

    @property
    def display_name(self) -> str:
        """Its name for people."""
        return "this Mac" if self.is_this_mac else self.ssh


def _check_private(name: str, ip: str) -> None:
    """Raise InvalidSettingError for an address that may be on the internet: what ranks send is not encrypted.

    A Mac may be named by its address; the message then says it only once.
    """
    try:
        address = ipaddress.IPv4Address(ip)
    except ValueError:
        raise InvalidSettingError(f"{ip[:100]} is not an IPv4 address of {name}.") from None
    if not (address.is_private or address.is_link_local) or address.is_unspecified or address.is_reserved:
        whose = "" if name == ip else f" of {name}"
        raise InvalidSettingError(
            f"{ip}{whose} is not an address of a private network.",
            "Macs send each other a model's numbers without a password. Connect them by a cable, or in a home network.",
        )


def facts_text(facts: dict[str, Any]) -> str:
    """Return what a check of a Mac found (`other_computers.check_mac`), for people."""
    if "problem" in facts:
        return str(facts["problem"])
    speed = facts["bytes_per_s"] * 8 / 1e9
    link = f"{facts['latency_ms']:.2g} ms and {speed:.2g} Gbit/s to this Mac"
    if speed < _SLOW_GBIT_S:
        link += " (a cable would be faster)"
    return f"ready, {size_text(facts['free_bytes'])} of memory free, {link}"
