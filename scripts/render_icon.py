"""Renders the application's icon from its SVG.

`python scripts/render_icon.py FOLDER [SIZE ...]` writes PNG files, `python scripts/render_icon.py --icns FILE` the icon
set of a Mac's app.
"""

import os
import sys
from pathlib import Path

from PySide6.QtCore import QBuffer, QIODevice
from PySide6.QtGui import QGuiApplication

from rdchat.ui.style import app_pixmap

SIZES = (16, 32, 64, 128, 256, 512, 1024)
# Apple's types of an icon set's members that are PNG, and their width in pixels; for screens of double density the
# type names half of it.
ICNS_TYPES = {
    b"icp4": 16,
    b"icp5": 32,
    b"ic07": 128,
    b"ic08": 256,
    b"ic09": 512,
    b"ic11": 32,
    b"ic12": 64,
    b"ic13": 256,
    b"ic14": 512,
    b"ic10": 1024,
}


def main() -> int:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    if len(sys.argv) < 2 or sys.argv[1:] == ["--icns"]:
        print(__doc__)
        return 2
    app = QGuiApplication([])
    if sys.argv[1] == "--icns":
        path = Path(sys.argv[2])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(icns())
    else:
        folder = Path(sys.argv[1])
        folder.mkdir(parents=True, exist_ok=True)
        for size in [int(size) for size in sys.argv[2:]] or SIZES:
            (folder / f"icon-{size}.png").write_bytes(png(size))
    app.quit()
    return 0


def icns() -> bytes:
    """Return an icon set: its mark and length, then each member's type, length with these 8 bytes, and PNG."""
    members = b"".join(kind + _length(picture) + picture for kind, picture in _pictures())
    return b"icns" + _length(members) + members


def _pictures() -> list[tuple[bytes, bytes]]:
    drawn = {size: png(size) for size in set(ICNS_TYPES.values())}
    return [(kind, drawn[size]) for kind, size in ICNS_TYPES.items()]


def _length(content: bytes) -> bytes:
    return (len(content) + 8).to_bytes(4, "big")


def png(size: int) -> bytes:
    """Return the icon of this width in pixels."""
    buffer = QBuffer()
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    if not app_pixmap(size).save(buffer, "PNG"):
        raise SystemExit(f"The icon of {size} pixels could not be written.")
    return bytes(buffer.data().data())


if __name__ == "__main__":
    sys.exit(main())
