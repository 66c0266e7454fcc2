"""A benchmark: its plan, the sweep that makes one, its progress and its runs. Plain data: no MLX and no Qt here.

A cell is one setting that is measured, a run one reply of a cell, a turn one run of each cell on one prompt in one
trial. A baseline is plain decoding at a cell's temperature and precision. The module also reads files of prompts (plain
lines, JSON lines, or Spec-Bench's questions) and files of replies.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Protocol

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.files import parse_json, read_text
from rdchat.inference.api.messages import ChatImage, ChatMessage, Role
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode, SamplingParams, check_seed, draft_size, require
from rdchat.wording import time_left

# Spec-Bench (Xia et al. 2024, arXiv 2401.07851) counts MT-Bench's eight categories as one group.
_MT_BENCH = {"writing", "roleplay", "reasoning", "math", "coding", "extraction", "stem", "humanities"}
_MAX_BYTES = 256 * 2**20
_FILE_HINT = "Check the path."
_REPLY_HINT = 'Each line is JSON such as {"reply": "..."}.'
_HINT = 'Each line is a question, or JSON such as {"prompt": "...", "category": "..."} or {"turns": ["..."]}.'
# Stock mlx-lm has this index instead of a cell's.
MLX_LM = -1
# Largest gap of a near-tie in nats, by precision: a few steps of the format, for scores of the usual size. A gap within
# `_ROUNDINGS` times the measured rounding is a near-tie too: at low temperatures rounding is much larger.
_NEAR_TIES = {"float32": 0.001, "float16": 0.1}
# For bfloat16, in which quantised models usually compute too.
_NEAR_TIE = 0.5
_ROUNDINGS = 8

_NOTES = (
    "The town library will close for two weeks in August while its roof is repaired. Books that fall due in that time "
    "may be returned until the tenth of September. The reading room in the town hall stays open, and newspapers are "
    "kept there. The children's summer club meets in the school on Tuesdays and Fridays, from nine to noon."
)


@dataclass(frozen=True, slots=True)
class Prompt:
    """A question, the group it belongs to, and its images; the group is empty where the file names none."""

    text: str
    group: str = ""
    images: tuple[ChatImage, ...] = ()

    @property
    def message(self) -> ChatMessage:
        """The message that asks it."""
        return ChatMessage(Role.USER, self.text, images=self.images)


def read_prompts(path: Path) -> list[Prompt]:
    """Read a file of prompts, one a line; empty lines do not count.

    A line that begins with `{` is JSON: `prompt` and perhaps `category`, or Spec-Bench's `turns`, whose first is taken.

    Raises:
        RdchatError: If the file cannot be read, holds no prompt, or has a broken line; the message names it.
    """
    return [_prompt(path, number, line) for number, line in _lines(path, "prompts", _HINT)]


def read_replies(path: Path) -> list[str]:
    """Read a file of replies, a line of JSON such as `{"reply": "..."}` each; raises as `read_prompts` does."""
    replies = []
    for number, line in _lines(path, "replies", _REPLY_HINT):
        reply = _data(path, number, line, _REPLY_HINT).get("reply")
        if not isinstance(reply, str) or not reply.strip():
            raise RdchatError(f"Line {number} of {path} has no reply.", _REPLY_HINT)
        _check_characters(path, number, reply)
        replies.append(reply)
    return replies


def first_of_each_group(prompts: Sequence[Prompt], count: int) -> list[Prompt]:
    """Return the first `count` prompts of every group; groups in order of appearance."""
    groups: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        groups.setdefault(prompt.group, []).append(prompt)
    return [prompt for members in groups.values() for prompt in members[:count]]


def _prompt(path: Path, number: int, line: str) -> Prompt:
    if not line.startswith("{"):
        return Prompt(line)
    data = _data(path, number, line, _HINT)
    turns = data.get("turns")
    text = turns[0] if isinstance(turns, list) and turns else data.get("prompt")
    group = data.get("category") or ""
    if not isinstance(text, str) or not text.strip() or not isinstance(group, str):
        raise RdchatError(f"Line {number} of {path} has no prompt.", _HINT)
    _check_characters(path, number, text + group)
    return Prompt(text, "mt_bench" if turns and group in _MT_BENCH else group)


def _lines(path: Path, what: str, hint: str) -> list[tuple[int, str]]:
    """Return the numbers and texts of the lines that are not empty, at least one."""
    # A JSON text may hold U+2028 and other line separators, so `splitlines` would cut it.
    texts = read_text(path, _FILE_HINT, _MAX_BYTES).split("\n")
    lines = [(number, line.strip()) for number, line in enumerate(texts, start=1) if line.strip()]
    if not lines:
        raise RdchatError(f"The {what} file {path} has no {what}.", hint)
    return lines


def _data(path: Path, number: int, line: str, hint: str) -> dict[str, Any]:
    data = parse_json(line, f"Line {number} of {path} is damaged", hint)
    return data if isinstance(data, dict) else {}


def _check_characters(path: Path, number: int, text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as error:  # A half pair such as "\ud83d", which no tokenizer accepts
        raise RdchatError(f"Line {number} of {path} has half a character.", "Save the file again as UTF-8.") from error


@dataclass(frozen=True, slots=True)
class Difference:
    """Where a reply first differs from plain decoding's of the same prompt and trial.

    Attributes:
        prompt: Index of the prompt.
        index: Position in the reply, from 0.
        plain: Text of plain decoding's token; empty if that reply had ended.
        other: Text of the other reply's token; empty if that one had ended.
        gap: Difference of the two tokens' final scores (logit over temperature plus noise) under plain decoding, in
            nats; near 0 is a near-tie. None where one reply had ended, or a score is not finite.
        rounding: Measured rounding at this position: root mean square, over the vocabulary, of the change in scores
            when the last tokens are fed in one call instead of one by one, in nats. None without a gap, or where it was
            not measured.
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
        """Return the sort key of differences: near-ties first, then replies that ended, then by growing gap."""
        return not self.near_tie(dtype), self.gap or 0.0

    def describe(self, dtype: str) -> str:
        """Return where the replies differ and by how much; it begins in lower case."""
        start = f"differs most in prompt {self.prompt + 1}, from token {self.index + 1} on"
        if self.gap is None:
            return f"{start}, where one reply had ended."
        near = ", a near-tie" if self.near_tie(dtype) else ""
        return f"{start}: {self.other!r} for {self.plain!r}; scores differ by {self.gap:.2g}{near}."


