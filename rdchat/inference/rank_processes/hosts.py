"""The Macs that can run ranks: their names for ssh, and their addresses in the ring.

The settings keep them as a list of objects with `ssh` and `ips`, which is MLX's own format of host files.
"""

import ipaddress
import re
import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from rdchat import host
from rdchat.errors import InvalidSettingError

THIS_MAC = "localhost"
# ssh would take a name that begins with a hyphen for an option.
_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._@-]{0,252}")
# A way to an address is looked up with any port: nothing is sent.
_ANY_PORT = 9
# The shell command over ssh that starts a rank. It looks for the app's program, because a shell that is not interactive
# has a short PATH on a Mac.
_PROGRAM = "Applications/rdchat.app/Contents/MacOS/rdchat"
_START = (
    f'for each in rdchat /{_PROGRAM} ~/{_PROGRAM}; do command -v "$each" >/dev/null && exec "$each" '
    f'{host.CHILD_OPTION} rank; done; echo "rdchat is neither in the PATH nor in Applications." >&2; exit 127'
)


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

    @property
    def command(self) -> tuple[str, ...]:
        """The command that starts a rank there."""
        if self.is_this_mac:
            return tuple(host.child_command("rank"))
        # BatchMode makes ssh fail instead of asking for a password; the other options make it notice a lost link.
        options = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
        named = (part for option in options for part in ("-o", option))
        # Through /bin/sh, because the person's own shell there may be any.
        return ("ssh", "-T", *named, "--", self.ssh, f"/bin/sh -c {shlex.quote(_START)}")


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
            hint = f"Check the name, or give its address. {host.LOCAL_NETWORK}"
            raise InvalidSettingError(f"{name} has no address here.", hint) from None
    return Host(name, (address,))


def ring_hosts(names: Sequence[str], known: Sequence[Host]) -> tuple[Host, ...]:
    """Return the Macs of a ring, each with one address; ranks are numbered in their order.

    The address of another Mac is the one that the person's list has. That of this Mac is the one with which it reaches
    the first of the others, or 127.0.0.1 where it is alone.

    Args:
        names: Their names for ssh; the first is `localhost`.
        known: The Macs that the person added.

    Raises:
        InvalidSettingError: If this Mac is not the first, a name was not added, or there is no way to its address.
    """
    if not names or names[0] != THIS_MAC:
        example = ",".join((THIS_MAC, *names))
        raise InvalidSettingError("The first Mac must be this one.", f"Name it localhost: {example}.")
    ips = {host.ssh: host.ips[0] for host in known if host.ips}
    if missing := next((name for name in names if name != THIS_MAC and name not in ips), None):
        hint = f"Add it: rdchat cluster add {missing[:100]}"
        raise InvalidSettingError(f"{missing[:100]} is not in the list of Macs.", hint)
    ips[THIS_MAC] = next((_own_address(ips[name]) for name in names if name != THIS_MAC), "127.0.0.1")
    return tuple(Host(name, (ips[name],)) for name in names)


def _own_address(peer: str) -> str:
    """Return the address with which this machine reaches another: that of the cable or the network between them.

    Raises:
        InvalidSettingError: If there is no way to it.
    """
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((peer, _ANY_PORT))
        return str(probe.getsockname()[0])
    raise InvalidSettingError(f"There is no way from this Mac to {peer}.", "Check the cable, or the network.")
