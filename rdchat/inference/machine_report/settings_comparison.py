"""Compares settings of MLX for `rdchat report`, each in a child process of its own."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from statistics import median
from time import monotonic
from typing import Any

from rdchat.errors import RdchatError
from rdchat.inference.target.device import on_gpu
from rdchat.work.child_process import ChildProcess

BUFFERS: tuple[tuple[int, int] | None, ...] = (None, (200, 200), (1000, 1000))
"""Operations and megabytes of a command buffer to compare; None, the first, is what MLX chooses."""
_TURNS = 2
_GAIN = 1.03  # least ratio that counts: what MLX chooses twice differs by some percent too
_MORE_MEMORY = 1.1  # of what MLX chooses; a setting that takes more is no better


class SettingsComparison:
    """Measures a model with each of `BUFFERS`, in turns; iterating yields the measurement under way, in words.

    Args:
        model: A name or a folder; None is the default model.
        question: What the model is asked.
        tokens: Length limit of a reply.
        seconds: The time for all of it.
        cancelled: Called while a child measures.

    Attributes:
        found: See `compared`; no names. Empty if a GPU finished not one turn.
        left_out: What was not measured, and why; empty if everything was.
    """

    def __init__(
        self, model: str | None, question: str, tokens: int, seconds: float, cancelled: Callable[[], bool]
    ) -> None:
        self._arguments = {"model": model, "question": question, "tokens": tokens}
        self._cancelled = cancelled
        self._end = monotonic() + seconds
        self.found: dict[str, Any] = {}
        self.left_out = ""

    def __iter__(self) -> Iterator[str]:
        turns: list[list[Mapping[str, Any]]] = []
        gpu = on_gpu()
        count = _TURNS if gpu else 1  # the figures of a CPU decide nothing
        for turn in range(count):
            measured: dict[tuple[int, int] | None, Mapping[str, Any]] = {}
            for buffers in sorted(BUFFERS, key=BUFFERS.index, reverse=bool(turn % 2)):
                yield f"Comparing command buffers: {words_of(buffers)}, turn {turn + 1} of {count}"
                try:
                    measured[buffers] = self._measure(buffers)
                except _OutOfTimeError:
                    self.left_out = f"{count - turn} of {count} turns of command buffers: no time left"
                    break
                except RdchatError:  # its message may contain a path
                    self.left_out = "command buffers: the measurement failed"
                    break
            if self.left_out:
                break
            turns.append([measured[buffers] for buffers in BUFFERS])
        if turns or not gpu:
            self.found = compared(turns, gpu)

    def _measure(self, buffers: Sequence[int] | None) -> Mapping[str, Any]:
        self._check()
        child = ChildProcess("speed")
        try:
            found: Mapping[str, Any] = child.submit("measure", self._arguments | {"buffers": buffers}).result(
                self._check
            )
            return found
        finally:
            child.close()

    def _check(self) -> None:
        if self._cancelled() or monotonic() >= self._end:
            raise _OutOfTimeError


def words_of(buffers: Sequence[int] | None) -> str:
    """Return a setting in words."""
    return f"{buffers[0]} operations, {buffers[1]} MB" if buffers else "as MLX chooses"


def compared(turns: Sequence[Sequence[Mapping[str, Any]]], gpu: bool) -> dict[str, Any]:
    """Return what the turns say.

    Args:
        turns: Of each the answers of `measure_speed` for each of `BUFFERS`, with `used` beside them.
        gpu: Whether MLX computes on one.

    Returns:
        For each setting medians, and its ratios to what MLX chooses in the same turn and mode; the verdict; the
        setting that is better, or None.
    """
    settings = [_medians(turns, number) for number in range(len(BUFFERS))] if turns else []
    used = all(one["used"] for turn in turns for one in turn)
    better = _better(settings) if gpu and used else None
    if not gpu:
        verdict = "This does not apply here: MLX fills command buffers for a GPU only. Figures differ by chance."
    elif not used:
        verdict = "Not compared: the environment sets the limits of command buffers."
    elif better is None:
        verdict = "None is better than what MLX chooses."
    else:
        verdict = f"Better than what MLX chooses: {better}."
    return {"turns": len(turns), "settings": settings, "better": better, "verdict": verdict}


def _medians(turns: Sequence[Sequence[Mapping[str, Any]]], number: int) -> dict[str, Any]:
    """Return the figures of one of `BUFFERS`."""
    mine = [turn[number] for turn in turns]
    speeds: dict[str, list[float]] = {
        mode: [one["decode_tps"][mode] for one in mine if one["decode_tps"].get(mode)] for mode in mine[0]["decode_tps"]
    }
    return {
        "setting": words_of(BUFFERS[number]),
        "decode_tps": {mode: median(known) if known else None for mode, known in speeds.items()},
        "ratios": [
            speed / own
            for turn in turns
            for mode, own in turn[0]["decode_tps"].items()
            if (speed := turn[number]["decode_tps"].get(mode)) and own
        ],
        "read_tps": median(one["read_tps"] for one in mine),
        "peak_memory_bytes": max(one["peak_memory_bytes"] for one in mine),
    }


def _better(settings: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the setting that was faster in each turn and mode, and by the most; None if there is none."""
    most = _MORE_MEMORY * settings[0]["peak_memory_bytes"]
    able = [
        one
        for one in settings[1:]
        if one["ratios"]
        and min(one["ratios"]) > 1
        and median(one["ratios"]) >= _GAIN
        and one["peak_memory_bytes"] <= most
    ]
    best = max(able, key=lambda one: median(one["ratios"]), default=None)
    return None if best is None else str(best["setting"])


class _OutOfTimeError(Exception):
    """The time is used up, or the report was cancelled."""
