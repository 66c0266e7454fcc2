"""OpenAI's `/v1/chat/completions`."""

import time
from collections.abc import Sequence
from typing import Any

from rdchat.inference.api.events import FinishReason, LikelyToken, PrefillProgress, TokenEvent
from rdchat.inference.api.requests import MAX_LOG_PROBS
from rdchat.server.interfaces.api_error import ApiError, wrong
from rdchat.server.interfaces.chat_messages import call_for_client, id_of_call, read_messages, read_tools
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.interface import COMMENT, event
from rdchat.server.interfaces.order import (
    Choice,
    Delta,
    Prompt,
    ReplyOrder,
    is_continued,
    read_sampling,
    read_seed,
    read_thinking,
)
from rdchat.server.interfaces.shapes import read_answer, read_shape
from rdchat.server.interfaces.usage import openai_usage

SAMPLING = ("temperature", "top_p", "min_p", "repetition_penalty", "presence_penalty", "frequency_penalty")
HINTS = (
    "user", "metadata", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention",
    "prediction", "verbosity", "store",
)  # fmt: skip
_EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh")


def read_common(fields: Fields) -> dict[str, Any]:
    """Read what both of OpenAI's interfaces have; return it as fields of `ReplyOrder`."""
    sampling = read_sampling(fields, *SAMPLING)
    sampling["stop"] = fields.stops("stop")
    fields.refuse("a token's chance cannot be changed.", "logit_bias")
    fields.ignore(*HINTS)
    stream = fields.flag("stream")
    options = fields.part("stream_options")
    if options is not None:
        options.ignore("include_obfuscation")
    return {
        "model": fields.text("model", ""),
        "sampling": sampling,
        "seed": read_seed(fields),
        "choices": fields.whole("n", 1, 128) or 1,
        "stream": stream,
        "include_usage": options is not None and options.flag("include_usage"),
        "token_ids": fields.flag("return_token_ids"),
    }


class ChatCompletions:
    """Reads requests and writes replies of `/v1/chat/completions`."""

    ping = COMMENT

    def read(self, fields: Fields) -> ReplyOrder:
        """Read a request; see `Interface.read`."""
        common = read_common(fields)
        fields.refuse("use `tools` and `tool_choice`.", "functions", "function_call")
        fields.refuse("rdchat reads and writes texts only.", "audio")
        fields.refuse("rdchat reads and writes texts only.", "modalities", neutral=(["text"],))
        fields.refuse("rdchat does not search the web.", "web_search_options")
        effort = fields.text("reasoning_effort", "")
        if effort and effort not in _EFFORTS:
            raise wrong("reasoning_effort", f"`reasoning_effort` must be one of {', '.join(_EFFORTS)}.")
        messages = read_messages(fields)
        return ReplyOrder(
            prompts=(Prompt(messages),),
            continue_last=is_continued(messages),
            one_call=not fields.flag("parallel_tool_calls", default=True),
            top_log_probs=self._log_probs(fields),
            effort=read_thinking(fields, effort),
            **self._answer(fields),
            **common,
            ignored=fields.unread(),
        )

    def _answer(self, fields: Fields) -> dict[str, Any]:
        """Read the tools that the model may or must call, and the shape of its answer, as fields of `ReplyOrder`."""
        shape = read_shape(fields.part("response_format"))
        return read_answer(read_tools(fields), fields.take("tool_choice", "auto"), shape)

    def _log_probs(self, fields: Fields) -> int | None:
        wanted, top = fields.flag("logprobs"), fields.whole("top_logprobs", 0, MAX_LOG_PROBS)
        if top and not wanted:
            raise wrong("top_logprobs", "`top_logprobs` needs `logprobs`: true.")
        return (top or 0) if wanted else None

    def whole(self, order: ReplyOrder, model: str, choices: Sequence[Choice], reply_id: str) -> dict[str, Any]:
        """Return the body of a reply; see `Interface.whole`."""
        listed = []
        for choice in choices:
            message: dict[str, Any] = {"role": "assistant", "content": choice.answer, "refusal": None}
            if choice.thought:
                message["reasoning_content"] = choice.thought
            if choice.calls:
                message["content"] = choice.answer or None
                message["tool_calls"] = calls_of(choice, reply_id)
            each = {"index": choice.index, "message": message, "finish_reason": finish_of(choice)}
            each["logprobs"] = None if order.top_log_probs is None else log_probs(choice.listed())
            listed.append(each | order.ids_of(choice))
        head = {"id": f"chatcmpl-{reply_id}", "object": "chat.completion", "created": int(time.time()), "model": model}
        return head | {"choices": listed, "usage": openai_usage(choices, order.choices)}

    def stream(self, order: ReplyOrder, model: str, reply_id: str) -> "ChatStream":
        """Return what writes a stream; see `Interface.stream`."""
        return ChatStream(order, model, reply_id)

    def stream_error(self, error: ApiError) -> str:
        """Return the event for a failure; OpenAI's clients raise it."""
        return event(error.openai())


