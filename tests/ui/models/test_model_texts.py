"""What the Models window says of downloads, and how it writes sizes and times."""

import pytest

from rdchat.hub import Lack
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState, with_drafter
from rdchat.ui.models import model_texts
from rdchat.wording import part_text, size_text, time_left

GIGABYTE = 10**9


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
    drafter = Download("org/drafter", files=(DownloadFile("its files", 0, GIGABYTE),))
    pair = with_drafter(progress(DownloadState.WAITING), drafter)
    assert (model_texts.state_text(pair), model_texts.share(pair), pair.companion) == ("Waiting", None, "org/drafter")
    pair = with_drafter(progress(DownloadState.WAITING, GIGABYTE, 3 * GIGABYTE), drafter)
    assert (model_texts.state_text(pair), model_texts.share(pair)) == ("Waiting  ·  1.00 of 4.00 GB", 0.25)


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (progress(DownloadState.WAITING), "Waiting"),
        (progress(DownloadState.WAITING, GIGABYTE, 2 * GIGABYTE), "Waiting  ·  1.00 of 2.00 GB"),
        (progress(DownloadState.ASKING), "Getting the list of files…"),
        (progress(DownloadState.CHECKING, GIGABYTE, GIGABYTE), "Checking the files…"),
        (
            progress(DownloadState.DOWNLOADING, GIGABYTE, 2 * GIGABYTE, 1e7),
            "1.00 of 2.00 GB  ·  10.0 MB/s  ·  2 min left",
        ),
        (progress(DownloadState.DOWNLOADING, GIGABYTE, 2 * GIGABYTE, 0.0), "1.00 of 2.00 GB"),
        (progress(DownloadState.DOWNLOADING, GIGABYTE, GIGABYTE, 0.0), "1.00 GB downloaded  ·  checking…"),
        (progress(DownloadState.PAUSED, GIGABYTE, 2 * GIGABYTE), "Paused  ·  1.00 of 2.00 GB downloaded"),
        (progress(DownloadState.FAILED), "Stopped  ·  nothing downloaded yet"),
        (progress(DownloadState.FINISHED, GIGABYTE, GIGABYTE), "1.00 GB  ·  complete and checked"),
    ],
)
def test_states(told: Download, shown: str) -> None:
    assert model_texts.state_text(told) == shown


def test_what_keeps_several_files_is_said_once() -> None:
    note = "No data for 30 s. Trying again in 4 s."
    assert model_texts.note_text(progress(DownloadState.DOWNLOADING, notes=(note,))) == note
    assert model_texts.note_text(progress(DownloadState.DOWNLOADING, notes=(note, note))) == f"{note} (2 files)"


def test_what_is_lacking_is_said_as_the_window_has_buttons_for_it() -> None:
    for lack, wanted in ((Lack.TOKEN, "enter your token"), (Lack.AGREEMENT, "“Agree and access repository”")):
        told = progress(DownloadState.FAILED, problem="It is gated.", hint="run `rdchat models token`", lack=lack)
        problem, hint = model_texts.problem_text(told)
        assert problem == "It is gated."
        assert wanted in hint
        assert "rdchat models token" not in hint


def test_the_sum_takes_as_long_as_its_slowest() -> None:
    slow = progress(DownloadState.DOWNLOADING, 0, 10 * GIGABYTE, 1e6)
    fast = progress(DownloadState.DOWNLOADING, 0, GIGABYTE, 1e8)
    assert model_texts.totals_text([slow, fast]) == "2 downloads  ·  0.0 of 11.0 GB  ·  101.0 MB/s  ·  2 h 47 min left"
    assert model_texts.totals_text([]) == ""