@dataclass(frozen=True, slots=True)
class BenchRun:
    """One reply of one cell.

    Attributes:
        cell: Index into `BenchPlan.all_cells`, or `MLX_LM`.
        prompt: Index into the plan's prompts.
        group: Group of the prompt.
        trial: Number of the trial, from 0.
        pieces: Text that became final with each token.
        times_ms: Milliseconds from the request until each token was known; tokens of one round share a moment.
        statistics: Counters of the reply; for mlx-lm only times and numbers of tokens.
        mode_reason: Why a mode other than the cell's ran, or why nothing ran; None if the cell's own mode ran.
        chosen: What the automatic mode chose in the end.
        difference: Where it first differs from plain decoding of the same prompt, trial, temperature and precision;
            None where it is the same, and for mlx-lm.
        baseline: Index of the cell of plain decoding that it is compared with; for plain decoding, its own index.
        dtype: Precision of the weights, also where the cell only says `auto`.
        overhead: Time of its first rounds, divided by the time of their drafts and target calls alone.
        draft_ms: Mean time of a draft in the first rounds, without the rest of the round.
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

    @property
    def turn(self) -> tuple[int, int, int]:
        """The turn: index of the baseline, index of the prompt, and trial."""
        return self.baseline, self.prompt, self.trial


@dataclass(frozen=True, slots=True)
class BenchProgress:
    """Progress of a benchmark.

    Attributes:
        done: Finished runs.
        total: All runs.
        text: The run in progress, for people.
        left_s: Seconds left at this speed; None until it can be estimated.
        label: `BenchCell.label` of the reply that is being written, or `mlx-lm`; empty between replies.
    """

    done: int
    total: int
    text: str
    left_s: float | None = None
    label: str = ""

    @property
    def left_text(self) -> str:
        """Return such as `, 45 s left` or `, 3 min left`; empty until it can be estimated."""
        return "" if self.left_s is None else f", {time_left(self.left_s)}"


@dataclass(frozen=True, slots=True)
class BenchPiece:
    """Text of a reply that is being written, where the plan asks for it.

    Attributes:
        cell: Index into `BenchPlan.all_cells`.
    """

    cell: int
    text: str


BenchEvent = BenchProgress | BenchRun | BenchPiece


class BenchRunner(Iterator[BenchEvent], Protocol):
    """A running benchmark: yields progress and runs. Used from the engine's thread, except for `cancel`."""

    def cancel(self) -> None:
        """Ask for an early end, from any thread; the runs made so far are kept."""

    def close(self) -> None:
        """End now. Idempotent."""


