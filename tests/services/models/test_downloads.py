"""Downloads as the window has them: told on the main thread, remembered, gone on with after the app ended."""

import threading
from collections.abc import Callable
from pathlib import Path

import keyring
import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import InvalidSettingError
from rdchat.hub import HubError, Tokens, find_endpoint
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.hub.downloads.download_record import begin_drafter, has_unfinished, unfinished_downloads
from rdchat.hub.hub_api import HubApi
from rdchat.inference.library.original_source import plan_part
from rdchat.work.job import Job
from tests.hub.downloads.downloading import (
    NAME,
    cached,
    check_whole,
    download,
    random_bytes,
    small_files,
)
from tests.hub.hub_server import Fault, HubServer
from tests.hub.keychains import SlowKeychain
from tests.hub.mtp_samples import ORIGINAL, Original, check_layers, drafter_folder, make_target, target_of
from tests.inference.drafting.suggested_pairs import suggest
from tests.services.models.followed_downloads import FollowedDownloads

WEIGHTS = "model.safetensors"
Opener = Callable[..., FollowedDownloads]


@pytest.mark.slow
def test_a_download_is_told_and_ends_whole(hub: HubServer, downloads: FollowedDownloads) -> None:
    files = small_files()
    hub.add(NAME, files)
    hub.holds_at = 100_000
    one = downloads.start(NAME)
    assert downloads.start(NAME) == one, "it goes on already"
    with pytest.raises(HubError):
        downloads.start("../evil")
    downloads.wait(one, lambda progress: progress.done_bytes > 0)
    (going,) = downloads.service.going()
    assert going.total_bytes == sum(map(len, files.values()))
    hub.holds_at = None
    ended = downloads.wait_for(one, DownloadState.FINISHED)
    check_whole(Path(ended.folder), files)
    assert (downloads.finished, downloads.service.going()) == ([NAME], ())
    downloads.service.clear_finished()
    assert downloads.service.all() == ()
    check_whole(Path(ended.folder), files)
    downloads.service.end_process()
    assert not has_unfinished()


def test_finished_download_names_the_model_as_the_library_does() -> None:
    """The hub id for the main revision, the folder for another one."""
    for revision, name in (("main", NAME), ("v1", "/hub/it")):
        assert Download(NAME, revision, state=DownloadState.FINISHED, folder="/hub/it").model_name == name


@pytest.mark.slow
def test_mtp_layers_go_on_after_a_restart(hub: HubServer, open_downloads: Opener, tmp_path: Path) -> None:
    original = Original()
    original.put(hub)
    plan = plan_part(HubApi(find_endpoint()), target_of(make_target(tmp_path / "target")), ORIGINAL)
    hub.holds_at = 200_000
    first = open_downloads()
    wanted = begin_drafter(plan)
    one = first.service.start_download(wanted)
    first.wait(one, lambda progress: progress.done_bytes > 100_000)
    first.service.end_process()
    second = open_downloads()
    (listed,) = second.restored()
    assert (listed.id, second.went_on) == (one, [ORIGINAL])
    hub.holds_at = None
    second.wait_for(one, DownloadState.FINISHED)
    check_layers(drafter_folder(), original)


@pytest.mark.slow
def test_a_newer_order_takes_the_older_ones_place_on_the_list(
    hub: HubServer, open_downloads: Opener, tmp_path: Path
) -> None:
    """A drafter has one order: two entries would make the same folder."""
    target = target_of(make_target(tmp_path / "target"))
    Original().put(hub)
    older = begin_drafter(plan_part(HubApi(find_endpoint()), target, ORIGINAL))
    first = open_downloads()
    hub.holds_at = 200_000
    one = first.service.start_download(older)
    first.wait(one, lambda progress: progress.done_bytes > 100_000)
    first.service.pause(one)
    first.wait_for(one, DownloadState.PAUSED)
    hub.holds_at = None
    original = Original()
    original.config["torch_dtype"] = "bfloat16"
    original.put(hub)
    newer = begin_drafter(plan_part(HubApi(find_endpoint()), target, ORIGINAL))
    assert older.revision != newer.revision
    second = open_downloads()  # another start: its list has the older one
    (listed,) = second.restored()
    assert (listed.id, listed.revision) == (one, newer.revision)
    assert first.service.start_download(newer) == one
    assert [each.revision for each in first.service.all()] == [newer.revision]
    first.wait_for(one, DownloadState.FINISHED)
    check_layers(drafter_folder(), original)


@pytest.mark.slow
def test_a_deleted_models_unfinished_drafter_leaves_the_list(hub: HubServer, downloads: FollowedDownloads) -> None:
    service = downloads.service
    drafter = service.start_download(Download(NAME, is_model=False, drafter="tiny-mtp-123456"))
    model = service.start_download(Download(NAME))
    for each in (drafter, model):
        downloads.wait_for(each, DownloadState.FAILED)  # the hub has neither
    service.forget_deleted(Path("/hub/it"), NAME)
    assert service.all() == ()


