"""The images of a chat may be more than fit into one text: they are written and read one by one."""

import json
import random
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import source_files
from rdchat.chat.transfer.chat_import import ImportWriter
from rdchat.work import served
from tests.chat.attachments.stored_files import ask
from tests.chat.conftest import OpenStore
from tests.chat.transfer import tasks
from tests.chat.transfer.conftest import ImportFiles
from tests.chat.transfer.tasks import export, import_into

SIZE = 400_000
COUNT = 12
IMAGES = [b"\x89PNG" + random.Random(number).randbytes(SIZE) for number in range(COUNT)]


def images_of(store: ConversationStore) -> list[bytes]:
    (chat,) = store.conversations()
    files = [file for message in store.messages(chat.id) for file in message.files]
    return [store.image_path(file).read_bytes() for file in files]


def rows(store: ConversationStore) -> list[int]:
    return [store.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("file_texts", "file_images")]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An export of a chat with all images, two of them twice."""
    path = tmp_path / "chats.json"
    store = ConversationStore(tmp_path / "other.db")
    ask(store, *(image_file(data, f"{number}.png") for number, data in enumerate([*IMAGES, *IMAGES[:2]])))
    tracemalloc.start()
    export(store.path, path)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    store.close()
    assert peak < COUNT * SIZE, "all images were in memory at once"
    return path


def test_a_chat_larger_than_every_limit_of_one_text_comes_back(
    store: ConversationStore, import_files: ImportFiles, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "MAX_BYTES", 2 * SIZE)
    monkeypatch.setattr(served, "MAX_BYTES", 2 * SIZE)
    report = import_files(exported)
    assert report.is_complete
    assert not report.without
    assert images_of(store) == [*IMAGES, *IMAGES[:2]]
    assert import_files(exported).already_here == 1
    assert rows(store) == [COUNT, COUNT]


def test_a_database_with_such_a_chat_is_imported(
    store: ConversationStore, import_files: ImportFiles, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "MAX_BYTES", 2 * SIZE)
    assert import_files(exported.with_name("other.db")).is_complete
    assert images_of(store) == [*IMAGES, *IMAGES[:2]]


def changed(exported: Path, change: Any) -> Path:
    data = json.loads(exported.read_text())
    change(data)
    exported.write_text(json.dumps(data))
    return exported


def test_a_file_of_the_older_format_is_read(
    store: ConversationStore, import_files: ImportFiles, exported: Path
) -> None:
    def put_inside(data: Any) -> None:
        chat, *images = data["chats"]
        texts = {image_file(data, "")[0].digest: text for data, text in map(read, images)}
        for file in chat["messages"][0]["files"]:
            file["text"] = texts[file.pop("digest")]
        data |= {"version": 1, "chats": [chat]}

    def read(entry: Any) -> tuple[bytes, str]:
        return next((data, entry["image"]) for data in IMAGES if image_file(data, "")[1] == entry["image"])

    assert import_files(changed(exported, put_inside)).is_complete
    assert images_of(store) == [*IMAGES, *IMAGES[:2]]


def test_images_that_are_missing_or_damaged_are_counted_and_the_others_come(
    store: ConversationStore, import_files: ImportFiles, exported: Path
) -> None:
    def damage(data: Any) -> None:
        chats = data["chats"]
        del chats[2]
        chats[3]["image"] = "no image"
        chats.append({"image": image_file(b"\x89PNG of no chat", "")[1]})

    report = import_files(changed(exported, damage))
    assert [each.parts for each in report.without] == ["2 damaged images"]
    assert [each.reason for each in report.not_taken] == ["The data of an image is damaged."]
    (chat,) = store.conversations()
    assert len(store.messages(chat.id)[0].files) == COUNT + 2
    assert rows(store) == [COUNT, COUNT - 2]


def test_an_import_that_ends_between_images_leaves_nothing(
    store: ConversationStore, open_store: OpenStore, exported: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class EndedError(Exception):
        """Stands for a process that is killed."""

    class Killed(ImportWriter):
        images = 0

        def store_frame(self, frame: Any) -> None:
            self.images += "image" in frame
            if self.images == 3:
                raise EndedError
            super().store_frame(frame)

    monkeypatch.setattr(tasks, "ImportWriter", Killed)
    with pytest.raises(EndedError):
        import_into(store, [exported])
    assert rows(store) == [COUNT, 2]
    assert not store.conversations()
    store.close()
    again = open_store()
    again.organiser.erase().result()
    assert rows(again) == [0, 0]
