"""A client's request and the parts of its replies, in one form for all interfaces.

An interface reads its JSON into a `ReplyRequest`. `ReplyParts` makes the parts of one reply from the engine's events,
and the interface writes them in its own form.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import (
    NOTHING_TOLD,
    SAMPLING_NUMBERS,
    AnswerShape,
    ChatMessage,
    DraftSettings,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    ImageCap,
    ModelInfo,
    PrefillProgress,
    ReplyEnd,
    Role,
    SamplingParams,
    ThinkingChoice,
    TokenEvent,
    ToolCall,
    fresh_seed,
    images_of,
    reply_seed,
    short_id,
)
from rdchat.server.interfaces.chat_messages import SentImage, notes_in
from rdchat.server.interfaces.client_tools import call_of, for_template
from rdchat.server.interfaces.fields import ApiError, Fields, unsupported, wrong

MAX_TOKENS = 2**31 - 1
# Clients mean the best token alone by a top-p of 0, and `SamplingParams` wants one above 0.
_BEST_TOKEN = 1e-9
# OpenAI's words for how much to think.
EFFORTS = {
    "none": ThinkingChoice.OFF,
    **dict.fromkeys(("minimal", "low"), ThinkingChoice.LOW),
    "medium": ThinkingChoice.MEDIUM,
    **dict.fromkeys(("high", "xhigh", "max"), ThinkingChoice.HIGH),
}


@dataclass(frozen=True, slots=True)
class Prompt:
    """What one or several replies answer.

    Attributes:
        messages: The conversation; empty for a raw text.
        text: The raw text to continue; None for a conversation.
    """

    messages: tuple[ChatMessage, ...] = ()
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ReplyRequest:
    """A request of a client, read and checked as far as it can be without the model.

    Attributes:
        model: Name of the model; empty for the loaded one.
        prompts: The prompts; each gets `choices` replies.
        sampling: The fields of `SamplingParams` that the client gave.
        seed: Seed of the client, or a fresh one.
        choices: Replies to each prompt.
        stream: Whether the reply is sent while it is written.
        include_usage: Whether a stream ends with the counters, as OpenAI's clients may ask.
        tools: Tools in OpenAI's form.
        one_call: Whether a reply has at most one tool call.
        shape: Format of the answer; a tool call that the client insists on is a format too. None for any text.
        top_log_probs: See `GenerationRequest.top_log_probs`.
        effort: How much to think: one of OpenAI's values, or "on"; empty leaves it to the model.
        thinking_tokens: See `GenerationRequest.thinking_tokens`.
        show_thoughts: Whether thoughts are sent besides the answer.
        token_ids: Whether the token ids of each reply are sent.
        seal_thoughts: Whether thoughts are also sent as `encrypted_content`, which a client sends back unread.
        keep_items: Whether a later request may name the items of the reply by their ids.
        repeated: Fields that the response repeats.
        ignored: Names of the request's fields without an effect.
    """

    model: str
    prompts: tuple[Prompt, ...]
    sampling: Mapping[str, Any]
    seed: int
    choices: int = 1
    stream: bool = False
    include_usage: bool = False
    tools: tuple[Mapping[str, Any], ...] = ()
    one_call: bool = False
    shape: AnswerShape | None = None
    top_log_probs: int | None = None
    effort: str = ""
    thinking_tokens: int | None = None
    show_thoughts: bool = True
    token_ids: bool = False
    seal_thoughts: bool = False
    keep_items: bool = False
    repeated: Mapping[str, Any] = field(default_factory=dict)
    ignored: tuple[str, ...] = ()

    @property
    def is_prewarm(self) -> bool:
        """Whether only the prompt is to be read, for the KV cache, as Anthropic's clients ask by a limit of 0 tokens.

        The engine writes one token at least; the client does not get it.
        """
        return self.sampling.get("max_tokens") == 0

    @property
    def replies(self) -> int:
        """Number of replies to all prompts."""
        return len(self.prompts) * self.choices

    @property
    def images(self) -> list[SentImage]:
        """All images of its messages."""
        sent = images_of(message for prompt in self.prompts for message in prompt.messages)
        return [image for image in sent if isinstance(image, SentImage)]

    def without_effect(self, info: ModelInfo | None) -> list[str]:
        """Return the names of fields without an effect, those of images too where the model sees none."""
        unseen = [] if info is None or info.sees else self.images
        return [*self.ignored, *sorted({image.field for image in unseen})]

    def filled(self, info: ModelInfo) -> "ReplyRequest":
        """Return the request with the model's sampling values where the client gave none."""
        return replace(self, sampling=asdict(info.sampling.params) | dict(self.sampling))

    def ids_of(self, choice: "Choice") -> dict[str, Any]:
        """Return the field with the token ids of a reply, named as vLLM does; empty if it is not requested."""
        return {"token_ids": list(choice.last.token_ids)} if self.token_ids else {}

    def request(self, index: int, info: ModelInfo, draft: DraftSettings, partition: str) -> GenerationRequest:
        """Return the request to the engine for one of the replies.

        Args:
            index: Its number among all replies.
            info: The model.
            draft: How it is drafted.
            partition: See `GenerationRequest.partition`.

        Raises:
            ApiError: If the model cannot do what the client asks for.
            InvalidSettingError: If a value is out of range.
        """
        prompt_index, sibling = divmod(index, self.choices)
        prompt = self.prompts[prompt_index]
        if self.tools and info.tool_markers is None and not self.shape:
            raise unsupported("tools", f"{info.name} is a base model, which calls a tool only where it must.")
        last = prompt.messages[-1] if prompt.messages else None
        # Messages before the reply, without a system prompt.
        turns = sum(each.role is not Role.SYSTEM for each in prompt.messages) if prompt.text is None else 1
        # Without a limit of the client, the context is the limit.
        sampling = {"max_tokens": info.context_length} | dict(self.sampling)
        if self.is_prewarm:
            sampling["max_tokens"] = 1
        return GenerationRequest(
            prompt.messages,
            replace(info.sampling.params, **sampling),
            reply_seed(self.seed, turns, sibling),
            draft=draft,
            # A last message of the assistant is continued, unless it ends with a call.
            continue_last=last is not None and last.role is Role.ASSISTANT and not last.tool_calls,
            thinking=self._thinking_choice(info),
            thinking_tokens=self.thinking_tokens,
            text=prompt.text,
            tools=for_template(self.tools) if self.tools else "",
            top_log_probs=self.top_log_probs,
            shape=self.shape,
            partition=partition,
            image_cap=max((each.cap for each in self.images), key=[*ImageCap].index, default=ImageCap.MEDIUM),
        )

    def _thinking_choice(self, info: ModelInfo) -> ThinkingChoice | None:
        """Return the model's choice nearest to the effort; None where it has none, or the client left it open."""
        if not self.effort:
            return None
        choices = [EFFORTS.get(self.effort, ThinkingChoice.ON)]
        if choices != [ThinkingChoice.OFF]:
            # A model that thinks has a switch or levels.
            choices += [ThinkingChoice.ON, ThinkingChoice.MEDIUM]
        return next((choice for choice in choices if choice in info.thinking), None)


