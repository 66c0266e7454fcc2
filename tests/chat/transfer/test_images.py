"""The images of a chat may be more than fit into one text: they are written and read one by one."""

import base64
import io
import json
import random
import tracemalloc
import zipfile
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import Message
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer import foreign_chats, source_files
from rdchat.chat.transfer.chat_import import ImportWriter
from rdchat.work import served
from tests.chat.attachments.stored_files import ask, export
from tests.chat.conftest import OpenStore
from tests.chat.transfer import tasks
from tests.chat.transfer.conftest import ImportFiles, ImportJson
from tests.chat.transfer.samples import (
    chatgpt_chat,
    chatgpt_node,
    chatgpt_with_everything,
    jan_line,
    jan_text,
    lm_studio_chat,
    ours,
    write_jan,
)
from tests.chat.transfer.tasks import import_into
from tests.inference.vision.pictures import encoded, photo

SIZE = 400_000
COUNT = 12
IMAGES = [b"\x89PNG" + random.Random(number).randbytes(SIZE) for number in range(COUNT)]


def images_of(store: ConversationStore) -> list[bytes]:
    return [data for message in first_messages(store) for data in told(store, message)]


def rows(store: ConversationStore) -> list[int]:
    return [store.rows(f"SELECT count(*) FROM {table}")[0][0] for table in ("file_texts", "file_images")]


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """An export of a chat with all images, two of them twice."""
    path = tmp_path / "chats.json"
    store = ConversationStore(tmp_path / "other.db")
    ask(store, *(image_file(data, f"{number}.png") for number, data in enumerate([*IMAGES, *IMAGES[:2]])))
    tracemalloc.start()
    tasks.export(store.path, path)
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


def test_an_image_inside_its_message_is_read(store: ConversationStore, import_json: ImportJson) -> None:
    """As files of the older format have it."""
    file = {"name": "a.png", "kind": "image", "text": image_file(IMAGES[0], "")[1]}
    import_json("chats.json", ours({"messages": [{"parent": None, "role": "user", "text": "Look", "files": [file]}]}))
    assert images_of(store) == IMAGES[:1]


def test_images_that_are_missing_or_damaged_are_counted_and_the_others_come(
    store: ConversationStore, import_files: ImportFiles, exported: Path
) -> None:
    data = json.loads(exported.read_text())
    chats = data["chats"]
    del chats[2]
    chats[3]["image"] = "no image"
    chats.append({"image": image_file(b"\x89PNG of no chat", "")[1]})
    exported.write_text(json.dumps(data))
    report = import_files(exported)
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


PHOTO = b"\x89PNG" + bytes(range(256))


def told(store: ConversationStore, message: Message) -> list[bytes]:
    return [store.image_path(file).read_bytes() for file in message.files]


def first_messages(store: ConversationStore) -> list[Message]:
    (chat,) = store.conversations()
    return list(store.messages(chat.id))


@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("pointer", ["file-service://file-1", "sediment://file-1"])
def test_images_of_chatgpt_are_taken_from_its_export(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, pointer: str, *, packed: bool
) -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": pointer}
    lost = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://file-2"}
    content = {"content_type": "multimodal_text", "parts": [image, lost, "This?"]}
    attached = {"attachments": [{"id": "1", "mimeType": "image/png"}, {"id": "2", "mimeType": "image/png"}]}
    only = {"content_type": "multimodal_text", "parts": [image]}
    chat = chatgpt_chat(
        chatgpt_node("q", None, "user", content=content, metadata=attached),
        chatgpt_node("a", "q", "assistant", "A cat."),
        chatgpt_node("q2", "a", "user", content=only),
    )
    for name, data in {"conversations.json": json.dumps([chat]).encode(), "file-1-cat.png": PHOTO}.items():
        (tmp_path / name).write_bytes(data)
    if packed:
        with zipfile.ZipFile(tmp_path / "export.zip", "w") as archive:
            for name in ("conversations.json", "file-1-cat.png"):
                archive.write(tmp_path / name, name)
    report = import_files(tmp_path / ("export.zip" if packed else "conversations.json"))
    question, reply, second = first_messages(store)
    assert (question.text, told(store, question)) == ("This?", [PHOTO])
    assert (second.text, told(store, second)) == ("", [PHOTO])
    assert not reply.files
    assert report.without[0].parts == "1 image"


