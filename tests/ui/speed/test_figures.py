"""The table of the figures of a reply."""

from dataclasses import replace

from rdchat.inference.api import FinishReason, Mode, Spent, Stage, Statistics
from rdchat.inference.api.ledger_view import REPLY
from rdchat.server.server_settings import Phase
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.speed.figures import FIGURES, FigureSource
from rdchat.ui.style import DEFINITIONS, ENDS, ENGINE_STATES, MODES, NONE, REQUEST_PHASES, STAGES


def test_every_figure_has_a_definition_and_a_dash_before_anything_is_measured() -> None:
    assert FIGURES.keys() == DEFINITIONS.keys()
    assert {text(FigureSource()) for text in FIGURES.values()} == {NONE}


def test_a_few_tokens_left_to_read_have_no_speed() -> None:
    """After a regenerate one token is read, and "4.15 tokens/s" looked like a slow machine."""
    read = Statistics(prompt_tokens=100, prefill_ms=50, ttft_ms=60)
    speed = FIGURES["Reading speed"]
    assert speed(FigureSource(read)) == "2,000 tokens/s"
    assert speed(FigureSource(replace(read, cached_prompt_tokens=99))) == NONE


def test_every_kind_has_its_text() -> None:
    """These tables are data, which no type checker reads."""
    assert {REPLY, *Spent} | {stage.row for stage in Stage} == STAGES.keys()
    assert {*FinishReason} == ENDS.keys()
    assert {*Phase} == REQUEST_PHASES.keys()
    assert {*Mode} == MODES.keys()
    assert {*EngineState} == ENGINE_STATES.keys()
