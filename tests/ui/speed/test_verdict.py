"""The line on what the figures mean."""

from dataclasses import replace
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rdchat.inference.api.reply_statistics import AutoChoice, Statistics
from rdchat.ui.speed.verdict import SLOWER, verdict

_SMALL, _LARGE = 135_000_000, 8_000_000_000
_README = Path(__file__).parents[3] / "README.md"
_choices = st.builds(
    AutoChoice,
    st.just("off"), st.just(0), st.just(0), st.just(1.0), st.just(1.0), st.just("Not drafting."),
    st.none() | st.floats(0.1, 3.0),
)  # fmt: skip
_figures = st.builds(
    Statistics,
    generated_tokens=st.integers(2, 300),
    decode_ms=st.floats(1, 60_000),
    rounds=st.integers(0, 200),
    target_calls=st.integers(1, 200),
    plain_step_ms=st.just(0.0) | st.floats(0.1, 500),
    plain_error=st.floats(0, 2),
    choice=st.none() | _choices,
)
_hindrances = st.sampled_from([None, "", "the computer is busy", "a training is running"])


@given(_figures, _hindrances, st.booleans(), st.sampled_from([0, _SMALL, _LARGE]))
def test_it_is_never_empty_and_never_guesses(
    figures: Statistics, hindered: str | None, writing: bool, parameters: int
) -> None:
    said = verdict(figures, hindered, writing=writing, parameters=parameters)
    compared = figures.speedup_range
    assert said
    assert said.startswith(SLOWER) == (compared is not None and compared[1] < 1)
    if "faster" in said:
        assert compared is not None
        assert compared[0] > 1
    if "too small" in said.lower():
        assert parameters == _SMALL
        assert figures.choice is not None
        assert figures.choice.speedup is not None
        assert figures.choice.speedup < 1
    assert hindered or not any(each in said for each in ("busy", "training"))


def test_the_same_reply_in_other_circumstances() -> None:
    lost = AutoChoice("off", 0, 0, 1.0, 1.0, "Drafting would be slower here.", 0.8)
    plain = Statistics(generated_tokens=60, decode_ms=3000, target_calls=59, choice=lost)
    unknown = replace(plain, choice=replace(lost, speedup=None))
    assert verdict(plain, "", parameters=_SMALL) == "Too small to gain: measured"
    assert verdict(plain, "", parameters=_LARGE) == "Fine: nothing was worth drafting"
    assert verdict(replace(plain, choice=replace(lost, speedup=1.0)), "", parameters=_SMALL).startswith("Fine")
    assert verdict(unknown, "", parameters=_SMALL) == "Not compared yet: rdchat measures while it is idle"
    assert verdict(unknown, "the computer is busy") == "No comparison: the computer is busy"
    assert verdict(unknown) == verdict(replace(plain, choice=None)) == "Written without drafting"
    drafted = replace(unknown, rounds=40, target_calls=40)
    assert verdict(drafted) == "Not compared with plain decoding"
    assert verdict(drafted, "") == "Not compared yet: rdchat measures while it is idle"
    assert verdict(replace(drafted, plain_step_ms=90.0, plain_error=0.6), "the computer is busy").startswith("No comp")
    short = replace(drafted, generated_tokens=9, decode_ms=400)
    assert verdict(short, "") == "Too short to compare"
    assert verdict(short, "", writing=True) == "Comparing with plain decoding…"


def test_the_readme_quotes_a_line_that_there_is() -> None:
    fast = Statistics(generated_tokens=101, decode_ms=4000, rounds=40, target_calls=40, plain_step_ms=50)
    assert f'such as "{verdict(fast)}"' in " ".join(_README.read_text(encoding="utf-8").split())