def test_images_of_a_chat_above_the_limit_are_named_and_other_chats_come(
    store: ConversationStore, import_json: ImportJson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One chat with many photos was a message too long for the other process, and nothing of the file came."""
    monkeypatch.setattr(foreign_chats, "_MAX_IMAGES_BYTES", 3 * len(PHOTO) + 8)
    images = [{"content_type": "image_asset_pointer", "asset_pointer": f"sediment://file_{n}"} for n in range(5)]
    for number in range(5):
        (tmp_path / f"file_{number}-cat.png").write_bytes(PHOTO[:-1] + bytes([number]))
    content = {"content_type": "multimodal_text", "parts": [*images, "These?"]}
    attached = {"attachments": [{"id": str(number), "mimeType": "image/png"} for number in range(5)]}
    chats = [
        chatgpt_chat(chatgpt_node("q", None, "user", content=content, metadata=attached)),
        chatgpt_chat(chatgpt_node("q", None, "user", "Hello")),
    ]
    report = import_json("conversations.json", chats)
    assert len(store.conversations()) == 2
    assert [each.parts for each in report.without] == ["2 too large images"]


def test_a_chat_that_is_too_large_is_named_and_other_chats_come(
    store: ConversationStore, import_json: ImportJson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(served, "MAX_BYTES", 4000)
    chats = [chatgpt_chat(chatgpt_node("q", None, "user", text)) for text in ("Long " * 1000, "Hello")]
    report = import_json("conversations.json", chats)
    assert len(store.conversations()) == 1
    assert [each.reason for each in report.not_taken] == ["It is too large."]


@pytest.mark.parametrize("data", [b"private words", b""])
def test_what_is_no_image_is_not_taken(
    store: ConversationStore, import_json: ImportJson, tmp_path: Path, data: bytes
) -> None:
    (tmp_path / "file-1-cat.png").write_bytes(data)
    report = import_json("conversations.json", [chatgpt_with_everything()])
    assert "1 image" in report.without[0].parts
    assert not first_messages(store)[0].files


def test_images_of_lm_studio_are_taken_from_its_folder(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path
) -> None:
    chats = tmp_path / "conversations" / "of mine"
    images = tmp_path / "user-files"
    chats.mkdir(parents=True)
    images.mkdir()
    (images / "1 - 2.png").write_bytes(PHOTO)
    (chats / "1.conversation.json").write_text(json.dumps(lm_studio_chat()))
    report = import_files(chats)
    assert told(store, first_messages(store)[0]) == [PHOTO]
    assert not report.without


@pytest.mark.parametrize("name", ["../secret.png", "secret.png", "/etc/passwd"])
def test_a_chat_names_no_file_outside_of_its_export(
    store: ConversationStore, import_files: ImportFiles, tmp_path: Path, name: str
) -> None:
    chat = lm_studio_chat()
    chat["messages"][0]["versions"][0]["content"][1]["fileIdentifier"] = name
    (tmp_path / "secret.png").write_bytes(PHOTO)
    (tmp_path / "chats").mkdir()
    (tmp_path / "chats" / "secret.png").write_bytes(PHOTO)
    (tmp_path / "chats" / "1.conversation.json").write_text(json.dumps(chat))
    import_files(tmp_path / "chats" / "1.conversation.json")
    assert not first_messages(store)[0].files


def test_images_of_jan_are_in_its_messages(store: ConversationStore, import_files: ImportFiles, tmp_path: Path) -> None:
    folder = write_jan(tmp_path / "t1")
    url = f"data:image/png;base64,{base64.b64encode(PHOTO).decode()}"
    message = jan_line("m0", "user", jan_text("How?"), {"type": "image_url", "image_url": {"url": url}})
    (folder / "messages.jsonl").write_text(json.dumps(message))
    report = import_files(folder)
    assert told(store, first_messages(store)[0]) == [PHOTO]
    assert not report.without


@pytest.mark.parametrize("kind", ["markdown", "folder"])
def test_markdown_has_pixels_without_metadata_beside_it(store: ConversationStore, tmp_path: Path, kind: str) -> None:
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "a secret place"  # turned; a description
    data: Any = encoded(photo(40, 20), "JPEG", exif=exif)
    asked = ask(store, image_file(data, "on [a] walk.jpg"), image_file(b"\x89PNG", "damaged.png"), text="Where?")
    target = tmp_path / ("Apples.md" if kind == "markdown" else "chats")
    export(store, target, kind, [asked.conversation_id])
    text = (target if kind == "markdown" else target / "Apples.md").read_text()
    assert "![on (a) walk.jpg](Apples%20images/1.png)\n\n*File: damaged.png*\n\nWhere?" in text
    (drawn,) = tmp_path.rglob("Apples images/*")
    assert b"secret" not in drawn.read_bytes()
    with Image.open(io.BytesIO(drawn.read_bytes())) as picture:
        assert (picture.format, picture.size, dict(picture.getexif())) == ("PNG", (20, 40), {})


def test_an_export_overwrites_no_folder_of_images(store: ConversationStore, tmp_path: Path) -> None:
    asked = ask(store, image_file(encoded(photo(), "PNG"), "a.png"))
    (tmp_path / "out images").mkdir()
    (tmp_path / "out images" / "1.png").write_bytes(b"mine")
    export(store, tmp_path / "out.md", "markdown", [asked.conversation_id])
    assert (tmp_path / "out images" / "1.png").read_bytes() == b"mine"
    assert "](out%20images%202/1.png)" in (tmp_path / "out.md").read_text()