@pytest.mark.slow
def test_paused_download_stays_paused_after_a_restart(hub: HubServer, open_downloads: Opener) -> None:
    files = small_files()
    hub.add(NAME, files)
    hub.holds_at = 100_000
    first = open_downloads()
    one = first.service.start_download(Download(NAME, is_model=False))
    first.wait(one, lambda progress: progress.done_bytes > 50_000)
    first.service.pause(one)
    paused = first.wait_for(one, DownloadState.PAUSED)
    assert first.service.going() == ()
    first.service.end_process()
    asked = len(hub.requests)
    second = open_downloads()
    (listed,) = second.restored()
    assert (second.went_on, listed.state) == ([], DownloadState.PAUSED)
    assert listed.done_bytes >= paused.done_bytes
    assert not listed.is_model
    assert len(hub.requests) == asked
    here = max(part.stat().st_size for part in cached().work.glob("*.part"))  # a small file may be under way too
    hub.holds_at = None
    second.service.resume(listed.id)
    second.check_end(listed.id, files)
    assert hub.starts(files[WEIGHTS]) == [0, here]


@pytest.mark.slow
def test_unfinished_download_of_the_command_line_is_listed(hub: HubServer, downloads: FollowedDownloads) -> None:
    files = small_files()
    hub.add(NAME, files)
    hub.fault(WEIGHTS, Fault(cut=150_000), *[Fault(status=503)] * 4)
    with pytest.raises(HubError):
        download()
    (listed,) = downloads.restored()
    assert (listed.state, listed.done_bytes) == (DownloadState.PAUSED, sum(map(len, files.values())) - 250_000)
    downloads.service.resume(listed.id)
    downloads.wait_for(listed.id, DownloadState.FINISHED)


@pytest.mark.slow
def test_waiting_download_is_resumed_after_a_restart(hub: HubServer, open_downloads: Opener) -> None:
    """The hub has not listed its files yet."""
    answer = threading.Event()
    hub.before_api = lambda _path: answer.wait(60)
    names = [f"some-org/model-{number}" for number in range(3)]
    for name in names:
        hub.add(name, small_files())
    first = open_downloads()
    for name in names:
        first.wait(first.start(name), lambda progress: progress.state is not DownloadState.PAUSED)
    first._qtbot.waitUntil(lambda: len(list(unfinished_downloads())) == 3)
    first.service.end_process()
    answer.set()
    second = open_downloads()
    assert {each.repository for each in second.restored()} == set(names)
    assert sorted(second.went_on) == names
    for each in second.service.all():
        second.wait_for(each.id, DownloadState.FINISHED)
    assert not has_unfinished()


@pytest.mark.slow
def test_refused_download_stays_paused_after_a_restart(hub: HubServer, open_downloads: Opener) -> None:
    first = open_downloads()
    first.wait_for(first.start(NAME), DownloadState.FAILED)
    first.service.end_process()
    second = open_downloads()
    (listed,) = second.restored()
    assert (listed.state, second.went_on) == (DownloadState.PAUSED, [])
    second.service.discard(listed.id)
    second._qtbot.waitUntil(lambda: not second.service.all())
    assert not cached().folder.exists()


@pytest.mark.slow
def test_setting_lets_more_downloads_run_at_once(hub: HubServer, qtbot: QtBot, downloads: FollowedDownloads) -> None:
    """The hub's answer is held back, so none of them goes further than its first question."""
    asked: set[str] = set()
    answer = threading.Event()
    hub.before_api = lambda path: (asked.add(path), answer.wait(60))
    names = [f"some-org/model-{number}" for number in range(4)]
    for name in names:
        hub.add(name, small_files())
    try:
        ids = [downloads.start(name) for name in names]
        states = lambda: sorted(progress.state for progress in downloads.service.all())  # noqa: E731
        qtbot.waitUntil(lambda: states() == ["asking", "asking", "waiting", "waiting"])
        qtbot.waitUntil(lambda: len(asked) == 2)
        downloads.service.set_at_once(4)
        qtbot.waitUntil(lambda: len(asked) == 4)
    finally:
        answer.set()
    for one in ids:
        downloads.wait_for(one, DownloadState.FINISHED)


@pytest.mark.slow
def test_a_keychain_that_asks_the_person_holds_up_nothing(hub: HubServer, open_downloads: Opener) -> None:
    """Starting, pausing and quitting return while it waits; what was paused meanwhile is not begun by its answer."""
    keyring.set_keyring(keychain := SlowKeychain())
    hub.add(NAME, small_files())
    downloads = open_downloads(Tokens())
    one = downloads.start(NAME)
    assert keychain.asked.wait(60)
    downloads.service.pause(one)
    downloads.wait_for(one, DownloadState.PAUSED)
    keychain.answer.set()
    other = downloads.start("some-org/other")
    downloads.wait_for(other, DownloadState.FAILED)
    assert downloads.now(one).state is DownloadState.PAUSED  # type: ignore[union-attr]
    assert not any(NAME in request.path for request in hub.requests)
    assert keychain.times_asked == 2, "there was no token to be remembered"


