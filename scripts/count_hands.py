"""Prints how many modules and functions of rdchat run for a question, from `ChatController.send` to `Engine.generate`.

    QT_QPA_PLATFORM=offscreen python -m scripts.count_hands
    QT_QPA_PLATFORM=offscreen python -m scripts.count_hands --names

Those of both threads count, the main one and the engine's. There is no window, and an engine without a model answers.
The figures are the median of the questions of a chat but for the first, which imports modules too: what timers do
between is a matter of chance.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from itertools import groupby
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from types import CodeType
from typing import cast

from PySide6.QtCore import QCoreApplication, QEventLoop

import rdchat
from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import (
    ChatMessage,
    DraftOptions,
    DraftSettings,
    Dtype,
    Engine,
    Engines,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    ModelInfo,
    OnProgress,
    PrefixCacheFacts,
    ReplyEnd,
    ReplyPart,
    Statistics,
    Thoughts,
    TokenIterator,
)
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.window.chat_controller import ChatController

PACKAGE = Path(rdchat.__file__).parent
MODEL = ModelInfo("none", Path("none"), "llama", "float32", "CPU", 2048, 49_152, 1000, 4000, 0.0)
_TOOL = sys.monitoring.PROFILER_ID
_TEXT = "Hello."
_QUESTIONS = 9


class _Reply:
    """A reply of one event: its end."""

    def __init__(self, request_id: int) -> None:
        spoken = Thoughts(_TEXT, (ReplyPart(0, len(_TEXT), is_thought=False),))
        statistics = Statistics(generated_tokens=1)
        end = ReplyEnd(request_id, _TEXT, (1,), _TEXT, FinishReason.EOS, statistics, told=spoken)
        self._events = iter([end])

    def __iter__(self) -> "_Reply":
        return self

    def __next__(self) -> GenerationEvent:
        return next(self._events)

    def cancel(self) -> None:
        """Do nothing: it has ended."""

    def close(self) -> None:
        """Free nothing."""


class _Engine:
    """An engine without a model, which is every model's; `on_generate` is called as a reply begins."""

    def __init__(self, on_generate: Callable[[], None]) -> None:
        self._on_generate = on_generate

    @property
    def chosen(self) -> Engine:
        return cast(Engine, self)

    def load(self, model: str | None, dtype: Dtype, on_progress: OnProgress, anyway: bool = False) -> ModelInfo:
        return MODEL

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> TokenIterator:
        self._on_generate()
        return cast(TokenIterator, _Reply(request.request_id))

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        return DraftOptions(MODEL.path, ())

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        return PrefixCacheFacts(0, 0, 0)

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        return 10

    def load_drafters(self, settings: DraftSettings, on_progress: OnProgress) -> None:
        """Load nothing."""

    def idle(self, *, hidden: bool = False) -> bool:
        return False

    def close(self) -> None:
        """Free nothing."""


class _Counter:
    """Notes the functions of rdchat that run, on any thread, from `start` to `stop`."""

    def __init__(self) -> None:
        self._codes = set[CodeType]()
        sys.monitoring.use_tool_id(_TOOL, "hands")
        sys.monitoring.register_callback(_TOOL, sys.monitoring.events.PY_START, self._note)

    def _note(self, code: CodeType, _offset: int) -> object:
        self._codes.add(code)
        return None

    def start(self) -> None:
        self._codes.clear()
        sys.monitoring.set_events(_TOOL, sys.monitoring.events.PY_START)

    def stop(self) -> None:
        sys.monitoring.set_events(_TOOL, 0)

    @property
    def functions(self) -> set[tuple[str, str]]:
        """The functions that ran, each with its module before it; a generator expression is none."""
        own = [code for code in self._codes if Path(code.co_filename).is_relative_to(PACKAGE)]
        return {
            (str(Path(code.co_filename).relative_to(PACKAGE)), code.co_qualname)
            for code in own
            if code.co_name != "<genexpr>"
        }


def count_hands() -> list[set[tuple[str, str]]]:
    """Return the functions that run for each question of a chat but the first, with their modules."""
    application = QCoreApplication([])
    counter = _Counter()
    counted = []
    with TemporaryDirectory() as folder:
        store = ConversationStore(Path(folder) / "chats.db")
        settings = SettingsStore(Path(folder) / "settings.json")
        engine = EngineClient(lambda: cast(Engines, _Engine(counter.stop)), nullcontext)
        controller = ChatController(store, settings, engine)
        controller.settings.change_values(titles_by_model=False)
        controller.open_last_chat()

        def wait_until(is_so: Callable[[], bool]) -> None:
            while not is_so():
                application.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 100)

        def is_quiet() -> bool:
            return controller.replies.free and not engine.writing and controller.context.meter.current

        wait_until(lambda: controller.model_slot.info is not None and is_quiet())
        for _ in range(1 + _QUESTIONS):
            counter.start()
            controller.send("And?")
            wait_until(is_quiet)
            counted.append(counter.functions)
        controller.shut_down()
        store.close()
    return counted[1:]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--names", action="store_true", help="print the functions of each module")
    args = parser.parse_args()
    counted = count_hands()
    modules = [len({module for module, _ in functions}) for functions in counted]
    print(f"{median(modules):.0f} modules, {median(map(len, counted)):.0f} functions")
    if args.names:
        for module, functions in groupby(sorted(set().union(*counted)), key=lambda each: each[0]):
            print(f"{module}: {', '.join(name for _, name in functions)}")


if __name__ == "__main__":
    main()
