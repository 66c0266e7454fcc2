"""Render the application's icon from its SVG into PNG files: `python scripts/render_icon.py FOLDER [SIZE ...]`."""

import os
import sys
from pathlib import Path

from PySide6.QtGui import QGuiApplication

from rdchat.ui.look.icons import app_pixmap


def main() -> int:
    os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")
    if len(sys.argv) < 2:
        print(__doc__)
        return 2
    app = QGuiApplication([])
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for size in [int(size) for size in sys.argv[2:]] or [16, 32, 64, 128, 256, 512, 1024]:
        if not app_pixmap(size).save(str(folder / f"icon-{size}.png")):
            print(f"icon-{size}.png could not be written to {folder}.", file=sys.stderr)
            return 1
    app.quit()
    return 0


if __name__ == "__main__":
    sys.exit(main())
