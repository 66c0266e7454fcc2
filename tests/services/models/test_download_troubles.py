"""What goes wrong with a download is told in words, keeps what is here, and is gone on with."""

from collections.abc import Callable
from pathlib import Path

import pytest

from rdchat.hub import Lack, Token, Tokens, find_endpoint
from rdchat.hub.downloads.download import DownloadState
from tests.disks import small_disk
from tests.hub.downloads.downloading import (
    NAME,
    cached,
    check_nothing_installed,
    check_whole,
    small_files,
)
from tests.hub.hub_server import Fault, HubServer
from tests.services.models.followed_downloads import FollowedDownloads

WEIGHTS = "model.safetensors"
Opener = Callable[..., FollowedDownloads]


@pytest.mark.slow
def test_what_the_hub_refuses_says_what_is_lacking(hub: HubServer, open_downloads: Opener) -> None:
    hub.add("some-org/gated", small_files(), gated=True)
    hub.add("some-org/busy", small_files())
    hub.fault(WEIGHTS, Fault(status=429, headers={"Retry-After": "7200"}))
    tokens = Tokens()
    downloads = open_downloads(tokens)
    downloads.service.set_at_once(8)
    names = ("gated", "missing", "busy")
    ids = {name: downloads.start(f"some-org/{name}") for name in names}
    failed = {name: downloads.wait_for(one, DownloadState.FAILED) for name, one in ids.items()}
    assert (failed["gated"].lack, failed["gated"].page) == (Lack.TOKEN, f"{hub.url}/some-org/gated")
    assert failed["missing"].lack == Lack.TOKEN, "without a token the hub tells nobody what it has"
    assert failed["busy"].hint == "The downloaded part is kept. Resume the download in 120 minutes."
    assert not any(list((cached(f"some-org/{name}").folder / "refs").glob("*")) for name in names)

    tokens.remember(Token("hf_stranger"), find_endpoint())
    downloads.service.retry_refused()
    gated = downloads.wait(ids["gated"], lambda progress: progress.lack == Lack.AGREEMENT)
    assert "is gated" in gated.problem
    missing = downloads.wait(ids["missing"], lambda progress: progress.state.has_ended and not progress.lack)
    assert missing.problem == "some-org/missing is not on Hugging Face, or no longer."


@pytest.mark.slow
def test_a_full_disk_is_told_and_gone_on_with(
    hub: HubServer, open_downloads: Opener, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = small_files()
    hub.add(NAME, files)
    hub.bytes_per_second = 2_000_000
    (tmp_path / "small").mkdir()
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "small"))
    with small_disk(tmp_path / "small", kibibytes=640) as disk:
        hub.before_bytes[WEIGHTS] = lambda: (disk.folder / "other").write_bytes(bytes(300_000))
        downloads = open_downloads()
        one = downloads.start(NAME)
        failed = downloads.wait_for(one, DownloadState.FAILED)
        assert "the disk is full" in failed.problem
        check_nothing_installed()
        (disk.folder / "other").unlink()
        downloads.service.resume(one)
        ended = downloads.wait_for(one, DownloadState.FINISHED)
        check_whole(Path(ended.folder), files)
        downloads.service.end_process()


@pytest.mark.slow
def test_what_another_program_downloads_is_waited_for(hub: HubServer, downloads: FollowedDownloads) -> None:
    files = small_files()
    hub.add(NAME, files)
    with cached().locked():
        one = downloads.start(NAME)
        waits = downloads.wait(one, lambda progress: bool(progress.notes))
        assert waits.state is DownloadState.WAITING
        assert waits.notes[0] == f"Another program is downloading {NAME}. This download continues after it."
    downloads.check_end(one, files)
