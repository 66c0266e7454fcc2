"""The server's key, with and without a keychain, and its own certificate: what other programs need of it."""

import os
import socket
import ssl
import stat
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

import keyring
import keyring.backend
import pytest
from cryptography import x509

from rdchat import paths
from rdchat.errors import InvalidSettingError, StorageError, StorageFullError
from rdchat.server import credentials
from rdchat.server.credentials import end_notice, find_key, fingerprint, own_certificate, replace_key, server_tls
from tests.disks import small_disk
from tests.hub.keychains import Keychain, Locked, PlainText
from tests.server.conftest import MakeServer
from tests.server.fakes import KEY
from tests.time_limits import at_most


@pytest.fixture(autouse=True)
def keychain() -> Keychain:
    keyring.set_keyring(keychain := Keychain())
    return keychain


def test_a_key_is_made_once_and_kept_in_the_keychain(keychain: Keychain) -> None:
    key = find_key()
    assert (find_key(), key.location) == (key, "the keychain")
    assert len(key.text) > 40
    assert [*keychain.kept.values()] == [key.text]
    assert not paths.server_key_path().exists()
    assert key.text not in repr(key)
    assert replace_key().text not in ("", key.text)
    assert find_key() != key


@pytest.mark.parametrize("backend", [Locked, PlainText])
def test_without_a_keychain_a_key_is_in_a_private_file(backend: type[keyring.backend.KeyringBackend]) -> None:
    keyring.set_keyring(backend())
    key = find_key()
    file = paths.server_key_path()
    assert (key.location, file.read_text().strip()) == (str(file), key.text)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert find_key() == key


def test_a_keychain_that_takes_no_new_key_keeps_the_old_one(
    keychain: Keychain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new key in a file would be forgotten at the next start, and the old one would work again."""
    key = find_key()
    monkeypatch.setattr(keychain, "set_password", Locked().set_password)
    with pytest.raises(StorageError, match="did not store a new key"):
        replace_key()
    assert find_key() == key
    assert not paths.server_key_path().exists()


def test_a_keychain_that_stores_nothing_keeps_the_key_in_the_file(
    keychain: Keychain, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a Mac over SSH: it is locked, and says that there is no key. Clients need the same key each time."""
    monkeypatch.setattr(keychain, "set_password", Locked().set_password)
    key = find_key()
    assert (find_key(), key.location) == (key, str(paths.server_key_path()))


def test_a_key_file_that_a_person_names_is_used(tmp_path: Path) -> None:
    file = tmp_path / "new" / "key"
    key = find_key(file)
    assert find_key(file) == key
    file.write_text("  my-own-key\n")
    assert find_key(file).text == "my-own-key"


@pytest.mark.parametrize("content", ["", "short", "two words of it", "\u00e9" * 20, "x" * 2000])
def test_a_file_without_a_key_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(InvalidSettingError, match="no key"):
        find_key(file)


def test_a_key_file_that_others_can_read_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("my-own-key")
    file.chmod(0o644)
    with pytest.raises(InvalidSettingError, match="chmod 600"):
        find_key(file)


@pytest.mark.parametrize("make", [os.mkfifo, Path.mkdir])
def test_what_is_no_file_is_refused_at_once(tmp_path: Path, make: Callable[[Path], object]) -> None:
    make(tmp_path / "key")
    with at_most(60), pytest.raises(StorageError, match="not a file"):
        find_key(tmp_path / "key")


def test_a_full_disk_leaves_the_key_or_nothing(tmp_path: Path) -> None:
    keyring.set_keyring(Locked())
    file = paths.server_key_path()
    file.parent.mkdir(parents=True, exist_ok=True)
    with small_disk(file.parent) as disk:
        disk.fill()
        with pytest.raises(StorageFullError, match=r"server's key .* the disk is full"):
            find_key()
        assert not file.exists()
        disk.free()
        key = find_key()
        disk.fill()
        with pytest.raises(StorageFullError):
            replace_key()
        assert find_key() == key


def read_certificate() -> x509.Certificate:
    return x509.load_pem_x509_certificates(own_certificate().read_bytes())[0]


def test_a_certificate_with_the_older_name_of_its_kind_has_a_fingerprint(tmp_path: Path) -> None:
    (file := tmp_path / "older.pem").write_text(own_certificate().read_text().replace(" CERT", " X509 CERT"))
    server_tls(file, None)
    assert fingerprint(file) == fingerprint(own_certificate())
    assert end_notice(file) == ""


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
def test_a_certificate_has_the_names_of_its_computer_a_usage_and_an_end(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(socket, "gethostname", lambda: name)
    made = read_certificate()
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


def test_a_certificate_that_is_there_stays_since_its_fingerprint_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    first = fingerprint(own_certificate())
    monkeypatch.setattr(credentials, "_VALID", timedelta(days=20))
    assert fingerprint(own_certificate()) == first


@pytest.mark.parametrize(("days", "is_said"), [(33, False), (30, True), (0, True)])
def test_the_end_of_a_certificate_is_said_thirty_days_before(
    monkeypatch: pytest.MonkeyPatch, days: int, is_said: bool
) -> None:
    monkeypatch.setattr(credentials, "_VALID", timedelta(days=days))
    file = own_certificate()
    end = f"{datetime.now(UTC) + timedelta(days=days - 1):%Y-%m-%d}"
    notice = f"Its certificate is valid until {end}. Delete {file} and start the server again; other computers then"
    assert end_notice(file).startswith(notice) is is_said
    assert bool(end_notice(file)) is is_said
    other = file.with_name("other.pem")
    other.write_text(paths.server_certificate_path().read_text())
    assert end_notice(other).endswith("Renew it, then start the server again.") is is_said
