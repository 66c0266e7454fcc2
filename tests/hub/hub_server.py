"""A hub on this machine: the API that `huggingface_hub` asks, files, and a store of large ones on another host.

It listens on 127.0.0.1 alone, does what it is told to do wrong, and notes each request and each byte that it sends.
"""

import hashlib
import json
import re
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

PIECE = 16_384
_MAX_REQUESTS = 5_000
_RANGE = re.compile(r"bytes=(\d+)-(\d*)")


@lru_cache(64)
def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@lru_cache(64)
def git_sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


@dataclass
class Repository:
    """A model: its files at each commit, and what its branches stand for.

    Attributes:
        commits: Files by name, by commit.
        branches: Commits by name.
        gated: Whether a token is wanted.
        told: What the API tells of a file where that is not the truth: fields by name.
        facts: What the API tells of the model besides, such as `downloads` and `tags`.
    """

    commits: dict[str, dict[str, bytes]]
    branches: dict[str, str]
    gated: bool = False
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    facts: dict[str, Any] = field(default_factory=dict)


@dataclass
class Fault:
    """What goes wrong with one request for bytes.

    Attributes:
        status: Answered instead of the bytes, with `headers`.
        body: Answered by the API.
        cut: Bytes after which the connection ends.
        stall: Bytes after which nothing comes any more.
        ignore_range: Whether all bytes are sent from the first.
        damage: Whether a byte is wrong.
        redirect: Where the request is sent instead.
        raw: Gives the whole answer, headers included, in pieces; they are sent as long as somebody takes them.
    """

    status: int = 0
    body: bytes = b"{}"
    headers: dict[str, str] = field(default_factory=dict)
    cut: int | None = None
    stall: int | None = None
    ignore_range: bool = False
    damage: bool = False
    redirect: str = ""
    raw: Callable[[], Iterable[bytes]] | None = None


@dataclass(frozen=True)
class Request:
    """A request as it came.

    Attributes:
        host: The `Host` that it named.
        path: With the query.
        token: What `Authorization` held; empty where there was none.
        start: Of the range that was asked for; 0 without one.
        digest: Of the file whose bytes were asked for; empty for the API.
    """

    host: str
    path: str
    token: str
    start: int
    digest: str


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", "tokenizer.json"))


def listed(name: str, data: bytes) -> dict[str, Any]:
    told: dict[str, Any] = {"rfilename": name, "size": len(data), "blobId": git_sha1(data)}
    if is_large(name):
        told["lfs"] = {"size": len(data), "sha256": sha256(data), "pointerSize": 134}
    return told


