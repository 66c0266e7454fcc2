"""The caches on disk belong to chats: they go with a chat, with Clear, and where they are switched off."""

import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.projects import Folder, Project
from rdchat.chat.summaries import ContextCut
from rdchat.files.cache_folders import folder_name, make_folder, remove_folders
from rdchat.inference.vision.image_process import shared_images
from tests.chat.transfer.tasks import back_up
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, text_file


@pytest.fixture
def kept(window: Window, engine: ScriptedEngine) -> Path:
    """The folder of a chat with a reply, with a cache, a partial file and a file of another model in it."""
    window.ask("Hello")
    return fill(engine)


def fill(engine: ScriptedEngine) -> Path:
    folder = engine.last_request.keep
    assert folder is not None
    for name in ("model/0-128-x.rows", "model/part-1", "other/0-128-x.rows"):
        path = folder.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"1" * 1000)
    return folder.path


def gone(window: Window, folder: Path) -> None:
    """Wait until a chat's folder is gone, and no part of it is left under another name."""
    top = paths.chat_caches_dir()
    window.wait_until(lambda: not folder.exists() and not list(top.glob("removed-*")))


def test_a_request_names_its_chat_s_folder_which_only_this_user_can_enter(
    window: Window, engine: ScriptedEngine, kept: Path
) -> None:
    assert kept.stat().st_mode & 0o777 == 0o700
    assert kept.parent == paths.chat_caches_dir()
    assert (kept.parent / "CACHEDIR.TAG").read_text().startswith("Signature: 8a477f597d28d172789f06886806bc55")
    request = engine.last_request
    assert request.keep is not None
    assert request.keep.limit_bytes == 10**10
    window.ask("And more")
    assert engine.last_request.keep == request.keep
    window.chat.start_new()
    window.ask("Another chat")
    assert engine.last_request.keep != request.keep


ACTS: dict[str, Callable[[Window], object]] = {
    "delete the chat": lambda window: window.chats.delete_conversation(window.stored_chat.id),
    "delete a message": lambda window: window.delete_message(window.last.id),
    "switch off": lambda window: window.settings.change_values(keep_caches=False),
    "switch off in the chat": lambda window: window.chat.set_own(keep_cache=False),
    "clear": lambda window: window.disk_caches.remove_all(),
}


@pytest.mark.parametrize("act", ACTS.values(), ids=ACTS)
def test_caches_of_a_deleted_chat_are_removed(window: Window, kept: Path, act: Callable[[Window], None]) -> None:
    act(window)
    gone(window, kept)


def test_caches_of_a_chat_that_undo_deletes_are_removed(window: Window, engine: ScriptedEngine, kept: Path) -> None:
    window.delete_message(window.last.id)
    gone(window, kept)
    window.controller.restore_deleted(window.last.conversation_id)
    window.ask("And more")
    assert fill(engine) == kept
    window.chat.start_new()
    window.chats.order.history.undo()
    gone(window, kept)


def test_caches_of_chats_deleted_elsewhere_are_removed(window: Window, kept: Path) -> None:
    foreign = paths.chat_caches_dir() / ("0" * 24 + "-" + "1" * 24)
    make_folder(foreign)
    window.store.delete_conversation(window.stored_chat.id)
    window.chats.update_list()
    gone(window, kept)
    assert foreign.exists(), "it may belong to other chats of this user"


def test_engine_gets_no_cache_folder_while_caches_are_off(window: Window, engine: ScriptedEngine) -> None:
    window.chat.set_own(keep_cache=False)
    window.ask("Hello")
    assert engine.last_request.keep is None
    stored = window.store.conversation(window.chat.id or 0)
    assert not stored.own.keep_cache
    window.chat.set_own(keep_cache=True)
    window.ask("And now")
    assert engine.last_request.keep is not None
    other = paths.chat_caches_dir() / ("0" * 24 + "-" + "1" * 24) / "model" / "0-128-x.rows"
    other.parent.mkdir(parents=True)
    other.write_bytes(b"another program's")
    ACTS["switch off"](window)
    window.disk_caches.tidy()
    window.wait_until(lambda: window.disk_caches.bytes == len(other.read_bytes()))
    window.ask("And now?")
    assert engine.last_request.keep is None


def test_a_file_that_was_not_finished_a_day_ago_is_removed(window: Window, kept: Path) -> None:
    os.utime(kept / "model" / "part-1", (0, time.time() - 25 * 3600))
    (kept / "model" / "part-2").write_bytes(b"2" * 1000)
    window.disk_caches.tidy()
    window.wait_until(lambda: not (kept / "model" / "part-1").exists())
    window.wait_until(lambda: window.disk_caches.bytes == 3000)
    assert (kept / "model" / "part-2").exists()


def test_a_chat_made_while_folders_are_removed_keeps_its_own(tmp_path: Path) -> None:
    store, new = tmp_path / "store", tmp_path / "top" / folder_name(tmp_path / "store", 1, 0.0)

    def kept_now() -> list[str]:
        make_folder(new)
        return []

    remove_folders(tmp_path / "top", store, kept_now)
    assert new.exists()


def test_the_size_is_shown_and_the_limit_holds(window: Window, kept: Path) -> None:
    caches = window.disk_caches
    caches.tidy()
    window.wait_until(lambda: caches.bytes == 3000)
    huge = kept / "model" / "1-2-x.rows"
    with huge.open("wb") as file:
        file.truncate(2 * 10**9)
    window.settings.change_values(kept_caches_gb=1)
    window.wait_until(lambda: caches.bytes < 10**9)
    assert kept.exists()


