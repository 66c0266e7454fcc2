"""Kills the real app at random moments, and looks at what it left."""

import json
import random
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from tests.hostile.command_runner import environment_of, fresh
from tests.hostile.samples import ROOT, samples
from tests.hostile.watch import kill_tree
from tests.stores import connect_by_hand

_LOST_S = 0.5  # what may be lost of a reply, where the machine has nothing else to do
_REAL_EVERY = 5  # kills of the real engine, and kills while it starts
_START_EVERY = 3
_START_S = (0.05, 2.5)  # when it is killed: after the process began, or after the window stood
_USE_S = (0.2, 5.0)
_PATIENCE_S = 45.0  # until the window stands
_AFRESH_EVERY = 25  # kills; between them, each app starts with what the one before left


def kills(count: int, place: Path, lost_s: float = _LOST_S) -> Iterator[tuple[str, Callable[[], list[str]]]]:
    """Yield names of kills, and what does each; each may lose the last `lost_s` seconds of a reply."""
    place.mkdir(parents=True, exist_ok=True)
    for number in range(count):
        engine = "the real engine" if number % _REAL_EVERY == 0 else "a steady engine"
        moment = "while it starts" if number % _START_EVERY == 1 else "while it is used"
        name = f"{number:03} with {engine}, {moment}"
        yield name, partial(_kill, number, place, lost_s)


def _kill(number: int, place: Path, lost_s: float) -> list[str]:
    folder = place / "own"
    journal = place / "own" / "journal"
    if number % _AFRESH_EVERY == 0 or not folder.exists():
        fresh(folder)
    chosen = random.Random(number)
    began = time.monotonic()
    is_start = number % _START_EVERY == 1
    process = _start(number, folder, journal)
    try:
        stood = True if is_start else _wait_for_window(process, journal, began)
        threading.Event().wait(chosen.uniform(*(_START_S if is_start else _USE_S)))
        ended_itself = process.poll() is not None
        killed_at = time.monotonic()
    finally:
        kill_tree(process)
    faults = [] if stood else ["the window did not stand"]
    if ended_itself:
        faults.append(f"it ended itself: {process.returncode}")
    faults += _look(folder / "data" / "conversations.db", _read(journal), began, killed_at - lost_s)
    if faults:
        shutil.rmtree(place / f"kept-{number:03}", ignore_errors=True)
        folder.rename(place / f"kept-{number:03}")
    return faults


def _start(number: int, folder: Path, journal: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.hostile.kill_child", str(journal), str(number)]
    if number % _REAL_EVERY == 0:
        command.append(str(samples() / "model"))
    own = {"RDCHAT_DATA_DIR": str(folder / "data"), "RDCHAT_CACHE_DIR": str(folder / "cache")}
    with (folder / "stderr").open("ab") as error:
        environment = environment_of(folder / "audit") | own
        return subprocess.Popen(command, stderr=error, stdin=subprocess.DEVNULL, env=environment, cwd=ROOT)


def _wait_for_window(process: subprocess.Popen[bytes], journal: Path, began: float) -> bool:
    pause = threading.Event()
    while time.monotonic() < began + _PATIENCE_S and process.poll() is None:
        if any(line["did"] == "started" and line["t"] >= began for line in _read(journal)):
            return True
        pause.wait(0.1)
    return False


def _read(journal: Path) -> list[dict[str, Any]]:
    lines = journal.read_text(encoding="utf-8").splitlines() if journal.exists() else []
    return [json.loads(line) for line in lines if line.endswith("}")]  # the last may be cut short


@dataclass(slots=True)
class _Expected:
    """What the store must have.

    Attributes:
        whole: Texts of messages that were stored, by id.
        beginnings: What must be there of replies that were being written.
        deleted: Chats that may be gone.
    """

    whole: dict[int, tuple[int, str]]
    beginnings: dict[int, str]
    deleted: set[int]


def _expected(journal: list[dict[str, Any]], began: float, until: float) -> _Expected:
    found = _Expected({}, {}, {line["chat"] for line in journal if line["did"] == "deleting"})
    for line in journal:
        if line["did"] == "stored":
            found.whole[line["id"]] = (line["chat"], line["text"])
            found.beginnings.pop(line["id"], None)
        elif line["did"] == "given" and began <= line["t"] < until:
            found.beginnings[line["id"]] = found.beginnings.get(line["id"], "") + line["text"]
    return found


def _look(database: Path, journal: list[dict[str, Any]], began: float, until: float) -> list[str]:
    """Return what is wrong with what a killed app left; replies must be there as they were at `until`."""
    if not database.exists():
        return ["the database is gone"] if any(line["did"] == "stored" for line in journal) else []
    faults = [f"the app says: {line['text'][:200]}" for line in journal if line["did"] == "notice"]
    with closing(connect_by_hand(database)) as connection:
        answer = connection.execute("PRAGMA integrity_check").fetchone()[0]
        if answer != "ok":
            return [*faults, f"integrity_check: {answer}"]
        if not connection.execute("SELECT 1 FROM sqlite_schema WHERE name = 'messages'").fetchone():
            stored = any(line["did"] == "stored" for line in journal)
            return [*faults, "the tables are gone"] if stored else faults
        rows = connection.execute("SELECT id, conversation_id, text FROM messages").fetchall()
    texts = {row[0]: row[2] for row in rows}
    chats = {row[0]: row[1] for row in rows}
    expected = _expected(journal, began, until)
    for message, (chat, text) in expected.whole.items():
        if texts.get(message) != text and chat not in expected.deleted:
            faults.append(f"message {message} is lost or changed: {texts.get(message, 'gone')[-40:]!r}")
    for message, text in expected.beginnings.items():
        there = texts.get(message)
        if there is None and expected.deleted:
            continue  # of a chat that was deleted; which one, the text does not tell
        if there is None or not there.startswith(text):
            lost = len(text) - len(there or "")
            of = "" if chats.get(message) is None else f" of chat {chats[message]}"
            faults.append(f"reply {message}{of} lost {lost} of {len(text)} characters that it had to keep")
    return faults
