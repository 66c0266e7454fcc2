"""The token iterator of a reply: reads the prompt in chunks, runs the loop, and trims the cache at the end.

`loop.decode` decides, by a policy, between plain steps and rounds; `ReplyIterator` makes these calls and times them. It
belongs to the engine thread; only `cancel` may come from another one.
"""

import logging
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from time import perf_counter, perf_counter_ns

import mlx.core as mx

from rdchat.inference.api import (
    DraftSettings,
    FinishReason,
    GenerationEvent,
    PrefillProgress,
    Stage,
    Statistics,
    StoppedError,
    TokenEvent,
)
from rdchat.inference.decoding.autoregressive import PlainSteps, Step
from rdchat.inference.decoding.draft import Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.loop import AlwaysPlain, Call, CallResult, RoundPlan, decode
from rdchat.inference.decoding.reductions import check_finite
from rdchat.inference.decoding.reply import Reply, ReplyJob, thought_end
from rdchat.inference.decoding.rounds import Rounds
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.device import device_errors, was_stopped
from rdchat.inference.verification import Feed, KVCache, LoadedModel

_LOG = logging.getLogger(__name__)
# Freed buffers that MLX keeps between chunks of a prompt, as a share of the memory in use: short chunks use them again,
# and with Metal each new buffer costs a commit of the wired memory.
_MEMORY_SHARE = 0.05


def prefill(
    model: LoadedModel,
    cache: KVCache,
    prompt: list[int],
    cancelled: Callable[[], bool],
    ledger: Ledger,
    *,
    feed: Feed | None = None,
    stops: Sequence[int] = (),
    passed: Callable[[int, int, mx.array | None], object] = lambda *_chunk: None,
) -> Iterator[int]:
    """Feed the prompt without its last token, from where the cache ends.

    Args:
        model: The target.
        cache: Holds the first tokens of the prompt, afterwards all but the last one.
        prompt: Token ids.
        cancelled: Looked at before each chunk; True ends the work between two chunks.
        ledger: Takes the host time, a call for each chunk.
        feed: Feeds a prompt with images; None for text. The cache has the prompt's images.
        stops: Positions at which a chunk ends, unless that divides an image.
        passed: Called after each chunk with its start, its end, and the hidden states of its tokens, (1, n, width), or
            None without any.

    Yields:
        Tokens processed so far, at the start and after each chunk.

    Raises:
        ModelError: If the network has no embedding of a token that is fed as text.
    """
    first = len(cache.tokens)
    done = first
    model.check_rows(prompt[-1:])
    yield done
    while done < len(prompt) - 1 and not cancelled():
        if feed is None and done == first:
            # Without its rows, a part of an image would be read from memory before the table of embeddings.
            model.check_rows(prompt[first:])
        end = min(done + model.pace.chunk, len(prompt) - 1)
        end = min((stop for stop in stops if done < stop < end), default=end)
        # An image whose rows see each other comes in one call, so the chunk ends behind it.
        divided = (image.end for image in cache.images if image.bidirectional and image.start < end < image.end)
        end = next(divided, end)
        chunk = prompt[done:end]
        began = perf_counter()
        with ledger.stage(Stage.PREFILL):
            try:
                if feed is None:
                    model.network(mx.array(chunk)[None], cache=cache.layers)
                else:
                    feed(cache, done, end)
                cache.evaluate()
            except RuntimeError as error:
                if was_stopped(error):
                    model.pace.shorten()
                raise
            cache.extend(chunk)
            if mx.get_cache_memory() > _MEMORY_SHARE * mx.get_active_memory():
                mx.clear_cache()
        model.pace.record_time(len(chunk), perf_counter() - began)
        passed(done, end, model.hooks.hidden)
        done += len(chunk)
        yield done


