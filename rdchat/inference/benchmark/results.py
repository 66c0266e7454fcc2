"""What a benchmark finds out: plain frozen data. No MLX and no Qt here."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from rdchat.inference.benchmark.plan import BenchCell
from rdchat.inference.statistics import Statistics

MLX_LM = -1  # in place of a cell's index: stock mlx-lm


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One reply of one cell.

    Attributes:
        cell: Index into the plan's cells as the runner completed them (plain ones included), or `MLX_LM`.
        prompt: Index into the plan's prompts.
        group: The prompt's group.
        trial: From 0.
        token_ids: What was decoded.
        pieces: Text that became final with each token.
        times_ms: When each token was known, counted from the request; tokens of one round share a moment.
        statistics: Its counters; of mlx-lm only the times and numbers of tokens.
        mode_reason: Why the cell's mode did not run; None where it did.
        chosen: For an automatic cell: what it chose most often, in words; else empty.
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


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a reply first differs from plain decoding's of the same prompt and trial.

    Attributes:
        prompt: Index of the prompt.
        index: Position in the reply, from 0.
        plain, other: Text of the two tokens; empty where that reply had ended.
        gap: Difference of the two tokens' final scores (logit over temperature plus noise) under plain decoding, in
            nats: near 0 is a near-tie. None where one had ended.
    """

    prompt: int
    index: int
    plain: str
    other: str
    gap: float | None


@dataclass(frozen=True, slots=True)
class Figure:
    """A median with its quartiles, of `n` values."""

    median: float
    low: float
    high: float
    n: int


FIGURES = (
    "decode_tps",
    "ratio_to_plain",
    "ratio_to_mlx_lm",
    "tokens_per_target_call",
    "acceptance_rate",
    "host_syncs_per_round",
    "overhead",
)


@dataclass(frozen=True, slots=True)
class CellReport:
    """What was found out about one cell.

    Attributes:
        cell: The setting.
        figures: One for each name of `FIGURES`, over all prompts; None where it means nothing for the cell.
        groups: The same for each group of prompts.
        identical_text: Whether every reply equals plain decoding's.
        first_difference: The first one that does not; None where all do.
        mode_reason: Why its mode did not run; None where it did.
    """

    cell: BenchCell
    figures: Mapping[str, Figure | None]
    groups: Mapping[str, Mapping[str, Figure | None]] = field(default_factory=dict)
    identical_text: bool = True
    first_difference: Difference | None = None
    mode_reason: str | None = None


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Where a benchmark stands.

    Attributes:
        done: Runs made.
        total: Runs to make.
        words: What is being run now, for people.
        left_s: Seconds left at this speed; None before it can be told.
    """

    done: int
    total: int
    words: str
    left_s: float | None = None


BenchEvent = BenchProgress | BenchRun


class BenchRunner(Protocol):
    """A benchmark being run: yields progress and runs. Used from the engine's thread, except for `cancel`."""

    def __iter__(self) -> "BenchRunner": ...

    def __next__(self) -> BenchEvent: ...

    def cancel(self) -> None:
        """Ask for an early end, from any thread; what was run stays."""

    def close(self) -> None:
        """End now. Idempotent."""
