"""The figures of a reply and its model: the definition of each, and how its value is written, wherever it is shown."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from rdchat.inference.api.events import FinishReason, ModelInfo
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Mode
from rdchat.services.engine.engine_events import EngineState
from rdchat.ui.style import formatting
from rdchat.ui.style.formatting import NONE, count, decimal, duration, memory, rate

_FEW_DRAFTED = 20  # tokens, of which a percentage says nothing
_FEW_READ = 8  # tokens, which are one call, whose rate says nothing


class FigureSource(NamedTuple):
    """A reply, its model and the engine's state.

    Attributes:
        mode: The mode that the reply was drafted with; None where that is not known.
    """

    statistics: Statistics = Statistics()
    finish: FinishReason | None = None
    mode: Mode | None = None
    model: ModelInfo | None = None
    state: EngineState = EngineState.NO_MODEL

    @property
    def context(self) -> tuple[int, int]:
        """Tokens in the context, and the limit of the model; 0 without one."""
        return self.statistics.context_tokens, self.model.context_length if self.model else 0


type _Text = Callable[[FigureSource], str]  # a dash where nothing was measured


def _of_reply(text: Callable[[Statistics], str]) -> _Text:
    return lambda source: text(source.statistics)


def _of_model(text: Callable[[ModelInfo], str]) -> _Text:
    return lambda source: text(source.model) if source.model else NONE


def _per(total: int, steps: int) -> str:
    return decimal(total / steps) if total and steps else NONE


def _plain_speed(statistics: Statistics) -> str:
    plain, error = statistics.plain_tps, statistics.speedup_error
    if plain is None or statistics.speedup_range is None:
        return NONE
    within = f" ± {plain * error:.{formatting.rate_digits(plain)}f}" if error else ""
    return f"{rate(plain)}{within} tokens/s"


def _speedup(statistics: Statistics) -> str:
    if statistics.speedup is None or statistics.speedup_range is None:
        return NONE
    return "about the same speed" if statistics.as_fast else formatting.ratio(statistics.speedup)


def _reading_speed(statistics: Statistics) -> str:
    read, speed = statistics.prompt_tokens - statistics.cached_prompt_tokens, statistics.prefill_tps
    return NONE if speed is None or read < _FEW_READ else f"{rate(speed)} tokens/s"


def _context(source: FigureSource) -> str:
    used, limit = source.context
    if not limit:
        return count(used)
    return f"{used:,} of {limit:,}" if used else f"Up to {limit:,}"


def _acceptance_by_position(statistics: Statistics) -> str:
    return ", ".join(f"{share * 100:.0f}" for share in statistics.acceptance_by_position) or NONE


SECTIONS: Mapping[str, Mapping[str, _Text]] = {
    "Speed": {
        "Speed": _of_reply(lambda s: NONE if s.decode_tps is None else f"{rate(s.decode_tps)} tokens/s"),
        "Without drafting": _of_reply(_plain_speed),
        "Speed-up": _of_reply(_speedup),
        "Acceptance": _of_reply(lambda s: NONE if s.drafted < _FEW_DRAFTED else formatting.percent(s.acceptance_rate)),
        "Tokens per step": _of_reply(lambda s: decimal(s.tokens_per_target_call)),
    },
    "Drafts": {
        "Drafted from this chat": _of_reply(lambda s: count(s.from_chat)),
        "From earlier replies": _of_reply(lambda s: count(s.from_replies)),
        "By the drafter": _of_reply(lambda s: count(s.accepted - s.from_chat - s.from_replies)),
        "Steps with a draft": _of_reply(lambda s: count(s.drafted_rounds)),
        "Checked per step": _of_reply(lambda s: _per(s.verified_nodes, s.rounds)),
        "Kept per step": _of_reply(lambda s: decimal(s.accepted / s.drafted_rounds if s.drafted_rounds else None)),
        "Waits per step": _of_reply(lambda s: _per(s.host_syncs, s.target_calls if s.rounds else 0)),
    },
    "Reply": {
        "Tokens written": _of_reply(lambda s: count(s.generated_tokens)),
        "Prompt tokens": _of_reply(lambda s: count(s.prompt_tokens)),
        "Kept from before": _of_reply(lambda s: count(s.cached_prompt_tokens)),
        "Reading speed": _of_reply(_reading_speed),
        "Time to first token": _of_reply(lambda s: duration(s.ttft_ms)),
        "Writing time": _of_reply(lambda s: duration(s.decode_ms)),
        "Ended": lambda source: formatting.FINISH_TEXT[source.finish] if source.finish else NONE,
    },
    "Memory": {
        "Context": _context,
        "Weights": _of_model(lambda m: memory(m.weights_bytes)),
        "Peak memory": _of_reply(lambda s: memory(s.peak_memory_bytes)),
        "Earlier replies": _of_reply(lambda s: memory(s.earlier_bytes)),
    },
    "Model": {
        "Precision": _of_model(lambda m: formatting.dtype_text(m.dtype)),
        "Runs on": _of_model(lambda m: m.device),
        "Parameters": _of_model(lambda m: formatting.parameters(m.parameters)),
    },
    "Details": {  # of a reply: the panel has charts of them
        "Reading time": _of_reply(lambda s: duration(s.prefill_ms)),
        "Acceptance by position, %": _of_reply(_acceptance_by_position),
        "Dropped drafts": _of_reply(lambda s: count(s.dropped_drafts)),
    },
}
FIGURES = {name: text for section in SECTIONS.values() for name, text in section.items()}

DEFINITIONS = {
    "Speed": "Tokens written per second, after the first one. The time to read the prompt does not count.",
    "Without drafting": (
        "The expected speed without drafting at this context length, from steps of the model that rdchat timed "
        "between replies and during this one. ± is the error of these timings. A dash: too little was timed, or "
        "the speed of the computer changed."
    ),
    "Speed-up": "The speed of this reply divided by the speed without drafting.",
    "Time to first token": "Time from the request to the first token of the reply.",
    "Reading time": "Time to read the prompt, until the first token is known.",
    "Reading speed": (
        "Prompt tokens read per second, until the first token is known. Tokens kept from before do not count."
    ),
    "Writing time": "Time from the first token of the reply to the last one so far.",
    "Tokens per step": "Tokens written in each step of the model; 1 without drafting.",
    "Checked per step": (
        "Tokens checked per step, on average: all branches of the draft, and the token chosen before."
    ),
    "Kept per step": "Drafted tokens kept per step, on average. The model itself adds one more token in each step.",
    "Acceptance": (
        "Acceptance along the chosen path: tokens kept, as a share of the tokens on the longest branch of each "
        "draft. The model checks the other branches too, so this is not a share of the tokens checked. It is shown "
        "once the branches had 20 tokens."
    ),
    "Acceptance by position, %": (
        "Of the steps whose longest branch reached this position, the share that kept a token there."
    ),
    "Drafted from this chat": "Kept tokens that were copied from earlier in this chat.",
    "From earlier replies": "Kept tokens that were copied from earlier replies.",
    "By the drafter": "Kept tokens that the drafter or the draft model proposed, or that the answer format forces.",
    "Steps with a draft": "Steps of the model that checked a draft.",
    "Dropped drafts": "Drafts that were dropped because the drafter's scores were not finite.",
    "Waits per step": "How often the processor waited for the device in a step.",
    "Tokens written": (
        "Tokens of the reply, with the first and an end token, without those that a stop string cut off."
    ),
    "Prompt tokens": "Tokens of the chat and its system prompt that the model was given.",
    "Kept from before": "Prompt tokens that the model remembered and did not read again.",
    "Context": (
        "Tokens in the model's context: the prompt's, and the reply's so far. The second number is the limit of "
        "the loaded model."
    ),
    "Weights": "Memory that the model's weights take.",
    "Peak memory": "The most memory that MLX held during the reply.",
    "Earlier replies": (
        "Memory for the earlier replies that drafts come from. Settings > General has a switch for them."
    ),
    "Precision": (
        "The format of the weights in memory. On a CPU this is float32, also for a 4-bit model, because that is "
        "faster there. So its weights take more memory than its file takes on disk."
    ),
    "Runs on": "The processor that computes the model.",
    "Parameters": "Number of weights of the model.",
    "Ended": "\n".join(
        [
            "Why the reply ended.",
            *(f"{text}: {formatting.FINISH_REASONS[end]}" for end, text in formatting.FINISH_TEXT.items()),
        ]
    ),
}
