"""The server's secrets: the key that every request must have, and the certificate that encrypts its connections.

The key is made at first use and kept in the keychain or in a private file. The certificate is the person's own, or a
self-signed one that is made once.
"""

import datetime
import ipaddress
import os
import secrets
import socket
import ssl
import stat
from dataclasses import dataclass, field
from pathlib import Path

from rdchat import paths
from rdchat.errors import InvalidSettingError, StorageError, file_errors
from rdchat.files import atomic_file, make_folder, opened
from rdchat.inference.api import fingerprint_of
from rdchat.keychain import FAILED, OWN_SERVER, SERVER_KEY, ask_keychain

# Random bytes of a new key.
_KEY_BYTES = 32
# Longest key that is read from a file.
_MAX_CHARACTERS = 1000
# The permission bits of other users.
_OTHERS = 0o077
# macOS trusts no certificate that is valid for more than 825 days, both ends included.
_VALID = datetime.timedelta(days=824)
# From so long before a certificate's end on, the person is told.
_SOON = datetime.timedelta(days=30)
_END = "-----END CERTIFICATE-----"


@dataclass(frozen=True, slots=True)
class ServerKey:
    """The server's key, and where it is stored.

    Attributes:
        text: The key itself.
        location: Where the key is, for people, such as "the keychain".
    """

    text: str = field(repr=False)
    location: str


def find_key(file: Path | None = None) -> ServerKey:
    """Return the key, made if there is none yet. A keychain may ask the person first: call it where waiting is allowed.

    Args:
        file: The file in which a person keeps it. None: it is in the keychain, or in a file of rdchat's own where
            there is no keychain, or one that stores nothing.

    Raises:
        InvalidSettingError: If other users can read the file, or it holds no key.
        StorageError: If it cannot be read or written, or is no file.
    """
    if file is None:
        stored = ask_keychain(SERVER_KEY, "get_password", OWN_SERVER)
        if isinstance(stored, str) and stored:
            return ServerKey(stored, "the keychain")
        file = paths.server_key_path()
        # There is a keychain, but no key in it yet. A file says that it took none before; that key stays.
        if stored is None and not file.exists():
            return replace_key()
        # Otherwise there is no keychain, or it refuses to read (`FAILED`) or to store.
    return ServerKey(_read_key(file) if file.exists() else write_private(file, new_key()), str(file))


def replace_key() -> ServerKey:
    """Make a new key in place of the present one. A server that runs keeps the old one until it is started again.

    Raises:
        StorageError: If it cannot be written.
    """
    key = new_key()
    if ask_keychain(SERVER_KEY, "set_password", OWN_SERVER, key) is not FAILED:
        return ServerKey(key, "the keychain")
    # The keychain still has the old key, which the next start would use again.
    if isinstance(ask_keychain(SERVER_KEY, "get_password", OWN_SERVER), str):
        raise StorageError(
            "The keychain did not store a new key for the server.", "The old key stays. Switch the server on again."
        )
    file = paths.server_key_path()
    return ServerKey(write_private(file, key), str(file))


def new_key() -> str:
    """Return a random key."""
    return f"rdchat-{secrets.token_urlsafe(_KEY_BYTES)}"


def _read_key(file: Path) -> str:
    problem = f"The server's key {file} cannot be read"
    with file_errors(problem, "Check the path."), opened(file) as content:
        if os.fstat(content.fileno()).st_mode & _OTHERS:
            raise InvalidSettingError(
                f"Other users of this machine can read the server's key {file}.", f"Run: chmod 600 {file}"
            )
        key = content.read(_MAX_CHARACTERS + 1).decode("ascii", "replace").strip()
    if not 8 <= len(key) <= _MAX_CHARACTERS or not key.isascii() or not key.isprintable() or " " in key:
        raise InvalidSettingError(
            f"{file} holds no key: one line of 8 to {_MAX_CHARACTERS} letters and digits.",
            "Delete it, and rdchat makes one.",
        )
    return key


