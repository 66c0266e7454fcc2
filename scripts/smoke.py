"""Runs README's `make run` until its window is drawn, ends it with SIGTERM, and fails if either goes wrong.

On Linux it runs on a virtual screen (`xvfb-run -a make run`), which is then inspected. On a Mac, where that needs a
permission, it reads the app's log, which says when the window was drawn. Not tried on a Mac. The chats go into a
temporary folder.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from rdchat import host
from rdchat.ui.window.main_window import ON_SCREEN

ROOT = Path(__file__).resolve().parent.parent
# Width, height, bits.
SCREEN = (1280, 1024, 24)
# Bytes of a screen that differ from its first black; the pointer alone is a few hundred.
DRAWN_BYTES = 500_000
DEADLINE_S = 120.0


def main() -> int:
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder, "data")
        environment = {name: value for name, value in os.environ.items() if name != "QT_QPA_PLATFORM"}
        screen = "x".join(map(str, SCREEN))
        server = f"-screen 0 {screen} -fbdir {folder} -nolisten tcp"
        command = ["make", "run"] if host.MACOS else ["xvfb-run", "-a", "-s", server, "make", "run"]
        process = subprocess.Popen(command, cwd=ROOT, env=environment | {"RDCHAT_DATA_DIR": str(data)})
        try:
            took = wait_for_window(process, lambda: is_logged(data) if host.MACOS else is_drawn(Path(folder)))
            app_of(process).terminate()
            status = process.wait(DEADLINE_S)
        finally:
            end(process)
        if status or not (data / "conversations.db").exists():
            raise SystemExit(f"The app ended with status {status} after SIGTERM.")
        if not is_logged(data):
            raise SystemExit("The log does not say that the window was drawn.")
    print(f"The window was drawn after {took:.1f} s and closed on SIGTERM.")
    return 0


def wait_for_window(process: "subprocess.Popen[bytes]", is_there: Callable[[], bool]) -> float:
    """Return the seconds until it is there."""
    began = time.monotonic()
    while time.monotonic() - began < DEADLINE_S:
        if process.poll() is not None:
            raise SystemExit(f"The app ended with status {process.returncode} before its window was drawn.")
        if is_there():
            return time.monotonic() - began
        time.sleep(0.2)
    raise SystemExit(f"No window was drawn within {DEADLINE_S:.0f} s.")


def is_drawn(folder: Path) -> bool:
    """Tell whether there is something on the screen, which the X server keeps in a file."""
    screen = folder / "Xvfb_screen0"
    size = SCREEN[0] * SCREEN[1] * 4
    return screen.exists() and size - screen.read_bytes()[-size:].count(0) > DRAWN_BYTES


def is_logged(data: Path) -> bool:
    """Tell whether the app's log says so."""
    log = data / "logs" / "rdchat.log"
    return log.exists() and ON_SCREEN in log.read_text(encoding="utf-8")


def app_of(process: "subprocess.Popen[bytes]") -> psutil.Process:
    """Return rdchat's own process below xvfb-run and make."""
    children = [
        child
        for child in psutil.Process(process.pid).children(recursive=True)
        if any(Path(word).name == "rdchat" for word in child.cmdline()[:2])
    ]
    if len(children) != 1:
        raise SystemExit(f"{len(children)} processes of rdchat run, not one.")
    return children[0]


def end(process: "subprocess.Popen[bytes]") -> None:
    """End what still runs."""
    if process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            child.kill()
        process.kill()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
