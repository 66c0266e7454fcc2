"""Lists the largest parts of the double-clickable app, and what `cleanup_paths` in pyproject.toml removes of them.

    python scripts/bundle_parts.py [FOLDER]

FOLDER is a folder of installed packages, such as the app's `Contents/Resources/app_packages`. Without it the packages
of this environment are taken that the app would hold; their sizes on a Mac differ where they hold libraries. Compiled
modules do not count.
"""

import argparse
import re
import sys
import tomllib
from collections import Counter
from collections.abc import Iterator
from functools import cache
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePath

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = "rdchat.app/Contents/Resources/app_packages/"
# Folders that are listed by what is in them.
SPLIT = {"PySide6", "PySide6/Qt", "transformers"}
MIN_MB = 2.0


def cleanup_patterns() -> tuple[str, ...]:
    """Return the globs for the app's packages, relative to their folder."""
    app = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["briefcase"]["app"]["rdchat"]
    paths: list[str] = app["macOS"]["cleanup_paths"]
    return tuple(path.removeprefix(PACKAGES) for path in paths if path.startswith(PACKAGES))


@cache
def is_removed(path: PurePath, patterns: tuple[str, ...]) -> bool:
    """Return whether a file or folder, relative to the packages' folder, is removed or lies in what is."""
    within = path.parts and is_removed(path.parent, patterns)
    return within or any(_matches(path, pattern) for pattern in patterns)


def _matches(path: PurePath, pattern: str) -> bool:
    anywhere = pattern.startswith("**/")
    return path.match(pattern) and (anywhere or len(path.parts) == len(PurePath(pattern).parts))


def distributions() -> dict[str, Distribution]:
    """Return what the app's requirements install here, by name."""
    installed: dict[str, Distribution] = {}
    requirements = [Requirement("rdchat"), Requirement("pip")]
    while requirements:
        requirement = requirements.pop()
        name = re.sub(r"[-_.]+", "-", requirement.name).lower()
        if name in installed or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        try:
            installed[name] = distribution(name)
        except PackageNotFoundError:  # of an extra that is not asked for
            continue
        requirements += [Requirement(line) for line in installed[name].requires or ()]
    del installed["rdchat"]
    return installed


def installed_files() -> Iterator[tuple[PurePath, int]]:
    """Yield the files of the app's packages in this environment, relative to their folder, with their bytes."""
    for each in distributions().values():
        for file in each.files or ():
            path = Path(str(file.locate()))
            if ".." not in file.parts and path.is_file():
                yield PurePath(file), path.stat().st_size


def files_in(folder: Path) -> Iterator[tuple[PurePath, int]]:
    """Yield the files of a folder of packages, relative to it, with their bytes."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            yield path.relative_to(folder), path.stat().st_size


def part_of(path: PurePath) -> str:
    """Return the part that a file is counted in: its package, or a folder of a large one."""
    folders = [str(folder) for folder in path.parents if str(folder) != "."]  # the innermost first
    above = next((folder for folder in folders if folder in SPLIT), "")
    depth = len(PurePath(above).parts) + 1 if above else 1
    return "/".join(path.parts[:depth]) if len(path.parts) > depth else above or path.parts[0]


def table(files: Iterator[tuple[PurePath, int]]) -> str:
    """Return the parts of at least `MIN_MB`, the largest first, and the sum of all, as Markdown."""
    patterns = cleanup_patterns()
    sizes = Counter[str]()
    removed = Counter[str]()
    for path, size in files:
        if "__pycache__" not in path.parts:
            part = part_of(path)
            sizes[part] += size
            removed[part] += size if is_removed(path, patterns) else 0
    lines = ["| part | MB | removed |", "|---|---|---|"]
    lines += [_row(part, size, removed[part]) for part, size in sizes.most_common() if size >= MIN_MB * 1e6]
    return "\n".join([*lines, _row("all", sizes.total(), removed.total())])


def _row(part: str, size: int, removed: int) -> str:
    return f"| {part} | {size / 1e6:.1f} | {f'{removed / 1e6:.1f}' if removed else ''} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=Path)
    folder = parser.parse_args().folder
    if folder is not None and not folder.is_dir():
        print(f"There is no folder {folder}.", file=sys.stderr)
        return 2
    print(table(installed_files() if folder is None else files_in(folder)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
