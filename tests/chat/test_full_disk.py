"""A full disk: saved data stays, and saving works again when there is space."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.conversation import MessageStatus
from rdchat.chat.settings import Appearance, Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageFullError
from rdchat.inference.api import Role
from tests.disks import SmallDisk, small_disk
from tests.stores import finish_message


@pytest.fixture
def database(disk: SmallDisk) -> Path:
    return disk.folder / "conversations.db"


def test_a_reply_outlives_a_full_disk(disk: SmallDisk, database: Path) -> None:
    with closing(ConversationStore(database)) as store:
        chat = store.create_conversation("kept")
        reply = store.add_message(chat.id, None, Role.ASSISTANT, "", status=MessageStatus.STREAMING)
        store.save_text(reply.id, "saved")
        disk.fill()
        for _ in range(3):
            with pytest.raises(StorageFullError) as caught:
                store.save_text(reply.id, "word " * 10_000)
        assert caught.value.message == f"{database} cannot grow: the disk is full."
        assert caught.value.hint == "Free some space. What was saved before is safe."
        with pytest.raises(StorageFullError):
            store.add_message(chat.id, reply.id, Role.USER, "word " * 10_000)
        with pytest.raises(StorageFullError):
            finish_message(store, reply.id, "word " * 10_000, MessageStatus.COMPLETE)
        assert store.messages(chat.id) == [store.message(reply.id)]
        assert store.message(reply.id).text == "saved"
        assert store.message(reply.id).status is MessageStatus.STREAMING
        disk.free()
        store.save_text(reply.id, "saved again")
        finish_message(store, reply.id, "word " * 5_000, MessageStatus.COMPLETE)
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        assert [message.text for message in store.messages(chat.id)] == ["word " * 5_000]


def test_closing_on_a_full_disk_loses_nothing(disk: SmallDisk, database: Path) -> None:
    store = ConversationStore(database)
    chat = store.create_conversation("kept")
    store.add_message(chat.id, None, Role.USER, "word " * 10_000)
    disk.fill()
    store.close()
    disk.free()
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        assert store.messages(chat.id)[0].text == "word " * 10_000


@pytest.mark.parametrize("stored", [[], ["kept"]])
def test_a_database_is_begun_and_opened_once_the_disk_has_room(
    disk: SmallDisk, database: Path, stored: list[str]
) -> None:
    for title in stored:
        with closing(ConversationStore(database)) as store:
            store.create_conversation(title)
    disk.fill()
    with pytest.raises(StorageFullError):
        ConversationStore(database)
    disk.free()
    with closing(ConversationStore(database)) as store:
        assert store.notice is None
        assert [chat.title for chat in store.conversations()] == stored
        store.create_conversation()


def test_settings_outlive_a_full_disk(disk: SmallDisk) -> None:
    path = disk.folder / "settings.json"
    settings = SettingsStore(path)
    settings.save_settings(Settings(system_prompt="Be brief."))
    disk.fill()
    changed = Settings(appearance=Appearance.DARK, system_prompt="Be long. " * 1000)
    with pytest.raises(StorageFullError) as caught:
        settings.save_settings(changed)
    assert caught.value.message == f"The settings could not be saved to {path}: the disk is full."
    assert settings.settings == changed
    assert json.loads(path.read_text())["system_prompt"] == "Be brief."
    assert sorted(file.name for file in disk.folder.iterdir()) == ["filler", "settings.json"]
    disk.free()
    settings.save_settings(changed)
    assert SettingsStore(path).settings == changed


def test_a_disk_without_room_for_another_file_is_full_too(tmp_path: Path) -> None:
    with small_disk(tmp_path, files=1) as disk:
        for path in (disk.folder / "conversations.db", disk.folder / "new folder" / "conversations.db"):
            with pytest.raises(StorageFullError, match="the disk is full"):
                ConversationStore(path)
        with pytest.raises(StorageFullError, match="the disk is full"):
            SettingsStore(disk.folder / "settings.json").save_settings(Settings())
