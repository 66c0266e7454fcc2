"""The whole app with an engine without a model, in a folder of its own, for benchmarks."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from PySide6.QtWidgets import QApplication
from stand_in_engine import StandInEngine

from rdchat import paths
from rdchat.app import App
from rdchat.chat.settings import SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.inference.api.protocol import TokenIterator


@contextmanager
def own_folder() -> Iterator[Path]:
    """Keep the app's data and cache in a fresh folder."""
    with tempfile.TemporaryDirectory() as folder:
        os.environ["RDCHAT_DATA_DIR"] = os.environ["RDCHAT_CACHE_DIR"] = folder
        yield Path(folder)


def new_app(qt: QApplication, store: ConversationStore, reply: Callable[[int], TokenIterator]) -> App:
    """Return the app, which is not started yet."""
    return App(qt, store, SettingsStore(paths.settings_path()), lambda: StandInEngine(reply))


@contextmanager
def running_app(qt: QApplication, reply: Callable[[int], TokenIterator]) -> Iterator[App]:
    """Start the app, and quit it at the end of the block."""
    app = new_app(qt, ConversationStore(paths.database_path()), reply)
    app.start()
    yield app
    app.window.close()
    assert app.finish()
    app.window.deleteLater()
