"""A project is stored with its files in one step, or not."""

from contextlib import closing
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import Project
from rdchat.chat.store import ConversationStore
from tests.chat.conftest import StartProcess
from tests.chat.storage.project_texts import NAMES, files_named, text_file
from tests.inference.vision.pictures import encoded, photo
from tests.processes import kill_begun, moments

KILLED = """
import sys
from pathlib import Path
from rdchat.chat.conversation import Project
from rdchat.chat.store import ConversationStore
from tests.chat.storage.project_texts import NAMES, files_named

store = ConversationStore(Path(sys.argv[1]))
print("begun", flush=True)
for number in range(10**6):
    names = NAMES[number % 2]
    store.organiser.set_project(1, Project(names), files_named(names))
"""


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.slow)])
def test_a_kill_while_files_are_stored_leaves_those_of_before_or_after(
    tmp_path: Path, start_process: StartProcess, kills: int
) -> None:
    """Whole, with the instructions that came with them, and no text without a file."""
    database = tmp_path / "chats.db"
    with closing(ConversationStore(database)) as store:
        store.organiser.create_folder("Work")
    seen = set[str]()
    for moment_s in moments(kills, 0.4, 76):
        kill_begun(start_process(KILLED, database), moment_s)
        with closing(ConversationStore(database)) as store:
            assert store.notice is None
            (folder,) = store.organiser.folders()
            names = folder.project.instructions
            seen.add(names)
            assert [(file, store.file_text(file)) for file in folder.files] == files_named(names)
            stored = {text for (text,) in store.rows("SELECT text FROM file_texts")}
            assert stored == {text for _, text in files_named(names)}
    assert seen - {""} <= set(NAMES)


def test_nothing_of_removed_files_stays_on_disk(qtbot: QtBot, tmp_path: Path) -> None:
    """Neither in the database nor in its log, which once kept them until rdchat quit, nor as a picture."""
    picture = image_file(encoded(photo(), "PNG"), "fox.png")
    words = text_file("okapi.txt", "zebra quokka " * 5000)
    with closing(ConversationStore(tmp_path / "chats.db")) as store:
        folder = store.organiser.create_folder("Work")
        store.organiser.set_project(folder.id, Project("Wombats."), [picture, words])
        path = store.image_path(picture[0])
        assert path.exists()

        def found() -> list[str]:
            content = b"".join(each.read_bytes() for each in tmp_path.glob("chats.db*") if each.is_file())
            return [word for word in ("zebra", "okapi", "Wombats") if word.encode() in content]

        assert found() == ["zebra", "okapi", "Wombats"]
        store.organiser.set_project(folder.id, Project(), [])
        qtbot.waitUntil(lambda: not found() and not path.exists())