class ChatStream:
    """Writes one streamed reply as chunks."""

    def __init__(self, order: ReplyOrder, model: str, reply_id: str) -> None:
        self._order, self._reply_id = order, reply_id
        self._head = {
            "id": f"chatcmpl-{reply_id}",
            "object": "chat.completion.chunk",
            "created": int(time.time()),
            "model": model,
        }
        # Index of the reply whose first chunk was sent.
        self._begun = -1

    def begin(self, prompt: PrefillProgress) -> str:  # noqa: ARG002  the counters come last
        return ""

    def delta(self, delta: Delta) -> str:
        """Return the chunks for more text; the first of each reply names the role."""
        return self._first(delta.index) + self._chunk(delta.index, self._text(delta), tokens=delta.tokens)

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the rest of the text, the tool calls, and why the reply ended."""
        text = self._first(choice.index)
        if tail.thought or tail.answer or tail.tokens:
            text += self._chunk(choice.index, self._text(tail), tokens=tail.tokens)
        if choice.calls:
            calls = [{"index": at} | call for at, call in enumerate(calls_of(choice, self._reply_id))]
            text += self._chunk(choice.index, {"tool_calls": calls})
        return text + self._chunk(choice.index, {}, finish_of(choice), self._order.ids_of(choice))

    def end(self, choices: Sequence[Choice]) -> str:
        """Return the counters, if they are asked for, and the mark of the end."""
        usage = ""
        if self._order.include_usage:
            usage = event(self._head | {"choices": [], "usage": openai_usage(choices, self._order.choices)})
        return usage + event("[DONE]")

    def _first(self, index: int) -> str:
        if index == self._begun:
            return ""
        self._begun = index
        return self._chunk(index, {"role": "assistant", "content": ""})

    def _text(self, delta: Delta) -> dict[str, Any]:
        named = {"reasoning_content": delta.thought, "content": delta.answer}
        return {name: text for name, text in named.items() if text}

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        finish: str | None = None,
        more: dict[str, Any] | None = None,
        tokens: Sequence[TokenEvent] = (),
    ) -> str:
        choice = {"index": index, "delta": delta, "finish_reason": finish} | (more or {})
        choice["logprobs"] = log_probs(tokens) if tokens else None
        usage = {"usage": None} if self._order.include_usage else {}
        return event(self._head | {"choices": [choice]} | usage)


def finish_of(choice: Choice) -> str:
    """Return OpenAI's word for why a reply ended."""
    if choice.calls:
        return "tool_calls"
    return "length" if choice.finish in (FinishReason.LENGTH, FinishReason.CONTEXT_FULL) else "stop"


def calls_of(choice: Choice, reply_id: str) -> list[dict[str, Any]]:
    """Return the tool calls of a reply; one without an id gets one."""
    return [call_for_client(call, id_of_call(call, reply_id, choice.index, at)) for at, call in enumerate(choice.calls)]


def log_probs(tokens: Sequence[TokenEvent]) -> dict[str, Any]:
    """Return the log-probabilities of tokens, before temperature and filters."""
    return {"content": [_log_prob(token) for token in tokens], "refusal": None}


def _log_prob(token: TokenEvent) -> dict[str, Any]:
    own = LikelyToken(token.token_id, token.data, token.log_prob or 0.0)
    return _likely(own) | {"top_logprobs": [_likely(each) for each in token.alternatives]}


def _likely(token: LikelyToken) -> dict[str, Any]:
    return {"token": token.data.decode(errors="replace"), "logprob": token.log_prob, "bytes": list(token.data)}
