"""The machine is kept awake while bytes come, and not by what only waits."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from rdchat.hub.downloads import child
from rdchat.hub.downloads.child import DownloadQueue
from rdchat.hub.downloads.download import Download
from tests.hub.downloading import LIMITS, NAME, small_files
from tests.hub.hub_server import Fault, HubServer


def test_a_stalled_download_lets_the_machine_sleep_until_bytes_come_again(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    awake: list[str] = []

    @contextmanager
    def kept_awake() -> Iterator[None]:
        awake.append("held")
        yield
        awake.append("let go")

    monkeypatch.setattr(child, "keep_awake", kept_awake)
    monkeypatch.setattr(child, "_AWAKE_LOOK_S", 0.02)
    monkeypatch.setattr(child, "AWAKE_S", 0.3)
    hub.add(NAME, small_files())
    hub.fault("model.safetensors", Fault(stall=50_000), Fault(stall=50_000))  # the rest alone would come in no time
    asyncio.run(download_and_watch(awake))
    assert awake[:4] == ["held", "let go"] * 2, "it slept in the stall"


async def download_and_watch(awake: list[str]) -> None:
    queue = DownloadQueue()
    watch = asyncio.create_task(child._stay_awake(queue))
    limits = replace(LIMITS, stall_s=1.0)
    await asyncio.wait_for(queue.download(Download(NAME), None, limits, lambda _record: None), 30)
    while awake[-1:] != ["let go"]:
        await asyncio.sleep(0.01)
    watch.cancel()
