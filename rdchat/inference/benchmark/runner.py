"""Runs a benchmark: all cells take turns on each prompt, with plain decoding and stock mlx-lm among them.

A cell is one setting, as `BenchPlan.all_cells` numbers them: first the baselines, which is plain decoding.

A machine's speed drifts with heat and other load, so times are compared only within a turn: one prompt in one trial,
each cell once, starting with another cell in each turn. Before the first turn the model is in memory, and every cell
has written a few tokens. Where a reply, other than mlx-lm's, differs from plain decoding, the runner measures how close
the scores of the two tokens were there.
"""

import math
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from itertools import product, zip_longest
from time import perf_counter

import mlx.core as mx

from rdchat.inference.api import (
    MLX_LM,
    BenchCell,
    BenchEvent,
    BenchPlan,
    BenchProgress,
    BenchRun,
    Difference,
    Dtype,
    GenerationRequest,
    Mode,
)
from rdchat.inference.benchmark.recording import BLANK, check_lengths, measure_rounds, record, record_mlx_lm, stream
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reductions import log_denominator
from rdchat.inference.decoding.reply_iterator import prefill
from rdchat.inference.decoding.sampling import TokenChooser, filter_border
from rdchat.inference.device import device_errors, fetch
from rdchat.inference.drafting.reply_index import ReplyIndex
from rdchat.inference.session import ChatSession
from rdchat.inference.verification import Feed, KVCache, LoadedModel

# To measure how rounding changes scores, so many tokens are fed one by one and in one call.
_TOGETHER = 6
# Tokens of the replies before the first turn.
_WARM_UP_TOKENS = 8


def score_gap(
    model: LoadedModel, request: GenerationRequest, plain: Sequence[int], index: int, other: int
) -> tuple[float, float]:
    """Return how far a token was from being chosen by plain decoding, and how far rounding moves scores there.

    Args:
        model: The target.
        request: The request of both replies; no repetition penalty.
        plain: Plain decoding's reply, along which the target is fed.
        index: Position of the token in the reply.
        other: The token that another mode chose there.

    Returns:
        The difference of the two tokens' final scores, logit over temperature plus noise, in nats; where a filter drops
        the other token, its distance from the filter's border. And the effect of rounding: the root mean square, over
        the vocabulary, of the change in these scores when the last tokens are fed together instead of one by one. Not
        finite where a logit is not.
    """
    prompt, images = model.encode_request(request)
    feed = None
    if images and (image_input := model.image_input):
        # The last event has the images' rows.
        *_, (_, feed) = image_input.see(prompt, images, request, lambda: None, start=0)
    tokens = [*prompt, *plain[:index]]
    before = tokens[:-_TOGETHER]
    last = tokens[-_TOGETHER:]
    cache = KVCache(model.network)
    cache.images = images
    _fill(model, cache, before, feed)
    for token in last:
        logits = model.network(mx.array([[token]]), cache=cache.layers)[:, -1]
        cache.tokens.append(token)
    gap = gap_of(logits, len(tokens), request, plain[index], other)
    cache.trim_to(len(before))
    # In case the cache could not be shortened.
    _fill(model, cache, before, feed)
    together = model.network(mx.array([last]), cache=cache.layers)[:, -1]
    moved = (together.astype(mx.float32) - logits.astype(mx.float32)) / (request.sampling.temperature or 1)
    return gap, _number(mx.sqrt(mx.mean(mx.square(moved))))


def _fill(model: LoadedModel, cache: KVCache, tokens: list[int], feed: Feed | None) -> None:
    """Feed tokens from where the cache ends; the 0 is there because `prefill` leaves out the last token."""
    for _ in prefill(model, cache, [*tokens, 0], lambda: False, Ledger(), feed=feed):
        pass


def gap_of(logits: mx.array, position: int, request: GenerationRequest, chosen: int, other: int) -> float:
    """Return the score difference of two tokens in plain decoding's logits, (1, vocabulary); see `score_gap`."""
    sampling = request.sampling
    chooser = TokenChooser(sampling, request.seed, logits.shape[-1])
    scores = chooser.scores(logits, [position])[0]
    gap = abs(_number(scores[chosen]) - _number(scores[other]))
    if math.isfinite(gap) or sampling.greedy:
        return gap
    # A filter drops the other token. The border is the logit of the least likely token that the filters keep.
    logits = logits.astype(mx.float32)
    border = filter_border(mx.sort(logits, axis=-1)[:, ::-1], log_denominator(logits), sampling)
    return abs(_number(border[0, 0]) - _number(logits[0, other])) / sampling.temperature


def _number(scalar: mx.array) -> float:
    return float(fetch(scalar))


