"""The content of a test's hub, its faults, and the requests it got."""

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


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
