"""`rdchat delete-data` deletes what is rdchat's own, and nothing else."""

from pathlib import Path

import keyring
import pytest

from rdchat import paths
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.files import FileLock, own_entries
from rdchat.hub import RepositoryFiles, repository_of
from rdchat.hub.cache_layout import hub_cache
from rdchat.hub.downloads.download_record import write_record
from rdchat.inference.api import RemoteServer
from rdchat.inference.remote.server_keys import store_key
from rdchat.keychain import HUB_ACCESS, OWN_SERVER, SERVER_KEY
from tests.commands.running import Console
from tests.hub.keychains import Keychain

ADDRESS = "https://studio.local:8817"


@pytest.fixture
def keychain() -> Keychain:
    made = Keychain()
    keyring.set_keyring(made)
    return made


@pytest.fixture
def kept(keychain: Keychain, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Path]:
    """Files of rdchat's own; beside them are a person's."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    server = RemoteServer("studio", ADDRESS)
    paths.data_dir().mkdir(parents=True, exist_ok=True)
    SettingsStore(paths.settings_path()).save_settings(Settings(remote_servers=(server,)))
    store_key(server, "a-key-of-studio")
    keychain.set_password(SERVER_KEY, OWN_SERVER, "a-key-of-ours")
    keychain.set_password(HUB_ACCESS, "huggingface.co", "hf_token")
    keychain.set_password("another program", "person", "password")
    data, cache = paths.data_dir(), paths.cache_dir()
    model = hub_cache() / "models--org--name" / "blobs" / "weights"
    files = [data / "conversations.db", cache / "models" / "one" / "model.safetensors", cache / "kernels" / "k"]
    for path in (*files, data / "notes.txt", data / ".hidden", model):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x" * 1000)
    return files


def test_all_that_is_rdchats_is_named_and_deleted(kept: list[Path], keychain: Keychain, console: Console) -> None:
    shown = console.runs("delete-data", "--yes")
    assert not any(path.exists() for path in kept)
    assert not paths.settings_path().exists()
    assert keychain.kept == {("another program", "person"): "password"}
    assert sorted(path.name for path in paths.data_dir().iterdir()) == [".hidden", "notes.txt"]
    assert (hub_cache() / "models--org--name" / "blobs" / "weights").exists()
    for text in (str(kept[0]), str(paths.models_dir()), ADDRESS, HUB_ACCESS, SERVER_KEY, f"{hub_cache()} stay"):
        assert text in shown.err
    assert not any(secret in shown.err + shown.out for secret in ("a-key-of", "hf_token"))


def test_models_of_the_hub_go_if_they_are_asked_for(kept: list[Path], console: Console) -> None:
    other = hub_cache() / "datasets--org--name"
    other.mkdir()
    shown = console.runs("delete-data", "--yes", "--hub-models")
    assert list(hub_cache().iterdir()) == [other]
    assert str(hub_cache() / "models--org--name") in shown.err
    assert not any(path.exists() for path in kept)
    console.runs("delete-data", "--yes")  # there is nothing left


def test_nothing_is_deleted_unasked(kept: list[Path], keychain: Keychain, console: Console) -> None:
    """Nobody is at a terminal here."""
    before = dict(keychain.kept)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.stdin", None)
        assert "--yes" in console.runs("delete-data", status=2).err
    with FileLock(paths.data_dir() / "instance.lock"):
        assert "Quit rdchat first" in console.runs("delete-data", "--yes", status=1).err
    assert all(path.exists() for path in kept)
    assert keychain.kept == before


def test_a_default_folder_goes_whole_and_a_link_goes_alone(tmp_path: Path, console: Console) -> None:
    for name in (".hidden", "notes.txt", "conversations.db"):
        (tmp_path / name).touch()
    assert len(own_entries(tmp_path, "NO_SUCH_VARIABLE")) == 3
    assert [path.name for path in own_entries(tmp_path, paths.DATA_VARIABLE)] == ["conversations.db"]
    assert own_entries(tmp_path / "missing", paths.DATA_VARIABLE) == []
    target = tmp_path / "big disk"
    target.mkdir()
    (target / "model").touch()
    paths.cache_dir().mkdir(parents=True, exist_ok=True)
    paths.models_dir().symlink_to(target)
    console.runs("delete-data", "--yes")
    assert (target / "model").exists()
    assert not paths.models_dir().is_symlink()


def test_a_keychain_that_does_not_answer_is_said(console: Console) -> None:
    assert "No keychain answers" in console.runs("delete-data", "--yes").out


def test_an_unfinished_download_is_rdchats_own(kept: list[Path], console: Console) -> None:
    """It is in the hub's cache, beside models that stay."""
    repository = repository_of("org/partial")
    write_record(repository, RepositoryFiles("org/partial", "main", "", (), ()))
    (repository.work / f"{'0' * 64}.part").write_bytes(b"part")
    assert str(repository.work) in console.runs("delete-data", "--yes").err
    assert [path.name for path in hub_cache().iterdir()] == ["models--org--name"]


def test_what_the_keychain_keeps_is_named(
    keychain: Keychain, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    keychain.set_password(SERVER_KEY, OWN_SERVER, "a-key-of-ours")
    monkeypatch.setattr(keychain, "delete_password", lambda *_: 1 / 0)
    assert "it kept an item" in console.runs("delete-data", "--yes").out
