"""Cases of the hub that `tests/hub` does not have: endless and odd answers, and odd things in the cache.

What is wrong with sizes, checksums, redirects, waits, records and the files of MTP layers is tried there.
"""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.grids import pairs
from tests.hostile.case import Call, Case, Kind, evil_mark
from tests.hub.downloads.downloading import NAME, small_files
from tests.hub.hostile_answers import long_json
from tests.hub.hub_server import Fault, HubServer, sha256
from tests.hub.mtp_samples import ORIGINAL, SECOND, SHARDS, Original, header_of, make_target, packed

Harm = Callable[[HubServer, Path], None]
"""Changes a hub that has one model, or the folder of that model in the cache, which is empty at first."""

COMMIT = "c" * 40
_WEIGHTS = "model.safetensors"
_DEEP = "[" * 100_000
_SEARCH: Sequence[str] = ("search", "small")
_DOWNLOAD: Sequence[str] = ("download", NAME)
_ON_THE_DISK: Mapping[str, Sequence[str]] = {
    "listed": ("list",),
    "downloaded": _DOWNLOAD,
    "verified": ("verify", NAME),
    "deleted": ("delete", NAME, "--yes"),
}


def _answers(*faults: Fault) -> Harm:
    return lambda hub, _folder: hub.api_faults.extend(faults)


def _answer(told: object) -> Harm:
    return _answers(Fault(status=200, body=json.dumps(told).replace("Infinity", "1e999").encode()))


def _told(name: str, **facts: object) -> Harm:
    """Have the API tell something else of a file."""
    return lambda hub, _folder: hub.repositories[NAME].told.update({name: facts})


def _file(path: str, put: Callable[[Path], object]) -> Harm:
    """Put something into the model's folder in the cache."""

    def harm(_hub: HubServer, folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        put(folder / path)

    return harm


ANSWERS: Mapping[str, Harm] = {
    "3 GB of JSON": _answers(long_json()),
    "null": _answer(None),
    "text": _answer("text"),
    "a list of odd things": _answer([None, 1, "x", [], {}, {"id": 1}, {"id": "../evil"}, {"id": "a/b"}]),
    "an object of odd things": _answer({"sha": 1, "siblings": "x"}),
    "files of odd things": _answer({"sha": COMMIT, "siblings": [None, 1, {"rfilename": ["x"]}]}),
    "a redirect to a file": _answers(Fault(status=302, headers={"Location": "file:///etc/passwd"})),
    "a redirect to itself": _answers(*[Fault(status=302, headers={"Location": "/api/models"})] * 50),
    "a wait until no day": _answers(Fault(status=403, headers={"Retry-After": "Wed, 99 Foo 99999 99:99:99 GMT"})),
    "a status nobody knows": _answers(Fault(status=799)),
}
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
DOWNLOADS: Mapping[str, Harm] = {
    "a name of 100,000 letters": _told("config.json", rfilename="a" * 100_000 + ".json"),
    "two files of one name": _told("config.json", rfilename="tokenizer.json"),
    "weights in another form": lambda hub, _folder: hub.fault(_WEIGHTS, Fault(headers={"Content-Encoding": "gzip"})),
}
ODD_PLACES: Mapping[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "deeply nested JSON": lambda path: path.write_text(_DEEP),
    "a folder": lambda path: path.mkdir(),
}


def _mtp(change: Callable[[Original], object]) -> Harm:
    """Put a model with MTP layers at the hub, changed, and its quantised version into the cache."""

    def harm(hub: HubServer, folder: Path) -> None:
        make_target(folder / "snapshots" / COMMIT)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(COMMIT)
        original = Original()
        change(original)
        original.put(hub)

    return harm


def _place_nowhere(original: Original) -> None:
    header, size = header_of(SECOND)
    header["mtp.norm.weight"]["data_offsets"] = [10**400, "x"]
    original.shards[SHARDS[1]] = packed(header, bytes(size))


MTP_LAYERS: Mapping[str, Harm] = {
    "tensors of no place": _mtp(_place_nowhere),
    "an index of odd things": _mtp(lambda original: original.places.update({"mtp.fc.weight": [{}]})),  # type: ignore[dict-item]
    "another model": _mtp(lambda original: original.config.update(hidden_size=10**400)),
    "a configuration of odd things": _mtp(lambda original: original.config.update(model_type=[1])),
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
        tells_progress=words[0] in {"download", "verify", "mtp"},
    )


def hub_cases() -> Iterator[Case]:
    """Yield all cases of the hub."""

    def case(name: str, harm: Harm, words: Sequence[str], statuses: tuple[int, ...] = (0, 1)) -> Case:
        return Case(Kind.HUB, name, partial(_case, harm, words, statuses))

    for name, harm in ANSWERS.items():
        yield case(f"{name}, searched", harm, _SEARCH)
        yield case(f"{name}, downloaded", harm, _DOWNLOAD)
    for name, facts in RESULTS.items():
        told = _answer([{"id": NAME, **facts}])
        yield case(name, told, _SEARCH, (0,))
        yield case(f"{name}, as JSON", told, (*_SEARCH, "--json"), (0,))
    for name, harm in DOWNLOADS.items():
        yield case(name, harm, _DOWNLOAD)
    for name, harm in MTP_LAYERS.items():
        yield case(f"{name}, for MTP layers", harm, ("mtp", NAME, "--yes", "--from", ORIGINAL), (1,))
    for what, where, done in pairs(ODD_PLACES, PLACES, _ON_THE_DISK):
        yield case(f"{what} as {where}, {done}", _file(PLACES[where], ODD_PLACES[what]), _ON_THE_DISK[done])
