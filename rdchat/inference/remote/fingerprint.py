"""The fingerprint of a certificate: a server prints it, a client compares it, so both must write it alike."""

import hashlib
import ssl


def fingerprint_of(certificate: str) -> str:
    """Return the SHA-256 fingerprint of a certificate in PEM, as `AB:CD:...`."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate)).digest().hex(":").upper()
