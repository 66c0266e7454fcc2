from datetime import datetime

import pytest

from rdchat.inference.api import LoadProgress, PrefillProgress
from rdchat.ui.style import formatting
from rdchat.wording import counted, parameter_text


@pytest.mark.parametrize(
    ("value", "words"), [(None, formatting.NONE), (0.456, "0.46"), (8.314, "8.31"), (42.46, "42.5"), (1204.4, "1,204")]
)
def test_rates_have_about_three_figures(value: float | None, words: str) -> None:
    assert formatting.rate(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, formatting.NONE), (84.6, "85 ms"), (999.6, "1.00 s"), (1240.0, "1.24 s"), (125_000.0, "2 min 5 s")],
)
def test_durations(value: float, words: str) -> None:
    assert formatting.duration(value) == words


def test_sizes_and_counts() -> None:
    assert formatting.memory(0) == formatting.NONE
    assert formatting.memory(538_000_000) == "538 MB"
    assert formatting.memory(1_240_000_000) == "1.24 GB"
    assert parameter_text(134_515_008) == "135 M"
    assert parameter_text(1_540_000_000) == "1.54 B"
    assert formatting.count(2048) == "2,048"
    assert formatting.dtype_text("4bit") == "4-bit"
    assert formatting.dtype_text("6bit") == "6-bit"  # a model's own
    assert formatting.dtype_text("mxfp4") == "mxfp4"


def test_states_in_words() -> None:
    assert (
        formatting.load_text(LoadProgress("Loading the weights", 0.4))
        == "Loading the weights… 40\N{NARROW NO-BREAK SPACE}%"
    )
    assert formatting.load_text(LoadProgress("Warming up...", None)) == "Warming up…"
    assert formatting.prefill_text(PrefillProgress(1, 512, 2048, 0)) == "Reading the prompt: 512 of 2,048 tokens"
    assert formatting.prefill_text(PrefillProgress(1, 0, 2048, 0, images=2)) == "Seeing images: 2 left"


@pytest.mark.parametrize(
    ("when", "words"),
    [
        ((2026, 11, 20, 9, 5), "09:05"),
        ((2026, 11, 19, 23, 59), "Yesterday"),
        ((2026, 11, 17, 12, 0), "Tuesday"),
        ((2026, 11, 3, 12, 0), "3 Nov"),
        ((2025, 11, 3, 12, 0), "3 Nov 2025"),
        ((2026, 11, 21, 1, 0), "01:00"),
        ((2026, 12, 3, 12, 0), "3 Dec"),
        ((4026, 11, 3, 12, 0), "3 Nov 4026"),
    ],
)
def test_days(when: tuple[int, int, int, int, int], words: str) -> None:
    now = datetime(2026, 11, 20, 14, 0).timestamp()
    assert formatting.day_text(datetime(*when).timestamp(), now) == words


@pytest.mark.parametrize("when", [None, 1e300, -1e300, 1e12, float("nan"), float("inf"), float("-inf")])
def test_a_time_that_no_calendar_has_is_an_unknown_date(when: float | None) -> None:
    assert formatting.day_text(when) == "Unknown date"


@pytest.mark.parametrize(
    ("number", "words"), [(0, "0 tokens"), (1, "1 token"), (2, "2 tokens"), (12_345, "12,345 tokens")]
)
def test_what_is_counted_has_its_plural(number: int, words: str) -> None:
    assert counted(number, "token") == words
    assert counted(1, "reply", "replies") == "1 reply"
    assert counted(2, "reply", "replies") == "2 replies"
