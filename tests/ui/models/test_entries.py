"""What the Models window says of models and downloads, and its list, which takes changed entries."""

from dataclasses import replace
from itertools import pairwise

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub import HubModel, Lack, suggestions
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState, with_drafter
from rdchat.inference.api import Dtype, MemoryRoom
from rdchat.services.models.fit import Machine, sizes_of, sizes_read, sizes_suggested
from rdchat.services.models.larger_model import check_text
from rdchat.ui.models import entries
from rdchat.ui.models.entries import results_listed
from rdchat.ui.models.memory_section import MemoryChart, MemoryPart, judge
from rdchat.ui.models.page_parts import ModelList
from rdchat.ui.style import Theme, scaled
from rdchat.ui.style.formatting import MACHINE
from rdchat.wording import part_text, size_text, time_left
from tests.services.models.macs import GB, MAC_16, mac

FOUND = HubModel("org/Name-4bit", 1_234_567, 1, "2026-11-01", False, "mit", "llama", "4-bit", 4_000_000_000)


def judged(weights: int, machine: Machine = MAC_16, drafter: int = 0) -> tuple[str, str, str]:
    """Judge a model of the hub by its weights, with a drafter."""
    sizes = sizes_of(weights, "4-bit")
    return judge(machine.need(sizes, drafter), machine.need(sizes), machine.when_idle.memory)


def test_whether_a_model_fits_is_said_with_the_figures() -> None:
    assert judged(4_000_000_000) == ("Fits: 4.58 GB of 17.2 GB", "", "success")
    tight = ("Tight: 10.7 GB of 17.2 GB", "It may be slow. Close other apps first.", "warning")
    assert judged(10_000_000_000) == tight
    assert judged(40_000_000_000) == ("Too large: needs 29.9 GB more than is available", "", "danger")
    text = judged(9_000_000_000, drafter=3_000_000_000)[0]
    assert text.startswith("Loads, but with 4,096 tokens and the drafter it needs ")


def test_little_free_memory_makes_a_model_of_the_hub_tight_and_not_too_large() -> None:
    busy = Machine(replace(MAC_16.memory, room=MemoryRoom(3 * GB, 3 * GB), max_bytes=10 * GB))
    assert judged(4_000_000_000, busy)[0] == "Tight: 4.58 GB of 17.2 GB"


def test_a_pair_has_one_verdict_in_the_list_and_in_the_details() -> None:
    """The list said "Too large" with the drafter, the details judged without."""
    twenty = next(each for each in suggestions() if each.name == "gpt-oss 20B")
    small = Machine(replace(MAC_16.memory, room=MemoryRoom(15 * GB, 15 * GB), max_bytes=15 * GB))
    need = small.need(sizes_suggested(twenty), twenty.drafter.weight_bytes)
    words = judge(need, need, small.when_idle.memory)[0]
    assert words == "Too large with its drafter: needs 75 MB more than is available"
    listed = {entry.key: entry for entry in entries.newcomer_entries(small, frozenset())}
    hub = HubModel(twenty.repository, quantization="4-bit", weight_bytes=twenty.weight_bytes)
    found = results_listed([hub], small, frozenset())
    for entry in (listed[twenty.repository], *found):
        assert ("Too large", "muted") in entry.marks
        assert entry.tip.endswith(words)
    assert listed[twenty.repository].facts == "15.4 GB with its drafter"


def test_a_group_fits_where_all_of_it_does() -> None:
    """Its heading said that it fits, above an entry that is too large."""
    for gigabytes in range(2, 65):
        for machine in (mac(gigabytes), replace(mac(gigabytes), dtype=Dtype.FLOAT32)):
            newcomers = entries.newcomer_entries(machine, frozenset())
            heads = [index for index, entry in enumerate(newcomers) if not entry.key]
            for head, end in pairwise([*heads, len(newcomers)]):
                if "Too large" not in newcomers[head].title:
                    assert not any(("Too large", "muted") in entry.marks for entry in newcomers[head:end])
    assert entries.newcomer_entries(MAC_16, frozenset())[0].title == f"Best for {MACHINE}"


def test_a_model_whose_size_the_hub_does_not_give_is_judged_by_its_name() -> None:
    """It had no verdict."""
    names = {"Qwen9-8B-4bit": 4.5, "some-70b-8bit": 74.4, "tiny-350M": 0.7, "Other-35B-A3B-4bit": 19.7}
    for name, gigabytes in names.items():
        hub = HubModel(f"org/{name}", quantization=f"{name[-4]}-bit" if name.endswith("bit") else "")
        sizes = sizes_read(hub)
        assert sizes is not None
        assert sizes.stored_bytes == pytest.approx(gigabytes * 1e9, rel=0.01)
        (entry,) = results_listed([hub], MAC_16, frozenset())
        assert bool(entry.marks) == (gigabytes > 10)
    unknown = ("Gem-E4B", "Mix-8x7B", "plain", "internlm2-chat-1_8b-4bit", "Phi-4B-MoE-4bit")
    for name in (*unknown, "Llama-4-Scout-17B-16E-Instruct-4bit", "llama-4-maverick-17b-128e"):
        assert sizes_read(HubModel(f"org/{name}")) is None, name


