"""A pytest plugin: nothing of Qt can be imported, nor what shows windows, as where only the engine is installed.

`make test-engine` runs the engine's tests with it.
"""

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

FORBIDDEN = ("PySide6", "shiboken6", "pytestqt", "rdchat.services", "rdchat.ui", "rdchat.commands")


class Refusal:
    """Finds nothing, and refuses what is forbidden and what is in it."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if any(name == each or name.startswith(f"{each}.") for each in FORBIDDEN):
            raise ModuleNotFoundError(f"The engine's tests need no {name}", name=name)
        return None


sys.meta_path.insert(0, Refusal)
