"""The figures of a reply, and the line of its speed."""

from dataclasses import replace

from PySide6.QtGui import QImage
from pytestqt.qtbot import QtBot

from rdchat.inference.api import FinishReason, Mode, Spent, Stage, Statistics
from rdchat.inference.api.ledger_view import REPLY
from rdchat.server.server_settings import Phase
from rdchat.ui.speed.figures import FIGURES, FigureSource, Sparkline
from rdchat.ui.style import DEFINITIONS, ENDS, MODES, NONE, REQUEST_PHASES, STAGES, Theme


def test_every_figure_has_a_definition_and_a_dash_before_anything_is_measured() -> None:
    assert FIGURES.keys() == DEFINITIONS.keys()
    assert {text(FigureSource()) for text in FIGURES.values()} == {NONE}


def test_a_few_tokens_left_to_read_have_no_speed() -> None:
    """After a regenerate one token is read, and "4.15 tokens/s" looked like a slow machine."""
    read = Statistics(prompt_tokens=100, prefill_ms=50, ttft_ms=60)
    speed = FIGURES["Reading speed"]
    assert speed(FigureSource(read)) == "2,000 tokens/s"
    assert speed(FigureSource(replace(read, cached_prompt_tokens=99))) == NONE


def test_few_drafted_tokens_are_no_share() -> None:
    """A single step showed 100 %. Later the acceptance by position had figures beside a dash."""
    for drafted, shown in ((2, (NONE, NONE)), (19, (NONE, NONE)), (20, ("10\N{NARROW NO-BREAK SPACE}%", "10"))):
        lengths = (0, drafted)
        few = Statistics(drafted=drafted, accepted=2, drafted_lengths=lengths, accepted_lengths=(drafted - 2, 2))
        assert tuple(FIGURES[name](FigureSource(few)) for name in ("Acceptance", "Acceptance by position, %")) == shown


def test_every_kind_has_its_text() -> None:
    """These tables are data, which no type checker reads."""
    assert {REPLY, *Spent} | {stage.row for stage in Stage} == STAGES.keys()
    assert {*FinishReason} == ENDS.keys()
    assert {*Phase} == REQUEST_PHASES.keys()
    assert {*Mode} == MODES.keys()


def _sparkline(qtbot: QtBot, theme: Theme) -> Sparkline:
    sparkline = Sparkline(theme)
    qtbot.addWidget(sparkline)
    return sparkline


def test_the_line_is_drawn_and_cleared(qtbot: QtBot, theme: Theme) -> None:
    sparkline = _sparkline(qtbot, theme)
    sparkline.resize(200, 50)
    empty = sparkline.grab().toImage()
    sparkline.show_speeds((30.0,) * 20)
    drawn = sparkline.grab().toImage()
    assert drawn != empty
    assert _lowest_end(drawn, theme) > 0
    sparkline.show_speeds(())
    assert sparkline.grab().toImage() == empty


def test_a_single_peak_does_not_flatten_the_line(qtbot: QtBot, theme: Theme) -> None:
    """Prompt lookup that copies a long passage once is ten times as fast; all else lay on the ground then."""
    sparkline = _sparkline(qtbot, theme)
    sparkline.resize(200, 50)
    usual = (30.0, 40.0) * 20
    sparkline.show_speeds(usual)
    low = _lowest_end(sparkline.grab().toImage(), theme)
    sparkline.show_speeds((*usual[:20], 400.0, *usual[21:]))
    assert _lowest_end(sparkline.grab().toImage(), theme) == low


def _lowest_end(image: QImage, theme: Theme) -> int:
    """Return how far down the newest point is drawn."""
    accent = theme.colors.accent.rgb()
    x = max(x for x in range(image.width()) for y in range(image.height()) if image.pixel(x, y) == accent)
    return max(y for y in range(image.height()) if image.pixel(x, y) == accent)
