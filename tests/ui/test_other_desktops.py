"""The window's tests again, in child processes, as on desktops with other fonts, locales, time zones and screens."""

import os
import subprocess
import sys

import pytest

from tests.fonts import PACKAGES, is_installed

DESKTOPS = {
    "Noto Sans": {"LC_ALL": "de_DE.UTF-8", "TZ": "Asia/Kathmandu", "QT_SCALE_FACTOR": "1.5"},
    "Liberation Sans": {"LC_ALL": "ar_EG.UTF-8", "TZ": "America/St_Johns", "SCHEME": "dark"},
}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("font", DESKTOPS)
def test_the_window_on_another_desktop(font: str) -> None:
    if not is_installed(font):
        pytest.skip(f"{font} is not installed; on Debian it is in {PACKAGES[font]}")
    # This test's own folders are not the child's.
    usual = {name: value for name, value in os.environ.items() if not name.startswith(("RDCHAT_", "XDG_DATA_HOME"))}
    desktop = usual | DESKTOPS[font] | {"FONT": font}
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--max-worker-restart=0"]
    command += ["-m", "not slow", "-p", "no:cacheprovider", "tests/ui"]
    done = subprocess.run(command, env=desktop, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
