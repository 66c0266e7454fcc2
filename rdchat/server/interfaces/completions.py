"""OpenAI's older `/v1/completions`: it continues a raw text, without a chat template."""

from collections.abc import Sequence
from typing import Any

from rdchat.inference.api.events import TokenEvent
from rdchat.inference.api.requests import MAX_LOG_PROBS
from rdchat.server.interfaces.api_error import unsupported, wrong
from rdchat.server.interfaces.fields import Fields
from rdchat.server.interfaces.openai_format import OpenAIFormat, OpenAIInterface, finish_of, read_openai
from rdchat.server.interfaces.reply_request import Choice, Delta, Prompt, ReplyRequest
from rdchat.server.interfaces.shapes import read_shape


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
        likely = [
            {each.data.decode(errors="replace"): each.log_prob for each in token.alternatives} for token in tokens
        ]
        return {
            "tokens": [token.data.decode(errors="replace") for token in tokens],
            "token_logprobs": [token.log_prob for token in tokens],
            "top_logprobs": likely if top else None,
        }


class Completions(OpenAIInterface):
    """Reads requests and writes replies of `/v1/completions`; see `Interface`."""

    format = CompletionFormat

    def read(self, fields: Fields) -> ReplyRequest:
        """Read a request; see `Interface.read`."""
        common = read_openai(fields)
        fields.refuse("a text is continued at its end only.", "suffix")
        fields.refuse("the reply never has the prompt in it.", "echo")
        fields.refuse("each of the `n` replies is sent.", "best_of", neutral=(common["choices"],))
        return ReplyRequest(
            prompts=self._prompts(fields),
            top_log_probs=fields.whole_number("logprobs", 0, MAX_LOG_PROBS),
            shape=read_shape(fields.part("response_format")),
            **common,
            ignored=fields.unread(),
        )

    def _prompts(self, fields: Fields) -> tuple[Prompt, ...]:
        prompt = fields.take("prompt")
        texts = [prompt] if isinstance(prompt, str) else prompt
        if not isinstance(texts, list) or not texts:
            raise wrong("prompt", "must be a text, or a list of texts.")
        if not all(isinstance(text, str) for text in texts):
            raise unsupported("prompt", "rdchat takes texts, not token ids.")
        return tuple(Prompt(text=text) for text in texts)
