"""The font of the tests' windows, whatever the desktop prefers and whatever else is installed."""

import os
import sys
from contextlib import suppress
from pathlib import Path

from rdchat.files.privacy import private_folder
from tests.kernels import temporary_folder

PACKAGES = {
    "DejaVu Sans": "fonts-dejavu-core",
    "Noto Sans": "fonts-noto-core",
    "Liberation Sans": "fonts-liberation",
}
"""Debian packages of the fonts that the tests are run with."""
# What has no letter in the font, or has one width, is in DejaVu.
_DEJAVU = ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf", "DejaVuSansMono-Bold.ttf")
# Hinting as on Debian and Ubuntu: without this rule the letters would be wider.
_RULES = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
<dir>{folder}</dir>
<cachedir>{folder}/cache</cachedir>
<match target="pattern">
<test name="family" qual="all" compare="not_eq"><string>monospace</string></test>
<edit name="family" mode="append" binding="strong"><string>{family}</string></edit>
</match>
<match target="pattern">
<test name="family"><string>monospace</string></test>
<edit name="family" mode="prepend" binding="strong"><string>DejaVu Sans Mono</string></edit>
</match>
<match target="pattern">
<edit name="hintstyle" mode="append"><const>hintslight</const></edit>
</match>
</fontconfig>
"""


def chosen_font() -> str:
    """Return the family that the tests are to have: that of the variable FONT, or DejaVu Sans."""
    return os.environ.get("FONT", "DejaVu Sans")


def is_installed(family: str) -> bool:
    """Return whether `take_font` finds a font."""
    return bool(_files(family))


def take_font(family: str) -> bool:
    """Have this process, and those that it starts, show all text in a font; call it before there is an application.

    Return False, and change nothing, where the font is not installed, or where fontconfig does not choose fonts.
    """
    files = _files(family)
    if not files:
        return False
    folder = private_folder(temporary_folder() / family.replace(" ", ""))
    for file in files:
        with suppress(FileExistsError):
            (folder / file.name).symlink_to(file)
    rules = folder / "fonts.conf"
    written = folder / f"{os.getpid()}.conf"
    written.write_text(_RULES.format(folder=folder, family=family))
    written.replace(rules)  # at once: other processes read it
    os.environ["FONTCONFIG_FILE"] = str(rules)
    return True


def _files(family: str) -> list[Path]:
    """Return the installed files of a font, such as NotoSans-Bold.ttf, and those of DejaVu; none without the former."""
    stem = family.replace(" ", "")
    installed = [file for folder in _folders() for file in folder.rglob("*.[ot]tf")]
    own = [file for file in installed if file.name.startswith((f"{stem}-", f"{stem}.", f"{stem}["))]
    return [file for file in installed if file in own or file.name in _DEJAVU] if own else []


def _folders() -> list[Path]:
    if sys.platform != "linux":
        return []
    shared = os.environ.get("XDG_DATA_DIRS") or "/usr/local/share:/usr/share"
    return [
        Path.home() / ".fonts",
        Path.home() / ".local/share/fonts",
        *(Path(at) / "fonts" for at in shared.split(":")),
    ]
