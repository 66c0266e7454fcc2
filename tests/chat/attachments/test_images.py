"""Images of messages: the store has each as it was given, once, as long as a message has it."""

import base64
import json
import stat
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, image_file
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backups import carry_out, decide
from tests.chat.attachments.stored_files import ask, erase_all, export, imported
from tests.chat.conftest import OpenStore
from tests.chat.transfer import tasks
from tests.stores import connect_by_hand

PHOTO = b"\x89PNG" + bytes(range(256)) * 40
IMAGES = st.lists(st.binary(max_size=300).map(b"\x89PNG\r\n\x1a\n\0".__add__), min_size=1, max_size=4)


def images_in(path: Path) -> list[bytes]:
    with closing(connect_by_hand(path)) as connection:
        return sorted(row[0] for row in connection.execute("SELECT data FROM file_images"))


def told(store: ConversationStore, files: Sequence[AttachedFile]) -> list[tuple[str, bytes]]:
    return [(file.name, store.image_path(file).read_bytes()) for file in files]


def files_of(images: Sequence[bytes]) -> list[tuple[AttachedFile, str]]:
    return [image_file(data, f"photo {number}.png", "A note.", 3, 2) for number, data in enumerate(images)]


@settings(max_examples=12)
@given(IMAGES)
def test_copies_undone_deletions_exports_and_backups_keep_the_bytes(images: list[bytes]) -> None:
    with TemporaryDirectory() as name:
        database = Path(name) / "store" / "conversations.db"
        given_files = files_of(images)
        with closing(ConversationStore(database)) as store:
            asked = ask(store, *given_files, text="")
            expected = told(store, asked.files)
            assert expected == [(file.name, data) for (file, _), data in zip(given_files, images, strict=True)]
            assert list(asked.files) == [file for file, _ in given_files]
            assert images_in(database) == sorted(set(images))
            copy = store.organiser.copy(asked.conversation_id, "Copy").result()
            assert told(store, store.messages(copy)[0].files) == expected
            assert images_in(database) == sorted(set(images))
            store.message_trash.restore(store.message_trash.delete(asked.id))
            store.delete_conversation(copy)
            store.restore_conversation(copy)
            assert told(store, store.messages(copy)[0].files) == expected
            export(store, Path(name) / "out.json", "json", [copy])
            tasks.back_up(database, Path(name) / "none.json", Path(name) / "all.backup")
            erase_all(store, [asked.conversation_id, copy])
            assert images_in(database) == []
            assert not list(database.with_name("conversations.db-images").glob("*"))
            (chat,) = imported(store, Path(name) / "out.json").chats
            assert told(store, store.messages(chat)[0].files) == expected
        tasks.prepare(Path(name) / "all.backup", database.parent)
        decide(database.parent)
        carry_out(database.parent, database, Path(name) / "none.json")
        with closing(ConversationStore(database)) as store:
            assert told(store, store.message(asked.id).files) == expected


def test_an_image_goes_with_the_last_message_that_has_it(store: ConversationStore) -> None:
    first = ask(store, image_file(PHOTO, "a.png"))
    second = ask(store, image_file(PHOTO, "b.png"))
    erase_all(store, [first.conversation_id])
    assert told(store, store.message(second.id).files) == [("b.png", PHOTO)]
    erase_all(store, [second.conversation_id])
    assert images_in(store.path) == []


def test_the_copy_for_the_engine_is_private_and_ends_with_the_store(open_store: OpenStore) -> None:
    store = open_store()
    asked = ask(store, image_file(PHOTO, "a.png"))
    path = store.image_path(asked.files[0])
    assert (stat.S_IMODE(path.stat().st_mode), stat.S_IMODE(path.parent.stat().st_mode)) == (0o600, 0o700)
    path.unlink()
    assert store.image_path(asked.files[0]).read_bytes() == PHOTO
    left = path.with_name("left by a killed process")
    store.close()
    assert not path.parent.exists()
    path.parent.mkdir()
    left.touch()
    open_store()
    assert not left.exists()


def test_a_digest_that_was_made_by_hand_names_no_other_file(open_store: OpenStore, database: Path) -> None:
    store = open_store()
    asked = ask(store, image_file(PHOTO, "a.png"))
    store.close()
    with closing(connect_by_hand(database)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        for table in ("file_images", "message_files", "file_texts"):
            connection.execute(f"UPDATE {table} SET digest = '../../../outside'")
        connection.commit()
    store = open_store()
    path = store.image_path(store.message(asked.id).files[0])
    assert (path.read_bytes(), path.parent.parent) == (PHOTO, database.parent)


def test_an_image_of_a_tool_from_before_version_6_is_read(open_store: OpenStore, database: Path) -> None:
    store = open_store()
    asked = ask(store, image_file(PHOTO, "a.png"))
    store.close()
    with closing(connect_by_hand(database)) as connection:
        connection.execute("UPDATE file_texts SET text = ?", (base64.b64encode(PHOTO).decode(),))
        connection.execute("DELETE FROM file_images")
        connection.commit()
    store = open_store()
    assert told(store, store.message(asked.id).files) == [("a.png", PHOTO)]
    copy = store.organiser.copy(asked.conversation_id, "Copy").result()
    assert told(store, store.messages(copy)[0].files) == [("a.png", PHOTO)]


def test_a_size_that_is_found_later_is_stored(store: ConversationStore) -> None:
    asked = ask(store, image_file(PHOTO, "image 1"))
    assert (asked.files[0].width, asked.files[0].name) == (0, "image 1.png")
    store.set_image_size(asked.files[0], 30, 20).result()
    (file,) = store.message(asked.id).files
    assert (file.width, file.height) == (30, 20)


@pytest.mark.parametrize("text", ["%", "iVBORw0KGgo", "é"])
def test_an_image_that_is_no_base64_is_counted_and_its_message_stays(
    store: ConversationStore, tmp_path: Path, text: str
) -> None:
    file = {"name": "a.png", "kind": FileKind.IMAGE, "text": text}
    messages = [{"parent": None, "role": "user", "text": "Look.", "files": [file]}]
    path = tmp_path / "chats.json"
    path.write_text(json.dumps({"format": "rdchat chats", "version": 1, "chats": [{"messages": messages}]}))
    report = imported(store, path)
    (left_out,) = report.without
    assert (len(report.chats), left_out.parts) == (1, "1 damaged file")