class ReplyIterator:
    """A `TokenIterator`; makes the `Calls` of its loop.

    Args:
        job: Model, cache, prompt and request.
        drafter: Proposes trees, which needs a cache with rounds; None for plain decoding.

    Attributes:
        is_paused: Whether it is inside `paused`.
    """

    def __init__(self, job: ReplyJob, drafter: Drafter | None = None) -> None:
        model = job.model
        request = job.request
        self._job = job
        self._model = model
        self._cache = job.cache
        self._prompt = job.prompt
        self._ledger = job.ledger
        self._ledger.exact = request.draft.profile
        chooser = TokenChooser(
            request.sampling,
            request.seed,
            model.info.vocabulary_size,
            masked=job.matcher is not None,
            suppressed=model.suppressed,
        )
        policy = drafter.policy if drafter else AlwaysPlain()
        self._policy = policy
        reply = Reply(job, chooser.seen(job.prompt, model.end_tokens), lambda: policy.status)
        self._reply = reply
        self._steps = PlainSteps(job, reply, chooser)
        self._rounds = Rounds(job, reply, chooser, drafter) if drafter else None
        self._drafter = drafter
        # The drafters of which the drafter is made, or itself alone: each reads the prompt and observes every token.
        self._parts = drafter.parts if drafter else ()
        # The plain step that is queued.
        self._step: Step | None = None
        # When the last call ended, in nanoseconds of `perf_counter_ns`.
        self._call_ended = 0
        # Whether there was a pause since: then the time of the next call is not typical.
        self._resumed = False
        self._cancel = threading.Event()
        self._release = job.release
        self._events = self._run()
        self.is_paused = False

    def __iter__(self) -> Iterator[GenerationEvent]:
        return self

    def __next__(self) -> GenerationEvent:
        self._ledger.take_back()
        self._model.hooks.timed = partial(self._ledger.stage, Stage.LINK) if self._ledger.exact else None
        try:
            return next(self._events)
        finally:
            self._model.hooks.timed = None
            self._ledger.hand_over()

    def update(self, settings: DraftSettings) -> None:
        self._ledger.exact = settings.profile
        self._reply.trace = settings.trace
        if self._drafter:
            self._drafter.take_settings(settings)

    def cancel(self) -> None:
        self._cancel.set()

    @contextmanager
    def paused(self) -> Iterator[None]:
        began = perf_counter_ns()
        self.is_paused = True
        try:
            with self._model.hooks.restored():
                yield
        finally:
            self.is_paused = False
            self._call_ended = perf_counter_ns()
            self._resumed = True
            self._reply.leave_out(self._call_ended - began)

    def close(self) -> None:
        self._events.close()
        # The generator does not do this if it never started.
        self._end()

    def _end(self, failed: bool = False) -> None:
        """Give the cache back, once."""
        release = self._release
        self._release = lambda _failed: None
        release(failed)

    @property
    def statistics(self) -> Statistics:
        return self._reply.statistics()

    # The calls of the loop

    @property
    def room(self) -> int | None:
        ended = self._reply.finish_reason is not None or self._cancel.is_set()
        return None if ended else self._reply.room

    def first(self) -> CallResult[TokenEvent]:
        length = len(self._prompt)
        logits, hidden = self._read_last()
        self._pass_prompt(length - 1, length, hidden)
        with self._ledger.stage(Stage.FIRST):
            step = self._steps.first(logits, hidden, length, self._reply.seen)
            event, _ = self._steps.advance(step, queue=False)
        return self._result(Call.FIRST, [event])

    def step(self, queue: bool) -> CallResult[TokenEvent]:
        if self._rounds and self._step is None:
            # A round may have left accepted tokens that the cache does not hold yet.
            self._rounds.catch_up()
        step = self._step or self._steps.begin_after()
        event, self._step = self._steps.advance(step, queue)
        held_up = self._resumed or (self._step is not None and self._step.held_up)
        done = self._result(Call.STEP, [event], held_up=held_up)
        if self._rounds:
            self._rounds.observe_plain(step)
        return done

    def round(self, plan: RoundPlan) -> CallResult[TokenEvent]:
        assert self._rounds is not None
        with self._ledger.stage(Stage.ROUND):
            events, usual = self._rounds.make_round(plan)
        return self._result(Call.ROUND, events, usual=usual and not self._resumed, plan=plan)

    def _result(
        self,
        call: Call,
        events: list[TokenEvent],
        held_up: bool = False,
        usual: bool = True,
        plan: RoundPlan | None = None,
    ) -> CallResult[TokenEvent]:
        """Return the result of a call, timed from the end of the call before; exact times are never typical."""
        now = perf_counter_ns()
        tokens = self._reply.token_ids[-len(events) :]
        ms = (now - self._call_ended) / 1e6
        self._call_ended = now
        self._resumed = False
        usual = usual and not self._ledger.exact
        queued = self._step is not None
        ended = self._reply.finish_reason is not None
        return CallResult(call, events, tokens, ms, queued=queued, held_up=held_up, usual=usual, ended=ended, plan=plan)

    def _run(self) -> Generator[GenerationEvent]:
        # Whether the cache holds what its tokens say; an error may have come in the middle of a call.
        in_order = False
        with device_errors("for this reply"):
            try:
                yield from self._prefill()
                if not self._cancel.is_set():
                    yield from decode(self, self._policy)
                self._reply.finish_reason = self._reply.finish_reason or FinishReason.CANCELLED
                yield self._reply.closing_event()
                in_order = True
            except GeneratorExit:
                in_order = True
                raise
            finally:
                self._trim_cache(len(self._prompt) + len(self._reply.token_ids) if in_order else 0)
                self._end(failed=not in_order)

    def _trim_cache(self, length: int) -> None:
        """Keep at most the first `length` tokens in the cache; with 0, none."""
        if length:
            self._cache.trim_to(length)
            self._wait_for_cache()
        else:
            # An exception may have left the cache in any state.
            self._cache.drop_tokens()
        for part in self._parts:
            part.end_reply(len(self._cache.tokens))

    def _wait_for_cache(self) -> None:
        """Wait for what was queued after the reply's last token; empty the cache where that fails."""
        try:
            if self._cache.tokens:
                self._cache.evaluate()
        except RuntimeError:
            _LOG.warning("The device failed after a reply", exc_info=True)
            self._cache.drop_tokens()

    def _prefill(self) -> Iterator[PrefillProgress]:
        self._reply.clock.prefill_began = perf_counter_ns()
        total = len(self._prompt)
        cached = len(self._cache.tokens)
        in_thought = bool(thought_end(self._model, self._prompt))
        # The cache's state is kept where the part ends that other chats share, and at `_marked_position`; at once
        # where the cache goes beyond that already.
        stops = self._job.shared, max(self._marked_position(), cached)
        feed = yield from self._see()
        for done in prefill(
            self._model,
            self._cache,
            self._prompt,
            self._cancel.is_set,
            self._ledger,
            feed=feed,
            stops=stops,
            passed=lambda start, end, hidden: self._pass_prompt(start, end, None if hidden is None else hidden[0]),
        ):
            if done in stops:
                self._job.mark_prompt()
            yield PrefillProgress(self._reply.request.request_id, done, total, cached, in_thought)
        for part in self._parts:
            with self._ledger.stage(Stage.DRAFTER_PREFILL):
                for _ in part.prefill(self._cancel.is_set):
                    pass

    def _marked_position(self) -> int:
        """Return after how many tokens of the prompt the cache's state is kept, for the next prompt to go on from.

        What opens a reply at the prompt's end may read differently in the next prompt, where the reply is over.
        Recurrent state cannot be trimmed back before it. So with state this is where the last turn ends, behind the
        last token that ends one. Without state it is the prompt's end, which takes no further call.
        """
        last = len(self._prompt) - 1
        if not self._cache.has_state:
            return last
        ends = self._model.end_tokens
        return next((i + 1 for i in range(last - 1, -1, -1) if self._prompt[i] in ends), last)

    def _see(self) -> Generator[PrefillProgress, None, Feed | None]:
        """Compute the rows of images that are not in the cache, and yield before each.

        Returns:
            What feeds the rows to the target; None if all images are in the cache, or the reply was cancelled.
        """
        images = self._cache.images
        image_input = self._model.image_input
        start = len(self._cache.tokens)
        if image_input is None or all(image.end <= start for image in images):
            return None
        steps = image_input.see(
            self._prompt,
            images,
            self._reply.request,
            self._check_cancelled,
            start=start,
            stage=self._ledger.stage,
        )
        # Each step gives how many images are left, and the feed with the last image.
        left, feed = next(steps)
        while left and not self._cancel.is_set():
            yield PrefillProgress(self._reply.request.request_id, start, len(self._prompt), start, images=left)
            # No stage is open while the reader has an event.
            with self._ledger.stage(Stage.SEE), suppress(StoppedError):
                left, feed = next(steps)
        return feed

    def _check_cancelled(self) -> None:
        if self._cancel.is_set():
            raise StoppedError

    def _pass_prompt(self, start: int, end: int, hidden: mx.array | None) -> None:
        """Give the drafter the prompt tokens of a call of the target, and its hidden states at these."""
        for part in self._parts:
            part.read_prompt(self._prompt[start:end], hidden, start)

    def _read_last(self) -> tuple[mx.array, mx.array | None]:
        """Read the prompt's last token; return the logits after it, (1, vocabulary), and its hidden states."""
        with self._ledger.stage(Stage.PREFILL):
            logits, hidden = self._model.call(mx.array(self._prompt[-1:]), self._cache)
            self._cache.tokens.append(self._prompt[-1])
            # Waits of the prompt do not count.
            self._cache.take_waits()
            check_finite(mx.all(mx.isfinite(logits)), self._model)
            return logits, hidden