def write_private(file: Path, key: str, what: str = "key") -> str:
    """Write a key to a file that this user alone can read, and return it. Raises StorageError.

    Args:
        file: The file.
        key: The key, or a certificate with its private key.
        what: What it is, for the error.
    """
    make_folder(file.parent)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with (
        atomic_file(file, f"The server's {what} {file} cannot be written") as temporary,
        os.fdopen(os.open(temporary, flags, stat.S_IRUSR | stat.S_IWUSR), "w", encoding="ascii") as written,
    ):
        os.fchmod(written.fileno(), stat.S_IRUSR | stat.S_IWUSR)
        written.write(f"{key}\n")
    return key


def own_certificate() -> Path:
    """Return the file with rdchat's self-signed certificate and its key, for this user alone; made at the first call.

    Raises:
        StorageError: If it cannot be written.
    """
    file = paths.server_certificate_path()
    if not file.exists():
        write_private(file, _self_signed(), "certificate")
    return file


def server_tls(certificate: Path, key: Path | None) -> ssl.SSLContext:
    """Return the TLS settings of a server.

    Args:
        certificate: The certificate with its chain, in PEM.
        key: Its private key; None where the same file has it.

    Raises:
        StorageError: If a file cannot be read.
        InvalidSettingError: If they are not a certificate and its key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with file_errors(f"The certificate {certificate} cannot be read", "Check the path."):
        for file in (certificate, key or certificate):
            file.open("rb").close()
        try:
            # Without a password here, OpenSSL would ask for one in the terminal.
            context.load_cert_chain(certificate, key, password="")
        except (ssl.SSLError, ValueError) as error:
            raise InvalidSettingError(
                f"{certificate} and its key cannot be used: {error}.",
                "Give a certificate and its key without a password, in PEM files.",
            ) from error
    return context


def fingerprint(certificate: Path) -> str:
    """Return the SHA-256 fingerprint of the first certificate in a PEM file, as `AB:CD:...`."""
    # `X509 CERTIFICATE` is an older name in PEM that OpenSSL reads too.
    pem = certificate.read_text(encoding="ascii", errors="replace").replace("X509 CERTIFICATE", "CERTIFICATE")
    return fingerprint_of(pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(_END) + len(_END)])


def end_notice(certificate: Path) -> str:
    """Return a sentence that says when a certificate ends and what to do; empty until 30 days before its end."""
    from cryptography import x509  # noqa: PLC0415  slow to import

    end = x509.load_pem_x509_certificate(certificate.read_bytes()).not_valid_after_utc
    if end - datetime.datetime.now(datetime.UTC) > _SOON:
        return ""
    hint = "Renew it, then start the server again."
    if certificate == paths.server_certificate_path():
        hint = f"Delete {certificate} and start the server again; other computers then accept the new fingerprint."
    return f"Its certificate is valid until {end:%Y-%m-%d}. {hint}"


def _self_signed() -> str:
    """Return a new certificate and its key, in PEM."""
    from cryptography import x509  # noqa: PLC0415  slow to import
    from cryptography.hazmat.primitives import hashes, serialization  # noqa: PLC0415
    from cryptography.hazmat.primitives.asymmetric import ec  # noqa: PLC0415
    from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID  # noqa: PLC0415

    key = ec.generate_private_key(ec.SECP256R1())
    name = socket.gethostname()[:64] or "rdchat"
    names = {"localhost", name, f"{name.partition('.')[0]}.local"}
    addresses = [x509.IPAddress(ipaddress.ip_address(each)) for each in ("127.0.0.1", "::1")]
    alternative_names = [x509.DNSName(each) for each in sorted(names) if each.isascii()] + addresses
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    begin = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=1)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(begin + _VALID)
        .add_extension(x509.SubjectAlternativeName(alternative_names), critical=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .sign(key, hashes.SHA256())
    )
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return (private + certificate.public_bytes(serialization.Encoding.PEM)).decode()
