"""Packages that take seconds to import, in each process that collects tests, and that few tests use."""

from importlib import import_module
from typing import Any


class LateModule:
    """A module that is imported when something of it is first used."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for its own at everything that a test module holds
            raise AttributeError(name)
        return getattr(import_module(self._name), name)
