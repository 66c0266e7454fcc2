"""Cases of the hub: endless answers, files that differ from their description, and caches left by strangers."""

import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, partial
from pathlib import Path
from urllib.parse import urlsplit

from tests.hostile.case import Call, Case, Kind, evil_mark
from tests.hub.downloads.downloading import NAME, small_files
from tests.hub.hostile_answers import endless_list, gzip_bomb, long_json
from tests.hub.hub_server import Fault, HubServer, sha256
from tests.hub.mtp_samples import ORIGINAL, SECOND, SHARDS, Original, header_of, make_target, packed, stored

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


def _redirect(location: str) -> Harm:
    return _answers(Fault(status=302, headers={"Location": location}))


def _bytes(*faults: Fault) -> Harm:
    return lambda hub, _folder: hub.fault(_WEIGHTS, *faults)


def _told(name: str, **facts: object) -> Harm:
    """Have the API tell something else of a file."""
    return lambda hub, _folder: hub.repositories[NAME].told.update({name: facts})


def _size(size: object) -> Harm:
    return _told(_WEIGHTS, size=size, lfs={"size": size, "sha256": sha256(small_files()[_WEIGHTS])})


def _file(path: str, put: Callable[[Path], object]) -> Harm:
    """Put something into the model's folder in the cache."""

    def harm(_hub: HubServer, folder: Path) -> None:
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        put(folder / path)

    return harm


def _record(**changes: object) -> Harm:
    usual = {"repository": NAME, "revision": "main", "commit": COMMIT, "files": [["a.json", 3, "a" * 40]]}
    fields = {**usual, "left_out": [], **changes}
    text = json.dumps(fields).replace("Infinity", "1e999")
    return _file(f".rdchat/download-{COMMIT}.json", lambda path: path.write_text(text))


ANSWERS: Mapping[str, Harm] = {
    "3 GB of JSON": _answers(long_json()),
    "a gzip bomb": _answers(gzip_bomb()),
    "a million lists": _answer([[]] * 1_000_000),
    "deeply nested JSON": _answers(Fault(status=200, body=_DEEP.encode())),
    "JSON that is no text": _answers(Fault(status=200, body=bytes(range(256)))),
    "a number of 10,000 digits": _answers(Fault(status=200, body=b"9" * 10_000)),
    "nothing": _answers(Fault(status=200, body=b"")),
    "null": _answer(None),
    "text": _answer("text"),
    "a list of odd things": _answer([None, 1, "x", [], {}, {"id": 1}, {"id": "../evil"}, {"id": "a/b"}]),
    "an object of odd things": _answer({"sha": 1, "siblings": "x"}),
    "files of odd things": _answer({"sha": COMMIT, "siblings": [None, 1, {"rfilename": ["x"]}]}),
    "a list that names itself": lambda hub, _folder: hub.api_faults.extend(endless_list(hub, 100, itself=True)),
    "a list that never ends": lambda hub, _folder: hub.api_faults.extend(endless_list(hub, 100, itself=False)),
    "a redirect to half an address": _redirect("http://[::1"),
    "a redirect to a port that cannot be": _redirect("http://127.0.0.1:99999/"),
    "a redirect to a host that cannot be": _redirect(f"http://{'x' * 64}.localhost/"),
    "a redirect to a file": _redirect("file:///etc/passwd"),
    "a redirect to itself": _answers(*[Fault(status=302, headers={"Location": "/api/models"})] * 50),
    "a wait of years": _answers(Fault(status=429, headers={"Retry-After": "99999999999"})),
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
    "a wrong checksum": _bytes(*[Fault(damage=True)] * 4),
    "a size of 0": _size(0),
    "a size too small": _size(399_999),
    "a size too large": _size(400_001),
    "a size of 2**49": _size(2**49),
    "a size of 10**400": _size(10**400),
    "a size that is text": _size("400000"),
    "an index of 3 GB": _told("tokenizer.json", size=3 * 10**9, lfs={"size": 3 * 10**9, "sha256": "a" * 64}),
    "a card of 3 GB": _told("README.md", size=3 * 10**9),
    "a name upwards": _told("config.json", rfilename="../../../evil.json"),
    "a name of half a letter": _told("config.json", rfilename="\ud800.json"),
    "a name of 100,000 letters": _told("config.json", rfilename="a" * 100_000 + ".json"),
    "a name of controls": _told("config.json", rfilename="\x1b[31m\n.json"),
    "two files of one name": _told("config.json", rfilename="tokenizer.json"),
    "weights at half an address": _bytes(Fault(redirect="http://[::1")),
    "weights at a host that cannot be": _bytes(Fault(redirect="http://a..localhost/")),
    "weights in circles": _bytes(*[Fault(redirect=f"/{NAME}/resolve/main/{_WEIGHTS}")] * 50),
    "weights after a wait of years": _bytes(Fault(status=429, headers={"Retry-After": "99999999999"})),
    "weights in another form": _bytes(Fault(headers={"Content-Encoding": "gzip"})),
}
ODD_PLACES: Mapping[str, Callable[[Path], object]] = {
    "a named pipe": os.mkfifo,
    "a link to /dev/zero": lambda path: path.symlink_to("/dev/zero"),
    "deeply nested JSON": lambda path: path.write_text(_DEEP),
    "a folder": lambda path: path.mkdir(),
}


