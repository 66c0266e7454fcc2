"""Uses the whole app at random for a long time, and prints what it keeps: memory, threads, files, and objects.

    .venv/bin/python -m tests.soak --minutes 60 --seed 1

A person who never rests sends, stops, edits, switches and types in a window that is not seen, over a fixed number of
chats, decides on calls of tools, loads another model and restarts a server of tools. He attaches images and files,
keeps projects, writes temporary chats, searches, exports, imports and backs up; messages have code of thirty languages.
Each minute all of it comes to rest, so that two lines can be compared: memory after Python has collected, and MLX and
the C library have given back what is free. MLX kept 5 to 25 MB of it; the index of earlier replies may grow to 60 MB
(`reply_index.MAX_TOKENS`). glibc keeps pages of which a part is free, so resident memory grows more than what is in
use. The models are two tiny random ones; `--scripted` takes an engine of the tests, whose replies call tools. At the
end it lists what there is more of than after the first minute, and exits with 1 if that is a leak, if an error was
raised or logged, or if resident memory has grown by over 20 MB in the last half of the minutes.
"""

import argparse
import faulthandler
import gc
import logging
import os
import random
import re
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, count
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.fail.Keyring"

import psutil
import shiboken6
from PySide6.QtCore import QCoreApplication, QEvent
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QApplication, QMessageBox

from rdchat import app as composition, paths
from rdchat.app import App
from rdchat.chat.conversation import Conversation, MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Engines, GenerationRequest, ModelInfo, Role, SamplingParams, ToolCall
from rdchat.services.chat.tool_call_control import Scope
from rdchat.services.engine.engine_request import EngineState, Failure
from rdchat.tools.built_in import BUILT_IN_SERVERS
from rdchat.ui.conversation.project_views import ProjectSheet
from tests.malloc import bytes_in_use
from tests.services.fakes import Gate, Reply, ScriptedEngine, ScriptedReply

CHATS = 8
LONGEST_CHAT = 16
_PAUSE_S = 0.3
_TOKEN_S = 0.01
_PATIENCE_S = 900.0  # a process that is starved by others takes minutes to start
_CLOCK = replace(BUILT_IN_SERVERS[1], enabled=True)
_ROUNDS = 4
_MORE_RESTS = 5
_MORE_HANDLES = 2
_MORE_OBJECTS = 16
_MORE_BYTES = 20_000_000
_PROJECTS = 3
# The details of the last replies are kept, up to a limit; the 22 rates of a model's lookup count by their owner.
_BOUNDED = re.compile(r"\.(?:reply_trace|reply_statistics|events|draft_shape)\.|\.lookup_index\.Rate$").search
_MARKDOWN = (
    "**{}**",
    "`{}`",
    "\n\n- {}",
    '\n\n```LANGUAGE\n{} = 1  # two\nif (x < 3) {{ return "{}"; }}\n```\n\n',
    "\n\n| {} | b |\n|---|---|\n| c | d |\n\n",
    "{}",
)
_LANGUAGES = (
    "python", "c", "cpp", "csharp", "java", "javascript", "typescript", "go", "rust", "swift", "kotlin", "ruby",
    "php", "perl", "lua", "r", "julia", "haskell", "ocaml", "scala", "clojure", "elixir", "erlang", "bash",
    "powershell", "sql", "html", "css", "yaml", "json", "toml", "diff", "fish", "smithy", "dart",
)  # fmt: skip


@dataclass(frozen=True)
class Figures:
    """What the process has while the window rests.

    Attributes:
        memory: Resident memory in bytes.
        in_use: Bytes of it that the C library has given out, and not got back; 0 where it does not say.
        threads: Threads of Python and of others.
        files: Open files.
        objects: Python objects of rdchat's and Qt's classes, by the name of their class; widgets are among them.
    """

    memory: int
    in_use: int
    threads: int
    files: int
    objects: Counter[str]

    def __str__(self) -> str:
        kept = f"{self.threads} threads, {self.files} files, {self.objects.total()} objects"
        return f"{self.memory / 1e6:.1f} MB, {self.in_use / 1e6:.1f} MB in use, {kept}"

    def grown_since(self, before: "Figures") -> list[str]:
        """Return what there is so much more of that it is a leak; chats differ by some messages at each rest."""
        more = Counter({"threads": self.threads - before.threads, "files": self.files - before.files})
        grown = [f"{count:+} {name}" for name, count in more.items() if count > _MORE_HANDLES]
        kept = (self.objects - before.objects).most_common()
        return grown + [f"{count:+} {name}" for name, count in kept if count > _MORE_OBJECTS and not _BOUNDED(name)]


