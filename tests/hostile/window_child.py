"""The window that the corpus is tried in: `python -m tests.hostile.window_child GOOD_MODEL DATA_FOLDER`.

It is told cases on standard input and tells what was wrong with each, as lines of JSON. One window with the real engine
takes all models, drafters and templates, one after the other; each database and each text has a window of its own.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from itertools import batched
from pathlib import Path
from types import TracebackType
from typing import Any

from PySide6.QtCore import QObject, Qt, Signal, Slot

from rdchat import app as composition, paths
from rdchat.app import App
from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.storage import SearchQuery
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError
from rdchat.inference.api import Engines, Mode, SamplingParams
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.window.main_window import MainWindow
from tests.hostile.heartbeat import Heartbeat, Script, either, wait
from tests.listed_chats import listed
from tests.services.fakes import Gate, Reply, ScriptedEngine
from tests.ui.hovering import parts_of, tips_of

_LOADING_S = 50.0
_WRITING_S = 3.0
_STOPPING_S = 3.0
_LOOKING_S = 1.0
_ADMISSIONS = ("something unexpected", "a mistake", "Traceback")
_PIECE = 200  # characters of a token, where a text is streamed
_CHATS_LOOKED_AT = 3
_PLACES_AT_ONCE = 3  # that the pointer rests on between two beats
_TOKEN_S = 0.0005


class _FastDevice(Gate):
    """Has a token every half millisecond, and leaves Python to others meanwhile, as a wait for the GPU does."""

    def wait(self, is_cancelled: Callable[[], bool] = lambda: False) -> None:
        time.sleep(_TOKEN_S)


class Visitor(QObject):
    """Takes the window through the cases."""

    ordered = Signal(str)

    def __init__(self, qt: Any, good: Path) -> None:
        super().__init__()
        self._qt = qt
        self._good = good
        self._faults: list[str] = []
        self._heart = Heartbeat(self._answer, self)
        sys.excepthook = self._note_exception
        self._app = self._open(paths.database_path(), composition.make_engine)
        self.ordered.connect(self._take, Qt.ConnectionType.QueuedConnection)
        self._heart.play(self._warm_up())

    def _open(self, store: Path, engine: Callable[[], Engines]) -> App:
        sampling = SamplingParams(temperature=0, max_tokens=4)
        settings = SettingsStore(paths.settings_path())
        settings.save_settings(Settings(model=str(self._good), sampling=sampling, seed=7))
        app = App(self._qt, ConversationStore(store), settings, engine)
        app.window.show()
        return app

    def listen(self) -> None:
        """Read orders until there are no more; a thread of its own."""
        for line in sys.stdin:
            self.ordered.emit(line)
        os._exit(0)  # what a case left must not hold the end up

    @Slot(str)
    def _take(self, line: str) -> None:
        order = json.loads(line)
        self._faults = []
        self._heart.begin_measuring()
        is_own = order["store"] is not None
        self._heart.play(self._with_own_window(order) if is_own else self._with_model(order))

    def _answer(self) -> None:
        gap_ms = round(self._heart.longest_s * 1000)
        print(json.dumps({"faults": self._faults, "gap_ms": gap_ms}), flush=True)

    def _warm_up(self) -> Script:
        self._app.controller.open_last_chat()
        yield from self._good_again()

    # A model in the one window

    def _with_model(self, order: dict[str, Any]) -> Script:
        controller = self._app.controller
        own_data = os.environ["RDCHAT_DATA_DIR"]
        os.environ["RDCHAT_DATA_DIR"] = order["data"] or own_data
        controller.model_slot.load_model(order["model"])
        yield either(self._is_settled, _LOADING_S)
        if not self._is_settled():
            self._faults.append("the model neither loads nor fails")
        if failure := controller.model_slot.failure:
            self._judge(failure.message)
        elif order["drafter"]:
            controller.drafting.change(
                replace(controller.drafting.settings, mode=Mode.DRAFTER, drafter=order["drafter"])
            )
        yield from self._ask()
        self._judge(controller.drafting.last_problem)
        os.environ["RDCHAT_DATA_DIR"] = own_data
        yield from self._good_again()

    def _is_settled(self) -> bool:
        return self._app.controller.replies.state in {EngineState.IDLE, EngineState.NO_MODEL}

    def _ask(self) -> Script:
        """Ask in a new chat; a reply that takes long is stopped, which must end it."""
        controller = self._app.controller
        if controller.replies.state is not EngineState.IDLE:
            return
        controller.chat.start_new()
        controller.send("Hello")
        yield either(self._has_ended, _WRITING_S)
        if not self._has_ended():
            controller.stop_reply()
            yield either(self._has_ended, _STOPPING_S)
            if not self._has_ended():
                self._faults.append("Stop does not end the reply")
        if controller.chat.path:
            self._judge(controller.chat.path[-1].error)

    def _has_ended(self) -> bool:
        messages: list[Message] = self._app.controller.chat.path
        return len(messages) < 2 or messages[-1].status is not MessageStatus.STREAMING

    def _good_again(self) -> Script:
        """Load the good model again and have it answer."""
        controller = self._app.controller
        controller.model_slot.load_model(str(self._good))
        yield either(self._is_good_loaded, _LOADING_S)
        yield from self._ask()
        reply = controller.chat.path[-1] if controller.chat.path else None
        if not self._is_good_loaded() or reply is None or reply.status is not MessageStatus.COMPLETE:
            self._faults.append("a good model does not answer afterwards")

    def _is_good_loaded(self) -> bool:
        model = self._app.controller.model_slot.info
        return self._is_settled() and model is not None and model.path == self._good

    # A window of its own

    def _with_own_window(self, order: dict[str, Any]) -> Script:
        text = order["text"]
        pieces = tuple(text[at : at + _PIECE] for at in range(0, len(text or ""), _PIECE))
        try:
            opened = self._open(
                Path(order["store"]), lambda: ScriptedEngine([Reply(pieces or ("Hello",))], gate=_FastDevice())
            )
        except RdchatError as error:
            self._judge(str(error))
            return
        yield wait(_LOOKING_S / 2)
        self._heart.begin_measuring()  # the window stands
        controller = opened.controller
        controller.open_last_chat()
        yield wait(_LOOKING_S)
        for chat in listed(controller.chats)[:_CHATS_LOOKED_AT]:
            controller.chat.open_chat(chat.id)
            yield wait(_LOOKING_S / 4)
        if order["only_model"] is not None:
            yield from self._point_at_all(opened.window, order["only_model"])
        controller.send("Hello")
        yield either(lambda: controller.replies.state is EngineState.IDLE, _LOADING_S)
        if controller.replies.state is not EngineState.IDLE:
            self._faults.append("the reply does not end")
        yield wait(_LOOKING_S)
        measured = self._heart.longest_s
        opened.window.close()
        if not opened.end_app():
            self._faults.append("the engine thread does not end")
        opened.window.deleteLater()
        self._heart.longest_s = measured  # closing a window is no gap of one

    def _point_at_all(self, window: MainWindow, model: str) -> Script:
        """List the chats of a model alone, and rest the pointer on each part of the window."""
        window.sidebar.filter.choose(SearchQuery(model=model))
        yield wait(_LOOKING_S / 4)
        for part in parts_of(window):
            for _ in batched(tips_of(part), _PLACES_AT_ONCE, strict=False):
                yield lambda: True

    def _note_exception(self, kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        """Take what nothing catches, in the app's slots too, for a fault."""
        self._faults.append(f"an exception in the window: {kind.__name__}: {str(error)[:100]}")
        sys.__excepthook__(kind, error, trace)

    def _judge(self, said: str) -> None:
        self._faults += [f"the window says {words!r}" for words in _ADMISSIONS if words in said]


def main() -> int:
    """Show the window and serve."""
    qt = composition.application()
    qt.setQuitOnLastWindowClosed(False)
    visitor = Visitor(qt, Path(sys.argv[1]))
    threading.Thread(target=visitor.listen, daemon=True).start()
    return int(qt.exec())


if __name__ == "__main__":
    sys.exit(main())
