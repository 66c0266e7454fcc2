"""SIGKILL while a person deletes, edits, summarises and restores: nothing is lost, and nothing is half done."""

import os
import signal
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from multiprocessing import get_context
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from rdchat.chat.attachments.attached_file import image_data
from rdchat.chat.conversation import MessageStatus
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backups import finish
from rdchat.files.atomic_file import remove_abandoned
from rdchat.host import MACOS
from rdchat.inference.api import Role
from tests.services.killed import work
from tests.stores import connect_by_hand

KILLS = int(os.environ.get("KILLS", "4"))  # KILLS=50 is how often it was tried
TOOL_KILLS = 3 * KILLS
_LATEST_S = 0.5  # after the work has begun
_LATEST_STEPS = 30_000
_RESTORE_S = 0.01  # after a restore was wanted, in half of their kills
_START_S = 60.0
_KEPT = """
    SELECT id FROM messages WHERE conversation_id = ? AND id NOT IN (SELECT message_id FROM deleted_messages)
"""
_MESSAGES = "SELECT id, parent_id, role, text, context_cut FROM messages"


@dataclass
class Told:
    """What a process said until it was killed.

    Attributes:
        done: What must be there, in order.
        wanted: What was begun last, and may be there; None where it was done.
        prepared: How many of `done` were told before the work began.
    """

    done: list[tuple[Any, ...]] = field(default_factory=list)
    wanted: tuple[Any, ...] | None = None
    prepared: int = 0

    def read(self, pipe: Connection, seconds: float, last: str = "") -> None:
        """Read what comes for some time, or up to some word."""
        until = time.monotonic() + seconds
        word = None
        with suppress(EOFError, OSError):  # it was killed, perhaps in the midst of a word
            while (not last or word != last) and pipe.poll(max(0.0, until - time.monotonic())):
                word, what = pipe.recv()
                if word == "done":
                    self.done.append(what)
                self.wanted = what if word == "wanted" else None
        assert word == last or not last, f"no {last} came"

    def each(self, kind: str) -> list[tuple[Any, ...]]:
        return [what[1:] for what in self.done if what[0] == kind]


