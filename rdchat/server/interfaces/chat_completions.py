"""OpenAI's `/v1/chat/completions`, and its older `/v1/completions`, which continues a raw text without a template."""

from collections.abc import Sequence
from typing import Any

from rdchat.inference.api import MAX_LOG_PROBS, LikelyToken, TokenEvent
from rdchat.server.interfaces.chat_messages import read_messages
from rdchat.server.interfaces.client_tools import input_of, origin_of, read_answer, read_shape, read_tools
from rdchat.server.interfaces.fields import Fields, unsupported, wrong
from rdchat.server.interfaces.interface import OpenAIFormat, OpenAIInterface, finish_of, read_effort, read_openai
from rdchat.server.interfaces.reply_request import Choice, Delta, Prompt, ReplyRequest, read_thinking


class ChatFormat(OpenAIFormat):
    """Writes the replies to one request, as chunks if they are streamed."""

    id_prefix = "chatcmpl"
    kind = "chat.completion"
    chunk_kind = "chat.completion.chunk"
    # Index of the reply that was begun last; replies are written one after another.
    _begun_index = -1

    def _complete_choice(self, choice: Choice) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": choice.answer, "refusal": None}
        if choice.thought:
            message["reasoning_content"] = choice.thought
        if choice.calls:
            message["content"] = choice.answer or None
            message["tool_calls"] = self._calls(choice)
        listed = None if self._request.top_log_probs is None else log_probs(choice.listed())
        return {"index": choice.index, "message": message, "finish_reason": finish_of(choice), "logprobs": listed}

    def delta(self, delta: Delta) -> str:
        """Return the chunks for more text; the first of each reply names the role."""
        return self._role_chunk(delta.index) + self._text_chunk(delta)

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the rest of the text, the tool calls, and why the reply ended."""
        text = self._role_chunk(choice.index)
        if tail.thought or tail.answer or tail.tokens:
            text += self._text_chunk(tail)
        if choice.calls:
            calls = [{"index": at} | each for at, each in enumerate(self._calls(choice))]
            text += self._delta_chunk(choice.index, {"tool_calls": calls})
        return text + self._delta_chunk(
            choice.index, {}, finish_reason=finish_of(choice), **self._request.ids_of(choice)
        )

    def _calls(self, choice: Choice) -> list[dict[str, Any]]:
        """Return the tool calls of a reply as OpenAI writes them."""
        calls: list[dict[str, Any]] = []
        for call_id, call in choice.named_calls(self._reply_id):
            kind = "function"
            named = {"name": call.name, "arguments": call.arguments}
            if origin_of(call, self._request.tools).get("custom"):
                kind = "custom"
                named = {"name": call.name, "input": input_of(call)}
            calls.append({"id": call_id, "type": kind, kind: named})
        return calls

    def _role_chunk(self, index: int) -> str:
        """Return the chunk that begins a reply; empty where it was sent."""
        if index == self._begun_index:
            return ""
        self._begun_index = index
        return self._delta_chunk(index, {"role": "assistant", "content": ""})

    def _text_chunk(self, delta: Delta) -> str:
        named = {"reasoning_content": delta.thought, "content": delta.answer}
        texts = {name: text for name, text in named.items() if text}
        return self._delta_chunk(delta.index, texts, logprobs=log_probs(delta.tokens) if delta.tokens else None)

    def _delta_chunk(self, index: int, delta: dict[str, Any], **others: Any) -> str:
        """Return a chunk of a reply; `others` are its fields besides the delta."""
        return self._chunk({"index": index, "delta": delta, "finish_reason": None, "logprobs": None} | others)


class ChatCompletions(OpenAIInterface):
    """Reads requests and writes replies of `/v1/chat/completions`; see `Interface`."""

    format = ChatFormat

    def read_request(self, fields: Fields) -> ReplyRequest:
        """Read a request; see `Interface.read_request`."""
        common = read_openai(fields)
        fields.refuse("use `tools` and `tool_choice`.", "functions", "function_call")
        fields.refuse("rdchat reads and writes texts only.", "audio", "modalities", neutral=(["text"],))
        fields.refuse("rdchat does not search the web.", "web_search_options")
        return ReplyRequest(
            prompts=(Prompt(read_messages(fields)),),
            one_call=not fields.flag("parallel_tool_calls", default=True),
            top_log_probs=_read_log_probs(fields),
            effort=read_thinking(fields, read_effort(fields, "reasoning_effort") or _read_switches(fields)),
            **read_answer(
                read_tools(fields), fields.raw_value("tool_choice", "auto"), read_shape(fields.part("response_format"))
            ),
            **common,
            ignored=fields.unread(),
        )


def _read_switches(fields: Fields) -> str:
    """Read how much to think from two other fields.

    GLM, DeepSeek and Kimi have `thinking` (`{"type": "enabled"}`), and OpenRouter has `reasoning`. "disabled" in
    either is "none"; otherwise an effort in `reasoning` counts, and "enabled" without one is "on".
    """
    thinking = fields.part("thinking")
    reasoning = fields.part("reasoning")
    switches = [thinking.read_text("type")] if thinking.values else []
    if reasoning.raw_value("enabled") is not None:
        switches.append("enabled" if reasoning.flag("enabled") else "disabled")
    effort = read_effort(reasoning, "effort") or ("on" if switches else "")
    return "none" if "disabled" in switches else effort


def _read_log_probs(fields: Fields) -> int | None:
    """Return how many likely tokens to name beside each token; None for no log-probabilities."""
    requested = fields.flag("logprobs")
    top = fields.read_integer("top_logprobs", 0, MAX_LOG_PROBS)
    if top and not requested:
        raise wrong("top_logprobs", "needs `logprobs`: true.")
    return (top or 0) if requested else None


def log_probs(tokens: Sequence[TokenEvent]) -> dict[str, Any]:
    """Return the log-probabilities of tokens, before temperature and filters."""
    listed = [_likely(token) | {"top_logprobs": [_likely(each) for each in token.alternatives]} for token in tokens]
    return {"content": listed, "refusal": None}


def _likely(token: TokenEvent | LikelyToken) -> dict[str, Any]:
    """Return one token with its log-probability, as OpenAI writes it."""
    data = token.data
    return {"token": data.decode(errors="replace"), "logprob": token.log_prob or 0.0, "bytes": list(data)}


class CompletionFormat(OpenAIFormat):
    """Writes the replies to one request, as chunks if they are streamed."""

    id_prefix = "cmpl"
    kind = "text_completion"
    chunk_kind = "text_completion"

    def _complete_choice(self, choice: Choice) -> dict[str, Any]:
        return self._choice(choice.index, choice.answer, choice.listed(), finish_of(choice))

    def delta(self, delta: Delta) -> str:
        """Return the chunk for more text."""
        return self._chunk(self._choice(delta.index, delta.answer, delta.tokens))

    def finish(self, choice: Choice, tail: Delta) -> str:
        """Return the rest of the text, and why the reply ended."""
        last = self._choice(choice.index, tail.answer, tail.tokens, finish_of(choice))
        return self._chunk(last | self._request.ids_of(choice))

    def _choice(self, index: int, text: str, tokens: Sequence[TokenEvent], finish: str | None = None) -> dict[str, Any]:
        return {"index": index, "text": text, "finish_reason": finish, "logprobs": self._log_probs(tokens)}

    def _log_probs(self, tokens: Sequence[TokenEvent]) -> dict[str, Any] | None:
        """Return log-probabilities in the form of this interface; None where they are not requested."""
        top = self._request.top_log_probs
        if top is None:
            return None
        alternatives = [
            {each.data.decode(errors="replace"): each.log_prob for each in token.alternatives} for token in tokens
        ]
        return {
            "tokens": [token.data.decode(errors="replace") for token in tokens],
            "token_logprobs": [token.log_prob for token in tokens],
            "top_logprobs": alternatives if top else None,
        }


class Completions(OpenAIInterface):
    """Reads requests and writes replies of `/v1/completions`; see `Interface`."""

    format = CompletionFormat

    def read_request(self, fields: Fields) -> ReplyRequest:
        """Read a request; see `Interface.read_request`."""
        common = read_openai(fields)
        fields.refuse("a text is continued at its end only.", "suffix")
        fields.refuse("the reply never has the prompt in it.", "echo")
        fields.refuse("each of the `n` replies is sent.", "best_of", neutral=(common["choices"],))
        return ReplyRequest(
            prompts=_read_prompts(fields),
            top_log_probs=fields.read_integer("logprobs", 0, MAX_LOG_PROBS),
            shape=read_shape(fields.part("response_format")),
            **common,
            ignored=fields.unread(),
        )


def _read_prompts(fields: Fields) -> tuple[Prompt, ...]:
    """Read the raw texts, one or several."""
    prompt = fields.raw_value("prompt")
    texts = [prompt] if isinstance(prompt, str) else prompt
    if not isinstance(texts, list) or not texts:
        raise wrong("prompt", "must be a text, or a list of texts.")
    if not all(isinstance(text, str) for text in texts):
        raise unsupported("prompt", "rdchat takes texts, not token ids.")
    return tuple(Prompt(text=text) for text in texts)