def test_a_folder_that_cannot_be_made_stops_no_reply(window: Window) -> None:
    paths.chat_caches_dir().parent.mkdir(exist_ok=True, parents=True)
    paths.chat_caches_dir().write_text("in the way")
    assert window.ask("Hello").text


def test_backup_has_no_caches(window: Window, kept: Path, tmp_path: Path) -> None:
    back_up(window.store.path, tmp_path / "settings.json", tmp_path / "backup.zip")
    names = zipfile.ZipFile(tmp_path / "backup.zip").namelist()
    assert names
    assert not [name for name in names if "rows" in name or kept.name in name]


def project_with_a_file(window: Window) -> Folder:
    return window.make_project(Project("Rhyme."), text_file("a.txt", "Text of a.txt"))


def shared_folder(window: Window, engine: ScriptedEngine, folder: Folder) -> Path:
    """Ask in a new chat of the project; return the project's folder of caches."""
    window.chat.start_new(folder.id)
    window.ask("Hello")
    keep = engine.last_request.keep
    assert keep is not None
    assert keep.shared is not None
    return keep.shared


def set_files(window: Window, folder: Folder, *files: tuple[AttachedFile, str]) -> None:
    window.chats.order.set_project(folder, folder.project, files)


PROJECT_ACTS: dict[str, Callable[[Window, Folder], object]] = {
    "change instructions": lambda window, folder: window.chats.order.set_project(folder, Project("Be brief.")),
    "change a file": lambda window, folder: window.chats.order.set_project(
        folder, folder.project, [text_file("b.txt", "B")]
    ),
    "remove files": set_files,
    "delete the project": lambda window, folder: window.chats.order.delete_folder(folder),
}


@pytest.mark.parametrize("act", PROJECT_ACTS.values(), ids=PROJECT_ACTS)
def test_caches_of_a_project_go_with_a_change_and_those_of_its_chats_with_a_file(
    window: Window, engine: ScriptedEngine, act: Callable[[Window, Folder], None]
) -> None:
    """Those of chats may have passages of the file."""
    shared = shared_folder(window, engine, project_with_a_file(window))
    kept = fill(engine)
    assert shared.stat().st_mode & 0o777 == 0o700
    with window.qtbot.waitSignal(window.disk_caches.changed):
        window.disk_caches.tidy()
    assert kept.exists()
    act(window, window.chats.order.folders[0])
    gone(window, shared)
    if act is not PROJECT_ACTS["change instructions"]:
        gone(window, kept)


def test_the_caches_of_a_chat_go_with_a_summary(window: Window, kept: Path) -> None:
    chat = window.chat
    message = chat.path[-1]
    chat.set_cut(message.id, ContextCut("A secret."))
    assert kept.exists()
    window.context.edit_summary(message.id, "None.")
    gone(window, kept)


def test_the_projects_caches_stay_when_a_chat_of_it_is_deleted(window: Window, engine: ScriptedEngine) -> None:
    folder = project_with_a_file(window)
    shared = shared_folder(window, engine, folder)
    kept = fill(engine)
    ACTS["delete the chat"](window)
    gone(window, kept)
    assert shared_folder(window, engine, folder) == shared
    system, question = engine.last_request.messages
    assert engine.last_request.shared == (
        system,
        replace(question, content='<file name="a.txt">\nText of a.txt\n</file>\n\n(Files of this project: a.txt)'),
    )


def test_a_system_prompt_of_the_chats_own_is_not_kept_with_the_project(window: Window, engine: ScriptedEngine) -> None:
    window.chat.start_new(project_with_a_file(window).id)
    window.chat.set_options(system_prompt="My own.")
    window.ask("Hello")
    assert engine.last_request.shared == ()
    assert engine.last_request.messages[0].content == "My own."


@pytest.mark.parametrize("text", ["", "I use spaces"])
def test_caches_that_may_have_a_note_go_with_it_and_the_projects_stay(
    window: Window, engine: ScriptedEngine, text: str
) -> None:
    folder = project_with_a_file(window)
    notes = window.notes
    shared = shared_folder(window, engine, folder)
    window.ask("Remember that I use tabs")
    (note,) = notes.proposed(window.chat.conversation)
    notes.keep(note, note.text)
    assert shared_folder(window, engine, folder) == shared
    request = engine.last_request
    assert "I use tabs" in request.messages[1].content
    assert "I use tabs" not in "".join(message.content for message in request.shared)
    kept = fill(engine)
    (note,) = window.replies.notes()
    notes.change(note, text)
    gone(window, kept)
    assert shared.exists()


def test_the_engine_s_own_limit_is_shown_until_the_person_sets_one(window: Window, engine: ScriptedEngine) -> None:
    kept = window.memory_caches
    settings = window.settings
    window.wait_until(lambda: kept.facts is not None)
    assert kept.facts is not None
    assert kept.facts.limit_bytes == engine.cache_bytes
    settings.change_values(prefix_cache_bytes=5_000_000)
    window.wait_until(lambda: kept.facts is not None and kept.facts.limit_bytes == 5_000_000)
    assert engine.cache_bytes == 5_000_000


def test_the_limit_of_the_settings_holds_from_the_start(unstarted: Window, engine: ScriptedEngine) -> None:
    settings = unstarted.settings
    settings.change_values(prefix_cache_bytes=7_000_000)
    unstarted.open_last_chat()
    unstarted.wait_until(lambda: unstarted.memory_caches.facts is not None)
    assert engine.cache_bytes == 7_000_000


def test_chat_that_is_discarded_leaves_no_pixels_behind(window: Window, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = list[bool]()
    monkeypatch.setattr(shared_images(), "forget_images", lambda: forgotten.append(True))
    window.chat.discarded.emit()
    assert len(forgotten) == 1