@dataclass(slots=True)
class Choice:
    """One reply to a request, while it is written and when it has ended.

    Attributes:
        index: Its number among all replies to the request.
        seed: Seed of this reply.
        thought: Its thought; empty while it is written.
        answer: Its answer, without calls; empty while it is written.
        tokens: Tokens of the reply, if log-probabilities are requested; empty otherwise.
        calls: Its calls of tools; empty while it is written.
        thought_tokens: Number of tokens of the thought, with its markers.
        end: End of the reply; None while it is written.
    """

    index: int
    seed: int
    thought: str = ""
    answer: str = ""
    tokens: list[TokenEvent] = field(default_factory=list)
    calls: tuple[ToolCall, ...] = ()
    thought_tokens: int = 0
    end: ReplyEnd | None = None

    @property
    def last(self) -> ReplyEnd:
        """Its last event. Only a reply that has ended has one."""
        assert self.end is not None
        return self.end

    @property
    def finish_reason(self) -> FinishReason:
        return self.last.finish_reason

    def named_calls(self, reply_id: str) -> list[tuple[str, ToolCall]]:
        """Return its calls with their ids for a client: the model's own, or nine letters and digits."""
        return [(call.call_id or short_id(f"{reply_id}/{self.index}/{at}"), call) for at, call in enumerate(self.calls)]

    def listed(self) -> list[TokenEvent]:
        """Return the tokens whose text the client gets: not a final EOS, and not those that a stop string cut off."""
        count = len(self.last.token_ids) - (self.finish_reason is FinishReason.EOS)
        return [token for token in self.tokens if token.index < count]


@dataclass(frozen=True, slots=True)
class Delta:
    """The new text of a reply, for a stream.

    Attributes:
        index: Index of the reply.
        thought: More of its thought.
        answer: More of its answer.
        tokens: The tokens of this text, roughly, if log-probabilities are requested.
    """

    index: int
    thought: str = ""
    answer: str = ""
    tokens: tuple[TokenEvent, ...] = ()


Part = PrefillProgress | Delta | tuple[Choice, Delta]
"""One part of the replies: how far a prompt is read, more text of a reply, or a reply that has ended with its last
text.
"""


