"""A pytest plugin: rdchat believes that it runs on a Mac. Carbon and the kernel's figures of memory have stand-ins.

`pytest -p tests.as_on_a_mac tests/ui` shows from Linux which tests expect another system's words and ways. Settings
are read before: the item in the menu bar, which a Mac has by default, has no place offscreen.
"""

import psutil

import rdchat.chat.settings
import rdchat.machine
from rdchat import host, mac_desktop
from tests.carbon import Carbon

host.MACOS = True
_hot_key = mac_desktop.HotKey.__init__
mac_desktop.HotKey.__init__ = lambda key, pressed, library=None: _hot_key(key, pressed, library or Carbon())
rdchat.machine._read_footprint = lambda pid: 0
rdchat.machine._free_on_macos = lambda: int(psutil.virtual_memory().available)
