"""SIGKILL of the app while a person works in its window: nothing is lost, doubled, hidden, or left half done.

KILLS=200 make test-slow ARGS=tests/e2e/test_killed_window.py takes a quarter of an hour.
"""

import json
import os
import time
import zipfile
from contextlib import closing, suppress
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from random import Random
from typing import Any

import psutil
import pytest

from rdchat.host import MACOS
from tests.e2e import killed_window
from tests.e2e.killed_window import BACKUP, CHATS, EXPORT, FILES, FOLDERS, JOURNAL, KINDS, MESSAGES, OUTPUT
from tests.stores import connect_by_hand

KILLS = int(os.environ.get("KILLS", "5"))
_PATIENCE_S = 120.0
_LOOK_S = 0.02
_STARTING = 0.15
_START_S = 2.0
_LATEST_S = {
    "project": 0.4,
    "notes": 0.4,
    "summary": 0.6,
    "backup": 0.8,
    "restore": 0.8,
    "import": 1.2,
    "temporary": 0.8,
}
_AFRESH_EVERY = 8

type Line = dict[str, Any]


class KilledApp:
    """Starts the app in a folder, looks at what the one before left there, and kills it.

    Attributes:
        faults: What is wrong.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._journal = folder / JOURNAL
        for name in FOLDERS:
            (folder / name).mkdir(mode=0o700, parents=True)
        self._journal.touch()
        self.faults: list[str] = []

    def _lines(self) -> list[Line]:
        return [json.loads(line) for line in self._journal.read_text().splitlines() if line.endswith("}")]

    def _start(self, seed: int, kind: str) -> BaseProcess:
        """Start it in a process that has imported all already, which takes most of the time."""
        processes = get_context("spawn" if MACOS else "forkserver")
        processes.set_forkserver_preload([killed_window.__name__])
        process = processes.Process(target=killed_window.main, args=(self._folder, seed, kind))
        process.start()
        return process

    def _wait(self, process: BaseProcess, before: int, did: str, count: int = 1) -> bool:
        """Wait until the journal says so many times behind some line that something was done."""
        late = time.monotonic() + _PATIENCE_S
        while sum(line["did"] == did for line in self._lines()[before:]) < count:
            if not process.is_alive() or time.monotonic() > late:
                self.faults.append(f"no {did} comes: {process.exitcode}, {(self._folder / OUTPUT).read_text()[-2000:]}")
                return False
            time.sleep(_LOOK_S)
        return True

    def kill(self, seed: int, kind: str) -> None:
        """Start the app, look at what there is, let it work, and kill it."""
        draw = Random(seed)
        before = self._lines()
        process = self._start(seed, kind)
        try:
            if draw.random() < _STARTING and before:
                time.sleep(draw.uniform(0, _START_S))
            elif self._wait(process, len(before), "started"):
                self._look(before, self._lines()[len(before)])
                if self._wait(process, len(before), "wanted", draw.randrange(2, 7)):
                    time.sleep(draw.uniform(0, _LATEST_S[kind]))
        finally:
            children = psutil.Process(process.pid).children(recursive=True)
            process.kill()
            process.join()
            for child in children if draw.random() < 0.5 else ():
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        _, alive = psutil.wait_procs(children, _PATIENCE_S)
        assert not alive, "the children end once the app has"

    def _look(self, before: list[Line], started: Line) -> None:
        """Compare what a start found with what the one before told."""
        state = started["state"]
        found = [*started["faults"]]
        told = [number for number, line in enumerate(before) if "state" in line]
        if told:
            wanted = [line for line in before[told[-1] :] if line["did"] == "wanted"]
            was = before[told[-1]]["state"]
            found += changes(was, wanted[-1] if wanted else {"kind": "nothing"}, state)
            found += [] if state == was or self._keeps(was) else ["what was there before the restore is not kept"]
        found += self._left()
        found += self._torn(before)
        log = (self._folder / "data" / "logs" / "rdchat.log").read_text()
        found += [line for line in log.splitlines() if " ERROR " in line or " CRITICAL " in line]
        self.faults += found

    def _keeps(self, state: Line) -> bool:
        """Return whether the store, or a file that a restore has moved aside, has all messages of a state."""
        wanted = {message[2] for message in state["messages"].values()}
        for path in (self._folder / "data").glob("conversations*.db"):
            with closing(connect_by_hand(path)) as connection:
                if wanted <= {text for (text,) in connection.execute("SELECT text FROM messages")}:
                    return True
        return False

    def _left(self) -> list[str]:
        """Return the paths of what is left half done, once the app that runs has had time to remove it."""
        late = time.monotonic() + 10
        while True:
            data = self._folder / "data"
            left = [path for path in self._folder.rglob("part-*") if path.exists()]
            left += [path for path in (self._folder / "chosen").iterdir() if path.name not in (BACKUP, EXPORT)]
            left += [
                path for path in (data / "restore", *(self._folder / "temporary").glob("rdchat-*")) if path.exists()
            ]
            if not left or time.monotonic() > late:
                return [f"left: {path.relative_to(self._folder)}" for path in left]
            time.sleep(_LOOK_S)

    def _torn(self, before: list[Line]) -> list[str]:
        """Return what is wrong with the backup and the export; each is there whole, or not yet."""
        backup = self._folder / "chosen" / BACKUP
        export = self._folder / "chosen" / EXPORT
        if export.exists():
            json.loads(export.read_text())
        if not backup.exists():
            return []
        copy = self._folder / "copy"
        with zipfile.ZipFile(backup) as archive:
            archive.extractall(copy)
        with closing(connect_by_hand(copy / "conversations.db")) as connection:
            check = connection.execute("PRAGMA integrity_check").fetchall()
            texts = {text for (text,) in connection.execute("SELECT text FROM messages")}
        backed_up = [line["backup"]["messages"] for line in before if line.get("backup")]
        whole = any({message[2] for message in each.values()} <= texts for each in backed_up[-2:])
        return [] if check == [("ok",)] and whole else [f"the backup is not whole: {check}"]


def changes(before: Line, wanted: Line, now: Line) -> list[str]:
    """Return how what is stored differs from what it was, where what was wanted does not explain it."""
    kind = wanted["kind"]
    if kind == "restore" and now == wanted["backup"]:
        return []
    was = before["messages"]
    lost = {each: message for each, message in was.items() if now["messages"].get(each) != message}
    if kind == "summary" and len(lost) == 1:
        ((each, message),) = lost.items()
        there = now["messages"].get(each)
        lost = {} if there and [*there[:3], there[4]] == [*message[:3], message[4]] else lost
    found = [f"{kind}: {each} is lost or changed: {message}"[:300] for each, message in lost.items()]
    new = {each: message for each, message in now["messages"].items() if each not in was}
    if not _is_wanted(kind, wanted, list(new.values()), now):
        found.append(f"{kind}: new messages {[message[:3] for message in new.values()]}"[:300])
    projects = {
        "project": [before["projects"].get(wanted.get("name"), ["", []]), wanted.get("value")],
        "import": [["Rhyme.", now["projects"].get(wanted.get("name"), ["", []])[1]]],
    }
    for name in before["projects"].keys() | now["projects"].keys():
        there = now["projects"].get(name)
        is_known = there == before["projects"].get(name)
        if not is_known and (name != wanted.get("name") or there not in projects.get(kind, [])):
            found.append(f"{kind}: project {name} is {there}"[:300])
    if now["notes"] not in (before["notes"], wanted.get("notes")):
        found.append(f"{kind}: notes {now['notes']}, not {before['notes']}")
    return found


def _is_wanted(kind: str, wanted: Line, new: list[list[Any]], now: Line) -> bool:
    questions = [message[2] for message in new if message[1] == "user"]
    match kind:
        case "ask":
            return questions in ([], [wanted["text"]]) and len(new) <= 2
        case "temporary":
            return not new or (questions == wanted["texts"] and len(new) == 2 * len(questions))
        case "import":
            project = now["projects"].get(wanted["name"])
            is_whole = len(new) == CHATS * MESSAGES and project is not None and len(project[1]) == FILES
            return is_whole or not (new or project)
    return not new


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_kills_of_the_window_at_random_moments_lose_nothing(tmp_path: Path) -> None:
    kinds = list(KINDS)
    for begin in range(0, KILLS, _AFRESH_EVERY):
        app = KilledApp(tmp_path / str(begin))
        # One more start looks at what the last kill left.
        for seed in range(begin, min(begin + _AFRESH_EVERY, KILLS) + 1):
            app.kill(seed, kinds[seed % len(kinds)])
            assert app.faults == [], (seed, tmp_path)