class ReplyParts:
    """Makes the parts of one reply from the engine's events.

    The engine splits the text of each token into pieces: thought, answer, and the marks around a thought. Only at the
    end is it certain what was a thought and what a call; what a stream has sent by then stays.

    Args:
        index: Index of the reply among those to the request.
        request: The request.
        seed: Seed of the reply.
    """

    def __init__(self, index: int, request: ReplyRequest, seed: int) -> None:
        self._request = request
        self._choice = Choice(index, seed)
        # With both, the answer may be the JSON of a call, so its text is not sent before the end.
        self._may_be_call = request.shape is not None and bool(request.tools)
        # Thought and answer that were sent, and whether a mark has ended the thought since.
        self._sent_thought = ""
        self._sent_answer = ""
        self._thought_ended = False
        # Number of tokens whose log-probabilities were sent.
        self._sent_tokens = 0
        # Offset in the reply's text at which each token begins, and the end of the last one.
        self._token_starts = [0]
        # Ranges of the reply's text that are thoughts or their marks.
        self._thought_ranges = list[tuple[int, int]]()
        # Characters of all pieces so far; the pieces may be behind the tokens.
        self._length = 0

    def take_events(self, batch: Sequence[GenerationEvent]) -> list[Part]:
        """Return the parts for events of the reply, in order; the last batch ends with a `ReplyEnd`."""
        # Progress begins a stream, so there is none while an image may still be refused.
        progress = [event for event in batch if isinstance(event, PrefillProgress) and not event.images]
        tokens = [event for event in batch if isinstance(event, TokenEvent) and not self._request.is_prewarm]
        if self._request.top_log_probs is not None:
            self._choice.tokens += tokens
        # What the pieces of these tokens add to the thought and to the answer. Each piece serves twice: its text goes
        # to the stream, and `_finish` counts the tokens of the thought by its range.
        thought = ""
        answer = ""
        for token in tokens:
            # Tokens and pieces are counted apart: a piece may wait for a later token.
            self._token_starts.append(self._token_starts[-1] + len(token.text))
            for piece in token.pieces:
                start = self._length
                self._length += len(piece.text)
                if piece.is_thought or piece.is_mark:
                    self._thought_ranges.append((start, self._length))
                if piece.is_mark:
                    # The mark that opens the first thought ends none.
                    self._thought_ended = bool(self._sent_thought + thought)
                elif piece.is_thought:
                    # Two thoughts are one text for a client.
                    thought += f"\n\n{piece.text}" if self._thought_ended else piece.text
                    self._thought_ended = False
                else:
                    answer += piece.text
        if self._may_be_call:
            # The end shows what it is.
            thought = ""
            answer = ""
        self._sent_thought += thought
        self._sent_answer += answer
        if isinstance(end := batch[-1], ReplyEnd):
            if self._request.is_prewarm:
                end = replace(end, token_ids=(), finish_reason=FinishReason.LENGTH, tool_calls=(), told=NOTHING_TOLD)
            return [*progress, self._finish(end, thought, answer)]
        to_send = self._tokens_with_text() if thought or answer else ()
        self._sent_tokens += len(to_send)
        return [*progress, self._delta(thought, answer, to_send)]

    def _tokens_with_text(self) -> Sequence[TokenEvent]:
        """Return the tokens to send, without the last ones that have no text yet: one may be the end of the reply."""
        count = len(self._choice.tokens)
        while count > self._sent_tokens and not self._choice.tokens[count - 1].text:
            count -= 1
        return self._choice.tokens[self._sent_tokens : count]

    def _finish(self, end: ReplyEnd, thought: str, answer: str) -> Part:
        """Return the complete reply and its last text: `thought` and `answer` of the last events, and what is left.

        Both count as sent already (`_sent_thought`, `_sent_answer`), so `_rest` is what comes after them.
        """
        choice = self._choice
        parts = end.told
        choice.end = end
        choice.thought = parts.thought
        choice.answer = parts.answer
        if choice.thought:
            # A token belongs to the thought if its text begins in one of the ranges.
            starts = self._token_starts[: len(end.token_ids)]
            for first, last in self._thought_ranges:
                choice.thought_tokens += bisect_left(starts, last) - bisect_left(starts, first)
        choice.calls = end.tool_calls[:1] if self._request.one_call else end.tool_calls
        if self._may_be_call and (call := call_of(choice.answer, self._request.tools)):
            choice.calls = call
            choice.answer = ""
        tail = self._delta(
            thought + _rest(choice.thought, self._sent_thought),
            answer + _rest(choice.answer, self._sent_answer),
            choice.listed()[self._sent_tokens :],
        )
        if not self._request.show_thoughts:
            choice.thought = ""
        return choice, tail

    def _delta(self, thought: str, answer: str, tokens: Sequence[TokenEvent]) -> Delta:
        return Delta(self._choice.index, thought if self._request.show_thoughts else "", answer, tuple(tokens))