def test_facts_of_a_model_are_short() -> None:
    (entry,) = results_listed([FOUND], None, frozenset())
    assert (entry.facts, entry.use) == ("org  ·  4-bit  ·  4.00 GB", "1.2 M downloads")
    assert [entries.compact(number) for number in (7, 1_500, 12_345, 999_600)] == ["7", "1.5 K", "12 K", "1.0 M"]
    facts = {name: value.replace("\N{NO-BREAK SPACE}", " ") for name, value, _ in entries.hub_facts(FOUND)}
    assert facts["Used"] == "1,234,567 downloads last month, 1 like"
    assert (facts["Changed"], facts["Licence"], facts["Weights"]) == ("1 Nov 2026", "mit", "4.00 GB")


def test_a_suggestion_gives_its_licences() -> None:
    suggestion = next(each for each in suggestions() if each.licence == each.drafter.licence)
    unread, other = (replace(suggestion, drafter=replace(suggestion.drafter, licence=name)) for name in ("", "mit"))
    assert [check_text(each) for each in (suggestion, unread, other)] == [
        "Licence: apache-2.0. Not tried with rdchat.",
        "Licence: apache-2.0; of the drafter: unknown. Not tried with rdchat.",
        "Licence: apache-2.0; of the drafter: mit. Not tried with rdchat.",
    ]


ONE, TWO, THREE = (
    HubModel(f"org/{name}-4bit", 10, 1, "2026-11-01", False, "mit", "llama", "4-bit", size)
    for name, size in (("One", 4_000_000_000), ("Two", 5_000_000_000), ("Three", 40_000_000_000))
)
NOTHING: frozenset[str] = frozenset()


def test_marks_say_what_is_here_and_what_is_too_large() -> None:
    entries = results_listed((ONE, TWO, THREE), MAC_16, NOTHING)
    assert ("Too large", "muted") in entries[2].marks
    assert [entry.use for entry in entries] == ["10 downloads", "10 downloads", "needs 41.3 GB"]
    assert ("Installed", "success") in results_listed((ONE,), MAC_16, frozenset({ONE.repository}))[0].marks
    assert results_listed((THREE,), None, NOTHING)[0].marks == ()
    assert entries[0].item is ONE


def test_the_chosen_entry_stays_chosen_wherever_it_goes(qtbot: QtBot, theme: Theme) -> None:
    shown = ModelList(theme, "Models")
    qtbot.addWidget(shown)
    shown.show_entries(results_listed((ONE, TWO), MAC_16, NOTHING))
    shown.select(TWO.repository)
    for order in ((TWO, ONE), (THREE, ONE, TWO), (TWO,)):
        with qtbot.assertNotEmitted(shown.chosen):
            shown.show_entries(results_listed(order, MAC_16, NOTHING))
        assert shown.current is not None
        assert shown.current.item is TWO
    shown.show_entries(results_listed((ONE,), MAC_16, NOTHING))
    assert shown.current is None


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
    assert (entries.state_text(pair), entries.share(pair), pair.companion) == ("Waiting", None, "org/drafter")
    pair = with_drafter(progress(DownloadState.WAITING, GIGABYTE, 3 * GIGABYTE), drafter)
    assert (entries.state_text(pair), entries.share(pair)) == ("Waiting  ·  1.00 of 4.00 GB", 0.25)


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
    assert entries.state_text(told) == shown


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
    slow = progress(DownloadState.DOWNLOADING, 0, 10 * GIGABYTE, 1e6)
    fast = progress(DownloadState.DOWNLOADING, 0, GIGABYTE, 1e8)
    assert entries.totals_text([slow, fast]) == "2 downloads  ·  0.0 of 11.0 GB  ·  101.0 MB/s  ·  2 h 47 min left"
    assert entries.totals_text([]) == ""


def test_the_legend_of_the_memory_grows_with_the_text(qtbot: QtBot, theme: Theme) -> None:
    chart = MemoryChart(theme)
    qtbot.addWidget(chart)
    chart.show_parts([MemoryPart("Weights", "writing", 10**9, "as 4-bit")], 2 * 10**9)
    marks = lambda: [mark.box.height() for mark in chart.drawing.marks]  # noqa: E731
    bar, line, _limit = marks()
    height = chart.sizeHint().height()
    theme.set_text_size(20)
    assert marks() == [bar, scaled(20), scaled(20)]
    assert chart.drawing.size == scaled(13)
    assert chart.sizeHint().height() > height
    assert scaled(20) > 1.3 * line