def figures() -> Figures:
    """Collect garbage, give free memory back to the system, and count what is left."""
    QCoreApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    gc.collect()
    if (mlx := sys.modules.get("mlx.core")) is not None:
        mlx.clear_cache()
    in_use = bytes_in_use()
    process = psutil.Process()
    # One call, within which no other thread goes on: while one makes a tuple of an iterator, a reference to that tuple
    # would end it with a SystemError.
    kinds = Counter(map(type, chain.from_iterable(map(gc.get_objects, (None,)))))
    counted = Counter({kind: number for kind, number in kinds.items() if not issubclass(kind, shiboken6.Object)})
    counted.update(map(type, shiboken6.getAllValidWrappers()))
    objects = Counter[str]()
    for kind, number in counted.items():
        if kind.__module__.startswith(("rdchat.", "PySide6.")):
            objects[f"{kind.__module__}.{kind.__qualname__}"] += number
    return Figures(process.memory_info().rss, in_use, process.num_threads(), process.num_fds(), objects)


class _LoggedErrors(logging.Handler):
    """Counts what is logged as an error: the engine's thread logs its own, and a reply that failed raises none here."""

    def __init__(self, errors: list[BaseException]) -> None:
        super().__init__(logging.ERROR)
        self._errors = errors

    def emit(self, record: logging.LogRecord) -> None:
        self._errors.append(RuntimeError(record.getMessage()))


