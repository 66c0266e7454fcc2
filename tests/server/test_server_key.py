"""The key of the server, with and without a keychain."""

import os
import stat
from pathlib import Path

import keyring
import keyring.backend
import pytest

from rdchat import paths
from rdchat.errors import InvalidSettingError, StorageError, StorageFullError
from rdchat.server.credentials import find_key, replace_key
from tests.disks import small_disk
from tests.hub.keychains import Keychain, Locked, PlainText
from tests.time_limits import at_most


@pytest.fixture(autouse=True)
def keychain() -> Keychain:
    keyring.set_keyring(keychain := Keychain())
    return keychain


def test_it_is_made_once_and_kept_in_the_keychain(keychain: Keychain) -> None:
    key = find_key()
    assert (find_key(), key.location) == (key, "the keychain")
    assert len(key.text) > 40
    assert [*keychain.kept.values()] == [key.text]
    assert not paths.server_key_path().exists()
    assert key.text not in repr(key)
    assert replace_key().text not in ("", key.text)
    assert find_key() != key


@pytest.mark.parametrize("backend", [Locked, PlainText])
def test_without_a_keychain_it_is_in_a_private_file(backend: type[keyring.backend.KeyringBackend]) -> None:
    keyring.set_keyring(backend())
    key, file = find_key(), paths.server_key_path()
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


def test_a_file_that_a_person_names(tmp_path: Path) -> None:
    file = tmp_path / "new" / "key"
    key = find_key(file)
    assert find_key(file) == key
    file.write_text("  my-own-key\n")
    assert find_key(file).text == "my-own-key"


@pytest.mark.parametrize("content", ["", "short", "two words of it", "\u00e9" * 20, "x" * 2000])
def test_a_file_without_a_key(tmp_path: Path, content: str) -> None:
    file = tmp_path / "key"
    file.write_text(content)
    file.chmod(0o600)
    with pytest.raises(InvalidSettingError, match="no key"):
        find_key(file)


def test_a_file_that_others_can_read(tmp_path: Path) -> None:
    file = tmp_path / "key"
    file.write_text("my-own-key")
    file.chmod(0o644)
    with pytest.raises(InvalidSettingError, match="chmod 600"):
        find_key(file)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "key", 0o600)
    with at_most(60), pytest.raises(InvalidSettingError, match="not a file"):
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


def test_a_path_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(StorageError):
        find_key(tmp_path)
