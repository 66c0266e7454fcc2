"""What a reply waits for before the engine has it asks for Stop all the time, whatever the files and the questions are.

Time is counted, not measured: a unit is about 100 ns, so 0.1 s is a million. A line of Python is one unit, as is an
instruction of SQLite; a character that is normalized or indexed is 20, one that is only read or copied a fiftieth.
"""

import sqlite3
import sys
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from rdchat.chat.attachments import passage_index
from rdchat.chat.attachments.attached_file import AttachedFile, FileKind, ReadFile, attached
from rdchat.chat.attachments.passage_index import PassageIndex
from rdchat.chat.conversation import Message
from rdchat.chat.projects import Project
from rdchat.inference.api import ChatMessage, Role
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.project_files import ProjectFiles
from rdchat.services.engine.engine_request import EngineState
from tests.services.fakes import ScriptedEngine
from tests.services.window import Window, text_file

# Half of 0.1 s: the units are rough.
MOST = 500_000
INDEXED = 20
READ = 50
_TOOL = 3


class Work:
    """The units since the last question for Stop, and the most between two of them."""

    def __init__(self) -> None:
        self.units = 0.0
        self.most = 0.0

    def add(self, units: float) -> None:
        self.units += units

    def check(self) -> None:
        self.most = max(self.most, self.units)
        self.units = 0


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Work]:
    """Count the work of rdchat's own lines, of its SQLite in memory, and of normalizing."""
    work = Work()

    def line(code: CodeType, _line: int) -> Any:
        if "/rdchat/" not in code.co_filename:
            return sys.monitoring.DISABLE
        work.add(1)
        return None

    def normalize(form: Any, text: str) -> str:
        work.add(INDEXED * len(text))
        return unicodedata.normalize(form, text)

    def indexed(row: Iterable[Any]) -> Iterable[Any]:
        work.add(INDEXED * sum(len(each) for each in row if isinstance(each, str)))
        return row

    class Connection(sqlite3.Connection):
        def execute(self, sql: str, parameters: Any = ()) -> sqlite3.Cursor:
            return super().execute(sql, indexed(parameters))

        def executemany(self, sql: str, rows: Iterable[Any]) -> sqlite3.Cursor:
            return super().executemany(sql, map(indexed, rows))

    def connect(*arguments: Any, **options: Any) -> sqlite3.Connection:
        connection = sqlite3.connect(*arguments, **options, factory=Connection)
        connection.set_progress_handler(lambda: work.add(100), 100)
        return connection

    with monkeypatch.context() as changed:
        changed.setattr(passage_index, "unicodedata", SimpleNamespace(normalize=normalize))
        changed.setattr(passage_index, "sqlite3", SimpleNamespace(connect=connect))
        monitoring = sys.monitoring
        monitoring.use_tool_id(_TOOL, "stop")
        try:
            monitoring.register_callback(_TOOL, monitoring.events.LINE, line)
            monitoring.set_events(_TOOL, monitoring.events.LINE)
            yield work
        finally:
            monitoring.set_events(_TOOL, monitoring.events.NO_EVENTS)
            monitoring.free_tool_id(_TOOL)
    work.check()


def words(count: int, name: str = "word") -> str:
    return " ".join(f"{name}{number}" for number in range(count))


def path(*questions: str) -> list[Message]:
    return [Message(number, 1, None, Role.USER, text) for number, text in enumerate(questions, 1)]


QUESTION = "What does word7 cost?"
PROMPTS: dict[str, tuple[list[str], list[str]]] = {
    "many files": ([f"volume {n} " + words(3_000) for n in range(40)], [QUESTION]),
    "a long file": ([words(60_000)], [QUESTION]),
    "ligatures of 18 letters": (["\ufdfa" * 40_000] * 2, [QUESTION]),
    "a long question": ([words(9_000)], [words(40_000, "other")]),
    "a long question before": ([words(9_000)], [words(40_000, "other"), QUESTION]),
    "a long question without spaces": ([words(9_000)], ["\u6f22" * 60_000]),
    "a word that is everywhere": (["the lamp " * 30_000], ["the lamp"]),
    "words that stand once": ([words(9_000)], [words(9_000)]),
    "many questions": ([words(9_000)], [f"{QUESTION} {n}" for n in range(60)]),
}


@pytest.mark.parametrize("name", PROMPTS)
def test_passages_are_found_between_questions_for_stop(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    texts, questions = PROMPTS[name]
    known = {}
    files = list[AttachedFile]()
    for number, text in enumerate(texts):
        file = attached(ReadFile(f"{number}.txt", FileKind.TEXT, (text,)), f"{number}{text}")
        files.append(file)
        known[file.digest] = text
    with watched(monkeypatch) as work:

        def text_of(file: AttachedFile) -> str:
            work.add(len(known[file.digest]) / READ)
            return known[file.digest]

        def count(messages: Iterable[ChatMessage]) -> int:
            # The process that counts is waited for with questions for Stop.
            work.check()
            return sum(len(each.content) for each in messages) // 4

        prompt = ChatPrompt(path(*questions), "", files=files)
        found = ProjectFiles(text_of).texts(prompt, "model", 8192, count, work.check, for_all=True)
        prompt.with_files(text_of, work.check, shared=found).turns(work.check)
    assert len(found.passages) == len(questions)
    assert work.most < MOST


def test_an_index_answers_after_a_search_that_was_stopped() -> None:
    index = PassageIndex([("a", [f"lamp {number} " + "brass " * 900 for number in range(9)])])
    found = index.ranked("brass lamp 7")
    for asked in range(1, 12):
        left = iter(range(asked))
        with pytest.raises(StopIteration) as stopped:
            index.ranked("brass lamp 7", lambda: next(left))  # noqa: B023
        # The error, whose frame has the rows, lives on.
        assert stopped.value
        assert index.ranked("brass lamp 7") == found


def test_a_reply_is_stopped_while_its_files_are_counted(window: Window, engine: ScriptedEngine) -> None:
    window.load("/models/short")
    engine.count_gate.shut()
    folder = window.make_project(Project("Be brief."), text_file("a.txt", "a lamp"))
    window.chat.start_new(folder.id)
    window.send("What does it cost?")
    window.wait_for(EngineState.PREFILL)
    # The meter of the context, and the reply.
    window.wait_until(lambda: engine.count_gate.holds == 2)
    window.stop_reply()
    window.chat.start_new()
    window.send("Hi")
    window.wait_until(lambda: window.texts[-1:] == ["Hello, you!"])
    assert engine.count_gate.is_waiting
    engine.count_gate.open()