def test_a_token_that_is_none_is_said(
    hub: HubServer, downloads: FollowedDownloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RDCHAT_HUB_TOKEN_HOST", hub.url.removeprefix("http://"))
    monkeypatch.setenv("HF_TOKEN", "two words")
    failed = downloads.wait_for(downloads.start(NAME), DownloadState.FAILED)
    assert failed.problem == "This is not a token: it contains spaces or other characters."
    monkeypatch.setenv("HF_ENDPOINT", "gopher://x")
    with pytest.raises(InvalidSettingError):
        downloads.start(NAME)


DRAFTER = "maker/its-drafter"


def pair(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Add a model and its suggested drafter; return the drafter's files."""
    suggest(monkeypatch, "DFlash", NAME, DRAFTER)
    drafter = {"config.json": b'{"dflash_config": {}}', WEIGHTS: random_bytes(200_000, 9)}
    hub.add(NAME, small_files())
    hub.add(DRAFTER, drafter)
    return drafter


@pytest.mark.slow
def test_a_pair_is_one_download_also_after_a_restart(
    hub: HubServer, open_downloads: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = pair(hub, monkeypatch)
    hub.holds_at = 100_000
    first = open_downloads()
    first.wait(first.start(NAME), lambda progress: progress.done_bytes > 50_000)
    (shown,) = first.service.all()
    assert (shown.companion, shown.files[-1]) == (DRAFTER, DownloadFile("its-drafter/its files", 0, 1_000_000))
    assert len(first.service.going()) == 1
    assert not any(DRAFTER in request.path for request in hub.requests)
    first.service.end_process()
    hub.holds_at = None
    second = open_downloads()
    (listed,) = second.restored()
    second.wait(listed.id, lambda progress: progress.companion == DRAFTER and progress.state == "finished")
    assert second.finished == [NAME, DRAFTER]
    (shown,) = second.service.all()
    sizes = [len(data) for data in (*small_files().values(), *drafter.values())]
    assert (shown.total_bytes, shown.done_bytes) == (sum(sizes), sum(sizes))
    assert {file.name for file in shown.files} >= {WEIGHTS, f"its-drafter/{WEIGHTS}"}
    second.service.hide_download(shown.id)
    assert second.service.all() == ()
    second.start(NAME)
    (shown,) = second.service.all()
    assert shown.companion == "", "the drafter is here"


@pytest.mark.slow
def test_a_drafter_goes_on_after_a_restart_and_its_model_may_be_deleted_meanwhile(
    hub: HubServer, open_downloads: Opener, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafter = pair(hub, monkeypatch)
    first = open_downloads()
    one = first.start(NAME)
    first.service.finished.connect(lambda _download: setattr(hub, "holds_at", hub.sent.total() + 100_000))
    first.wait(one, lambda progress: bool(progress.folder) and progress.state == "downloading")
    first.service.forget_deleted(Path(first.now(one).folder))
    (shown,) = first.service.all()
    assert (shown.repository, shown.companion) == (DRAFTER, "")
    first.service.end_process()
    hub.holds_at = None
    second = open_downloads()
    (listed,) = second.restored()
    assert listed.repository == DRAFTER
    second.check_end(listed.id, drafter)


def test_two_models_may_share_a_drafter(downloads: FollowedDownloads, monkeypatch: pytest.MonkeyPatch) -> None:
    service, process = downloads.service, downloads.service._process
    own = suggest(monkeypatch, "DFlash", NAME, DRAFTER).drafter
    monkeypatch.setattr(
        "rdchat.services.models.downloads.downloaded_with", lambda name, *_: own if name != DRAFTER else None
    )
    for method in ("start_download", "pause", "discard"):
        monkeypatch.setattr(process, method, lambda *_: Job())
    one = service.start_download(Download(NAME))
    other = service.start_download(Download("org/other"))
    service._take(Download(NAME, state=DownloadState.FINISHED, folder="/snapshot"))
    drafter = Download(DRAFTER, is_model=False)
    assert {each.id: each.companion for each in service.all()} == {one: DRAFTER, other: DRAFTER}
    service.discard(one)
    service._take(drafter.at(DownloadState.REMOVED))
    assert {each.id: each.companion for each in service.all()} == {one: "", other: DRAFTER}
    service._take(Download("org/other", state=DownloadState.FINISHED, folder="/snapshot"))
    assert service.find_download(DRAFTER) is not None, "it is begun again"
    service._take(drafter.at(DownloadState.FINISHED))
    service.hide_download(other)
    assert [each.id for each in service.all()] == [one]


@pytest.mark.slow
def test_only_the_main_version_of_a_suggested_model_comes_with_its_drafter(
    hub: HubServer, downloads: FollowedDownloads, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair(hub, monkeypatch)
    one = downloads.service.start_download(Download(NAME, hub.repositories[NAME].branches["main"]))
    assert downloads.wait_for(one, DownloadState.FINISHED).companion == ""
    assert len(downloads.service.all()) == 1
