"""Kills writers of cache files at random moments, and checks what they leave. Run as a script: FOLDER KILLS.

MLX computes nothing here, so that this process has one thread and may be forked.
"""

import os
import random
import signal
import sys
import time
import zlib
from pathlib import Path

from rdchat.inference.caches_on_disk.segments import CacheLayout, Segment
from rdchat.inference.models.safetensors_file import StoredTensor


class Layout(CacheLayout):
    """Stands for that of a model with one array."""

    def __init__(self) -> None:
        self.key = "key"

    def tensors(self, _segment: Segment) -> dict[str, StoredTensor]:
        return {"0": StoredTensor("F32", (1, 1, 100_000, 1), 400_000)}


def write_for_ever(files: CacheLayout, folder: Path) -> None:
    for number in range(10**6):
        segment = Segment(number % 7 + 1, f"{number % 7:032x}", False)
        files.write_segment(folder, segment, bytes([number % 7]) * 400_000)


def main() -> None:
    folder = Path(sys.argv[1])
    kills = int(sys.argv[2])
    files = Layout()
    rng = random.Random(0)
    whole = 0
    for number in range(kills):
        child = os.fork()
        if child == 0:
            write_for_ever(files, folder)
        # Half of the writers are killed after their first file, however long that takes here.
        while number % 2 and not any(Segment.named(path.name) for path in folder.iterdir()):
            time.sleep(0.001)
        time.sleep(rng.uniform(0, 0.004))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        partial = 0
        for path in folder.iterdir():
            if path.name.startswith("part-"):
                partial += 1
                path.unlink()
            else:
                segment = Segment.named(path.name)
                assert segment is not None
                data = bytes([segment.end - 1]) * 400_000
                assert path.read_bytes() == files._header(segment, zlib.crc32(data)) + data, path.name
                whole += 1
                path.unlink()
        assert partial <= 1
    assert whole > 0


if __name__ == "__main__":
    main()