def _mtp(change: Callable[[Original], object], *faults: Fault) -> Harm:
    """Put a model with MTP layers at the hub, changed, and its quantised version into the cache."""

    def harm(hub: HubServer, folder: Path) -> None:
        make_target(folder / "snapshots" / COMMIT)
        (folder / "refs").mkdir()
        (folder / "refs" / "main").write_text(COMMIT)
        original = Original()
        change(original)
        original.put(hub)
        hub.fault(SHARDS[1], *faults)

    return harm


def _shard(data: bytes) -> Harm:
    return _mtp(lambda original: original.shards.update({SHARDS[1]: data}))


def _placed(name: str, *offsets: object) -> Harm:
    header, size = header_of(SECOND)
    header[name]["data_offsets"] = list(offsets)
    return _shard(packed(header, bytes(size)))


MTP_LAYERS: Mapping[str, Harm] = {
    "a header of 1 GB": _shard((10**9).to_bytes(8, "little") + bytes(100)),
    "a header of 2**63 bytes": _shard((2**63).to_bytes(8, "little") + bytes(100)),
    "a deep header": _shard(packed(_DEEP.encode())),
    "a header of text": _shard(packed(b'"text"')),
    "tensors outside of their file": _placed("mtp.norm.weight", 10**12, 10**12 + 16),
    "tensors over each other": _placed("mtp.norm.weight", 0, 16),
    "tensors of no place": _placed("mtp.norm.weight", 10**400, "x"),
    "tensors of 2**60 bytes": _placed("mtp.norm.weight", 640, 640 + 2**60),
    "tensors of an unknown type": _shard(stored({**SECOND, "mtp.norm.weight": ("F8_E4M3", (8,))})),
    "a tensor of another shape": _shard(stored({**SECOND, "mtp.norm.weight": ("BF16", (9,))})),
    "a name of controls": _shard(stored({**SECOND, "mtp.\x1b[31m\nevil": ("BF16", (8,))})),
    "a name of half a letter": _shard(stored({**SECOND, "mtp.\ud800.weight": ("BF16", (8,))})),
    "an index that leads upwards": _mtp(lambda original: original.places.update({"mtp.a.b": "../../evil"})),
    "an index of odd things": _mtp(lambda original: original.places.update({"mtp.fc.weight": [{}]})),  # type: ignore[dict-item]
    "another model": _mtp(lambda original: original.config.update(hidden_size=10**400)),
    "a configuration of odd things": _mtp(lambda original: original.config.update(model_type=[1])),
    "other bytes": _mtp(lambda _original: None, *[Fault(damage=True)] * 9),
}
_DIGEST = sha256(small_files()[_WEIGHTS])
PLACES = {
    "the reference": "refs/main",
    "a record": f".rdchat/download-{COMMIT}.json",
    "the lock": ".rdchat/lock",
    "a partial file": f".rdchat/{_DIGEST}.part",
    "a blob": f"blobs/{_DIGEST}",
}
RECORDS: Mapping[str, Harm] = {
    "a record that names other files as checked": _record(checked=["../../../case/precious", "b" * 40]),
    "a record of infinite sizes": _record(files=[["a.json", float("inf"), "a" * 40]]),
    "a record of files upwards": _record(files=[["../../evil.json", 3, "a" * 40]]),
    "a record of digests upwards": _record(files=[["a.json", 3, "../../evil"]]),
    "a record of another model": _record(repository="other/model"),
    "a record of a revision upwards": _record(revision="../../evil"),
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


def _result(facts: Mapping[str, object]) -> Harm:
    return _answer([{"id": NAME, **facts}])


def _mtp_cases() -> Iterator[Case]:
    words = ("mtp", NAME, "--yes", "--from", ORIGINAL)
    for name, harm in MTP_LAYERS.items():
        yield Case(Kind.HUB, f"{name}, for MTP layers", partial(_case, harm, words, (1,)))


def hub_cases() -> Iterator[Case]:
    """Yield all cases of the hub."""

    def case(name: str, harm: Harm, words: Sequence[str], statuses: tuple[int, ...] = (0, 1)) -> Case:
        return Case(Kind.HUB, name, partial(_case, harm, words, statuses))

    for name, harm in ANSWERS.items():
        yield case(f"{name}, searched", harm, _SEARCH)
        yield case(f"{name}, downloaded", harm, _DOWNLOAD)
    for name, facts in RESULTS.items():
        yield case(name, _result(facts), _SEARCH, (0,))
        yield case(f"{name}, as JSON", _result(facts), (*_SEARCH, "--json"), (0,))
    for name, harm in DOWNLOADS.items():
        yield case(name, harm, _DOWNLOAD)
    yield from _mtp_cases()
    for what, put in ODD_PLACES.items():
        for where, path in PLACES.items():
            for done, words in _ON_THE_DISK.items():
                yield case(f"{what} as {where}, {done}", _file(path, put), words)
    for name, harm in RECORDS.items():
        yield case(name, harm, _ON_THE_DISK["deleted"])
        yield case(f"{name}, downloaded", harm, _DOWNLOAD)
