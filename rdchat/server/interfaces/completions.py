"""OpenAI's older `/v1/completions`: it continues a raw text, without a chat template."""

import time
from collections.abc import Sequence
from typing import Any

from rdchat.inference.api.events import PrefillProgress, TokenEvent
from rdchat.inference.api.requests import MAX_LOG_PROBS
from rdchat.server.interfaces.api_error import ApiError, unsupported, wrong
from rdchat.server.interfaces.chat_completions import finish_of, read_common
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.interface import COMMENT, event
from rdchat.server.interfaces.order import Choice, Delta, Prompt, ReplyOrder
from rdchat.server.interfaces.shapes import read_shape
from rdchat.server.interfaces.usage import openai_usage


class Completions:
    """Reads requests and writes replies of `/v1/completions`."""

    ping = COMMENT

    def read(self, fields: Fields) -> ReplyOrder:
        """Read a request; see `Interface.read`."""
        common = read_common(fields)
        fields.refuse("a text is continued at its end only.", "suffix")
        fields.refuse("the reply never has the prompt in it.", "echo")
        fields.refuse("each of the `n` replies is sent.", "best_of", neutral=(common["choices"],))
        return ReplyOrder(
            prompts=self._prompts(fields),
            top_log_probs=fields.whole("logprobs", 0, MAX_LOG_PROBS),
            shape=read_shape(fields.part("response_format")),
            **common,
            ignored=fields.unread(),
        )

    def _prompts(self, fields: Fields) -> tuple[Prompt, ...]:
        prompt = fields.take("prompt")
        texts = [prompt] if isinstance(prompt, str) else prompt
        if not isinstance(texts, list) or not texts:
            raise wrong("prompt", "`prompt` must be a text, or a list of texts.")
        if not all(isinstance(text, str) for text in texts):
            raise unsupported("prompt", "rdchat takes texts, not token ids.")
        return tuple(Prompt(text=text) for text in texts)

    def whole(self, order: ReplyOrder, model: str, choices: Sequence[Choice], reply_id: str) -> dict[str, Any]:
        """Return the body of a reply; see `Interface.whole`."""
        listed = [
            _choice(choice.index, choice.answer, finish_of(choice), _log_probs(order, choice.listed()))
            | order.ids_of(choice)
            for choice in choices
        ]
        return _head(model, reply_id) | {"choices": listed, "usage": openai_usage(choices, order.choices)}

    def stream(self, order: ReplyOrder, model: str, reply_id: str) -> "CompletionStream":
        """Return what writes a stream; see `Interface.stream`."""
        return CompletionStream(order, model, reply_id)

    def stream_error(self, error: ApiError) -> str:
        """Return the event for a failure; OpenAI's clients raise it."""
        return event(error.openai())


class CompletionStream:
    """Writes one streamed reply as chunks."""

    def __init__(self, order: ReplyOrder, model: str, reply_id: str) -> None:
        self._order = order
        self._head = _head(model, reply_id)
        self._usage = {"usage": None} if order.include_usage else {}

    def begin(self, prompt: PrefillProgress) -> str:  # noqa: ARG002  the counters come last
        return ""

    def delta(self, delta: Delta) -> str:
        """Return the chunk for more text."""
        return self._chunk(_choice(delta.index, delta.answer, None, _log_probs(self._order, delta.tokens)))

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the rest of the text, and why the reply ended."""
        tokens = _log_probs(self._order, tail.tokens)
        last = _choice(choice.index, tail.answer, finish_of(choice), tokens)
        return self._chunk(last | self._order.ids_of(choice))

    def end(self, choices: Sequence[Choice]) -> str:
        """Return the counters, if they are asked for, and the mark of the end."""
        usage = ""
        if self._order.include_usage:
            usage = event(self._head | {"choices": [], "usage": openai_usage(choices, self._order.choices)})
        return usage + event("[DONE]")

    def _chunk(self, choice: dict[str, Any]) -> str:
        return event(self._head | {"choices": [choice]} | self._usage)


def _head(model: str, reply_id: str) -> dict[str, Any]:
    return {"id": f"cmpl-{reply_id}", "object": "text_completion", "created": int(time.time()), "model": model}


def _choice(index: int, text: str, finish: str | None, log_probs: dict[str, Any] | None) -> dict[str, Any]:
    return {"index": index, "text": text, "finish_reason": finish, "logprobs": log_probs}


def _log_probs(order: ReplyOrder, tokens: Sequence[TokenEvent]) -> dict[str, Any] | None:
    """Return the log-probabilities in the shape of this interface; None where they are not asked for."""
    if order.top_log_probs is None:
        return None
    likely = [{each.data.decode(errors="replace"): each.log_prob for each in token.alternatives} for token in tokens]
    return {
        "tokens": [token.data.decode(errors="replace") for token in tokens],
        "token_logprobs": [token.log_prob for token in tokens],
        "top_logprobs": likely if order.top_log_probs else None,
    }
