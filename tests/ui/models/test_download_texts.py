"""Downloads in words."""

import pytest

from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState, with_drafter
from rdchat.hub.endpoint import Lack
from rdchat.ui.models import entries
from rdchat.wording import part_text, size_text, time_left

GB = 10**9


def progress(
    state: DownloadState, done: float = 0, total: float = 0, speed: float | None = None, **more: object
) -> Download:
    files = (DownloadFile("model.safetensors", int(done), int(total)),) if total else ()
    return Download("org/name", state=state, files=files, bytes_per_second=speed, **more)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("size", "shown"),
    [(7, "1 KB"), (93e6, "93 MB"), (999.6e6, "1.00 GB"), (1.24e9, "1.24 GB"), (39.7e9, "39.7 GB")],
)
def test_sizes(size: float, shown: str) -> None:
    assert size_text(size) == shown


def test_a_part_has_the_unit_of_the_whole() -> None:
    assert part_text(0.31e9, 1.24e9) == "0.31 of 1.24 GB"
    assert part_text(5e6, 93e6) == "5 of 93 MB"


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0.2, "1 s left"),
        (59.4, "59 s left"),
        (59.6, "1 min left"),
        (7_500, "2 h 5 min left"),
        (59_160, "16 h left"),
        (9e5, "more than a day left"),
    ],
)
def test_time_left(seconds: float, shown: str) -> None:
    assert time_left(seconds) == shown


def test_the_size_of_a_pair_is_not_that_of_its_drafter_alone() -> None:
    drafter = Download("org/drafter", files=(DownloadFile("its files", 0, GB),))
    pair = with_drafter(progress(DownloadState.WAITING), drafter)
    assert (entries.state_text(pair), entries.share(pair), pair.companion) == ("Waiting", None, "org/drafter")
    pair = with_drafter(progress(DownloadState.WAITING, GB, 3 * GB), drafter)
    assert (entries.state_text(pair), entries.share(pair)) == ("Waiting  ·  1.00 of 4.00 GB", 0.25)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (progress(DownloadState.WAITING), "Waiting"),
        (progress(DownloadState.WAITING, GB, 2 * GB), "Waiting  ·  1.00 of 2.00 GB"),
        (progress(DownloadState.ASKING), "Getting the list of files…"),
        (progress(DownloadState.CHECKING, GB, GB), "Checking the files…"),
        (progress(DownloadState.DOWNLOADING, GB, 2 * GB, 1e7), "1.00 of 2.00 GB  ·  10.0 MB/s  ·  2 min left"),
        (progress(DownloadState.DOWNLOADING, GB, 2 * GB, 0.0), "1.00 of 2.00 GB"),
        (progress(DownloadState.DOWNLOADING, GB, GB, 0.0), "1.00 GB downloaded  ·  checking…"),
        (progress(DownloadState.PAUSED, GB, 2 * GB), "Paused  ·  1.00 of 2.00 GB downloaded"),
        (progress(DownloadState.FAILED), "Stopped  ·  nothing downloaded yet"),
        (progress(DownloadState.FINISHED, GB, GB), "1.00 GB  ·  complete and checked"),
    ],
)
def test_states(told: Download, shown: str) -> None:
    assert entries.state_text(told) == shown


def test_files() -> None:
    assert entries.file_text(DownloadFile("a", 5, 5_000_000)) == "0 of 5 MB"
    assert entries.file_text(DownloadFile("a", GB, 2 * GB)) == "1.00 of 2.00 GB"
    assert entries.file_text(DownloadFile("a", GB, GB)) == "1.00 GB"


def test_what_keeps_several_files_is_said_once() -> None:
    note = "No data for 30 s. Trying again in 4 s."
    assert entries.note_text(progress(DownloadState.DOWNLOADING, notes=(note,))) == note
    assert entries.note_text(progress(DownloadState.DOWNLOADING, notes=(note, note))) == f"{note} (2 files)"


def test_what_is_lacking_is_said_as_the_window_has_buttons_for_it() -> None:
    for lack, wanted in ((Lack.TOKEN, "enter your token"), (Lack.AGREEMENT, "“Agree and access repository”")):
        told = progress(DownloadState.FAILED, problem="It is gated.", hint="run `rdchat models token`", lack=lack)
        problem, hint = entries.problem_text(told)
        assert problem == "It is gated."
        assert wanted in hint
        assert "rdchat models token" not in hint


def test_the_sum_takes_as_long_as_its_slowest() -> None:
    slow = progress(DownloadState.DOWNLOADING, 0, 10 * GB, 1e6)
    fast = progress(DownloadState.DOWNLOADING, 0, GB, 1e8)
    assert entries.totals_text([slow, fast]) == "2 downloads  ·  0.0 of 11.0 GB  ·  101.0 MB/s  ·  2 h 47 min left"
    assert entries.totals_text([]) == ""
