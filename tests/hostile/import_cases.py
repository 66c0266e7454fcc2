"""Cases of files that are imported: huge ones, which must stay within memory and time, and damaged ones."""

import json
import random
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path

from tests.chat.transfer.huge_chats import HUGE, good, within, write, write_zip
from tests.chat.transfer.samples import chatgpt_with_everything, lm_studio_chat, write_jan
from tests.hostile.case import Call, Case, Kind

_SIZE = 128 << 20  # of the 512 MB that are tried in the slow tests: these have a minute each
# the child's own limit, and some 0.2 GB of imports that the forked command shares with its server
_MEMORY_BYTES = (1 << 30) + 300_000_000
_SEEDS = range(12)
_OURS = (
    b'{"format": "rdchat chats", "version": 1, "chats": [\n'
    b'{"title": "T", "messages": [{"parent": null, "role": "user", "text": "a", "files": []}]}\n]}\n'
)
_SAMPLES = {
    "conversations.json": json.dumps([chatgpt_with_everything()] * 5).encode(),
    "1.conversation.json": json.dumps(lm_studio_chat()).encode(),
    "ours.json": _OURS,
}


def import_cases() -> Iterator[Case]:
    """Yield all cases of imports."""
    for name, (head, unit, end) in HUGE.items():
        parts = partial(within, head, unit, end, _SIZE)
        yield _case(name, "conversations.json", parts)
        yield _case(f"{name}, in an archive", "export.zip", parts)
    yield _case("a hundred million empty chats", "conversations.json", partial(_many, b"{}"))
    yield _case("a hundred million chats without messages", "conversations.json", partial(_many, b'{"mapping":{}}'))
    yield _case("blanks", "conversations.json", lambda: [b" " * (_SIZE // 16)] * 16)
    yield _case("blanks behind the list", "conversations.json", lambda: [b"[", good("a"), b"]", b" " * _SIZE])
    yield _case("ours without an end", "ours.json", lambda: [_OURS[:-4], b" " * _SIZE])
    yield _case("ours behind a long head", "ours.json", lambda: [b'{"a": "', b"a" * _SIZE, b'",', _OURS[1:]])
    for name, data in _SAMPLES.items():
        for seed in _SEEDS:
            yield _case(f"{name} with bytes changed ({seed})", name, partial(_changed, data, seed))
            yield _case(f"an archive of {name} with bytes changed ({seed})", name, partial(_changed, data, seed), seed)
    yield Case(Kind.IMPORTS, "a thread of Jan with a huge line", _jan)


def _case(name: str, file: str, parts: Callable[[], Iterable[bytes]], seed: int | None = None) -> Case:
    def make(folder: Path) -> Call:
        path = folder / file
        if path.suffix == ".zip":
            write_zip(path, parts())
        elif seed is not None:
            archive = write_zip(folder / "export.zip", parts(), file)
            path = write(archive, _changed(archive.read_bytes(), seed))
        else:
            write(path, parts())
        return _imported(path)

    return Case(Kind.IMPORTS, name, make)


def _imported(path: Path) -> Call:
    arguments = ("chats", "import", str(path))
    return Call(arguments, statuses=(0, 1), told=True, memory_bytes=_MEMORY_BYTES)


def _many(chat: bytes) -> Iterator[bytes]:
    yield b"[" + good("First")
    block = (b"," + chat) * 100_000
    for _ in range(_SIZE // len(block)):
        yield block
    yield b"]"


def _changed(data: bytes, seed: int) -> list[bytes]:
    chance = random.Random(seed)
    harmed = bytearray(data)
    for _ in range(1 + seed % 4):
        harmed[chance.randrange(len(harmed))] = chance.choice(b'"\\{}[],:\0\xff5e')
    return [bytes(harmed)]


def _jan(folder: Path) -> Call:
    thread = write_jan(folder / "thread")
    write(thread / "messages.jsonl", [b'{"role": "user", "content": [', b"{}," * (_SIZE // 4), b"{}]}\n"])
    return _imported(thread)
