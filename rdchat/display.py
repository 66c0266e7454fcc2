"""Whether a window can be shown. Qt ends the process where it cannot, so rdchat looks first."""

import ctypes
import os
import socket
import threading
from collections.abc import Mapping
from pathlib import Path

from rdchat import host

_XCB = "libxcb.so.1"  # what Qt's own plugin connects with


def has_display(environment: Mapping[str, str] = os.environ, timeout_s: float = 5.0) -> bool:
    """Tell whether a display is there and answers.

    Args:
        environment: The variables that name the display, and the platform plugins that Qt is to use.
        timeout_s: How long to wait for a display that takes the connection and then says nothing.
    """
    if host.MACOS:
        return True
    asked = environment.get("QT_QPA_PLATFORM")
    plugins = [name.partition(":")[0] for name in asked.split(";")] if asked else ["xcb", "wayland"]
    return any(_can_show(plugin, environment, timeout_s) for plugin in plugins)


def _can_show(plugin: str, environment: Mapping[str, str], timeout_s: float) -> bool:
    if plugin == "xcb":
        return bool(environment.get("DISPLAY")) and _x_server_answers(environment["DISPLAY"], timeout_s)
    if plugin.startswith("wayland"):
        return "WAYLAND_SOCKET" in environment or _compositor_answers(environment)
    return True  # such as offscreen


def _x_server_answers(display: str, timeout_s: float) -> bool:
    """Connect as Qt does; in a thread, as the library waits without end for a server that hangs.

    The connection stays for as long as the process does: a virtual server starts anew when its last client leaves, and
    might refuse Qt meanwhile.
    """
    try:
        xcb = ctypes.CDLL(_XCB)
    except OSError:
        return False
    xcb.xcb_connect.restype = ctypes.c_void_p
    answered = threading.Event()

    def connect() -> None:
        connection = ctypes.c_void_p(xcb.xcb_connect(os.fsencode(display), None))
        if xcb.xcb_connection_has_error(connection):
            xcb.xcb_disconnect(connection)
        else:
            answered.set()

    attempt = threading.Thread(target=connect, name="display", daemon=True)
    attempt.start()
    attempt.join(timeout_s)
    return answered.is_set()


def _compositor_answers(environment: Mapping[str, str]) -> bool:
    name = environment.get("WAYLAND_DISPLAY")
    if not name:
        return False
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(Path(environment.get("XDG_RUNTIME_DIR", ""), name)))
        except OSError:
            return False
    return True