@dataclass(frozen=True, slots=True)
class BenchCell:
    """One setting that is measured.

    Attributes:
        draft: Draft settings; `profile` and `trace` are off.
        temperature: Temperature; 0 is greedy.
        dtype: Precision of the model's weights.

    Raises:
        InvalidSettingError: If the temperature is out of range.
    """

    draft: DraftSettings = field(default_factory=lambda: DraftSettings(mode=Mode.OFF))
    temperature: float = 0.0
    dtype: Dtype = Dtype.AUTO

    def __post_init__(self) -> None:
        # Validates the temperature.
        SamplingParams(temperature=self.temperature)

    @property
    def plain(self) -> bool:
        return self.draft.mode is Mode.OFF

    @property
    def baseline(self) -> "BenchCell":
        """Plain decoding at the same temperature and precision."""
        return BenchCell(temperature=self.temperature, dtype=self.dtype)

    @property
    def label(self) -> str:
        """Mode and shape for people, such as `Drafter, 4 beams of 5 tokens` or `Prompt lookup, 4 tokens`."""
        alone = self.draft.mode.uses("lookup_branch") and not self.draft.lookup_branch
        parts = self.draft.mode.label, draft_size(*self.draft.sizes.values()), "without lookup" if alone else ""
        return ", ".join(filter(None, parts))


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """A benchmark.

    Attributes:
        cells: Settings to compare. Plain decoding runs at each of their temperatures and dtypes, whether it is listed
            or not.
        prompts: Questions, each with its group.
        max_tokens: Limit of a reply's tokens.
        trials: Runs of each cell on each prompt.
        seed: Seed of every reply, the same for all cells.
        mlx_lm: Whether stock `mlx_lm.stream_generate` runs as the outside baseline.
        overhead: Whether the rounds of each drafted run are repeated, to measure what they cost beyond draft and
            verify.
        earlier_replies: Token ids of replies that drafts may come from, newest first.
        turn: Not a turn in this module's sense, but a number that shifts which cell comes first in each turn, so that
            benchmarks repeated by hand alternate too.
        streams: Whether the text of a reply is reported while it is written.
        finished: Turns that were measured before and are left out, each as `BenchRun.turn`.

    Raises:
        InvalidSettingError: If there is nothing to run, or a number is out of range.
    """

    cells: tuple[BenchCell, ...]
    prompts: tuple[Prompt, ...]
    max_tokens: int = 128
    trials: int = 3
    seed: int = 0
    mlx_lm: bool = True
    overhead: bool = True
    earlier_replies: tuple[tuple[int, ...], ...] = ()
    turn: int = 0
    streams: bool = False
    finished: frozenset[tuple[int, int, int]] = frozenset()

    def __post_init__(self) -> None:
        if not self.cells or not self.prompts:
            raise InvalidSettingError("There is nothing to measure.", "Name at least one mode and one prompt.")
        require(self.max_tokens >= 2, "max-tokens", self.max_tokens, "at least 2")
        require(self.trials >= 1, "trials", self.trials, "at least 1")
        check_seed(self.seed)

    @property
    def baselines(self) -> tuple[BenchCell, ...]:
        """Plain decoding at every temperature and precision among the cells, in order of appearance."""
        return tuple(dict.fromkeys(cell.baseline for cell in self.cells))

    @property
    def all_cells(self) -> tuple[BenchCell, ...]:
        """The baselines, then the cells; `BenchRun.cell` is an index into it."""
        return self.baselines + self.cells

    def baseline_of(self, cell: BenchCell) -> int:
        """Return the index in `all_cells` of the plain decoding to compare a cell with."""
        return self.baselines.index(cell.baseline)

    def sampling(self, cell: BenchCell) -> SamplingParams:
        """Return a cell's sampling: the app's default filters at the cell's temperature."""
        return SamplingParams(temperature=cell.temperature, max_tokens=self.max_tokens)

    @property
    def runs(self) -> int:
        """Number of replies, those of mlx-lm included."""
        outside = len(self.baselines) if self.mlx_lm else 0
        return (len(self.all_cells) + outside) * len(self.prompts) * self.trials


