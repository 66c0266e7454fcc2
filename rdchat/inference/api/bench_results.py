"""Progress and runs of a benchmark: plain frozen data. No MLX and no Qt here."""

from dataclasses import dataclass
from typing import Protocol

from rdchat.inference.api.reply_statistics import Statistics

MLX_LM = -1  # stock mlx-lm, in place of a cell's index

# Largest gap of a near-tie in nats, by precision: a few steps of the format, for scores of the usual size. A gap within
# `_ROUNDINGS` times the measured rounding is a near-tie too: at low temperatures rounding is much larger.
_NEAR_TIES = {"float32": 0.001, "float16": 0.1}
_NEAR_TIE = 0.5  # bfloat16, which quantised models usually compute in too
_ROUNDINGS = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a reply first differs from plain decoding's of the same prompt and trial."""

    prompt: int  # index of the prompt
    index: int  # position in the reply, from 0
    plain: str  # text of plain decoding's token; empty where that reply had ended
    other: str  # text of the other reply's token; empty where that one had ended
    # Difference of the two tokens' final scores (logit over temperature plus noise) under plain decoding, in nats;
    # near 0 is a near-tie. None where one reply had ended, or a score is not finite.
    gap: float | None
    # Measured rounding at this position: root mean square, over the vocabulary, of the change in scores when the last
    # tokens are fed in one call instead of one by one, in nats. None without a gap, or where it was not measured.
    rounding: float | None = None

    def near_tie(self, dtype: str) -> bool:
        """Whether the two scores are so close that rounding in this precision decides between them."""
        limit = max(_NEAR_TIES.get(dtype, _NEAR_TIE), _ROUNDINGS * (self.rounding or 0))
        return self.gap is not None and self.gap <= limit

    def seriousness(self, dtype: str) -> tuple[bool, float]:
        """Return the sort key of differences: near-ties first, then replies that ended, then by growing gap."""
        return not self.near_tie(dtype), self.gap or 0.0

    def words(self, dtype: str) -> str:
        """Return where the replies differ and by how much; it begins in lower case."""
        place = f"differs most in prompt {self.prompt + 1}, from token {self.index + 1} on"
        if self.gap is None:
            return f"{place}, where one reply had ended."
        near = ", a near-tie" if self.near_tie(dtype) else ""
        return f"{place}: {self.other!r} for {self.plain!r}; scores differ by {self.gap:.2g}{near}."


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One reply of one cell."""

    cell: int  # index into `BenchPlan.all_cells`, or `MLX_LM`
    prompt: int  # index into the plan's prompts
    group: str  # the prompt's group
    trial: int  # from 0
    token_ids: tuple[int, ...]
    pieces: tuple[str, ...]  # text that became final with each token
    times_ms: tuple[float, ...]  # when each token was known, from the request; tokens of one round share a moment
    # Milliseconds from the request until each token was known; tokens of one round share a moment.
    statistics: Statistics
    mode_reason: str | None = None  # of mlx-lm only times and numbers of tokens
    chosen: str = ""  # automatic mode: what it chose in the end
    # Where it first differs from plain decoding of the same prompt, trial, temperature and precision; None where it is
    # the same, and for mlx-lm.
    difference: Difference | None = None
    baseline: int = 0  # index of the plain decoding that it is compared with; its own for plain decoding itself
    dtype: str = ""  # precision that the model's weights had, which `auto` does not tell
    # Time of its first rounds, divided by the time of their drafts and target calls alone.
    overhead: float | None = None
    draft_ms: float | None = None  # mean time of a draft in these rounds, without the rest of the round


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Progress of a benchmark."""

    done: int  # runs made
    total: int  # runs to make
    words: str  # the run in progress, for people
    left_s: float | None = None  # seconds left at this speed; None until it can be estimated

    @property
    def left_words(self) -> str:
        """Return such as `45 s left` or `3 min left`; empty until it can be estimated."""
        if self.left_s is None:
            return ""
        return f"{self.left_s:.0f} s left" if self.left_s < 90 else f"{self.left_s / 60:.0f} min left"


@dataclass(frozen=True, slots=True)
class BenchPiece:
    """Text of a reply that is being written, where the plan asks for it."""

    cell: int  # index into `BenchPlan.all_cells`
    text: str


BenchEvent = BenchProgress | BenchRun | BenchPiece


class BenchRunner(Protocol):
    """A running benchmark: yields progress and runs. Used from the engine's thread, except for `cancel`."""

    def __iter__(self) -> "BenchRunner": ...

    def __next__(self) -> BenchEvent: ...

    def cancel(self) -> None:
        """Ask for an early end, from any thread; the runs made so far are kept."""

    def close(self) -> None:
        """End now. Idempotent."""
