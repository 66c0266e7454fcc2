"""Remote servers as the person added them, and the fingerprints of their certificates.

A server is any that has OpenAI's API: rdchat on another computer, or another program. No request is sent here.
"""

import hashlib
import ipaddress
import re
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from rdchat.errors import InvalidSettingError, ModelError
from rdchat.web_address import is_server_address

DEFAULT_PORT = 8817
"""The port of rdchat's own server."""
EXAMPLE = f"https://studio.local:{DEFAULT_PORT}"
"""An example of an address, for error messages."""
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_-]{0,22}[A-Za-z0-9])?")
_FINGERPRINT = re.compile(r"(?:[0-9A-F]{2}:){31}[0-9A-F]{2}")


@dataclass(frozen=True, slots=True)
class RemoteServer:
    """A server for OpenAI's API.

    Attributes:
        name: Up to 24 letters, digits, `-` and `_`.
        address: Its address without `/v1`, such as `https://studio.local:8817`.
        fingerprint: SHA-256 of the one certificate that it may have, as `AB:CD:...`; empty where the system's trusted
            certificates decide.
        confirmed_plain: Whether the person agreed that the connection is not encrypted.

    Raises:
        InvalidSettingError: If the name, the address or the fingerprint is not valid, or HTTP was not confirmed.
    """

    name: str
    address: str
    fingerprint: str = ""
    confirmed_plain: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InvalidSettingError(f"{self.name[:40]!r} is no name.", "Use up to 24 letters, digits and hyphens.")
        if not is_address(self.address):
            raise InvalidSettingError(f"{self.address[:200]!r} is no address of a server.", f"Try {EXAMPLE}.")
        object.__setattr__(self, "address", self.address.rstrip("/").removesuffix("/v1"))
        if self.fingerprint and not (_FINGERPRINT.fullmatch(self.fingerprint) and self.address.startswith("https:")):
            raise InvalidSettingError("This is no SHA-256 fingerprint of an https:// server.", "Copy it again.")
        if needs_confirmation(self.address) and not self.confirmed_plain:
            text = f"The connection to {self.host} would not be encrypted: others in the network could read your chats."
            raise InvalidSettingError(
                text, "Use https:// (`rdchat serve --tls`), or add --unencrypted if that is meant."
            )

    @property
    def host(self) -> str:
        """Its host, with the port if it is given."""
        return urlsplit(self.address).netloc

    @property
    def key_variable(self) -> str:
        """Name of the environment variable that may have its key, for computers without a keychain."""
        return f"RDCHAT_KEY_{re.sub('[^A-Z0-9]', '_', self.name.upper())}"


@dataclass(frozen=True, slots=True)
class ServerState:
    """What a server answered last.

    Attributes:
        server: The server.
        models: The names of its models.
        problem: Why there are none; empty if there are.
    """

    server: RemoteServer
    models: tuple[str, ...] = ()
    problem: str = ""


def is_address(address: str) -> bool:
    """Return whether a text is the address of a server, without a user, a query or a fragment, in visible ASCII."""
    return is_server_address(address) and address.isascii() and address.isprintable() and " " not in address


def needs_confirmation(address: str) -> bool:
    """Return whether the person must confirm an address: what goes there leaves this computer without encryption."""
    parts = urlsplit(address)
    if parts.scheme == "https":
        return False
    try:
        return not ipaddress.ip_address(parts.hostname or "").is_loopback
    except ValueError:
        return parts.hostname != "localhost"


def fingerprint_of(certificate: str) -> str:
    """Return the SHA-256 fingerprint of a certificate in PEM, as `AB:CD:...`.

    A server prints it and a client compares it, so both must write it alike.
    """
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest().hex(":").upper()


def find_server(servers: Iterable[RemoteServer], name: str) -> RemoteServer:
    """Return the server of a name; raise ModelError if there is none."""
    server = next((each for each in servers if each.name == name), None)
    if server is None:
        raise ModelError(f"There is no remote server named {name[:40]}.", "`rdchat models add-remote` adds one.")
    return server
