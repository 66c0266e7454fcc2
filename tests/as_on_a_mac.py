"""A pytest plugin: rdchat believes that it runs on a Mac. Carbon and the kernel's figures of memory have stand-ins.

`pytest -p tests.as_on_a_mac tests/ui` shows from Linux which tests expect another system's words and ways. Settings
are read before: the item in the menu bar, which a Mac has by default, has no place offscreen.
"""

import ctypes
import sys
from types import SimpleNamespace

import psutil

import rdchat.chat.settings
import rdchat.machine
from rdchat import host, mac_desktop
from tests.carbon import Carbon


class ProcessInfo:
    """NSProcessInfo of PyObjC's Foundation, of a cool Mac."""

    @classmethod
    def processInfo(cls) -> "ProcessInfo":
        return cls()

    def thermalState(self) -> int:
        return 0

    def isLowPowerModeEnabled(self) -> bool:
        return False

    def beginActivityWithOptions_reason_(self, options: int, reason: str) -> str:
        return reason

    def endActivity_(self, activity: str) -> None:
        """The Mac may sleep again."""


host.MACOS = True
sys.modules["Foundation"] = SimpleNamespace(NSProcessInfo=ProcessInfo, NSActivityUserInitiated=1)  # type: ignore[assignment]
_hot_key = mac_desktop.HotKey.__init__
mac_desktop.HotKey.__init__ = lambda key, pressed, library=None: _hot_key(key, pressed, library or Carbon())
rdchat.machine._read_footprint = lambda pid: 0
_free = rdchat.machine._free_on_macos
rdchat.machine._free_on_macos = lambda: (
    _free() if hasattr(ctypes.CDLL(None), "host_statistics64") else psutil.virtual_memory().available
)
