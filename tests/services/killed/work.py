"""An app without a window whose person never rests, to be killed. It says what it is about to do, and what is done.

What is told as done is in the store: a kill must not take it back. Of what is told as wanted, all or nothing is there.
"""

import os
import signal
import tempfile
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from random import Random

from PySide6.QtCore import QCoreApplication, QEventLoop

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import Message
from rdchat.chat.presets import LongChats
from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import Role
from rdchat.services.chat import chat_context
from rdchat.services.chat.chat_context import Doing
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.tool_call_control import Scope
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.chat_controller import ChatController
from rdchat.services.window.transfers import Transfers
from rdchat.tools.definitions import ToolResult
from tests.chat.transfer.tasks import back_up, prepare
from tests.services.bench_runs import EVENTS, PLAN
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.tool_fakes import ScriptedServers, calling, read
from tests.stores import cut_of

DATABASE = "conversations.db"
SETTINGS = "settings.json"
BACKUP = "backup.zip"
TEMPORARY = "temporary"
SECRET = "xylophone-of-a-secret"
IMAGE = b"\x89PNG\r\n\x1a\n\0" + SECRET.encode() * 99
_WORDS = tuple(f" word{number}" for number in range(60))
_REPLY = Reply(("An ", "answer."))
_LONGEST = 12  # messages on a path before another chat is begun


def main(kind: str, folder: Path, seed: int, steps: int, pipe: Connection) -> None:
    """Work until killed.

    Args:
        kind: A key of `KINDS`.
        folder: Of the store.
        seed: Draws what is done.
        steps: Of SQLite's machine, after which it kills itself: no parent hits what takes a millisecond; 0 for none.
        pipe: Takes what is told: a pair of `wanted` or `done` and what.
    """
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    os.environ["RDCHAT_CACHE_DIR"] = str(folder / "cache")
    (folder / TEMPORARY).mkdir()
    tempfile.tempdir = str(folder / TEMPORARY)
    qt = QCoreApplication([])
    engine = ScriptedEngine([_REPLY])
    engine.context_length = {"summarise": 400, "compact": 4096}.get(kind, 10**6)
    chat_context._CALM_MS = 10
    store = ConversationStore(folder / DATABASE)
    settings = SettingsStore(folder / SETTINGS)
    servers = ScriptedServers()
    controller = ChatController(store, settings, EngineClient(lambda: engine, nullcontext), tools=servers)
    work = Work(qt, engine, servers, controller, store, folder, Random(seed), pipe)
    controller.open_last_chat()
    work.wait(lambda: controller.replies.state is EngineState.IDLE)
    for _ in range(3):
        work.ask()
    pipe.send(("begun", None))
    if steps:
        work.kill_after(steps)
    while True:
        KINDS[kind](work)


