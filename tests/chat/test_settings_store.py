import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.presets import PLACEHOLDER
from rdchat.chat.settings import MAX_TEXT_SIZE, Appearance, Settings, SettingsStore
from rdchat.errors import StorageError
from rdchat.inference.api import Dtype, SamplingDefaults, SamplingParams
from rdchat.tools.definitions import ToolServer
from tests.chat.conftest import StartProcess
from tests.disks import SmallDisk, pinned

CHANGED = Settings(
    appearance=Appearance.DARK,
    text_size=18,
    sampling=SamplingParams(temperature=0, top_k=5, stop=("END",)),
    system_prompt="Sei höflich 🙂",
    seed=2**64 - 1,
    model="/models/mine",
    dtype=Dtype.FOUR_BIT,
    recent_models=("/models/mine", "org/name"),
    models_folder="/models",
    panel_visible=False,
    sidebar_visible=False,
    window_geometry="AdnQywADAAA=",
    window_state="AAAA/w==",
)

SAVE_FOR_EVER = """
import sys
from dataclasses import replace
from pathlib import Path
from rdchat.chat.settings import Settings
from rdchat.chat.settings import SettingsStore
store = SettingsStore(Path(sys.argv[1]))
while True:
    for letter in "ab":
        store.save_settings(Settings(system_prompt=letter * 20_000))
        print(letter, flush=True)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "settings.json"


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())


def test_without_a_file_the_defaults_hold_and_none_is_made(path: Path) -> None:
    store = SettingsStore(path)
    assert (store.settings, store.notice) == (Settings(), None)
    assert not path.parent.exists()


def test_every_setting_survives(path: Path) -> None:
    SettingsStore(path).save_settings(CHANGED)
    store = SettingsStore(path)
    assert (store.settings, store.notice) == (CHANGED, None)
    assert [file.name for file in path.parent.iterdir()] == ["settings.json"]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert "höflich" in path.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "content",
    [b"", b'{"text_size": 1', b"[]", b"null", b"\xff\xfe\x00", b"[" * 200_000, b'{"seed": ' + b"9" * 5000 + b"}"],
    ids=["empty", "cut", "list", "null", "not utf-8", "deep", "endless number"],
)  # fmt: skip
def test_a_damaged_file_is_set_aside_and_said_so(path: Path, content: bytes) -> None:
    write(path, content)
    store = SettingsStore(path)
    assert store.settings == Settings()
    assert store.notice is not None
    assert store.notice.title == "Your settings could not be read"
    (kept,) = path.parent.iterdir()
    assert kept.name.startswith("settings-damaged-")
    assert kept.read_bytes() == content
    assert str(kept) in store.notice.detail
    store.save_settings(CHANGED)
    assert SettingsStore(path).notice is None
    assert kept.read_bytes() == content


def test_two_damaged_files_are_both_kept(path: Path) -> None:
    for content in (b"one", b"two", b"three"):
        write(path, content)
        SettingsStore(path)
    assert {file.read_bytes() for file in path.parent.iterdir()} == {b"one", b"two", b"three"}


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("text_size", MAX_TEXT_SIZE + 1, "text size"),
        ("text_size", True, "text size"),
        ("appearance", "pink", "appearance"),
        ("seed", 2**64, "seed"),
        ("recent_models", [1], "recent models"),
        ("sampling", [], "sampling"),
        ("sampling", {"top_p": 1.5}, "top p"),
        ("sampling", {"temperature": 10**400}, "temperature"),
        ("sampling", {"max_tokens": 0, "min_p": "high"}, "min p, max tokens"),
    ],
)
def test_a_wrong_value_gives_way_to_the_default_and_the_others_hold(
    path: Path, name: str, value: object, words: str
) -> None:
    others = {"system_prompt": "Be brief.", name: value}
    write(path, others)
    store = SettingsStore(path)
    assert store.settings == Settings(system_prompt="Be brief.")
    assert store.notice is not None
    assert store.notice.title == "Some settings could not be used"
    assert store.notice.detail == f"These were reset to their defaults: {words}."


def test_what_this_version_does_not_know_is_kept(path: Path) -> None:
    write(path, {"invented_later": {"x": [1]}, "sampling": {"top_k": 3, "mirostat": 2}})
    store = SettingsStore(path)
    assert store.notice is None
    store.save_settings(CHANGED)
    SettingsStore(path).save_settings(Settings())
    kept = json.loads(path.read_text())
    assert kept["invented_later"] == {"x": [1]}
    assert kept["sampling"]["mirostat"] == 2
    assert kept["sampling"]["top_k"] == 0


def test_an_entry_that_cannot_be_read_leaves_the_others_and_stays_in_the_file(path: Path) -> None:
    wrong = {"name": "From later", "answer_shape": 5}
    server = {"name": "files", "command": ["npx"], "environment": {"A": "b"}, "secrets": ["KEY"]}
    write(path, {
        "presets": [{"name": "Brief", "id": "1"}, wrong], "prompts": [3, {"name": "Hi", "text": "Hello"}],
        "tool_servers": [server | {"name": "a b"}, server],
    })  # fmt: skip
    store = SettingsStore(path)
    settings = store.settings
    assert [each.name for each in (*settings.presets, *settings.prompts)] == ["Brief", "Hi"]
    assert settings.tool_servers == (ToolServer("files", ("npx",), environment={"A": "b"}, secrets=("KEY",)),)
    assert store.notice is not None
    assert store.notice.detail == "Some of these cannot be read and stay in the file: presets, prompts, tool_servers."
    store.save_settings(replace(settings, presets=()))
    data = json.loads(path.read_text())
    assert (data["presets"], data["prompts"]) == ([wrong], [{"name": "Hi", "text": "Hello", "imported": False}, 3])
    assert [each["name"] for each in data["tool_servers"]] == ["files", "a b"]


def test_a_link_stays_a_link(path: Path, tmp_path: Path) -> None:
    target = tmp_path / "dotfiles" / "rdchat.json"
    target.parent.mkdir()
    write(target, {"text_size": 15})
    path.parent.mkdir()
    path.symlink_to(target)
    store = SettingsStore(path)
    assert store.settings.text_size == 15
    store.save_settings(CHANGED)
    assert path.is_symlink()
    assert json.loads(target.read_text())["text_size"] == CHANGED.text_size


def test_half_a_surrogate_pair_does_not_stop_saving(path: Path) -> None:
    SettingsStore(path).save_settings(Settings(system_prompt="half \ud83d"))
    assert SettingsStore(path).settings.system_prompt == "half ?"


def test_a_reader_never_sees_half_a_file_and_a_kill_leaves_a_whole_one(path: Path, start_process: StartProcess) -> None:
    app = start_process(SAVE_FOR_EVER, path)
    assert app.stdout is not None
    whole = ("a" * 20_000, "b" * 20_000)
    for _ in range(60):
        app.stdout.readline()
        assert json.loads(path.read_bytes())["system_prompt"] in whole
    app.kill()
    app.wait()
    store = SettingsStore(path)
    assert store.notice is None
    assert store.settings.system_prompt in whole


def test_a_file_that_cannot_be_read_is_reported_and_left_alone(path: Path) -> None:
    path.mkdir(parents=True)
    with pytest.raises(StorageError, match="cannot be read: Is a directory"):
        SettingsStore(path)
    assert path.is_dir()


def test_a_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store = SettingsStore(tmp_path / "elsewhere" / "settings.json")
    (tmp_path / "elsewhere").symlink_to(tmp_path / "file")
    with pytest.raises(StorageError, match="could not be saved"):
        store.save_settings(CHANGED)
    assert store.settings == CHANGED


def test_a_disk_that_cannot_be_written_to_is_reported(disk: SmallDisk) -> None:
    path = disk.folder / "settings.json"
    write(path, {"text_size": 15})
    disk.make_read_only()
    store = SettingsStore(path)
    with pytest.raises(StorageError, match=r"could not be saved .*: Read-only file system"):
        store.save_settings(CHANGED)
    assert json.loads(path.read_text()) == {"text_size": 15}


def test_a_damaged_file_that_cannot_be_moved_is_reported(path: Path) -> None:
    write(path, b"damaged")
    with pinned(path), pytest.raises(StorageError, match="is damaged, and rdchat cannot move it"):
        SettingsStore(path)
    assert path.read_bytes() == b"damaged"


def test_the_persons_sampling_wins_over_the_models_value_by_value() -> None:
    model = SamplingDefaults(SamplingParams(temperature=0.2, top_k=20))
    settings = Settings(sampling=SamplingParams(max_tokens=64))
    assert settings.sampling_for(model) == SamplingParams(temperature=0.2, top_k=20, max_tokens=64)
    settings = settings.choosing(SamplingParams(temperature=0.7, top_k=20, max_tokens=64), model)
    assert settings.chosen_sampling == {"temperature": 0.7, "max_tokens": 64}
    assert settings.sampling_for(model).temperature == 0.7, "chosen, though it is the usual value"
    assert settings.sampling_for(SamplingDefaults()) == SamplingParams(max_tokens=64)
    assert replace(settings, sampling=SamplingParams(), sampling_chosen=()).sampling_for(model) == model.params


def test_a_new_library_has_prompts_and_deleted_ones_do_not_come_back(tmp_path: Path) -> None:
    store = SettingsStore(tmp_path / "settings.json")
    assert len(store.settings.prompts) == 10
    assert all(PLACEHOLDER.search(each.text) for each in store.settings.prompts)
    for left in (store.settings.prompts[1:], ()):
        store.save_settings(replace(store.settings, prompts=left))
        assert SettingsStore(tmp_path / "settings.json").settings.prompts == left
