"""Plain decoding: one token a target call, the next call queued while the last token is read.

It is the baseline of every drafting mode and their oracle.
"""

from collections.abc import Iterator
from typing import cast

import mlx.core as mx

from rdchat.inference.protocol import TokenEvent
from rdchat.inference.reply_iterator import ReplyIterator

_FREE_BUFFERS_EVERY = 256  # tokens; MLX keeps freed buffers for reuse, which grow with the context


class AutoregressiveIterator(ReplyIterator):
    """A `TokenIterator` that decodes token by token."""

    def _decode(self, logits: mx.array) -> Iterator[TokenEvent]:
        reply = self._reply
        token = self._choose(logits, 0)
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

    def _queue_step(self, token: mx.array, index: int) -> mx.array:
        """Queue one target call for `token`, (1,), perhaps lazy; return the reply's token `index`, (1,), lazy."""
        with self._ledger.stage("queue step"):
            if self._seen is not None:
                self._seen = self._chooser.with_token(self._seen, token)
            return self._choose(self._logits(token), index)

    def _choose(self, logits: mx.array, index: int) -> mx.array:
        chosen = self._chooser.choose(logits, mx.array([len(self._prompt) + index]), self._seen)
        mx.async_eval(chosen)
        return chosen