@dataclass
class Work:
    """What the person does.

    Attributes:
        qt: The application, which is let run while something is waited for.
        engine: Answers, and writes summaries.
        servers: Of tools.
        controller, store: The app's.
        folder: Of the store.
        draw: Draws.
        pipe: See `main`.
    """

    qt: QCoreApplication
    engine: ScriptedEngine
    servers: ScriptedServers
    controller: ChatController
    store: ConversationStore
    folder: Path
    draw: Random
    pipe: Connection
    _backed_up: bool = False
    _step: Callable[[], None] | None = None

    def __post_init__(self) -> None:
        self._transfer = Transfers(self.controller, self.store, self.folder / SETTINGS)

    @property
    def chat(self) -> OpenChat:
        return self.controller.chat

    def kill_after(self, steps: int) -> None:
        """Kill this process in the midst of whatever the store does then."""
        left = iter(range(steps))

        def step() -> None:
            if next(left, None) is None:
                os.kill(os.getpid(), signal.SIGKILL)

        self._step = step
        self._count_steps(self.store)

    def _count_steps(self, store: ConversationStore) -> None:
        if (step := self._step) is not None:
            store.write(lambda connection: connection.set_progress_handler(step, 1))

    def wait(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            self.qt.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 100)

    def ask(self, more: str = "") -> None:
        """Send a question, in a new chat where this one is long, and tell of it and its reply."""
        if len(self.chat.path) >= _LONGEST:
            self.chat.start_new()
        self.controller.send(f"Question {self.draw.random()}{more}")
        self._wait_for_reply()

    def _wait_for_idle(self) -> None:
        self.wait(lambda: self.controller.replies.state is EngineState.IDLE and self.chat.streaming_id is None)

    def _wait_for_reply(self) -> None:
        self._wait_for_idle()
        for message in self.chat.path[-2:]:
            self._tell_message(message)

    def _tell_done(self, *what: object) -> None:
        self.pipe.send(("done", what))

    def _tell_wanted(self, *what: object) -> None:
        self.pipe.send(("wanted", what))

    def _tell_message(self, message: Message) -> None:
        self._tell_done("message", message.id, message.parent_id, message.role.value, message.text)

    def _any(self, role: Role | None = None) -> Message:
        if not any(role in (None, each.role) for each in self.chat.path):
            self.ask()
        return self.draw.choice([each for each in self.chat.path if role in (None, each.role)])

    def delete(self) -> None:
        """Delete messages, and take some of that back."""
        message = self._any()
        self._tell_wanted("deleted", message.id, True)
        self.controller.delete_message(message.id)
        self._tell_done("deleted", message.id, True)
        how = self.draw.choice(("undo", "restore", "leave"))
        if how != "leave":
            self._tell_wanted("deleted", message.id, False)
            self.controller.chats.undo() if how == "undo" else self.controller.restore_deleted(message.conversation_id)
            self._tell_done("deleted", message.id, False)
        if self.draw.random() < 0.3:
            self.ask()

    def edit(self) -> None:
        """Edit a question, which is answered, or a reply."""
        role = self.draw.choice((Role.USER, Role.ASSISTANT))
        message = self._any(role)
        text = f"Edited {self.draw.random()} " * self.draw.randrange(1, 2000)
        self._tell_wanted("text", text)
        self.controller.edit_message(message.id, text)
        if role is Role.USER:
            self._wait_for_reply()
        else:
            self._tell_message(self.chat.path[-1])
        if self.draw.random() < 0.3:
            self.ask()

    def summarise(self) -> None:
        """Have the oldest turns summarised, and sometimes take that back."""
        while len(self.chat.path) < _LONGEST // 2:
            self.ask()
        self._want_summary()
        self.controller.context.summarise()
        self.wait(lambda: self.controller.context.doing is Doing.NOTHING)
        self._tell_summary()
        self.ask()

    def _want_summary(self, *before: Reply) -> None:
        """Tell what the next summary will be, after some replies."""
        summary = (f"Summary {self.draw.random()}:", *_WORDS[: self.draw.randrange(len(_WORDS))])
        self.engine.replies = [*before, Reply(summary)]
        self._tell_wanted("cut", None, ContextCut("".join(summary), "tiny"))

    def _tell_summary(self) -> None:
        """Tell of the summary, and sometimes take it back."""
        self.engine.replies = [_REPLY]
        made = cut_of(self.chat.path)
        assert made is not None
        self._tell_done("cut", made.id, made.context_cut)
        if self.draw.random() < 0.5:
            self._tell_wanted("cut", made.id, None)
            self.controller.context.undo_cut(made.id)
            self._tell_done("cut", made.id, None)

    def compact(self) -> None:
        """Ask until the chat is summarised by itself, sometimes with a question that waits for it."""
        chat = self.chat
        chat.start_new()
        chat.set_options(long_chats=LongChats.COMPACT)
        for _ in range(2):
            self.ask(" word" * 1000)
        self._want_summary(_REPLY)
        self.controller.send(f"Question {self.draw.random()}" + " word" * 1100)
        if self.draw.random() < 0.5:
            self.wait(lambda: self.controller.context.wants_room)
            self.controller.send("And now?")
        self.wait(lambda: cut_of(chat.path) is not None)
        self._tell_summary()
        self._wait_for_reply()

    def restore(self) -> None:
        """Back the store up, write on, and restore."""
        backup = self.folder / BACKUP
        if not self._backed_up or self.draw.random() < 0.3:
            back_up(self.folder / DATABASE, self.folder / SETTINGS, backup)
            self._backed_up = True
            self._tell_done("backup", self._state())
        self.ask()
        before = self._state()
        self._tell_done("before", before)
        prepare(backup, self.folder)
        self._tell_wanted("restore", before)
        self._transfer.restore_backup()
        self._tell_done("restore", before)

    def tools(self) -> None:
        """Have a tool called, sometimes stop it, run it again, or have it fail."""
        chat = self.chat
        calls = self.controller.calls
        servers = self.servers
        if len(chat.path) >= _LONGEST:
            chat.start_new()
        chat.set_tools(("files",), ())
        servers.result = None
        self.engine.replies = [calling(read(), text="I look."), _REPLY]
        self.controller.send(f"Question {self.draw.random()}")
        self.wait(lambda: bool(calls.waiting) and self.controller.replies.state is EngineState.IDLE)
        reply = chat.path[-1]
        self._tell_message(reply)
        self._tell_wanted("result", reply.id)
        call = reply.tool_calls[0]
        calls.decide(call, Scope.ONCE, calls.definition(call))
        result = chat.path[-1]
        self._tell_done("begun", result.id, reply.id)
        for _ in range(self.draw.randrange(200)):
            self.qt.processEvents()
        if self.draw.random() < 0.3:
            self.controller.stop_reply()
            if self.draw.random() < 0.5:
                calls.run_again(result.id)
                calls.decide(call, Scope.ONCE, calls.definition(call))
            else:
                calls.go_on()
        text = f"Result {self.draw.random()} " * self.draw.randrange(1, 2000)
        while servers.calls:
            servers.end(ToolResult(text, is_error=self.draw.random() < 0.3))
        self.wait(lambda: self.controller.replies.state is EngineState.IDLE and chat.path[-1].text == "An answer.")
        self._tell_message(chat.path[-2])
        self._tell_message(chat.path[-1])

    def write_temporary(self) -> None:
        """Write a temporary chat with an image and what is typed; change it, discard it or keep it, or write on."""
        controller = self.controller
        chat = controller.chat
        if not chat.temporary:
            chat.start_temporary()
            self._count_steps(self.store.holder_of(chat.id))
        chat.files.restore_files([image_file(IMAGE, "secret.png")])
        self.wait(lambda: not chat.files.reason_to_wait())
        controller.send(f"{SECRET} {self.draw.random()}")
        for _ in range(self.draw.randrange(30)):
            self.qt.processEvents()
        end = self.draw.choice(("edit", "regenerate", "delete", "discard", "keep", "write on"))
        if end != "discard":
            self._wait_for_idle()
        chat.set_typed(f"{SECRET} {self.draw.random()}")
        chat.unsent.store()
        self._tell_done("written", chat.path.ids[-1])
        match end:
            case "edit":
                controller.edit_message(chat.path.ids[-2], f"{SECRET} {self.draw.random()}")
            case "regenerate":
                controller.regenerate(chat.path.ids[-1])
            case "delete":
                controller.delete_message(chat.path.ids[-2])
            case "discard":
                chat.discard()
                chat.start_new()
                self.ask()
            case "keep":
                texts = tuple(message.text for message in chat.path)
                self._tell_wanted("kept", texts)
                chat.keep_temporary()
                assert not chat.temporary
                self._tell_done("kept", texts)
        self._wait_for_idle()

    def notes(self) -> None:
        """Have something remembered, keep it, and change or delete it."""
        control = self.controller.notes
        if not self.controller.settings.values.notes_everywhere:
            self.controller.settings.change_values(notes_everywhere=True)
        self.controller.send(f"Remember that it is {self.draw.random()}")
        self._wait_for_reply()
        (proposed,) = control.proposed(self.chat.conversation)
        self._tell_notes([*self._noted(), proposed.text])
        control.keep(proposed, proposed.text)
        self._tell_done("notes", self._noted())
        if self.draw.random() < 0.5:
            note = self.draw.choice(self.controller.replies.notes())
            text = "" if self.draw.random() < 0.5 else f"It is {self.draw.random()}"
            changed = (each.text if each.id != note.id else text for each in self.controller.replies.notes())
            self._tell_notes([each for each in changed if each])
            control.change(note, text)
            self._tell_done("notes", self._noted())

    def ask_while_measured(self) -> None:
        """Ask, often in a new chat, while a benchmark runs: the question waits, and is answered then."""
        chat = self.chat
        self.engine.bench_events = EVENTS
        self.engine.gate.shut()
        self.controller.benchmark.run_plan(PLAN, {})
        if len(chat.path) >= _LONGEST or self.draw.random() < 0.5:
            chat.start_new()
        question = f"Waiting {self.draw.random()}"
        chat.set_typed(question)
        chat.unsent.store()
        self._tell_done("asked", question)
        chat.set_typed("")
        self.controller.send(question)
        for _ in range(self.draw.randrange(30)):
            self.qt.processEvents()
        self.engine.gate.open()
        self.wait(lambda: not chat.unsent.waiting)
        self._wait_for_reply()

    def _noted(self) -> list[str]:
        return [note.text for note in self.controller.replies.notes()]

    def _tell_notes(self, wanted: list[str]) -> None:
        self._tell_wanted("notes", self._noted(), wanted)

    def _state(self) -> frozenset[tuple[int, str]]:
        rows = self.store.rows("SELECT id, text FROM messages")
        return frozenset((row[0], row[1]) for row in rows)


KINDS: dict[str, Callable[[Work], None]] = {
    "delete": Work.delete,
    "edit": Work.edit,
    "summarise": Work.summarise,
    "compact": Work.compact,
    "restore": Work.restore,
    "tools": Work.tools,
    "temporary": Work.write_temporary,
    "notes": Work.notes,
    "measured": Work.ask_while_measured,
}
