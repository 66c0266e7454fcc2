"""The server's certificate: the person's own, or a self-signed one that is made once."""

import datetime
import ipaddress
import socket
import ssl
from pathlib import Path

from rdchat import paths
from rdchat.errors import InvalidSettingError, file_errors
from rdchat.inference.remote.fingerprint import fingerprint_of
from rdchat.server.server_key import write_private

# macOS trusts no certificate that is valid for more than 825 days, both ends included.
_VALID = datetime.timedelta(days=824)
_SOON = datetime.timedelta(days=30)
_END = "-----END CERTIFICATE-----"


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
            # Without a function, OpenSSL would ask for a key's password in the terminal.
            context.load_cert_chain(certificate, key, password="")
        except (ssl.SSLError, ValueError) as error:
            raise InvalidSettingError(
                f"{certificate} and its key cannot be used: {error}.",
                "Give a certificate and its key without a password, in PEM files.",
            ) from error
    return context


def fingerprint(certificate: Path) -> str:
    """Return the SHA-256 fingerprint of the first certificate in a PEM file, as `AB:CD:...`."""
    return fingerprint_of(_first(certificate))


def end_notice(certificate: Path) -> str:
    """Return until when a certificate is valid and what to do, from 30 days before its end on; empty before."""
    from cryptography import x509  # noqa: PLC0415  slow to import

    end = x509.load_pem_x509_certificate(_first(certificate).encode()).not_valid_after_utc
    if end - datetime.datetime.now(datetime.UTC) > _SOON:
        return ""
    hint = "Renew it, then start the server again."
    if certificate == paths.server_certificate_path():
        hint = f"Delete {certificate} and start the server again; other computers then accept the new fingerprint."
    return f"Its certificate is valid until {end:%Y-%m-%d}. {hint}"


def _first(certificate: Path) -> str:
    """Return the first certificate in a PEM file."""
    pem = certificate.read_text(encoding="ascii", errors="replace")
    return pem[pem.index("-----BEGIN CERTIFICATE-----") : pem.index(_END) + len(_END)]


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
    formats = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    private = key.private_bytes(serialization.Encoding.PEM, *formats)
    return (private + certificate.public_bytes(serialization.Encoding.PEM)).decode()
