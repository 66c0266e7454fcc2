"""What a benchmark tells while it runs: plain frozen data. No MLX and no Qt here."""

from dataclasses import dataclass
from typing import Protocol

from rdchat.inference.api.reply_statistics import Statistics

MLX_LM = -1  # in place of a cell's index: stock mlx-lm

# In nats: what another order of additions makes of scores of the usual size, a few steps of the format. What it was
# seen to make of all scores of that place, times a few, counts too: at low temperatures, for one, it is much more.
_NEAR_TIES = {"float32": 0.001, "float16": 0.1}
_NEAR_TIE = 0.5  # bfloat16, in which quantised models usually compute too
_ROUNDINGS = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a reply first differs from plain decoding's of the same prompt and trial."""

    prompt: int  # index of the prompt
    index: int  # position in the reply, from 0
    plain: str  # text of plain decoding's token; empty where that reply had ended
    other: str  # text of the other reply's token; empty where that one had ended
    # Difference of the two tokens' final scores (logit over temperature plus noise) under plain decoding, in nats:
    # near 0 is a near-tie. None where one had ended, or a score is not finite.
    gap: float | None
    # How far scores of that place are apart where the last tokens before it are fed in one call and one by one: the
    # root mean square over the vocabulary, in nats. None where there is no gap, or it was not measured.
    rounding: float | None = None

    def near_tie(self, dtype: str) -> bool:
        """Whether the two scores are so close that rounding in this precision decides between them."""
        limit = max(_NEAR_TIES.get(dtype, _NEAR_TIE), _ROUNDINGS * (self.rounding or 0))
        return self.gap is not None and self.gap <= limit

    def seriousness(self, dtype: str) -> tuple[bool, float]:
        """Return what sorts differences: near-ties first, then replies that ended, then by growing gap."""
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
    statistics: Statistics  # of mlx-lm only the times and numbers of tokens
    mode_reason: str | None = None  # why the cell's mode did not run; None where it did
    chosen: str = ""  # automatic mode: what it chose in the end
    # Where it first differs from plain decoding of the same prompt, trial, temperature and precision; None where it is
    # the same, and for mlx-lm.
    difference: Difference | None = None
    baseline: int = 0  # index of the plain decoding that it is compared with; its own for plain decoding itself
    dtype: str = ""  # precision that the model's weights had, which `auto` does not tell
    overhead: float | None = None  # time of its first rounds over that of their drafts and target calls alone
    draft_ms: float | None = None  # median time of a draft alone in these rounds


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Progress of a benchmark."""

    done: int  # runs made
    total: int  # runs to make
    words: str  # the run that is being made, for people
    left_s: float | None = None  # seconds left at this speed; None before it can be told

    @property
    def left_words(self) -> str:
        """Return such as `45 s left` or `3 min left`; empty before it can be told."""
        if self.left_s is None:
            return ""
        return f"{self.left_s:.0f} s left" if self.left_s < 90 else f"{self.left_s / 60:.0f} min left"


BenchEvent = BenchProgress | BenchRun


class BenchRunner(Protocol):
    """A benchmark being run: yields progress and runs. Used from the engine's thread, except for `cancel`."""

    def __iter__(self) -> "BenchRunner": ...

    def __next__(self) -> BenchEvent: ...

    def cancel(self) -> None:
        """Ask for an early end, from any thread; what was run stays."""

    def close(self) -> None:
        """End now. Idempotent."""
