"""Runs every test image of Pillow's source package through the process for images, and prints a table.

    python scripts/pillow_images.py [FOLDER]

Without a folder, the package is fetched with pip into a temporary one. An image becomes a picture, or is refused in one
line; the exit status is 1 if one hangs, ends the process, takes more than its memory, or gives another error. A line
of the table is a format or a reason, with how many files have it and an example.
"""

import collections
import importlib.metadata
import re
import subprocess
import sys
import tarfile
import tempfile
import time
from pathlib import Path

import psutil

from rdchat.errors import ImageRefusedError
from rdchat.inference.vision.image_process import ImageProcess

SLOW_S = 5.0
SETTINGS = {"size": {"shortest_edge": 3136, "longest_edge": 1003520}}


def fetched(folder: Path) -> Path:
    """Fetch Pillow's source package in the version that is installed here; return its folder of images."""
    version = importlib.metadata.version("pillow")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", "pillow", "--dest"]
    subprocess.run([*command, str(folder), f"pillow=={version}"], check=True)
    with tarfile.open(next(folder.glob("*.tar.gz"))) as archive:
        archive.extractall(folder, filter="data")
    return next(folder.glob("*/Tests/images"))


def outcome_of(images: ImageProcess, path: Path) -> tuple[str, str]:
    """Return what becomes of a file, and a reason without names and numbers, if it is refused."""
    before = images.child.starts
    try:
        facts = images.check_image(path)
        prepared = images.prepare(path, "qwen", SETTINGS, 256)
        assert prepared.layout.pixel_tokens > 0
    except ImageRefusedError as error:
        line = str(error)
        if not line.isprintable() or not error.message.startswith(path.name):
            return "bad line", line
        reason = re.sub(r"\d[\d,.]*(?= )", "#", error.message.removeprefix(path.name).strip())
        ended = images.child.pid is None or images.child.starts > max(before, 1)
        return ("ended" if ended else "refused"), reason
    except Exception as error:
        return "error", repr(error)
    return "picture", facts.format + (f": {facts.note}" if facts.note else "")


def main() -> int:
    images = ImageProcess()
    table = collections.defaultdict[tuple[str, str], list[str]](list)
    largest = 0
    slow = []
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(sys.argv[1]) if sys.argv[1:] else fetched(Path(folder))
        paths = sorted(path for path in root.rglob("*") if path.is_file())
        for path in paths:
            started = time.monotonic()
            table[outcome_of(images, path)].append(path.relative_to(root).as_posix())
            if (seconds := time.monotonic() - started) > SLOW_S:
                slow.append(f"{path.name} {seconds:.1f} s")
            if (pid := images.child.pid) is not None:
                largest = max(largest, psutil.Process(pid).memory_info().rss)
    images.child.close()
    for (kind, reason), names in sorted(table.items(), key=lambda row: (row[0][0], -len(row[1]))):
        print(f"{kind:8} {len(names):5}  {reason}  ({names[0]})")
    print(
        f"{len(paths)} files in {time.monotonic() - begin:.0f} s; the process had {largest / 1e6:.0f} MB at the most."
    )
    print(f"Slower than {SLOW_S:.0f} s: {', '.join(slow) or 'none'}.")
    return int(any(kind not in {"picture", "refused"} for kind, _ in table))


if __name__ == "__main__":
    sys.exit(main())
