"""Measures how long it takes until a chat that nearly fills the context has a summary, and what it costs in tokens.

    QT_QPA_PLATFORM=offscreen python scripts/bench_long_chats.py

The chat has questions about texts of rdchat's training texts. The time is that of the request, from the first token
read to the last one written; nothing of the chat is in memory before.
"""

import argparse
import json
import time
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from PySide6.QtCore import QCoreApplication, QEventLoop

from rdchat import machine, paths
from rdchat.chat.presets import LongChats
from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api import Role
from rdchat.inference.engines import EnginesByAddress
from rdchat.services.chat.chat_context import Doing, SummaryProgress
from rdchat.services.engine.engine_client import EngineClient
from rdchat.services.window.chat_controller import ChatController


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="a folder or a hub id; the default model without it")
    args = parser.parse_args()
    file = Path(paths.__file__).parent / "training_texts" / "written_texts.json"
    articles = json.loads(file.read_text(encoding="utf-8"))["articles"]
    machine.on_battery = lambda: False
    application = QCoreApplication([])
    with TemporaryDirectory() as folder:
        store = ConversationStore(Path(folder) / "chats.db")
        settings = SettingsStore(Path(folder) / "settings.json")
        controller = ChatController(store, settings, EngineClient(EnginesByAddress, nullcontext))
        controller.settings.change_values(model=args.model, keep_caches=False, titles_by_model=False)
        controller.open_last_chat()
        progress: list[tuple[float, SummaryProgress]] = []
        controller.context.summary_progressed.connect(lambda each: progress.append((time.perf_counter(), each)))
        until = partial(wait, application)
        until(lambda: controller.model_slot.info is not None)
        chat = store.create_conversation("Long")
        info = controller.model_slot.info
        assert info is not None
        last = None
        tokens = 0
        meter = controller.context.meter
        room = info.context_length - min(settings.settings.sampling.max_tokens, info.context_length // 4)
        for article in articles:
            for role, text in ((Role.USER, f"What is said here?\n\n{article}"), (Role.ASSISTANT, article[:200])):
                last = store.add_message(chat.id, last, role, text).id
            controller.chat.open_chat(chat.id)
            until(lambda: meter.current and meter.use is not None and meter.use.last_id == last)  # noqa: B023
            tokens = (meter.use and meter.use.tokens) or 0
            if tokens > room:
                break
        controller.settings.change_values(long_chats=LongChats.COMPACT)
        until(lambda: controller.context.doing is not Doing.NOTHING)
        until(lambda: controller.context.doing is Doing.NOTHING)
        until(lambda: meter.current)
        path = controller.chat.path
        cut = path[path.cut_index] if path.cut_index >= 0 else None
        parts = {each.part: each for _, each in progress}
        after = (meter.use and meter.use.tokens) or 0
        result = {
            "context": info.context_length,
            "tokens before": tokens,
            "tokens after": after,
            "tokens read": [each.to_read for each in parts.values()],
            "tokens written": [each.written for each in parts.values()],
            "seconds": round(progress[-1][0] - progress[0][0], 1),
            "messages replaced": controller.chat.path.cut_index + 1,
            "messages": len(controller.chat.path),
        }
        print(json.dumps(result, indent=2))
        print(cut.context_cut.summary if cut and cut.context_cut else "It was cut off, or empty.")
        controller.shut_down()
        store.close()


def wait(application: QCoreApplication, is_so: Callable[[], bool]) -> None:
    while not is_so():
        application.processEvents(QEventLoop.ProcessEventsFlag.WaitForMoreEvents, 100)


if __name__ == "__main__":
    main()
