"""What decoding with a drafter brought: sums that can be pooled, and kept on disk reply by reply."""

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rdchat.errors import RdchatError
from rdchat.files.atomic_file import JsonLines
from rdchat.inference.api.prompt_files import Prompt


@dataclass(frozen=True, slots=True)
class Setup:
    """A way to draft.

    Attributes:
        width: Beam width; 0 where prompt lookup drafts alone.
        length: Beam length, the root included.
        lookup_branch: Whether a path from prompt lookup is offered as well.
    """

    width: int
    length: int
    lookup_branch: bool = False

    def __str__(self) -> str:
        if not self.width:
            return f"lookup L{self.length}"
        return f"W{self.width} L{self.length}" + (" + lookup" if self.lookup_branch else "")


@dataclass(frozen=True, slots=True)
class Trial:
    """What decoding prompts with one setup brought; sums, so that trials can be pooled.

    Attributes:
        prompts: Number of prompts.
        decoded: Tokens but each reply's first, which prefill brings.
        target_calls: Rounds.
        offered: For each draft position, the rounds that offered a token there and had accepted all before it.
        accepted: For each draft position, the rounds that accepted it.
        runs: Runs of 8 tokens in the replies.
        repeated_runs: Those that occurred before in the same reply.
    """

    prompts: int = 0
    decoded: int = 0
    target_calls: int = 0
    offered: tuple[int, ...] = ()
    accepted: tuple[int, ...] = ()
    runs: int = 0
    repeated_runs: int = 0

    @property
    def tokens_per_target_call(self) -> float | None:
        return self.decoded / self.target_calls if self.target_calls else None

    @property
    def acceptance(self) -> list[float | None]:
        """The share accepted at each draft position, given that all before were."""
        return [
            accepted / offered if offered else None
            for accepted, offered in zip(self.accepted, self.offered, strict=True)
        ]

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Trial":
        """Read what `asdict` gave, back from JSON."""
        return cls(**data | {name: tuple(data[name]) for name in ("offered", "accepted")})

    @classmethod
    def pooled(cls, trials: Sequence["Trial"]) -> "Trial":
        """Return the sum of trials."""
        return cls(
            sum(trial.prompts for trial in trials),
            sum(trial.decoded for trial in trials),
            sum(trial.target_calls for trial in trials),
            _column_sums([trial.offered for trial in trials]),
            _column_sums([trial.accepted for trial in trials]),
            sum(trial.runs for trial in trials),
            sum(trial.repeated_runs for trial in trials),
        )


def _column_sums(rows: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    depth = max((len(row) for row in rows), default=0)
    return tuple(sum(row[place] for row in rows if place < len(row)) for place in range(depth))


Result = tuple[Prompt, Setup, Trial]
"""What decoding a prompt with a setup brought."""


class TrialFile:
    """Results on disk, so that an interrupted measurement goes on where it stopped. To be closed.

    Args:
        path: Made where it is not there; a JSON line tells what is measured, and one more each result.
        facts: What is measured: target, drafter, sampling and the like.

    Raises:
        RdchatError: If the file holds something else, or results of another measurement.
        StorageFullError: If the disk is full.
        StorageError: If it cannot be read or written.
    """

    def __init__(self, path: Path, facts: dict[str, Any]) -> None:
        self._lines = JsonLines(path)
        lines = self._lines.read()
        if not lines:
            self._lines.append(facts)
        elif lines[0] != facts:
            self._lines.close()
            raise RdchatError(f"{path} holds something else than results of this measurement.", "Name another file.")
        self._trials = {line["key"]: Trial.from_dict(line["trial"]) for line in lines[1:]}

    def find(self, prompt: Prompt, setup: Setup) -> Trial | None:
        """Return what was measured before."""
        return self._trials.get(_key(prompt, setup))

    def add(self, prompt: Prompt, setup: Setup, trial: Trial) -> None:
        """Keep a result."""
        self._lines.append({"key": _key(prompt, setup), "trial": asdict(trial)})

    def close(self) -> None:
        """Let go of the file."""
        self._lines.close()


def _key(prompt: Prompt, setup: Setup) -> str:
    """Name a result; prompts only by a hash, so that the file holds no text of anybody's."""
    return f"{setup}: {hashlib.sha256(prompt.text.encode('utf-8', 'replace')).hexdigest()[:16]}"


def report(results: Sequence[Result]) -> list[dict[str, object]]:
    """Pool results by setup and group, `all` among them, as JSON holds them."""
    rows: list[dict[str, object]] = []
    for setup in dict.fromkeys(setup for _, setup, _ in results):
        mine = [(prompt.group, trial) for prompt, own, trial in results if own == setup]
        groups = [name for name in dict.fromkeys(group for group, _ in mine) if name]
        for group in [*groups, "all"]:
            pooled = Trial.pooled([trial for name, trial in mine if group in {name, "all"}])
            rows.append(
                {
                    "setup": str(setup),
                    "beam_width": setup.width,
                    "beam_length": setup.length,
                    "lookup_branch": setup.lookup_branch,
                    "group": group,
                    "prompts": pooled.prompts,
                    "decoded_tokens": pooled.decoded,
                    "target_calls": pooled.target_calls,
                    "tokens_per_target_call": pooled.tokens_per_target_call,
                    "acceptance_by_position": pooled.acceptance,
                    "repeated_runs": pooled.repeated_runs / pooled.runs if pooled.runs else None,
                }
            )
    return rows
