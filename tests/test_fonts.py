import os
import subprocess
import sys
from pathlib import Path

import pytest
from PySide6.QtGui import QFontDatabase, QFontInfo
from PySide6.QtWidgets import QApplication

from tests.fonts import chosen_font, take_font

PROGRAM = """
from PySide6.QtGui import QFontDatabase, QFontInfo, QGuiApplication
app = QGuiApplication([])
general, fixed = QFontDatabase.SystemFont.GeneralFont, QFontDatabase.SystemFont.FixedFont
print(*[QFontInfo(QFontDatabase.systemFont(kind)).family() for kind in (general, fixed)], sep=", ")
"""
linux = pytest.mark.skipif(sys.platform != "linux", reason="fontconfig does not choose the fonts here")


@linux
def test_windows_have_the_font_of_the_tests_here_and_in_other_processes(
    qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not take_font(chosen_font()):
        pytest.skip(f"{chosen_font()} is not installed: the tests have the desktop's font")
    family = QFontInfo(QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)).family()
    assert family == chosen_font()
    monkeypatch.setenv("LC_ALL", "ar_EG.UTF-8")
    shown = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    assert shown.stdout == f"{chosen_font()}, DejaVu Sans Mono\n"


@linux
def test_a_font_that_is_not_installed_is_refused_by_name() -> None:
    command = [sys.executable, "-m", "pytest", "-n", "0", "--collect-only", "-p", "no:cacheprovider", __file__]
    surroundings = os.environ | {"FONT": "No Font"}
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "No Font is not installed" in done.stderr