class _SlowGate(Gate):
    """Has a token after a while, without holding Python meanwhile."""

    def wait(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        time.sleep(_TOKEN_S)


class TalkingEngine(ScriptedEngine):
    """Sees images, and answers with random Markdown, now and then with a call of the clock. It remembers no request."""

    def __init__(self, seed: int) -> None:
        super().__init__(gate=_SlowGate())
        self._random = random.Random(seed)
        self._numbers = count()

    def load(self, *arguments: Any, **named: Any) -> ModelInfo:
        self.loaded = replace(super().load(*arguments, **named), sees=True)
        return self.loaded

    def generate(self, request: GenerationRequest, _stopped: object = None) -> ScriptedReply:
        for kept in (self.options_asked, self.drafters_loaded, self.loads, self.updates):
            kept.clear()
        reply = Reply(tuple(words(self._random, 40)))
        if request.tools and self._random.random() < 0.3:
            call = ToolCall(f"{_CLOCK.name}__current_time", '{"zone": "UTC"}', f"call{next(self._numbers)}")
            reply = Reply((f'<tool_call>{{"name": "{call.name}"}}</tool_call>',), calls=(call,), content="")
        return ScriptedReply(request, reply, self.gate, [])


def words(chance: random.Random, most: int) -> list[str]:
    """Return words, some with Markdown or code around them."""
    found = list[str]()
    for _ in range(chance.randrange(1, most)):
        word = f"word{chance.randrange(1000)}"
        found.append(chance.choice(_MARKDOWN).format(word, word).replace("LANGUAGE", chance.choice(_LANGUAGES)) + " ")
    return found


class Soak:
    """A window with a person at it.

    Args:
        qt: The application.
        engine: Makes the engine.
        models: Names or folders of the models that are loaded in turn.
        seed: Of all that is random.
        pause_s: Between two actions, at most.
    """

    def __init__(
        self,
        qt: QApplication,
        engine: Callable[[], Engines],
        models: tuple[str, ...],
        seed: int,
        pause_s: float = _PAUSE_S,
    ) -> None:
        self._qt = qt
        self._models = models
        self._files = paths.data_dir().parent
        self._pause_s = pause_s
        self._random = random.Random(seed)
        self.errors: list[BaseException] = []
        self.done: Counter[str] = Counter()
        settings = SettingsStore(paths.settings_path())
        sampling = SamplingParams(max_tokens=60)
        settings.save_settings(
            # The panel is built when it is first shown.
            Settings(
                model=models[0], sampling=sampling, tool_servers=(_CLOCK,), titles_by_model=False, panel_visible=True
            )
        )
        self._hook = sys.excepthook
        sys.excepthook = self._note
        logging.getLogger().addHandler(_LoggedErrors(self.errors))
        self._store = ConversationStore(paths.database_path())
        self._app = App(qt, self._store, settings, engine)
        self._controller = self._app.controller
        self._window = self._app.window
        self._controller.model_slot.failed.connect(self._note_failure)
        self._window.resize(1100, 800)
        self._window.show()
        self._controller.open_last_chat()
        self._wait(lambda: self._controller.replies.state is EngineState.IDLE)
        for _ in range(CHATS):
            self._new_chat()
            self._settle()

    def _note(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        self.errors.append(error)
        self._hook(kind, error, trace)

    def _note_failure(self, failure: Failure) -> None:
        """A load that failed is told in the window alone."""
        self.errors.append(RuntimeError(f"{failure.message} {failure.hint}"))

    def _wait(self, is_so: Callable[[], bool]) -> None:
        """Let the window work until something is so; raise TimeoutError if it does not come."""
        late = time.monotonic() + _PATIENCE_S
        while not is_so():
            if time.monotonic() > late:
                raise TimeoutError
            self._work()

    def _pause(self, seconds: float) -> None:
        """Let the window work for some time."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._work()

    def _work(self) -> None:
        self._qt.processEvents()
        time.sleep(0.002)

    def act(self, seconds: float, times: int) -> None:
        """Do things at random for so long, but no more often than this."""
        actions = [
            self._send, self._send, self._send, self._stop, self._edit, self._edit, self._open, self._open, self._type,
            self._alternate, self._regenerate, self._decide, self._decide, self._load, self._restart, self._resize,
            self._attach, self._attach, self._project, self._write_temporary, self._write_temporary, self._search,
            self._find, self._move_out,
        ]  # fmt: skip
        # A rest ends in a new chat: what is sent there would be one more.
        self._open()
        end = time.monotonic() + seconds
        did = 0
        while time.monotonic() < end and did < times:
            action = self._random.choice(actions)
            action()
            self.done[action.__name__] += 1
            did += 1
            self._pause(self._random.uniform(0, self._pause_s))

    def rest(self) -> Figures:
        """Come to the same rest as ever, and count."""
        self._settle()
        self._window.sidebar.search.clear()
        self._controller.chats.list_hits("")
        self._window.conversation.find_bar.close_bar()
        order = self._controller.chats.order
        for folder in order.folders:
            order.delete_folder(folder)
        self._erase(self._store.conversations()[CHATS:])
        for chat in self._store.conversations():
            self._controller.chat.open_chat(chat.id)
            self._settle()
        for model in self._models:
            self._controller.model_slot.load_model(model)
            self._settle()
        self._controller.chat.start_new()
        self._settle()
        self._window.resize(1100, 800)
        self._pause(0.5)
        return figures()

    def finish(self) -> None:
        """Close the window."""
        self._window.close()
        self._app.end_app()
        self._window.deleteLater()
        self._pause(0.1)
        sys.excepthook = self._hook

    def _settle(self) -> None:
        """Stop what goes on in the open chat, refuse its calls, and close editors."""
        controller = self._controller
        while controller.chat.unsent.waiting:
            controller.chat.unsent.end_wait(controller.chat.unsent.waiting[0])
        controller.stop_reply()
        for call in controller.calls.waiting:
            controller.calls.decide(call, None)
        for widget in list(self._window.conversation.transcript.widgets.values()):
            if widget.is_edited:
                widget.edit().cancelled.emit()
        self._window.conversation.composer.field.clear()
        controller.chat.files.remove_files()
        controller.stop_reply()
        controller.chat.discard()
        # Where memory is short, a model that nobody uses is unloaded.
        at_rest = (EngineState.IDLE, EngineState.NO_MODEL)
        replies = controller.replies
        self._wait(lambda: replies.free and not replies.live and replies.state in at_rest)

    # --- actions

    def _new_chat(self) -> None:
        self._controller.chat.start_new()
        self._controller.chat.set_tools((_CLOCK.name,), ())
        self._controller.send("".join(words(self._random, 20)))

    def _erase(self, chats: list[Conversation]) -> None:
        """Delete chats for good, with all folders that are in the Trash."""
        order = self._controller.chats.order
        for chat in chats:
            self._controller.chats.delete_conversation(chat.id)
        order.erase(chats, self._store.organiser.deleted_folders())

    def _send(self) -> None:
        chat = self._controller.chat
        if len(chat.path) > LONGEST_CHAT and chat.stored_conversation and not self._controller.replies.live:
            self._settle()
            self._erase([chat.stored_conversation])
            self._new_chat()
        elif len(self._controller.chat.unsent.waiting) < 3:
            self._controller.send("".join(words(self._random, 60)))

    def _stop(self) -> None:
        self._controller.stop_reply()

    def _edit(self) -> None:
        """Edit a message; save it, leave it, or let the editor stand."""
        widgets = list(self._window.conversation.transcript.widgets.values())
        widgets = [each for each in widgets if each.message.role is not Role.TOOL and not each.is_busy]
        if widgets:
            editor = self._random.choice(widgets).edit()
            editor.field.setPlainText("".join(words(self._random, 60)))
            ends: list[Callable[[], object]] = [editor.field.submit_requested.emit, editor.cancelled.emit, lambda: None]
            self._random.choice(ends)()

    def _open(self) -> None:
        self._controller.chat.open_chat(self._random.choice(self._store.conversations()).id)

    def _type(self) -> None:
        composer = self._window.conversation.composer
        act = partial(composer.add_text, "".join(words(self._random, 100)))
        acts: list[Callable[[], object]] = [act, act, composer.field.undo, composer.field.clear]
        self._random.choice(acts)()

    def _some_message(self) -> Any:
        found = [each for each in self._controller.chat.path if each.role is Role.ASSISTANT]
        return self._random.choice(found) if found else None

    def _alternate(self) -> None:
        if message := self._some_message():
            self._controller.chat.show_alternative(message.id, self._random.choice((-1, 1)))

    def _regenerate(self) -> None:
        message = self._some_message()
        if message and message.status is not MessageStatus.STREAMING:
            self._controller.regenerate(message.id)

    def _decide(self) -> None:
        for card in list(self._window.conversation.calls.cards.values()):
            card.buttons[self._random.choice((Scope.ONCE, None))].click()

    def _load(self) -> None:
        self._controller.model_slot.load_model(self._random.choice(self._models))

    def _restart(self) -> None:
        self._controller.servers.put(_CLOCK)
        self._controller.servers.start_server(_CLOCK.name)

    def _resize(self) -> None:
        self._window.resize(self._random.randrange(500, 1400), self._random.randrange(400, 900))

    def _some_file(self) -> Path:
        """Write a text or an image that was not there before."""
        if self._random.random() < 0.4:
            path = self._files / "words.txt"
            path.write_text("".join(words(self._random, 300)))
            return path
        path = self._files / "image.png"
        image = QImage(self._random.randrange(1, 1500), self._random.randrange(1, 1000), QImage.Format.Format_RGB32)
        image.fill(QColor.fromRgb(self._random.randrange(1 << 24)))
        image.save(str(path))
        return path

    def _attach(self) -> None:
        """Attach a file to the next message, and wait until it is counted; too many for the model are removed."""
        files = self._controller.chat.files
        self._window.conversation.files.attach_files([str(self._some_file())])
        self._wait(lambda: files.tokens is not None)
        if files.reason_to_wait():
            files.remove_files()

    def _project(self) -> None:
        """Make a project or change one, by its sheet, and put the open chat into it."""
        order = self._controller.chats.order
        folder = self._random.choice(order.folders) if len(order.folders) >= _PROJECTS else None
        if folder is not None and self._random.random() < 0.3:
            order.delete_folder(folder)
            self._erase([])
            return
        self._window.commands.edit_project(folder)
        sheet = self._window.findChildren(ProjectSheet)[-1]
        sheet.name.setText(f"Project {self._random.random()}")
        sheet.instructions.setPlainText("".join(words(self._random, 30)))
        sheet.attach_files([str(self._some_file())])
        self._wait(sheet.buttons[-1].isEnabled)
        sheet.buttons[self._random.choice((0, -1, -1))].click()
        chat = self._controller.chat.stored_conversation
        if chat is not None and order.folders:
            order.move(chat, self._random.choice([None, order.folders[-1].id]))

    def _write_temporary(self) -> None:
        """Write a temporary chat with a file, and discard or keep it, as the question asks that leaving it opens."""
        chat = self._controller.chat
        self._settle()
        self._window.actions_.new_temporary.trigger()
        self._attach()
        self._controller.send("".join(words(self._random, 30)))
        self._pause(self._random.uniform(0, 1.0))
        self._open()
        for box in self._window.findChildren(QMessageBox):
            if box.isVisible():
                kept = self._random.choice(("Keep", "Discard"))
                button = next(each for each in box.buttons() if each.text().startswith(kept))
                self._wait(button.isEnabled)
                button.click()
        self._settle()
        if chat.id is None or len(self._store.conversations()) > CHATS:
            self._erase(self._store.conversations()[CHATS:])
            self._open()

    def _search(self) -> None:
        """Search all chats, or end the search."""
        self._window.sidebar.search.setText(self._random.choice(["", "word", f"word{self._random.randrange(1000)}"]))

    def _find(self) -> None:
        """Search the open chat, or end the search."""
        bar = self._window.conversation.find_bar
        bar.open_bar()
        bar.field.setText(f"word{self._random.randrange(100)}")
        if self._random.random() < 0.5:
            bar.go_to_match(1)
        else:
            bar.close_bar()

    def _move_out(self) -> None:
        """Export all chats, import them and undo that, or back up; by the services of the menu's commands."""
        transfers = self._app.transfer
        path = self._files / "chats.json"
        ended = list[Any]()

        def wait() -> Any:
            self._wait(lambda: bool(ended))
            return ended.pop()

        transfers.export(None, path, "json", lambda _: None, ended.append, details=False, shares=True)
        wait()
        if self._random.random() < 0.5:
            transfers.back_up(self._files / "backup.zip", lambda _: None, ended.append)
            self._note_outcome(wait())
            return
        # Chats that are here already are not imported again.
        path.write_text(path.read_text().replace("word", f"term{self._random.random()}"))
        transfers.import_files([path], lambda _: None, ended.append)
        report = self._note_outcome(wait())
        transfers.undo_import(report, lambda _: None, ended.append)
        self._note_outcome(wait())

    def _note_outcome(self, outcome: Any) -> Any:
        if isinstance(outcome, Exception):
            self.errors.append(outcome)
        return outcome


def tiny_models(folder: Path) -> tuple[str, str]:
    """Write two models of random weights, and return their folders."""
    from rdchat.inference import blas  # it picks the fast BLAS; the scripted engine needs no MLX

    # isort: split
    from rdchat.inference.models.default_conversion import convert
    from tests.inference.gguf_samples import write_gguf

    blas.compiled_kernels = lambda: 0  # while idle it looks at all of them for each array: tests have hundreds
    source = write_gguf(folder / "tiny.gguf")
    models = (folder / "one", folder / "two")
    for model in models:
        model.mkdir()
        convert(source, model, lambda _progress: None)
    return str(models[0]), str(models[1])


def main() -> int:
    """Run the soak; exit 1 if something raised an error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--actions", type=int, default=0, help="actions instead of a minute, four times")
    args = parser.parse_args()
    faulthandler.enable()
    logging.basicConfig(level=logging.WARNING)
    with TemporaryDirectory() as folder:
        os.environ["RDCHAT_DATA_DIR"], os.environ["RDCHAT_CACHE_DIR"] = f"{folder}/data", f"{folder}/cache"
        qt = composition.application()
        qt.setQuitOnLastWindowClosed(False)
        engine = partial(TalkingEngine, args.seed) if args.scripted else composition.make_engine
        models = ("one", "two") if args.scripted else tiny_models(Path(folder))
        soak = Soak(qt, engine, models, args.seed, 0.05 if args.actions else _PAUSE_S)
        begun = time.monotonic()
        rests = list[Figures]()
        while len(rests) < _ROUNDS if args.actions else time.monotonic() - begun < args.minutes * 60:
            soak.act(60, args.actions or sys.maxsize)
            rests.append(soak.rest())
            print(f"{(time.monotonic() - begun) / 60:5.1f} min, {soak.done.total():6} actions: {rests[-1]}", flush=True)
        grown = rests[-1].grown_since(rests[0])
        # On a busy machine some of it ends late, which is no leak.
        for _ in range(_MORE_RESTS if grown else 0):
            grown = grown and soak.rest().grown_since(rests[0])
        more = rests[-1].memory - rests[len(rests) // 2].memory
        if more > _MORE_BYTES and not args.actions:
            grown.append(f"{more / 1e6:+.1f} MB in the last half")
        print(*grown, dict(soak.done), f"{len(soak.errors)} errors", *soak.errors[:5], sep="\n", flush=True)
        soak.finish()
    return bool(soak.errors or grown)


if __name__ == "__main__":
    sys.exit(main())