class HubServer:
    """Serves repositories until closed.

    Attributes:
        repositories: By hub id.
        requests: What came, in order.
        sent: Bytes sent of each digest; of raw answers with no digest.
        faults: What goes wrong with the next requests for the bytes of a file, by its name; each is used once.
        api_faults: What goes wrong with the next requests to the API.
        bytes_per_second: Of each connection; None for all that there is.
        holds_at: Bytes of files in all, after which each connection waits until this is changed; None for no limit.
            What must happen in the midst of a download has as long as it needs.
        token: That a gated repository wants.
        etags: Whether the store gives one.
        before_bytes: Called once before the bytes of a file are sent, by its name.
        before_api: Called with the path before the API answers.
    """

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.requests: list[Request] = []
        self.sent: Counter[str] = Counter()
        self.faults: dict[str, list[Fault]] = {}
        self.api_faults: list[Fault] = []
        self.bytes_per_second: float | None = None
        self.holds_at: int | None = None
        self.token = "hf_right"
        self.etags = True
        self.before_bytes: dict[str, Callable[[], object]] = {}
        self.before_api: Callable[[str], object] = lambda _path: None
        self.closing = threading.Event()
        self._servers = [_Server(self) for _ in range(2)]
        self._threads = [
            threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True) for server in self._servers
        ]
        for thread in self._threads:
            thread.start()
        self.url = f"http://127.0.0.1:{self._servers[0].server_port}"
        self.store = f"http://localhost:{self._servers[1].server_port}"

    @property
    def holds(self) -> bool:
        """Whether no more bytes of files are to be sent now."""
        return self.holds_at is not None and self.sent.total() >= self.holds_at

    def close(self) -> None:
        self.closing.set()
        for server in self._servers:
            server.shutdown()
            server.server_close()
        for thread in self._threads:
            thread.join()

    def add(self, name: str, files: dict[str, bytes], gated: bool = False, **facts: Any) -> str:
        """Add a model with one commit, which `main` stands for; return the commit.

        Args:
            name: The hub id.
            files: By name.
            gated: Whether a token is wanted.
            facts: What the API tells of it where that is not the usual.
        """
        commit = hashlib.sha1(
            repr((name, sorted((each, git_sha1(data)) for each, data in files.items()))).encode()
        ).hexdigest()
        self.repositories[name] = Repository({commit: files}, {"main": commit}, gated, facts=facts)
        return commit

    def add_commit(self, name: str, commit: str, files: dict[str, bytes], branch: str = "") -> None:
        """Add a commit to a model, which a branch stands for from now on."""
        self.repositories[name].commits[commit] = files
        if branch:
            self.repositories[name].branches[branch] = commit

    def fault(self, name: str, *faults: Fault) -> None:
        self.faults.setdefault(name, []).extend(faults)

    def starts(self, data: bytes) -> list[int]:
        """Return where the requests for some bytes began, in order; the hub's own redirects do not count."""
        digests = {sha256(data), git_sha1(data)}
        return [request.start for request in self.requests if request.digest in digests]


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, hub: HubServer) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.hub = hub

    def handle_error(self, request: Any, client_address: Any) -> None:
        """The other side went away, as tests have it."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    @property
    def hub(self) -> HubServer:
        assert isinstance(self.server, _Server)
        return self.server.hub

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def do_GET(self) -> None:
        assert len(self.hub.requests) < _MAX_REQUESTS
        parts = urlsplit(self.path)
        words = [unquote(word) for word in parts.path.strip("/").split("/")]
        if words[:2] == ["api", "models"]:
            self._api(words[2:], parse_qs(parts.query))
        elif words == ["api", "whoami-v2"]:
            self._whoami()
        elif words[0] == "blob":
            self._store(words[1])
        elif len(words) >= 5 and words[2] == "resolve":
            self._resolve("/".join(words[:2]), words[3], "/".join(words[4:]))
        else:
            self._note("")
            self._answer(404, {}, b"")

    def _note(self, digest: str) -> None:
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        start = int(asked[1]) if asked else 0
        self.hub.requests.append(Request(self.headers["Host"], self.path, token, start, digest))

    def _refused(self, repository: Repository | None) -> bool:
        token = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if repository is None:
            self._answer(404 if token else 401, {"X-Error-Code": "RepoNotFound"} if token else {}, b"{}")
        elif repository.gated and token != self.hub.token:
            self._answer(403 if token else 401, {"X-Error-Code": "GatedRepo"}, b"{}")
        else:
            return False
        return True

    def _goes_wrong(self) -> bool:
        """Note a request to the API, and do what is to go wrong with it; False where nothing is."""
        self._note("")
        self.hub.before_api(self.path)
        if not self.hub.api_faults:
            return False
        fault = self.hub.api_faults.pop(0)
        if fault.raw is not None:
            self._send_raw(fault.raw())
        elif fault.cut is not None:
            self._end()
        else:
            self._answer(fault.status, fault.headers, fault.body)
        return True

    def _api(self, words: list[str], query: dict[str, list[str]]) -> None:
        if self._goes_wrong():
            return
        if not words:
            self._search(query)
        elif not self._refused(repository := self.hub.repositories.get("/".join(words[:2]))):
            assert repository is not None
            if words[2:3] == ["commits"]:
                self._history(repository)
                return
            revision = "/".join(words[3:]) or "main"
            commit = repository.branches.get(revision, revision)
            if commit not in repository.commits:
                self._answer(404, {"X-Error-Code": "RevisionNotFound"}, b"{}")
                return
            files = repository.commits[commit]
            files_told = [listed(name, data) | repository.told.get(name, {}) for name, data in files.items()]
            name = "/".join(words[:2])
            told = self._facts(name, repository, 0) | {"sha": commit, "siblings": files_told}
            self._tell(told)

    def _history(self, repository: Repository) -> None:
        """Tell of the commits, the newest first: one a day, in the order in which they were added."""
        told = [
            {"id": commit, "date": f"2026-10-{day:02d}T10:00:00.000Z", "title": "", "message": "", "authors": []}
            for day, commit in enumerate(repository.commits, 1)
        ]
        self._tell(told[::-1])

    def _facts(self, name: str, repository: Repository, number: int) -> dict[str, Any]:
        """Return what the API tells of a model; `number` is its downloads where nothing else is said."""
        return {
            "id": name,
            "downloads": number,
            "likes": 3,
            "gated": "auto" if repository.gated else False,
            "lastModified": "2026-11-01T10:00:00.000Z",
            "tags": ["mlx", "license:apache-2.0"],
            "config": {"model_type": "llama", "quantization_config": {"bits": 4}},
            "safetensors": {"parameters": {"U32": 100, "BF16": 10}, "total": 110},
            **repository.facts,
        }

    def _whoami(self) -> None:
        if self._goes_wrong():
            return
        known = self.headers.get("Authorization", "") == f"Bearer {self.hub.token}"
        body = {"type": "user", "name": "mia"} if known else {"error": "Invalid credentials in Authorization header"}
        self._tell(body, 200 if known else 401)

    def _search(self, query: dict[str, list[str]]) -> None:
        words = query.get("search", [""])[0].lower()
        tags = set(query.get("filter", []))
        found = [
            self._facts(name, repository, number)
            for number, (name, repository) in enumerate(list(self.hub.repositories.items()))
            if words in name.lower()
        ]
        found = [facts for facts in found if tags <= set(facts["tags"])]
        order = query.get("sort", [""])[0]
        if any(order in repository.facts for repository in self.hub.repositories.values()):
            found.sort(key=lambda facts: facts[order], reverse=True)
        limit = int(query.get("limit", ["100"])[0])
        self._tell(found[:limit])

    def _resolve(self, name: str, commit: str, file: str) -> None:
        repository = self.hub.repositories.get(name)
        data = repository.commits.get(commit, {}).get(file) if repository else None
        if data is None or is_large(file):
            self._note("")
        else:
            self._note(git_sha1(data))
        if self._refused(repository):
            return
        if data is None:
            known = repository is not None and commit in repository.commits
            self._answer(404, {"X-Error-Code": "EntryNotFound" if known else "RevisionNotFound"}, b"")
        elif is_large(file):
            headers = {"Location": f"{self.hub.store}/blob/{sha256(data)}", "X-Linked-Etag": f'"{sha256(data)}"'}
            faults = self.hub.faults.get(file, [])
            if faults and faults[0].redirect:
                headers["Location"] = faults.pop(0).redirect
            self._answer(302, headers, b"")
        else:
            self._bytes(file, data, git_sha1(data))

    def _store(self, digest: str) -> None:
        self._note(digest)
        for repository in self.hub.repositories.values():
            for files in repository.commits.values():
                for name, data in files.items():
                    if sha256(data) == digest:
                        self._bytes(name, data, digest)
                        return
        self._answer(404, {}, b"")

    def _bytes(self, name: str, data: bytes, digest: str) -> None:
        if before := self.hub.before_bytes.pop(name, None):
            before()
        faults = self.hub.faults.get(name)
        fault = faults.pop(0) if faults else Fault()
        if fault.raw is not None:
            self._send_raw(fault.raw())
            return
        if fault.status:
            self._answer(fault.status, fault.headers, b"")
            return
        etag = f'"store-{digest}"'
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        start = int(asked[1]) if asked and not fault.ignore_range else 0
        if self.headers.get("If-Range", etag) != etag:
            start = 0
        headers = {"ETag": etag} if self.hub.etags else {}
        headers |= fault.headers
        if fault.damage:
            data = data[:-1] + bytes([data[-1] ^ 1])
        if start >= len(data) and start:
            self._answer(416, {"Content-Range": f"bytes */{len(data)}"}, b"")
            return
        is_range = asked is not None and not fault.ignore_range
        stop = min(len(data), int(asked[2]) + 1) if is_range and asked and asked[2] else len(data)
        self.send_response(206 if is_range else 200)
        if is_range:
            headers = {"Content-Range": f"bytes {start}-{stop - 1}/{len(data)}"} | headers
        for key, value in {**headers, "Content-Length": str(stop - start)}.items():
            self.send_header(key, value)
        self.end_headers()
        self._send(data[start:stop], digest, fault)

    def _send(self, data: bytes, digest: str, fault: Fault) -> None:
        ends = [end for end in (fault.cut, fault.stall) if end is not None]
        end = min([len(data), *ends])
        began = time.monotonic()
        piece = PIECE
        if self.hub.bytes_per_second:
            piece = max(1, min(PIECE, int(self.hub.bytes_per_second / 100)))
        for place in range(0, end, piece):
            part = data[place : min(place + piece, end)]
            while self.hub.holds and not self.hub.closing.wait(0.01):
                pass
            # Counted first: the reader may look as soon as it has the bytes.
            self.hub.sent[digest] += len(part)
            self.wfile.write(part)
            if self.hub.bytes_per_second:
                late = began + (place + len(part)) / self.hub.bytes_per_second - time.monotonic()
                if late > 0 and self.hub.closing.wait(late):
                    break
        if fault.stall is not None:
            self.hub.closing.wait(10)
        if end < len(data):
            self._end()

    def _send_raw(self, pieces: Iterable[bytes]) -> None:
        self.close_connection = True
        for piece in pieces:
            self.wfile.write(piece)
            self.hub.sent[""] += len(piece)
            if self.hub.closing.is_set():
                break

    def _tell(self, facts: object, status: int = 200) -> None:
        self._answer(status, {"Content-Type": "application/json"}, json.dumps(facts).encode())

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        self.wfile.write(body)

    def _end(self) -> None:
        self.close_connection = True
        self.wfile.flush()
        self.connection.shutdown(socket.SHUT_WR)


@contextmanager
def serving() -> Iterator[HubServer]:
    """Serve for as long as the block lasts."""
    server = HubServer()
    try:
        yield server
    finally:
        server.close()
