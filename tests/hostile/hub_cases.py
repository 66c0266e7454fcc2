"""Cases of the hub: an endless answer, odd facts of models, and caches left by strangers."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.hostile.case import Call, Case, Kind, evil_mark
from tests.hub.downloads.downloading import NAME, small_files
from tests.hub.hostile_answers import long_json
from tests.hub.hub_server import Fault, HubServer, sha256

Harm = Callable[[HubServer, Path], None]
"""Changes a hub that has one model, or the folder of that model in the cache, which is empty at first."""

COMMIT = "c" * 40
_WEIGHTS = "model.safetensors"
_SEARCH: Sequence[str] = ("search", "small")
_DOWNLOAD: Sequence[str] = ("download", NAME)
_ON_THE_DISK: Mapping[str, Sequence[str]] = {
    "listed": ("list",),
    "downloaded": _DOWNLOAD,
    "verified": ("verify", NAME),
    "deleted": ("delete", NAME, "--yes"),
}


def _answer(fault: Fault) -> Harm:
    return lambda hub, _folder: hub.api_faults.append(fault)


def _file(path: str, put: Callable[[Path], object]) -> Harm:
    """Put something into the model's folder in the cache."""

    def harm(_hub: HubServer, folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        put(folder / path)

    return harm


RESULTS: Mapping[str, Mapping[str, object]] = {
    "downloads as text": {"downloads": "many"},
    "likes as a list": {"likes": [1]},
    "an infinite tensor count": {"safetensors": {"parameters": {"F32": float("inf")}, "total": 1}},
    "a tensor count of 10**300": {"safetensors": {"parameters": {"F32": 10**300}}},
    "a day that cannot be": {"lastModified": "2026-99-99T00:00:00Z"},
    "tags of odd types": {"tags": [1, None, {"license:": 1}, "license:\x1b[31m\nevil"]},
    "a family of controls": {"config": {"model_type": "\x1b[31m\nevil" * 1000}},
    "bits of 10**400": {"config": {"quantization_config": {"bits": 10**400}}},
}
ODD_PLACES: Mapping[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "deeply nested JSON": lambda path: path.write_text("[" * 100_000),
    "a folder": lambda path: path.mkdir(),
}
_DIGEST = sha256(small_files()[_WEIGHTS])
PLACES = {
    "the reference": "refs/main",
    "a record": f".rdchat/download-{COMMIT}.json",
    "the lock": ".rdchat/lock",
    "a partial file": f".rdchat/{_DIGEST}.part",
    "a blob": f"blobs/{_DIGEST}",
}


@cache
def _server() -> HubServer:
    """Return the one hub of the corpus; it ends with the process."""
    return HubServer()


def _case(harm: Harm, words: Sequence[str], statuses: tuple[int, ...], folder: Path) -> Call:
    hub = _server()
    for kept in (hub.repositories, hub.requests, hub.faults, hub.api_faults, hub.sent, hub.before_bytes):
        kept.clear()
    hub.add(NAME, small_files())
    cached = folder / "hub" / f"models--{NAME.replace('/', '--')}"
    cached.mkdir(parents=True)
    (folder / "precious").write_text("precious")
    harm(hub, cached)
    ports = [str(urlsplit(url).port) for url in (hub.url, hub.store)]
    environment = {
        "HF_ENDPOINT": hub.url,
        "HF_HUB_CACHE": str(folder / "hub"),
        "HOSTILE_HUB": " ".join(ports),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "NO_PROXY": "127.0.0.1,localhost",
    }
    assert not evil_mark(folder).exists()
    return Call(
        ("models", *words),
        environment=environment,
        statuses=statuses,
        tells_progress=words[0] in {"download", "verify"},
    )


def _result(facts: Mapping[str, object]) -> Harm:
    listed = json.dumps([{"id": NAME, **facts}]).replace("Infinity", "1e999")
    return _answer(Fault(status=200, body=listed.encode()))


def hub_cases() -> Iterator[Case]:
    """Yield all cases of the hub."""

    def case(name: str, harm: Harm, words: Sequence[str], statuses: tuple[int, ...] = (0, 1)) -> Case:
        return Case(Kind.HUB, name, partial(_case, harm, words, statuses))

    for done, words in {"searched": _SEARCH, "downloaded": _DOWNLOAD}.items():
        yield case(f"3 GB of JSON, {done}", _answer(long_json()), words)
    for name, facts in RESULTS.items():
        yield case(name, _result(facts), _SEARCH, (0,))
        yield case(f"{name}, as JSON", _result(facts), (*_SEARCH, "--json"), (0,))
    for what, put in ODD_PLACES.items():
        for where, path in PLACES.items():
            for done, words in _ON_THE_DISK.items():
                yield case(f"{what} as {where}, {done}", _file(path, put), words)
