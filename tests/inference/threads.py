"""Engines in tests: loaded without a look at the progress, and used on a thread of their own."""

import threading
from collections.abc import Callable
from pathlib import Path

from rdchat.inference.api import Dtype, Engine, Engines, ModelInfo


def on_a_thread[Result](work: Callable[[], Result]) -> Result:
    """Return what `work` returns on a thread of its own, after that thread has ended."""
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(work()))
    thread.start()
    thread.join()
    return results[0]


def load_silently(engine: Engine | Engines, model: Path | str | None) -> ModelInfo:
    """Load a model, whose progress nobody sees."""
    return engine.load(None if model is None else str(model), Dtype.AUTO, lambda _progress: None)
