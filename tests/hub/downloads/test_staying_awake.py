"""The machine is kept awake while a model is downloaded."""

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

import pytest

from rdchat.hub.downloads.download import Download
from rdchat.hub.downloads.download_process import DownloadQueue
from rdchat.inference.library.original_source import make_part
from rdchat.work.job import Job
from tests.hub.downloads.downloading import LIMITS, NAME, small_files
from tests.hub.hub_server import HubServer


def test_the_machine_is_kept_awake_until_the_download_ends(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    awake: list[str] = []

    @contextmanager
    def kept_awake() -> Iterator[None]:
        awake.append("held")
        yield
        awake.append("let go")

    monkeypatch.setattr("rdchat.hub.downloads.download_process.keep_awake", kept_awake)
    hub.add(NAME, small_files())
    record = json.loads(json.dumps(asdict(Download(NAME))))  # as it crosses to the child
    call = DownloadQueue(make_part).download(Job(), record=record, limits=asdict(LIMITS), token=None, paused=False)
    asyncio.run(asyncio.wait_for(call, 30))
    assert awake == ["held", "let go"]
