"""The window's tests again, in child processes, as on desktops with other fonts, locales, time zones and screens."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fonts import PACKAGES, is_installed

DESKTOPS = {
    "Noto Sans": {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Kathmandu", "QT_SCALE_FACTOR": "1.5"},
    "Liberation Sans": {"LC_ALL": "ar_EG.UTF-8", "TZ": "America/St_Johns", "SCHEME": "dark"},
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("font", DESKTOPS)
def test_the_window_on_another_desktop(font: str, tmp_path: Path) -> None:
    if not is_installed(font):
        pytest.skip(f"{font} is not installed; on Debian it is in {PACKAGES[font]}")
    # This test's own folders are not the child's.
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("RDCHAT_", "XDG_DATA_HOME"))}
    # The screen has as much room as the offscreen platform's usual one, 800 by 800 units.
    side = round(800 * float(DESKTOPS[font].get("QT_SCALE_FACTOR", "1")))
    screen = {
        "name": "",
        "x": 0,
        "y": 0,
        "width": side,
        "height": side,
        "logicalDpi": 96,
        "logicalBaseDpi": 96,
        "dpr": 1,
    }
    (tmp_path / "screens.json").write_text(json.dumps({"screens": [screen]}))
    platform = f"offscreen:configfile={tmp_path / 'screens.json'}"
    desktop = usual | DESKTOPS[font] | {"FONT": font, "QT_QPA_PLATFORM": platform}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--max-worker-restart=0"]
    command += ["-m", "not slow", "-p", "no:cacheprovider", "tests/ui"]
    done = subprocess.run(command, env=desktop, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