EVERYDAY_PROMPTS = (
    Prompt("Explain in a few sentences why the sky is blue.", "explaining"),
    Prompt("Write a Python function that checks whether a number is prime, with a short explanation.", "code"),
    Prompt("Tell me a short story about a lighthouse keeper and a whale.", "story"),
    Prompt("List ten things to pack for a week of hiking, each with half a sentence why.", "list"),
    Prompt(f"Summarise this notice in two sentences.\n\n{_NOTES}", "summary"),
    Prompt(f"Copy this notice word for word, and correct nothing.\n\n{_NOTES}", "copy"),
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """All combinations of these settings, where they apply to the mode.

    Attributes:
        modes: Modes in the order of the report.
        beam_widths: Beam widths of the drafter head; other modes do not use them.
        beam_lengths: Beam lengths of the drafter head; other modes do not use them.
        draft_tokens: Draft tokens of a draft model and of prompt lookup; other modes do not use them.
        temperatures: Temperatures; 0 is greedy.
        dtypes: Precisions of the model's weights.
        draft_model: Draft model for `speculative`, and for `auto` to choose from.
        drafters: Drafters for `drafter`, and for `auto` to choose from; None is the one made for the target.
        lookup_branches: For the drafter head: whether its drafts get a branch from prompt lookup.
    """

    modes: tuple[Mode, ...]
    beam_widths: tuple[int, ...] = (4,)
    beam_lengths: tuple[int, ...] = (5,)
    draft_tokens: tuple[int, ...] = (4,)
    temperatures: tuple[float, ...] = (0.0,)
    dtypes: tuple[Dtype, ...] = (Dtype.AUTO,)
    draft_model: str | None = None
    drafters: tuple[str | None, ...] = (None,)
    lookup_branches: tuple[bool, ...] = (True,)

    def cells(self) -> tuple[BenchCell, ...]:
        """Return the cells, each once, grouped by precision, then temperature, then mode.

        Raises:
            InvalidSettingError: If no mode or no precision is named, or a value is out of range.
        """
        missing = [name for name, given in (("mode", self.modes), ("precision", self.dtypes)) if not given]
        if missing:
            raise InvalidSettingError(
                "There is nothing to measure.", f"Choose at least one {' and one '.join(missing)}."
            )
        cells = (
            BenchCell(draft, temperature, dtype)
            for dtype, temperature, mode in product(self.dtypes, self.temperatures, self.modes)
            for draft in self._drafts(mode)
        )
        return tuple(dict.fromkeys(cells))

    def _drafts(self, mode: Mode) -> Iterator[DraftSettings]:
        """Yield all combinations of the settings that a mode uses; the others have their defaults."""
        lists: dict[str, tuple[Any, ...]] = {
            "draft_model": (self.draft_model,),
            "drafter": self.drafters,
            "lookup_branch": self.lookup_branches,
            "beam_width": self.beam_widths,
            "beam_length": self.beam_lengths,
            "draft_tokens": self.draft_tokens,
        }
        used = {name: values for name, values in lists.items() if mode.uses(name)}
        for values in product(*used.values()):
            yield DraftSettings(mode, **dict(zip(used, values, strict=True)))
