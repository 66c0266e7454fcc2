"""rdchat's own certificate: what other programs need of it, and its end."""

import socket
import ssl
from datetime import UTC, datetime, timedelta
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import pytest
from cryptography import x509

from rdchat import paths
from rdchat.server import credentials
from rdchat.server.credentials import end_notice, fingerprint, own_certificate
from tests.server.conftest import MakeServer
from tests.server.fakes import KEY


def read() -> x509.Certificate:
    return x509.load_pem_x509_certificates(own_certificate().read_bytes())[0]


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1"])
def test_a_program_that_trusts_the_file_can_use_the_server(make_server: MakeServer, host: str) -> None:
    """As Python and Node do with a file, and macOS with an imported certificate."""
    server = make_server(certificate=own_certificate())
    trust = ssl.create_default_context(cafile=own_certificate())
    address = f"{server.address.replace('127.0.0.1', host)}/v1/models"
    opener = build_opener(ProxyHandler({}), HTTPSHandler(context=trust))
    with opener.open(Request(address, headers={"x-api-key": KEY})) as answer:
        assert answer.status == 200


@pytest.mark.parametrize("name", ["Studio.fritz.box", "studio", "Büro", "", "x" * 200])
def test_it_has_the_names_of_its_computer_a_usage_and_an_end(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    made = read()
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    said = set(names.get_values_for_type(x509.DNSName))
    assert {"localhost"} <= said
    if name.isascii():
        short = (name or "rdchat")[:64]
        assert {short, f"{short.partition('.')[0]}.local"} <= said
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1", "::1"]
    (usage,) = made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert usage == x509.oid.ExtendedKeyUsageOID.SERVER_AUTH
    assert made.not_valid_after_utc - made.not_valid_before_utc < timedelta(days=825)


def test_one_that_is_there_stays_since_its_fingerprint_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fingerprint(own_certificate())
    monkeypatch.setattr(credentials, "_VALID", timedelta(days=20))
    assert fingerprint(own_certificate()) == first


@pytest.mark.parametrize(("days", "is_said"), [(33, False), (30, True), (0, True)])
def test_its_end_is_said_thirty_days_before(monkeypatch: pytest.MonkeyPatch, days: int, is_said: bool) -> None:
    monkeypatch.setattr(credentials, "_VALID", timedelta(days=days))
    file = own_certificate()
    end = f"{datetime.now(UTC) + timedelta(days=days - 1):%Y-%m-%d}"
    notice = f"Its certificate is valid until {end}. Delete {file} and start the server again; other computers then"
    assert end_notice(file).startswith(notice) is is_said
    assert bool(end_notice(file)) is is_said
    other = file.with_name("other.pem")
    other.write_text(paths.server_certificate_path().read_text())
    assert end_notice(other).endswith("Renew it, then start the server again.") is is_said
