"""The figures of a reply and its model: the definition of each, and the form of its value in all windows."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rdchat.chat.conversation import Drafting
from rdchat.inference.api.events import UNKNOWN_LENGTH, FinishReason, ModelInfo
from rdchat.inference.api.ledger_view import spent_ms
from rdchat.inference.api.reply_statistics import Spent, Statistics
from rdchat.services.engine.engine_request import EngineState
from rdchat.ui.style import formatting
from rdchat.ui.style.formatting import NONE, count, counted, decimal, duration, memory, rate
from rdchat.ui.style.labels import ENDS

# A percentage of fewer tokens would mean nothing.
_FEW_DRAFTED = 20
# So few tokens are read in one call, whose rate would mean nothing.
_FEW_READ = 8
# Positions that have room in a line; the chart has all.
_LISTED = 4


class FigureSource(NamedTuple):
    """A reply, its model and the engine's state.

    Attributes:
        how: How the reply is drafted, and where: what a remote server does not say is not shown.
    """

    statistics: Statistics = Statistics()
    finish: FinishReason | None = None
    how: Drafting = Drafting(None)
    model: ModelInfo | None = None
    state: EngineState = EngineState.NO_MODEL

    @property
    def context(self) -> tuple[int, int]:
        """Tokens in the context, and the limit of the model; 0 where it is unknown."""
        limit = self.model.context_length if self.model else 0
        return self.statistics.context_tokens, limit if limit < UNKNOWN_LENGTH else 0


type _Text = Callable[[FigureSource], str]
"""Returns the text of a figure; a dash where nothing was measured."""


def _of_reply(text: Callable[[Statistics], str]) -> _Text:
    return lambda source: text(source.statistics)


def _of_model(text: Callable[[ModelInfo], str]) -> _Text:
    return lambda source: text(source.model) if source.model else NONE


def _per_step(statistics: Statistics, total: int) -> str:
    """Return a number for each step of the model in a reply with drafts."""
    drafted = statistics.drafted_rounds and statistics.target_calls
    return decimal(total / statistics.target_calls) if drafted else NONE


def _plain_speed(statistics: Statistics) -> str:
    plain = statistics.plain_tps
    error = statistics.speedup_error
    if statistics.target_calls and statistics.settled and not statistics.rounds:
        # The reply was written so.
        return f"{rate(statistics.decode_tps)} tokens/s"
    if plain is None or statistics.speedup_range is None:
        return NONE
    within = f" ± {plain * error:.{formatting.rate_digits(plain)}f}" if error else ""
    return f"{rate(plain)}{within} tokens/s"


def _speedup(statistics: Statistics) -> str:
    if statistics.speedup is None or statistics.speedup_range is None:
        return NONE
    if statistics.was_hindered:
        return formatting.ratios(*statistics.speedup_range)
    within = formatting.speedup(statistics.speedup, *statistics.speedup_range)
    return "about the same speed" if statistics.as_fast else within


def _reading_speed(statistics: Statistics) -> str:
    read = statistics.prompt_tokens - statistics.cached_prompt_tokens
    speed = statistics.prefill_tps
    return NONE if speed is None or read < _FEW_READ else f"{rate(speed)} tokens/s"


def _context(source: FigureSource) -> str:
    used, limit = source.context
    if not limit:
        return counted(used, "token") if used else NONE
    return f"{used:,} of {limit:,}" if used else f"Up to {limit:,}"


def _acceptance_by_position(statistics: Statistics) -> str:
    shares = [f"{share * 100:.0f}" for share in statistics.acceptance_by_position]
    return ", ".join(shares[:_LISTED]) + "…" * (len(shares) > _LISTED) or NONE


SECTIONS: Mapping[str, Mapping[str, _Text]] = {
    "Speed": {
        "Speed": _of_reply(lambda s: NONE if s.decode_tps is None else f"{rate(s.decode_tps)} tokens/s"),
        "Without drafting": _of_reply(_plain_speed),
        "Speed-up": _of_reply(_speedup),
        "Acceptance": _of_reply(lambda s: NONE if s.drafted < _FEW_DRAFTED else formatting.percent(s.acceptance_rate)),
        "Tokens per step": _of_reply(lambda s: decimal(s.tokens_per_target_call)),
    },
    "Drafts": {
        "Prompt lookup, this chat": _of_reply(lambda s: count(s.from_chat)),
        "Prompt lookup, earlier replies": _of_reply(lambda s: count(s.from_replies)),
        "By the drafter": _of_reply(lambda s: count(s.accepted - s.from_chat - s.from_replies)),
        "Steps with a draft": _of_reply(lambda s: count(s.drafted_rounds)),
        "Longest branch": _of_reply(lambda s: _per_step(s, s.drafted)),
        "Kept per step": _of_reply(lambda s: _per_step(s, s.accepted)),
    },
    # These are in the details only: of a reply, and of the speed panel.
    "Details": {
        "Checked per step": _of_reply(lambda s: decimal(s.checked_per_step)),
        "Waits per step": _of_reply(lambda s: _per_step(s, s.host_syncs) if s.host_syncs else NONE),
        "Reading time": _of_reply(lambda s: duration(spent_ms(s).get(Spent.READING, 0.0))),
        "Acceptance by position, %": _of_reply(_acceptance_by_position),
        "Dropped drafts": _of_reply(lambda s: count(s.dropped_drafts)),
    },
    "Reply": {
        "Tokens written": _of_reply(lambda s: count(s.generated_tokens)),
        "Prompt tokens": _of_reply(lambda s: count(s.prompt_tokens)),
        "From memory": _of_reply(lambda s: count(s.cached_prompt_tokens)),
        "Reading speed": _of_reply(_reading_speed),
        "Time to first token": _of_reply(lambda s: duration(s.ttft_ms)),
        "Writing time": _of_reply(lambda s: duration(s.decode_ms)),
        "Ended": lambda source: ENDS[source.finish][0] if source.finish else NONE,
    },
    "Memory": {
        "Context": _context,
        "Weights": _of_model(lambda m: memory(m.weights_bytes)),
        "Peak memory": _of_reply(lambda s: memory(s.peak_memory_bytes)),
        "Earlier replies": _of_reply(lambda s: memory(s.earlier_bytes)),
    },
    "Model": {
        "Precision": _of_model(lambda m: formatting.dtype_text(m.dtype) or NONE),
        "Runs on": _of_model(lambda m: m.device),
        "Parameters": _of_model(lambda m: formatting.parameters(m.parameters) if m.parameters else NONE),
    },
}
FIGURES = {name: text for section in SECTIONS.values() for name, text in section.items()}
