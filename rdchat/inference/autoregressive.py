"""Plain decoding: one token a target call, the next call queued while the last token is read.

It is the baseline of every drafting mode and their oracle.
"""

import threading
from collections.abc import Generator, Iterator
from time import perf_counter_ns
from typing import cast

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.inference.device import wired_memory
from rdchat.inference.prefill import prefill
from rdchat.inference.protocol import (
    FinishReason,
    GenerationEvent,
    PrefillProgress,
    ReplyEnd,
    Statistics,
    TokenEvent,
)
from rdchat.inference.reply import Reply, ReplyJob
from rdchat.inference.sampling import TokenChooser

_FREE_BUFFERS_EVERY = 256  # tokens; MLX keeps freed buffers for reuse, which grow with the context


class AutoregressiveIterator:
    """A `TokenIterator` that decodes token by token."""

    def __init__(self, job: ReplyJob) -> None:
        model, request = job.model, job.request
        self._model = model
        self._request_id = request.request_id
        self._cache = job.cache
        self._prompt = job.prompt
        self._ledger = job.ledger
        self._reply = Reply(job)
        self._chooser = TokenChooser(request.sampling, request.seed, model.info.vocabulary_size)
        self._seen = self._chooser.seen(job.prompt) if self._chooser.needs_seen else None
        self._cancel = threading.Event()
        self._events = self._run()

    def __iter__(self) -> Iterator[GenerationEvent]:
        return self

    def __next__(self) -> GenerationEvent:
        return next(self._events)

    def cancel(self) -> None:
        """See `TokenIterator`."""
        self._cancel.set()

    def close(self) -> None:
        """See `TokenIterator`."""
        self._events.close()

    @property
    def statistics(self) -> Statistics:
        """See `TokenIterator`."""
        return self._reply.statistics()

    def _run(self) -> Generator[GenerationEvent]:
        in_order = False
        try:
            with wired_memory():
                yield from self._prefill()
                yield from self._decode()
                yield self._end()
            in_order = True
        except GeneratorExit:
            in_order = True
            raise
        finally:
            if in_order:
                self._cache.trim_to(len(self._prompt) + len(self._reply.token_ids))
            else:
                self._cache.reset()  # nobody knows in what state an exception left it

    def _prefill(self) -> Iterator[PrefillProgress]:
        self._reply.clock.prefill_began = perf_counter_ns()
        total, cached = len(self._prompt), len(self._cache.tokens)
        for done in prefill(self._model, self._cache, self._prompt, self._cancel.is_set, self._ledger):
            yield PrefillProgress(self._request_id, done, total, cached)

    def _decode(self) -> Iterator[TokenEvent]:
        if self._cancel.is_set():
            return
        reply = self._reply
        token = self._first_token()
        while reply.finish_reason is None and not self._cancel.is_set():
            index = len(reply.token_ids)
            following = self._queue_step(token, index + 1) if index < reply.last_index else None
            with self._ledger.stage("wait for token"):
                token_id = int(cast("int", token.item()))
            if following is not None:
                self._cache.tokens.append(token_id)
                token = following
            if index:
                reply.counters.target_calls += 1
                reply.counters.host_syncs += 1
            if index % _FREE_BUFFERS_EVERY == 0:
                mx.clear_cache()
            yield reply.take(token_id)

    def _first_token(self) -> mx.array:
        with self._ledger.stage("prefill"):
            logits = self._logits(mx.array(self._prompt[-1:]))
            self._cache.tokens.append(self._prompt[-1])
            if not mx.all(mx.isfinite(logits)).item():
                raise ModelError(
                    f"{self._model.info.name} computes numbers that are not finite.",
                    "Its weights are damaged, or the precision is too small for it: try float32.",
                )
            return self._choose(logits, 0)

    def _queue_step(self, token: mx.array, index: int) -> mx.array:
        """Queue one target call for `token`, (1,), perhaps lazy; return the reply's token `index`, (1,), lazy."""
        with self._ledger.stage("queue step"):
            if self._seen is not None:
                self._seen = self._chooser.with_token(self._seen, token)
            return self._choose(self._logits(token), index)

    def _logits(self, token: mx.array) -> mx.array:
        logits: mx.array = self._model.network(token[None], cache=self._cache.layers)
        return logits[:, -1]

    def _choose(self, logits: mx.array, index: int) -> mx.array:
        chosen = self._chooser.choose(logits, mx.array([len(self._prompt) + index]), self._seen)
        mx.async_eval(chosen)
        return chosen

    def _end(self) -> ReplyEnd:
        self._reply.finish_reason = self._reply.finish_reason or FinishReason.CANCELLED
        return self._reply.end()
