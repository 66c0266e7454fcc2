"""The base of all token iterators: prefill, the first token's logits, cancelling, and trimming the cache at the end."""

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterator
from time import perf_counter_ns

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.inference.api.events import FinishReason, GenerationEvent, PrefillProgress, ReplyEnd, TokenEvent
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings
from rdchat.inference.decoding.prefill import prefill
from rdchat.inference.decoding.reply import Reply, ReplyJob
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.target.memory_errors import device_errors
from rdchat.thoughts import begins_thought

_LOG = logging.getLogger(__name__)
_MARKER_TOKENS = 16  # at the end of a prompt, that may open a thought


class ReplyIterator(ABC):
    """A `TokenIterator` whose `_decode` and `update` a subclass adds."""

    def __init__(self, job: ReplyJob) -> None:
        model, request = job.model, job.request
        self._model = model
        self._cache = job.cache
        self._prompt = job.prompt
        self._ledger = job.ledger
        self._ledger.exact = request.draft.profile
        self._reply = Reply(job)
        self._chooser = TokenChooser(request.sampling, request.seed, model.info.vocabulary_size)
        self._seen = self._chooser.seen(job.prompt) if self._chooser.needs_seen else None
        self._cancel = threading.Event()
        self._events = self._run()

    def __iter__(self) -> Iterator[GenerationEvent]:
        return self

    def __next__(self) -> GenerationEvent:
        self._ledger.take_back()
        try:
            with device_errors("for this reply"):
                return next(self._events)
        finally:
            self._ledger.hand_over()

    @abstractmethod
    def update(self, settings: DraftSettings) -> None:
        """See `TokenIterator`."""

    def cancel(self) -> None:
        self._cancel.set()

    def close(self) -> None:
        self._events.close()

    @property
    def statistics(self) -> Statistics:
        return self._reply.statistics()

    @abstractmethod
    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        """Yield the reply's tokens; `logits`, (1, vocabulary), are those of the first."""

    def _run(self) -> Generator[GenerationEvent]:
        in_order = False
        try:
            yield from self._prefill()
            if not self._cancel.is_set():
                yield from self._decode(self._first_logits())
            yield self._end()
            in_order = True
        except GeneratorExit:
            in_order = True
            raise
        finally:
            self._trim_cache(len(self._prompt) + len(self._reply.token_ids) if in_order else 0)

    def _trim_cache(self, length: int) -> None:
        """Leave no more than the conversation's first `length` tokens in the cache; nothing where that is 0."""
        if length:
            self._cache.trim_to(length)
            self._wait_for_cache()
        else:
            self._cache.reset()  # nobody knows in what state an exception left it

    def _wait_for_cache(self) -> None:
        """Wait for what was queued behind the reply's last token; where that fails, nothing is kept."""
        try:
            if self._cache.tokens:
                self._cache.evaluate()
        except RuntimeError:
            _LOG.warning("The device failed behind a reply", exc_info=True)
            self._cache.reset()

    def _prefill(self) -> Iterator[PrefillProgress]:
        self._reply.clock.prefill_began = perf_counter_ns()
        total, cached = len(self._prompt), len(self._cache.tokens)
        in_thought = begins_thought(self._model.decode(self._prompt[-_MARKER_TOKENS:]))
        for done in prefill(self._model, self._cache, self._prompt, self._cancel.is_set, self._ledger):
            yield PrefillProgress(self._reply.request.request_id, done, total, cached, in_thought)

    def _first_logits(self) -> mx.array:
        with self._ledger.stage("prefill"):
            logits = self._logits(mx.array(self._prompt[-1:]))
            self._cache.tokens.append(self._prompt[-1])
            if not mx.all(mx.isfinite(logits)).item():
                raise ModelError(
                    f"{self._model.info.name} computes numbers that are not finite.",
                    "Its weights are damaged, or the precision is too small for it: try float32.",
                )
            return logits

    def _logits(self, token: mx.array) -> mx.array:
        """Feed one token, (1,), perhaps lazy; return (1, vocabulary), lazy."""
        logits: mx.array = self._model.network(token[None], cache=self._cache.layers)
        return logits[:, -1]

    def _end(self) -> ReplyEnd:
        self._reply.finish_reason = self._reply.finish_reason or FinishReason.CANCELLED
        return self._reply.end()