def _rest(text: str, sent: str) -> str:
    """Return what of a complete text was not sent; empty where it does not begin with what was sent.

    That happens where the end shows that a thought was the answer: what was sent stays as it is.
    """
    return text.removeprefix(sent) if text.startswith(sent) else ""


def drafting_usage(choices: Sequence[Choice]) -> dict[str, Any]:
    """Return the counters of drafting for the replies to a request: the field `rdchat`, our own, in its usage.

    `mode` is that of the first reply. `drafted` and `accepted` count tokens, `target_calls` the decode calls of the
    model, and `cached_tokens` the prompt tokens that were in a KV cache already. `tokens_per_second` leaves out the
    first token; it is null below two tokens. `reply_seeds` are the seeds of the replies: `rdchat ask --seed` with one
    of them gives the same reply.
    """
    each = [choice.last.statistics for choice in choices]
    later = sum(max(one.generated_tokens - 1, 0) for one in each)
    spent_ms = sum(one.decode_ms for one in each)
    return {
        "mode": choices[0].last.mode or "" if choices else "",
        "rounds": sum(one.rounds for one in each),
        "drafted": sum(one.drafted for one in each),
        "accepted": sum(one.accepted for one in each),
        "target_calls": sum(one.target_calls for one in each),
        "tokens_per_second": round(later / spent_ms * 1000, 2) if later and spent_ms else None,
        "cached_tokens": sum(one.cached_prompt_tokens for one in each),
        "reply_seeds": [choice.seed for choice in choices],
    }


def read_common(fields: Fields, stop_field: str, least_tokens: int = 1) -> dict[str, Any]:
    """Read what all interfaces have; return it as fields of `ReplyRequest`.

    Args:
        fields: The request.
        stop_field: Name of the field with the texts that end a reply.
        least_tokens: Lowest limit of the reply's tokens; see `ReplyRequest.is_prewarm` for 0.
    """
    for name in ("messages", "input"):
        fields.ignored += notes_in(fields.values.get(name), name)
    seed = fields.read_integer("seed", -(2**63), 2**64 - 1)
    # As vLLM and Qwen's API name it; the first one that is there counts, and -1 is no limit.
    limits = [fields.read_integer(name, -1, MAX_TOKENS) for name in ("thinking_token_budget", "thinking_budget")]
    return {
        "model": fields.read_text("model", ""),
        "sampling": _read_sampling(fields, least_tokens) | {"stop": fields.stops(stop_field)},
        # Negative seeds besides -1 count from the end of the 64 bits.
        "seed": fresh_seed() if seed in {None, -1} else seed % 2**64,
        "thinking_tokens": next((limit for limit in limits if limit is not None and limit >= 0), None),
        "stream": fields.flag("stream"),
        "token_ids": fields.flag("return_token_ids"),
    }


def _read_sampling(fields: Fields, least_tokens: int) -> dict[str, Any]:
    """Read the sampling values that a client gave, and its limit of tokens, as fields of `SamplingParams`."""
    top_k = fields.read_integer("top_k", -1, MAX_TOKENS)
    given: dict[str, Any] = {name: value for name in SAMPLING_NUMBERS if (value := fields.number(name)) is not None}
    if top_k is not None:
        given["top_k"] = max(top_k, 0)
    if given.get("top_p") == 0:
        given["top_p"] = _BEST_TOKEN
    # The APIs have several names for the longest reply; the first one that is there counts.
    names_of_limit = ("max_completion_tokens", "max_output_tokens", "max_tokens")
    limits = {name: fields.read_integer(name, -1, MAX_TOKENS) for name in names_of_limit}
    for name, each in limits.items():
        if each is not None and -1 < each < least_tokens:
            raise wrong(name, "must be at least 1, or -1 for no limit.")
    # -1 stands for no limit, and for none that was given.
    limit = next((each for each in limits.values() if each is not None), -1)
    for name, value in given.items():
        try:
            SamplingParams(**{name: value})
        except InvalidSettingError as error:
            raise ApiError(400, str(error), name) from error
    return given if limit == -1 else given | {"max_tokens": limit}


def read_thinking(fields: Fields, effort: str) -> str:
    """Return how much to think: `effort`, unless the client switches thinking on or off by another field.

    These fields come from chat templates, and clients of local servers send them.
    """
    template = fields.part("chat_template_kwargs")
    switches = [(fields, "enable_thinking"), (template, "enable_thinking"), (template, "thinking")]
    given = [each.flag(name) for each, name in switches if each.raw_value(name) is not None]
    if False in given:
        return "none"
    return effort or ("on" if given else "")
