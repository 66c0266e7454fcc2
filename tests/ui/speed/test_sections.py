"""What the figures of a reply mean, and the server's section of the speed panel."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rdchat.inference.api import AutoChoice, Statistics
from rdchat.server.server_settings import Phase, RequestFacts, ServerFacts
from rdchat.services.servers.server_control import ServerControl
from rdchat.ui.speed.figures import FIGURES, FigureSource
from rdchat.ui.speed.sections import verdict
from rdchat.ui.speed.speed_panel import ServerLines
from rdchat.ui.style import formatting
from rdchat.ui.transcript.message_actions import speed_line
from rdchat.ui.window.main_window import MainWindow
from tests.ui.conftest import Chat

_SMALL = 135_000_000
_LARGE = 8_000_000_000
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
    others_share=st.none() | st.floats(0, 1),
)


def _said(figures: Statistics, *, now: bool = True, writing: bool = False, parameters: int = 0) -> str:
    return verdict(figures, now=now, writing=writing, parameters=parameters).text


@given(_figures, st.booleans(), st.booleans(), st.booleans(), st.sampled_from([0, _SMALL, _LARGE]))
def test_it_is_never_empty_and_never_guesses(
    figures: Statistics, now: bool, training: bool, writing: bool, parameters: int
) -> None:
    said, color = verdict(figures, now=now, training=training, writing=writing, parameters=parameters)
    compared = figures.speedup_range
    known = compared is not None and figures.others_share is not None and not training
    assert said
    tried = figures.drafted_rounds >= 10 and figures.choice is None
    assert said.startswith("Slower") == (color == "warning") == (known and compared[1] < 1 and tried)
    assert ("faster" in said.lower() and "or slower" not in said) == (color == "success") == (known and compared[0] > 1)
    if "too small" in said.lower():
        assert parameters == _SMALL
        assert figures.choice.speedup < 1
    if "busy with" in said:
        assert figures.was_hindered
    assert training or "training" not in said


@given(_figures, st.booleans(), st.booleans())
def test_a_busy_computer_gets_neither_praise_nor_blame(figures: Statistics, training: bool, writing: bool) -> None:
    """Law: a gain counts as little as a loss. 2.04x was "Fine" beside 0.30x, which was excused."""
    busy = replace(figures, others_share=0.01 if training else 0.7)
    said, color = verdict(busy, now=True, training=training, writing=writing, parameters=_SMALL)
    assert color in ("muted", "text")
    assert not any(word in said for word in ("lower", "aster", "Too small", "worth"))
    shown = FIGURES["Speed-up"](FigureSource(busy)), FIGURES["Without drafting"](FigureSource(busy))
    assert training or shown == (formatting.NONE, formatting.NONE)
    assert training or speed_line(busy) == ""


@given(st.floats(0.05, 30), st.floats(0.02, 0.33))
def test_a_ratio_has_the_digits_that_its_error_allows(times: float, error: float) -> None:
    """Law: each number shown is as exact as it looks. 2.04x stood for 1.58x to 2.88x."""
    low = times / (1 + error)
    high = times / (1 - error)
    text = formatting.speedup(times, low, high)
    ends = [float(end) for end in text.removeprefix("about ").removesuffix("x").split(" to ")]
    digits = [len(end.partition(".")[2]) for end in text.removesuffix("x").split(" to ")]
    if len(ends) == 1:
        assert low - 0.005 <= ends[0] <= high + 0.005
        assert digits == [2] if high - low < 0.2 else text.startswith("about ")
    else:
        assert ends == [pytest.approx(low, abs=0.051), pytest.approx(high, abs=0.051)]
    assert (min(ends) > 1) == (low > 1) or abs(low - 1) < 0.006, "it says no loss where there is a gain"


def test_the_same_reply_in_other_circumstances() -> None:
    lost = AutoChoice("off", 0, 0, 1.0, 1.0, "Drafting would be slower here.", 0.8)
    plain = Statistics(generated_tokens=60, decode_ms=3000, target_calls=59, choice=lost, others_share=0.0)
    unknown = replace(plain, choice=replace(lost, speedup=None))
    busy = "No verdict: the computer was busy with other work"
    assert _said(plain, parameters=_SMALL) == "Too small to gain: measured"
    assert _said(plain, parameters=_LARGE) == "Nothing was worth drafting"
    assert _said(replace(plain, choice=replace(lost, speedup=1.0)), parameters=_SMALL).startswith("Nothing")
    assert _said(unknown) == "Not compared yet: rdchat measures while it is idle"
    assert _said(replace(unknown, others_share=0.5)) == busy
    assert _said(unknown, now=False) == _said(replace(plain, choice=None)) == "Written without drafting"
    drafted = replace(unknown, rounds=40, target_calls=40)
    assert _said(drafted, now=False) == "Not compared"
    assert _said(drafted) == "Not compared yet: rdchat measures while it is idle"
    changed = replace(drafted, plain_step_ms=90.0, plain_error=0.6)
    assert _said(changed) == "No verdict: the speed of the computer changed"
    assert _said(replace(changed, others_share=0.5), writing=True) == busy.replace("was", "is")
    compared = replace(drafted, plain_step_ms=74.0)
    assert _said(compared) == "1.46x faster with drafting"
    assert _said(replace(compared, others_share=None)) == "No verdict: it is not known how busy the computer was"
    assert _said(replace(compared, plain_error=0.3, decode_ms=5200)) == "Faster or slower with drafting: 0.64 to 1.2x"
    short = replace(drafted, generated_tokens=9, decode_ms=400)
    assert _said(short) == "Too short to compare"
    assert _said(short, writing=True) == "Too early to compare"


def test_a_few_drafts_that_auto_tried_are_no_reason_to_warn() -> None:
    choice = AutoChoice("off", 0, 0, 1.0, 1.0, "Drafting would be slower here.", 0.8)
    slow = Statistics(
        generated_tokens=101, decode_ms=5000, rounds=4, target_calls=99, plain_step_ms=40.0, others_share=0.0
    )
    for figures, meaning in (
        (replace(slow, choice=choice), ("Auto paused drafting: it was not faster", "text")),
        (replace(slow, choice=choice, rounds=90), ("Auto paused drafting: it was not faster", "text")),
        (replace(slow, choice=replace(choice, mode="lookup")), ("Too few drafts to compare", "text")),
        (slow, ("Too few drafts to compare", "text")),
        (replace(slow, rounds=90, drafted_lengths=(86, 4)), ("Too few drafts to compare", "text")),
        (replace(slow, rounds=90), ("Slower with drafting: 0.80x", "warning")),
        (replace(slow, choice=replace(choice, mode="lookup"), rounds=90), ("Slower with drafting: 0.80x", "warning")),
        (replace(slow, decode_ms=3000, target_calls=75, choice=choice), ("1.33x faster with drafting", "success")),
    ):
        assert verdict(figures, now=True, writing=False, parameters=_LARGE) == meaning
        assert bool(speed_line(figures)) == (meaning[1] != "text")


def test_the_readme_quotes_a_line_that_there_is() -> None:
    fast = Statistics(
        generated_tokens=101,
        decode_ms=4000,
        rounds=40,
        target_calls=40,
        plain_step_ms=80,
        plain_error=0.12,
        others_share=0.0,
    )
    assert f'such as "{_said(fast)}"' in " ".join(_README.read_text(encoding="utf-8").split())


ADDRESS = "http://127.0.0.1:8817"
RUNNING = RequestFacts(7, "/v1/messages", "agent/1", "tiny", Phase.WRITING, 412, 38.24, 0.64)
NEXT = RequestFacts(8, "/v1/messages", "", "tiny", Phase.WAITING)


def tell(server: ServerControl, facts: ServerFacts) -> None:
    """Tell the views of facts that a server would have."""
    server.facts = facts
    server.facts_changed.emit(facts)
    server.changed.emit()


@pytest.fixture
def section(window: MainWindow, chat: Chat) -> ServerLines:
    chat.start()
    return window.panel.server


def test_it_is_there_while_the_server_runs(section: ServerLines, chat: Chat) -> None:
    assert not section.isVisible()
    tell(chat.controller.server, ServerFacts(ADDRESS, answered=3))
    assert section.isVisible()
    assert (section.client.text(), section.doing.text()) == ("No requests", "3 requests answered")
    assert section.figures.text() == ""
    assert not section.stop.isVisible()
    tell(chat.controller.server, ServerFacts(ADDRESS, RUNNING, (NEXT, NEXT)))
    assert (section.client.text(), section.doing.text()) == ("agent/1", "Writing  ·  412 tokens")
    assert section.figures.text() == f"38.2 tokens/s · {formatting.percent(0.64)} acceptance · 2 waiting"
    tell(chat.controller.server, ServerFacts(ADDRESS, answered=4))
    assert (section.client.text(), section.doing.text()) == ("agent/1", "4 requests answered")
    assert section.figures.text().startswith("38.2 tokens/s")
    tell(chat.controller.server, ServerFacts(ADDRESS, NEXT))
    assert section.client.text() == "A program without a name"
    tell(chat.controller.server, ServerFacts(""))
    assert not section.isVisible()


def test_stop_ends_the_request(section: ServerLines, chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    stopped: list[int] = []
    monkeypatch.setattr(chat.controller.server, "cancel_request", stopped.append)
    tell(chat.controller.server, ServerFacts(ADDRESS, RUNNING))
    section.stop.click()
    assert stopped == [7]


def test_a_reply_in_the_window_holds_a_client_s_up(section: ServerLines, chat: Chat) -> None:
    tell(chat.controller.server, ServerFacts(ADDRESS, RUNNING))
    chat.engine.gate.shut()
    chat.controller.send("Hi")
    chat.qtbot.waitUntil(lambda: section.doing.text() == "Waits until the current reply is finished  ·  412 tokens")
    chat.engine.gate.open()
    chat.qtbot.waitUntil(lambda: section.doing.text() == "Writing  ·  412 tokens")
