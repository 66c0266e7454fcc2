"""The ring of the Macs that run a model's ranks, and the command that starts a rank on one of them."""

import shlex
import socket
from collections.abc import Sequence
from contextlib import suppress

from rdchat import host
from rdchat.errors import InvalidSettingError
from rdchat.inference.api import THIS_MAC, Host

# A way to an address is looked up with any port: nothing is sent.
_ANY_PORT = 9
# The shell command over ssh that starts a rank. It looks for the app's program, because a shell that is not interactive
# has a short PATH on a Mac.
_PROGRAM = "Applications/rdchat.app/Contents/MacOS/rdchat"
_START = (
    f'for each in rdchat /{_PROGRAM} ~/{_PROGRAM}; do command -v "$each" >/dev/null && exec "$each" '
    f'{host.CHILD_OPTION} rank; done; echo "rdchat is neither in the PATH nor in Applications." >&2; exit 127'
)


def start_command(mac: Host) -> tuple[str, ...]:
    """Return the command that starts a rank on a Mac."""
    if mac.is_this_mac:
        return tuple(host.child_command("rank"))
    # BatchMode makes ssh fail instead of asking for a password; the other options make it notice a lost link.
    options = ("BatchMode=yes", "ConnectTimeout=10", "ServerAliveInterval=5", "ServerAliveCountMax=3")
    named = (part for option in options for part in ("-o", option))
    # Through /bin/sh, because the person's own shell there may be any.
    return ("ssh", "-T", *named, "--", mac.ssh, f"/bin/sh -c {shlex.quote(_START)}")


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