class InterleavedRunner(Iterator[BenchEvent]):
    """Implements `BenchRunner`.

    Cells are grouped by precision, so that one model is in memory at a time. The runs of a turn are yielded together,
    after each was compared with plain decoding.

    Args:
        plan: The benchmark.
        sessions: Returns a session of the model in a precision, with its own caches; the previous session is no longer
            used.
        done: Called at the end, also after an error.
    """

    def __init__(
        self, plan: BenchPlan, sessions: Callable[[Dtype], ChatSession], done: Callable[[], None] = lambda: None
    ) -> None:
        self._plan = plan
        self._sessions = sessions
        self._done = done
        # Earlier replies that every reply may draft from.
        self._earlier = ReplyIndex(dict(enumerate(plan.earlier_replies))) if plan.earlier_replies else None
        self._cancelled = threading.Event()
        self._total = plan.runs
        self._done_runs = 0
        self._began = 0.0
        self._events = self._run()

    def __next__(self) -> BenchEvent:
        with device_errors("for this benchmark"):
            return next(self._events)

    def cancel(self) -> None:
        self._cancelled.set()

    def close(self) -> None:
        self._events.close()

    def _run(self) -> Generator[BenchEvent]:
        try:
            for dtype in dict.fromkeys(cell.dtype for cell in self._plan.cells):
                if not self._cancelled.is_set():
                    yield self._progress("Loading the model")
                    yield from self._measure(dtype, self._sessions(dtype))
        finally:
            self._done()

    def _measure(self, dtype: Dtype, session: ChatSession) -> Iterator[BenchEvent]:
        """Yield the events of all cells of one precision.

        Before the turns it checks the prompts, warms up, has the automatic mode measure its costs, and yields an empty
        run for each cell that cannot run.
        """
        plan = self._plan
        check_lengths(session.model, plan.prompts)
        yield self._progress("Warming up")
        cells = [index for index, cell in enumerate(plan.all_cells) if cell.dtype == dtype]
        baselines = [index for index in cells if index < len(plan.baselines)]
        not_run = self._warm_up(session, cells)
        session.drafters.ngrams.finish_counting()
        if any(plan.all_cells[index].draft.mode is Mode.AUTO for index in cells):
            auto = session.drafters.auto
            parts = auto.unmeasured
            # The last turn does what is left, such as writing caches to the disk.
            for left in range(parts, -1, -1):
                if left:
                    yield BenchProgress(parts - left, parts, "Measuring this computer, once")
                while auto.unmeasured >= left and not self._cancelled.is_set() and session.work_while_idle():
                    pass  # It measures the cost of target calls, as the app does between replies.
        yield from not_run
        # Never a baseline: plain decoding always runs.
        unavailable = {run.cell for run in not_run}
        # The cells of a turn, each with the index of the plain decoding that it is compared with.
        entries = [(index, plan.baseline_of(plan.all_cells[index])) for index in cells if index not in unavailable]
        if plan.mlx_lm:
            entries += [(MLX_LM, index) for index in baselines]
        turns = [*product(range(plan.trials), range(len(plan.prompts)))]
        # Turns that an earlier start has not stored. `finished` names a turn as `BenchRun.turn` does: baseline, prompt,
        # trial. All baselines of a precision run in one turn, so the first one is looked up for all.
        unmeasured = [(trial, prompt) for trial, prompt in turns if (baselines[0], prompt, trial) not in plan.finished]
        # Runs that will not be made: all of the cells that cannot run, and those of turns that are stored.
        self._total -= len(not_run) * len(turns) + len(entries) * (len(turns) - len(unmeasured))
        for trial, prompt in unmeasured:
            if self._cancelled.is_set():
                return
            # Another cell begins each turn. `plan.turn` is no turn, but a number that shifts all these beginnings.
            first = (trial * len(plan.prompts) + prompt + plan.turn) % len(entries)
            yield from self._take_turns(session, [*entries[first:], *entries[:first]], prompt, trial)

    def _warm_up(self, session: ChatSession, cells: Sequence[int]) -> list[BenchRun]:
        """Write a few tokens with each cell; return an empty run for each cell whose mode cannot run."""
        plan = self._plan
        not_run = []
        # Each turn needs all drafters, so all stay loaded.
        session.drafters.max_heads = max(len({plan.all_cells[index].draft.drafter for index in cells}), 1)
        for index in cells:
            cell = plan.all_cells[index]
            session.drafters.load_drafters(cell.draft, strict=True)
            tried = record(session, self._request(cell, 0, _WARM_UP_TOKENS), self._cancelled.is_set)
            if tried is None:
                break
            if tried.mode_reason:
                blank = self._blank(session, index, plan.baseline_of(cell), 0, 0)
                not_run.append(replace(blank, mode_reason=tried.mode_reason))
        for cell in plan.baselines if plan.mlx_lm else ():
            record_mlx_lm(session.model, self._request(cell, 0, _WARM_UP_TOKENS), self._cancelled.is_set, BLANK)
        return not_run

    def _take_turns(
        self, session: ChatSession, entries: Sequence[tuple[int, int]], prompt: int, trial: int
    ) -> Iterator[BenchEvent]:
        """Make one turn: a run of each entry of `_measure`, on one prompt; yield progress, then the runs."""
        runs: list[BenchRun] = []
        for index, baseline in entries:
            cell = self._plan.all_cells[baseline if index == MLX_LM else index]
            label = "mlx-lm" if index == MLX_LM else cell.label
            again = f", trial {trial + 1} of {self._plan.trials}" if self._plan.trials > 1 else ""
            yield self._progress(f"{label}, prompt {prompt + 1} of {len(self._plan.prompts)}{again}", label)
            request = self._request(cell, prompt, self._plan.max_tokens)
            blank = self._blank(session, index, baseline, prompt, trial)
            if index == MLX_LM:
                run = record_mlx_lm(session.model, request, self._cancelled.is_set, blank)
            elif self._plan.streams:
                run = yield from stream(session, request, self._cancelled.is_set, blank)
            else:
                run = record(session, request, self._cancelled.is_set, blank)
            if run is None:
                break
            if self._plan.overhead and trial == 0 and cell.draft.mode not in {Mode.OFF, Mode.AUTO}:
                overhead, draft_ms = measure_rounds(session, request, run, self._cancelled.is_set)
                run = replace(run, overhead=overhead, draft_ms=draft_ms)
            runs.append(run)
            self._done_runs += 1
        if self._plan.streams and runs:
            yield self._progress("Comparing the replies")
        yield from self._compared(session.model, runs)

    def _progress(self, text: str, label: str = "") -> BenchProgress:
        """Return the progress, with the time that is left by the pace of the runs so far."""
        left_s = None
        now = perf_counter()
        if self._done_runs:
            left_s = (now - self._began) / self._done_runs * (self._total - self._done_runs)
        else:
            # The time before the first run, such as that of the warm-up, does not count.
            self._began = now
        return BenchProgress(self._done_runs, self._total, text, left_s, label)

    def _request(self, cell: BenchCell, prompt: int, max_tokens: int) -> GenerationRequest:
        message = self._plan.prompts[prompt].message
        sampling = replace(self._plan.sampling(cell), max_tokens=max_tokens)
        return GenerationRequest((message,), sampling, self._plan.seed, draft=cell.draft, earlier=self._earlier)

    def _blank(self, session: ChatSession, index: int, baseline: int, prompt: int, trial: int) -> BenchRun:
        """Return a run without its reply."""
        group = self._plan.prompts[prompt].group
        dtype = session.model.info.dtype
        return replace(BLANK, cell=index, prompt=prompt, group=group, trial=trial, baseline=baseline, dtype=dtype)

    def _compared(self, model: LoadedModel, runs: Sequence[BenchRun]) -> Iterator[BenchRun]:
        """Yield the runs of a turn with their differences; runs without plain decoding in the turn are dropped.

        Two kinds of run get no difference: plain decoding itself, and mlx-lm, which samples by its own rule and is
        there for its speed alone.
        """
        plain = {run.cell: run for run in runs if run.cell == run.baseline}
        for run in runs:
            if run.baseline not in plain:
                continue
            same = run.cell in {MLX_LM, run.baseline}
            yield run if same else replace(run, difference=self._difference(model, plain[run.baseline], run))

    def _difference(self, model: LoadedModel, plain: BenchRun, other: BenchRun) -> Difference | None:
        """Return where two replies differ first, and by how little; None where they are the same."""
        pairs = enumerate(zip_longest(plain.token_ids, other.token_ids))
        index = next((place for place, (one, two) in pairs if one != two), None)
        if index is None:
            return None
        gap = None
        rounding = None
        if index < min(len(plain.token_ids), len(other.token_ids)):
            cell = self._plan.all_cells[plain.cell]
            request = self._request(cell, plain.prompt, self._plan.max_tokens)
            measured = score_gap(model, request, plain.token_ids, index, other.token_ids[index])
            if all(map(math.isfinite, measured)):
                gap, rounding = measured
        return Difference(plain.prompt, index, _text(model, plain, index), _text(model, other, index), gap, rounding)


def _text(model: LoadedModel, run: BenchRun, index: int) -> str:
    """Return the text of a reply's token; empty where the reply had ended."""
    return model.decode([run.token_ids[index]]) if index < len(run.token_ids) else ""
