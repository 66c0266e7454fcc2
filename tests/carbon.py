"""A stand-in for macOS's Carbon library."""

import ctypes
from typing import Any

EXISTS = -9878


class Function:
    """A function of a library: it takes a type of its result, and keeps its arguments."""

    def __init__(self, answer: Any = 0) -> None:
        self.answer = answer
        self.calls = list[tuple[Any, ...]]()
        self.restype: Any = ctypes.c_int

    def __call__(self, *arguments: Any) -> Any:
        self.calls.append(arguments)
        return self.answer


class Carbon:
    def __init__(self) -> None:
        self.GetApplicationEventTarget = Function(0x7FFF_0000_1234)
        self.InstallEventHandler = Function()
        self.RegisterEventHotKey = Function()
        self.UnregisterEventHotKey = Function()

    @property
    def registered(self) -> tuple[int, int]:
        """The key code and the modifiers of the last call."""
        code, modifiers, *_ = self.RegisterEventHotKey.calls[-1]
        return code.value, modifiers.value