def kill(kind: str, folder: Path, seed: int) -> Told:
    """Kill a process that works at some moment; return what it had told."""
    processes = get_context("spawn" if MACOS else "forkserver")  # a Mac's frameworks are not to be forked
    processes.set_forkserver_preload([work.__name__])
    pipe, end = processes.Pipe(duplex=False)
    draw = Random(seed)
    part = (seed // 2 % (KILLS // 2 or 1) + draw.random()) / ((KILLS + 1) // 2)  # each kill in another part of the time
    steps = 1 + int(part * _LATEST_STEPS) if seed % 2 and kind != "restore" else 0
    process = processes.Process(target=work.main, args=(kind, folder, seed, steps, end))
    process.start()
    end.close()
    told = Told()
    told.read(pipe, _START_S, "begun")
    told.prepared = len(told.done)
    told.read(pipe, _START_S if steps else part * _LATEST_S)
    if seed % 2 and not steps:
        told.read(pipe, _START_S, "wanted")
        told.read(pipe, part * _RESTORE_S)
    if not steps:
        process.kill()
    process.join(_START_S)
    assert process.exitcode == -signal.SIGKILL
    told.read(pipe, 0.0)
    process.close()
    return told


def rows_of(path: Path) -> dict[int, tuple[int | None, str, str, str | None]]:
    """Return parent, role, text and cut of all messages by id, after SQLite found all in order."""
    with closing(connect_by_hand(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        for index in ("messages_index", "summaries_index"):
            connection.execute(f"INSERT INTO {index} ({index}, rank) VALUES ('integrity-check', 1)")
        return {row[0]: row[1:] for row in connection.execute(_MESSAGES)}


def open_again(folder: Path) -> ConversationStore:
    """Open the store as the app does."""
    database = folder / work.DATABASE
    finish(folder, database, folder / work.SETTINGS)
    store = ConversationStore(database)
    assert store.notice is None
    return store


def check_messages(folder: Path, told: Told) -> dict[int, tuple[int | None, str, str, str | None]]:
    """Check that all messages are there as they were told."""
    open_again(folder).close()
    found = rows_of(folder / work.DATABASE)
    for identity, *message in told.each("message"):
        assert list(found[identity][:3]) == message
    return found


def check_deleted(folder: Path, told: Told) -> None:
    found = check_messages(folder, told)
    with closing(open_again(folder)) as store:
        hidden = {row[0] for row in store.rows("SELECT message_id FROM deleted_messages")}
        assert not [each for each, row in found.items() if row[0] in hidden and each not in hidden], "half deleted"
        for identity, is_deleted in dict(told.each("deleted")).items():
            if told.wanted is None or told.wanted[1] != identity:
                above = {identity, *store.path_to(identity).ids}
                assert bool(above & hidden) >= is_deleted
                assert is_deleted or identity not in {row[0] for row in roots(store)}
        for chat in store.conversations():
            shown = {message.id for message in store.messages(chat.id)}
            kept = store.rows(_KEPT, chat.id)
            assert bool(shown) == bool(kept), "what is left is shown"
            assert not shown & hidden
            while store.message_trash.restore_last(chat.id) is not None:
                pass
        assert not roots(store), "all of it is found again"


def roots(store: ConversationStore) -> list[tuple[int]]:
    return store.rows("SELECT root_id FROM deleted_messages")


def check_edited(folder: Path, told: Told) -> None:
    found = check_messages(folder, told)
    whole = {message[-1] for message in told.each("message")} | {told.wanted[1] if told.wanted else ""}
    with closing(open_again(folder)) as store:
        for message in map(store.message, found):
            assert message.text in whole or not message.edited
            assert message.text in whole or message.role is Role.ASSISTANT or message.text.startswith("Question")
            assert message.status is not MessageStatus.STREAMING
        for identity, parent, role, _ in told.each("message"):
            beside = {each[0] for each in told.each("message") if each[1:3] == (parent, role)}
            assert parent is None or {each.id for each in store.alternatives(identity)} >= beside


def check_summarised(folder: Path, told: Told) -> None:
    found = check_messages(folder, told)
    last = dict(told.each("cut"))
    with closing(open_again(folder)) as store:
        cuts = {identity: store.message(identity).context_cut for identity in found}
    changed = [(identity, cut) for identity, cut in cuts.items() if cut != last.get(identity)]
    if told.wanted is not None and told.wanted[0] == "cut" and changed:
        ((identity, cut),) = changed
        assert told.wanted[1] in (None, identity)
        assert (cut and cut.summary) == (told.wanted[2] and told.wanted[2].summary)
    else:
        assert not changed


def check_restored(folder: Path, told: Told) -> None:
    open_again(folder).close()
    is_here = {(identity, row[2]) for identity, row in rows_of(folder / work.DATABASE).items()}
    kept = [
        {(identity, row[2]) for identity, row in rows_of(path).items()}
        for path in folder.glob("conversations-before-restore-*.db")
    ]
    backups = told.each("backup")
    for (before,) in told.each("restore"):
        assert before in kept, "what was there before is kept"
    if told.wanted is not None:
        (before,) = told.wanted[1:]
        assert is_here == before or (is_here == backups[-1][0] and before in kept)
    elif backups:
        kind, last = next(what for what in reversed(told.done) if what[0] != "message")
        assert is_here >= (backups[-1][0] if kind == "restore" else last)
    assert not (folder / "restore").exists()


def check_called(folder: Path, told: Told) -> None:
    check_messages(folder, told)
    with closing(open_again(folder)) as store:
        for result_id, reply_id in told.each("begun"):
            result = store.message(result_id)
            reply = store.message(reply_id)
            (call,) = reply.tool_calls
            assert (result.parent_id, result.tool_call_id, result.role) == (reply_id, call.call_id, Role.TOOL)
            assert result.status is not MessageStatus.STREAMING
            is_last = (result_id, reply_id) == told.each("begun")[-1]
            assert result.text or is_last or result.status is MessageStatus.INTERRUPTED
        for chat in store.conversations():
            for message in store.messages(chat.id):
                assert message.status is not MessageStatus.STREAMING
                assert "<tool_call>" not in message.text


def check_noted(folder: Path, told: Told) -> None:
    check_messages(folder, told)
    with closing(open_again(folder)) as store:
        found = [note.text for note in store.organiser.notes()]
    if told.wanted is not None and told.wanted[0] == "notes":
        assert found in list(told.wanted[1:])
    elif done := told.each("notes"):
        assert [found] == [*done[-1]]


def check_asked(folder: Path, told: Told) -> None:
    """What was typed, and waited then, is a message, or is in a message field."""
    found = [row[2] for row in check_messages(folder, told).values()]
    with closing(open_again(folder)) as store:
        found += [row[0] for row in store.rows("SELECT text FROM unsent_texts")]
    assert not [text for (text,) in told.each("asked") if not any(text in each for each in found)]


def check_temporary(folder: Path, told: Told) -> None:
    """What a kill leaves of a temporary chat are images in a private folder, which the next start removes.

    One that was to be kept is there whole and once, or not at all.
    """
    kept = told.each("kept")
    wanted = [told.wanted[1:]] if told.wanted else []
    for path in folder.rglob("*"):
        if path.is_file() and work.SECRET.encode() in path.read_bytes():
            is_image = path.is_relative_to(folder / work.TEMPORARY) and path.read_bytes() == work.IMAGE
            assert is_image or (path.name.startswith(work.DATABASE) and (kept or wanted))
    check_messages(folder, told)
    with closing(open_again(folder)) as store:
        chats = [tuple(each.text for each in store.messages(chat.id)) for chat in store.conversations()]
        found = [(texts,) for texts in chats if any(work.SECRET in text for text in texts)]
        assert sorted(found) in (sorted(kept), sorted([*kept, *wanted]))
        # Edited questions keep their earlier text.
        texts = [row[0] for row in store.rows("SELECT text FROM messages WHERE text GLOB ?", f"*{work.SECRET}*")]
        assert len({*texts}) == len(texts)
        images = [file for chat in store.conversations() for each in store.messages(chat.id) for file in each.files]
        assert len(images) == sum(work.SECRET in text for (path,) in found for text in path)
        assert all(image_data(store.file_text(file)) == work.IMAGE for file in images)
    with patch("tempfile.tempdir", str(folder / work.TEMPORARY)):
        remove_abandoned()
    # An empty folder may be left.
    assert not [path for path in (folder / work.TEMPORARY).rglob("*") if path.is_file() and path.stat().st_size]
    with closing(open_again(folder)) as store:
        assert store.conversations()
        assert len(store.rows("SELECT 1 FROM unsent_texts")) <= len(found)


CHECKS = {
    "temporary": check_temporary,
    "notes": check_noted,
    "measured": check_asked,
    "tools": check_called,
    "delete": check_deleted,
    "edit": check_edited,
    "summarise": check_summarised,
    "compact": check_summarised,
    "restore": check_restored,
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", work.KINDS)
def test_kills_at_random_moments_lose_nothing_and_leave_nothing_half_done(kind: str, tmp_path: Path) -> None:
    done = 0
    for seed in range(TOOL_KILLS if kind == "tools" else KILLS):
        folder = tmp_path / str(seed)
        folder.mkdir()
        told = kill(kind, folder, seed)
        done += len(told.done) - told.prepared
        CHECKS[kind](folder, told)
    assert done > KILLS, "there was work between the kills"
