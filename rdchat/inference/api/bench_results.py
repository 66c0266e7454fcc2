"""The results of a benchmark: plain frozen data. No MLX and no Qt here."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from rdchat.inference.api.bench_plan import BenchCell, BenchPlan
from rdchat.inference.api.reply_statistics import Statistics

MLX_LM = -1  # in place of a cell's index: stock mlx-lm

# In nats: what another order of additions makes of scores of the usual size, a few steps of the format. What it was
# seen to make of all scores of that place, times a few, counts too: at low temperatures, for one, it is much more.
_NEAR_TIES = {"float32": 0.001, "float16": 0.1}
_NEAR_TIE = 0.5  # bfloat16, in which quantised models usually compute too
_ROUNDINGS = 8


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a reply first differs from plain decoding's of the same prompt and trial.

    Attributes:
        prompt: Index of the prompt.
        index: Position in the reply, from 0.
        plain, other: Text of the two tokens; empty where that reply had ended.
        gap: Difference of the two tokens' final scores (logit over temperature plus noise) under plain decoding, in
            nats: near 0 is a near-tie. None where one had ended, or a score is not finite.
        rounding: How far scores of that place are apart where the last tokens before it are fed in one call and one by
            one: the root mean square over the vocabulary, in nats. None where there is no gap, or it was not measured.
    """

    prompt: int
    index: int
    plain: str
    other: str
    gap: float | None
    rounding: float | None = None

    def near_tie(self, dtype: str) -> bool:
        """Whether the two scores are so close that rounding in this precision decides between them."""
        limit = max(_NEAR_TIES.get(dtype, _NEAR_TIE), _ROUNDINGS * (self.rounding or 0))
        return self.gap is not None and self.gap <= limit

    def seriousness(self, dtype: str) -> tuple[bool, float]:
        """Return what sorts differences: near-ties first, then replies that ended, then by growing gap."""
        return not self.near_tie(dtype), self.gap or 0.0


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One reply of one cell.

    Attributes:
        cell: Index into `BenchPlan.all_cells`, or `MLX_LM`.
        prompt: Index into the plan's prompts.
        group: The prompt's group.
        trial: From 0.
        token_ids: The reply.
        pieces: Text that became final with each token.
        times_ms: When each token was known, counted from the request; tokens of one round share a moment.
        statistics: Its counters; of mlx-lm only the times and numbers of tokens.
        mode_reason: Why the cell's mode did not run; None where it did.
        chosen: For an automatic cell: what it chose in the end, in words; else empty.
        difference: Where it first differs from plain decoding of the same prompt, trial, temperature and precision;
            None where it is the same, and for mlx-lm.
        baseline: Index of the plain decoding that it is compared with; its own for plain decoding itself.
        dtype: Precision that the model's weights had, which `auto` does not tell.
        overhead: Time of its first rounds over that of their drafts and target calls alone; None where not measured.
        draft_ms: Median time of a draft alone in these rounds; None where not measured.
    """

    cell: int
    prompt: int
    group: str
    trial: int
    token_ids: tuple[int, ...]
    pieces: tuple[str, ...]
    times_ms: tuple[float, ...]
    statistics: Statistics
    mode_reason: str | None = None
    chosen: str = ""
    difference: Difference | None = None
    baseline: int = 0
    dtype: str = ""
    overhead: float | None = None
    draft_ms: float | None = None


@dataclass(frozen=True, slots=True)
class Figure:
    """A median with its quartiles, of `n` values."""

    median: float
    low: float
    high: float
    n: int

    @classmethod
    def of(cls, values: Sequence[float]) -> "Figure | None":
        """Summarise values; None of none. Quartiles are interpolated, the extremes included."""
        if not values:
            return None
        if len(values) == 1:
            return cls(values[0], values[0], values[0], 1)
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median, low, high, len(values))


FIGURES = (
    "decode_tps",
    "ratio_to_plain",
    "ratio_to_mlx_lm",
    "tokens_per_target_call",
    "acceptance_rate",
    "nodes_per_target_call",
    "draft_ms",
    "host_syncs_per_round",
    "overhead",
)


@dataclass(frozen=True, slots=True)
class CellReport:
    """The results of one cell.

    Attributes:
        cell: The setting.
        figures: One for each name of `FIGURES`, over all prompts; None where it means nothing for the cell.
        groups: The same for each group of prompts.
        identical_text: Whether every reply equals plain decoding's; None where there are none, or they are not known,
            as in Apple's files.
        first_difference: Where the reply that differs most seriously first does; None where none is known to.
        mode_reason: Why its mode did not run; None where it did.
        chosen: For an automatic cell, how many replies ended with each choice.
        dtype: Precision that the model's weights had, which the cell's `auto` does not tell; empty where nothing ran.
    """

    cell: BenchCell
    figures: Mapping[str, Figure | None]
    groups: Mapping[str, Mapping[str, Figure | None]] = field(default_factory=dict)
    identical_text: bool | None = True
    first_difference: Difference | None = None
    mode_reason: str | None = None
    chosen: Mapping[str, int] = field(default_factory=dict)
    dtype: str = ""


@dataclass(frozen=True, slots=True)
class BenchRecord:
    """A benchmark that was run, here or elsewhere.

    Attributes:
        plan: The plan; read from a file, its prompts have no text.
        runs: Its runs so far.
        environment: Where; see `benchmark.environment`.
        complete: Whether it ran to its end, neither stopped nor failed; a file does not tell, and counts as whole.
    """

    plan: BenchPlan
    runs: tuple[BenchRun, ...]
    environment: Mapping[str, Any]
    complete: bool = True


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Progress of a benchmark.

    Attributes:
        done: Runs made.
        total: Runs to make.
        words: The run that is being made, for people.
        left_s: Seconds left at this speed; None before it can be told.
    """

    done: int
    total: int
    words: str
    left_s: float | None = None

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
