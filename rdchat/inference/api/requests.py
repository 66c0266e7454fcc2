"""Requests to the engine: messages, sampling, draft settings, and the shape that an answer must have.

A shape is a JSON schema, a regular expression or a grammar (`AnswerShape`); `BeamShape` and `DraftSettings.shape` are
the size of a draft. Plain frozen data, checked when it is made; no MLX and no Qt here.
"""

import hashlib
import json
import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import NamedTuple, Protocol, runtime_checkable

from rdchat.errors import InvalidSettingError
from rdchat.files import is_nested_deeper
from rdchat.inference.api.messages import ChatMessage, ImageCap, Role, parsed_json
from rdchat.wording import counted

SHAPE_HINT = "Make it smaller or simpler."
# The largest schema, expression or grammar.
MAX_SOURCE_BYTES = 256 * 2**10

# Levels of a schema's JSON.
MAX_NESTED = 64
# Tokens that a draft model or prompt lookup drafts in a round.
MAX_DRAFT_TOKENS = 64
# Beam width times beam length; verifying more costs more memory than a draft is worth.
MAX_BEAM_ROWS = 256
# Likely tokens that are listed with each token of a reply.
MAX_LOG_PROBS = 20

EARLIER_REPLIES = "replies"
"""Names the source of a token that prompt lookup found in an earlier reply; other sources have the names of modes."""
SHAPE = "shape"
"""Names the source of a token that the answer's shape forces."""
NGRAMS = "phrases"
"""Names the source of a token from the n-gram table; stored replies have this name."""


class ShapeKind(StrEnum):
    """How a shape is written down.

    Attributes:
        JSON: Any JSON object.
        SCHEMA: A JSON schema.
        REGEX: A regular expression for the whole answer.
        GRAMMAR: A grammar in llguidance's dialect of Lark.
    """

    JSON = "json"
    SCHEMA = "schema"
    REGEX = "regex"
    GRAMMAR = "grammar"


@dataclass(frozen=True, slots=True)
class AnswerShape:
    """The shape of an answer; its text has this shape if the reply ends by itself.

    Attributes:
        source: The schema, expression or grammar; empty for `JSON`.
        unenforced: JSON object: the schemas that a finished answer is checked with, because `source` does not enforce
            them completely. The keys are the names of the tools whose arguments they describe; the answer itself has
            an empty key. Without a check the text is empty.
        left_out: Keywords that `source` does not enforce, by the name of their tool.

    Raises:
        InvalidSettingError: If the source is too large, empty, or no JSON where it must be.
    """

    kind: ShapeKind
    source: str = ""
    unenforced: str = ""
    left_out: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        what = self.label
        if len(self.source.encode("utf-8", "replace")) > MAX_SOURCE_BYTES:
            raise InvalidSettingError(f"The {what} is larger than {MAX_SOURCE_BYTES // 2**10} kB.")
        if self.kind is not ShapeKind.JSON and not self.source.strip():
            raise InvalidSettingError(f"The {what} is empty.")
        if self.kind is ShapeKind.SCHEMA:
            _check_schema(self.source)

    @property
    def label(self) -> str:
        """Its name for people."""
        names = {ShapeKind.SCHEMA: "JSON schema", ShapeKind.REGEX: "regular expression", ShapeKind.GRAMMAR: "grammar"}
        return names.get(self.kind, "shape")


def _check_schema(source: str) -> None:
    try:
        schema = json.loads(source)
    except RecursionError:
        raise InvalidSettingError("The JSON schema is nested too deeply.") from None
    except ValueError as error:
        raise InvalidSettingError("The JSON schema is not JSON yet.", f"{error}.") from error
    if not isinstance(schema, dict):
        raise InvalidSettingError("The JSON schema is not a JSON object.")
    if is_nested_deeper(schema, MAX_NESTED):
        raise InvalidSettingError(f"The JSON schema is nested deeper than {MAX_NESTED} levels.")


def require(holds: bool, name: str, value: object, allowed: str) -> None:
    """Refuse a setting that is out of range.

    Args:
        holds: Whether it is in range. Comparisons with NaN are false, so NaN is refused.
        name: Its name for people.
        value: Its value.
        allowed: The range, in words that follow "it must be".

    Raises:
        InvalidSettingError: If `holds` is false.
    """
    if not holds:
        raise InvalidSettingError(f"{name} {value} is out of range: it must be {allowed}.")


def check_seed(seed: int) -> None:
    """Refuse a seed that is not a 64-bit number; see `require`."""
    require(0 <= seed < 2**64, "seed", seed, "a whole number from 0 to 2**64 - 1")


def check_draft_tokens(draft_tokens: int) -> None:
    """Refuse a draft that is too long, or is empty; see `require`."""
    require(1 <= draft_tokens <= MAX_DRAFT_TOKENS, "draft-tokens", draft_tokens, f"from 1 to {MAX_DRAFT_TOKENS}")


class Mode(StrEnum):
    """How the next tokens are proposed.

    `off` is plain decoding; a draft model (`speculative`), a drafter head (`drafter`) or prompt lookup
    (`lookup`) proposes tokens that the target verifies; `auto` chooses the fastest in each round.
    """

    AUTO = "auto"
    OFF = "off"
    SPECULATIVE = "speculative"
    DRAFTER = "drafter"
    LOOKUP = "lookup"

    @property
    def label(self) -> str:
        """Its name for people."""
        return DRAFTERS[self].label if self in DRAFTERS else self.value.capitalize()

    @property
    def option(self) -> str:
        """Its name in the terminal."""
        return self.label.lower().replace(" ", "-")

    @classmethod
    def _missing_(cls, value: object) -> "Mode | None":
        """Find a mode by its name in the terminal; the values are what chats and settings store."""
        return next((mode for mode in cls if mode.option == value), None)

    def uses(self, setting: str) -> bool:
        """Return whether the mode follows one of the `DraftSettings`; `auto` chooses the sizes itself."""
        if self is Mode.AUTO:
            return any(setting == drafter.option for drafter in DRAFTERS.values())
        drafter = DRAFTERS.get(self)
        return drafter is not None and setting in (drafter.option, *drafter.sizes, *drafter.more)


@dataclass(frozen=True, slots=True)
class DrafterFacts:
    """The names and settings of a kind of drafter.

    Attributes:
        label: Name of its mode.
        noun: Its name in a sentence.
        option: The draft setting with its folder or hub id; empty without one.
        sizes: The draft settings for the size of its drafts.
        more: Its other draft settings.
    """

    label: str
    noun: str
    option: str = ""
    sizes: tuple[str, ...] = ("draft_tokens",)
    more: tuple[str, ...] = ()

    def draft_size(self, width: int, length: int) -> str:
        """Return the size of a draft of so many beams, of so many tokens with the root, for people.

        Only a drafter head has beams: for other drafters it is the number of tokens without the root.
        """
        return draft_size(width, length) if len(self.sizes) > 1 else draft_size(length - 1)


# `Drafters.prepare_job` in `inference/drafters.py` has the other half.
DRAFTERS = {
    Mode.SPECULATIVE: DrafterFacts("Draft model", "the draft model", "draft_model"),
    Mode.DRAFTER: DrafterFacts("Drafter", "the drafter", "drafter", ("beam_width", "beam_length"), ("lookup_branch",)),
    Mode.LOOKUP: DrafterFacts("Prompt lookup", "prompt lookup"),
}


def draft_size(*sizes: int) -> str:
    """Return the size of a draft for people.

    Args:
        sizes: Beam width and beam length, which give "8 beams of 2 tokens"; a number of draft tokens, which gives
            "4 tokens"; or nothing, which gives an empty text. A beam's first token is the model's own choice.
    """
    nouns = ("beam", "token")[2 - len(sizes) :]
    return " of ".join(counted(size, noun) for size, noun in zip(sizes, nouns, strict=True))


class Dtype(StrEnum):
    """Precision of a model's weights; `auto` is the precision that the model is stored in, and float32 on a CPU."""

    AUTO = "auto"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    EIGHT_BIT = "8bit"
    FOUR_BIT = "4bit"


class ThinkingChoice(StrEnum):
    """Whether or how much a model thinks before it answers, where its chat template has a switch for it."""

    OFF = "off"
    ON = "on"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class SamplingNumber(NamedTuple):
    """A value that chooses a token: its name for people, and its lowest and highest value."""

    label: str
    low: float = 0
    high: float = math.inf


SAMPLING_NUMBERS = {
    "temperature": SamplingNumber("temperature", 0, 10),
    "top_p": SamplingNumber("top-p", 0, 1),
    "top_k": SamplingNumber("top-k"),
    "min_p": SamplingNumber("min-p", 0, 1),
    "repetition_penalty": SamplingNumber("repetition penalty", 0.1, 10),
    "presence_penalty": SamplingNumber("presence penalty", -2, 2),
    "frequency_penalty": SamplingNumber("frequency penalty", -2, 2),
}
"""By the name in `SamplingParams`: what models recommend, and what requests may have.

`SamplingParams` refuses a top-p of 0 too."""


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is chosen from the model's distribution; the defaults serve the app and the command line alike.

    Attributes:
        temperature: Divides the log-probabilities; 0, and anything below 0.0001, always takes the most likely token.
        top_p: Keep the smallest set of most likely tokens whose probabilities sum to at least this; 1 keeps all.
        top_k: Keep this many most likely tokens; 0 keeps all.
        min_p: Keep tokens at least this many times as likely as the most likely; 0 keeps all.
        repetition_penalty: Divides positive and multiplies negative logits of tokens seen before (Keskar et al. 2019,
            arXiv 1909.05858); 1 changes nothing.
        presence_penalty: Subtracted once from the logits of tokens that the reply already has, as in OpenAI's API. 0
            changes nothing; below 0 repetition becomes likelier.
        frequency_penalty: The same, subtracted for each time that the reply has the token.
        max_tokens: Limit of the reply's tokens.
        stop: The reply ends just before the first of these strings.

    Raises:
        InvalidSettingError: If a value is out of range.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken; temperatures below 1e-4 have the same effect as 0."""
        return self.temperature < 1e-4

    def __post_init__(self) -> None:
        # These two have ranges that the table's words do not fit.
        require(0 < self.top_p <= 1, "top-p", self.top_p, "above 0 and at most 1")
        require(self.top_k >= 0, "top-k", self.top_k, "0 (off) or a positive whole number")
        for name, number in SAMPLING_NUMBERS.items():
            value = getattr(self, name)
            require(number.low <= value <= number.high, number.label, value, f"from {number.low:g} to {number.high:g}")
        require(self.max_tokens >= 1, "max-tokens", self.max_tokens, "at least 1")
        require(all(self.stop), "stop", "''", "a string that is not empty")


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """The sampling of one model where the person chose none.

    Attributes:
        params: The values.
        from_model: Names of those that the model's own generation_config.json gives.
        small: Whether the model is so small that its temperature is low unless that file gives one.
    """

    params: SamplingParams = SamplingParams()
    from_model: frozenset[str] = frozenset()
    small: bool = False

    def source(self, name: str) -> str:
        """Return the source of a value, for people; empty if it is the same for every model."""
        if name in self.from_model:
            return "From the model"
        return "For a small model" if self.small and name == "temperature" else ""


@dataclass(frozen=True, slots=True)
class BeamShape:
    """Width and length of a drafter head's beams; the length counts the root, so `length - 1` tokens are drafted.

    Raises:
        InvalidSettingError: If they are out of range.
    """

    width: int
    length: int

    def __post_init__(self) -> None:
        require(self.width >= 1, "beam-width", self.width, "at least 1")
        require(self.length >= 2, "beam-length", self.length, "at least 2")
        rows = self.width * self.length
        require(rows <= MAX_BEAM_ROWS, "beam-width times beam-length", rows, f"at most {MAX_BEAM_ROWS}")


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """How a reply is drafted. It never changes the text of the reply.

    Attributes:
        mode: Who proposes tokens.
        draft_model: Model folder or hub id of the draft model, for `speculative`, and for `auto` to choose from.
        draft_tokens: Tokens that a draft model proposes in a round; about as many for prompt lookup.
        drafter: Folder or hub id of the drafter head, for `drafter` and `auto`; None finds the one made for the target.
        beam_width: Beams of the drafter head.
        beam_length: Tokens of a beam, with the first one, which the target has already chosen.
        lookup_branch: Whether the drafter head's tree gets a branch from prompt lookup.
        profile: Evaluate after each stage, so that the ledger's times are exact. This makes decoding slower.
        trace: Add each round's prefix tree and each token's log-probability to the events.

    Raises:
        InvalidSettingError: If a value is out of range.
    """

    mode: Mode = Mode.AUTO
    draft_model: str | None = None
    draft_tokens: int = 4
    drafter: str | None = None
    beam_width: int = 4
    beam_length: int = 5
    lookup_branch: bool = True
    profile: bool = False
    trace: bool = False

    def __post_init__(self) -> None:
        check_draft_tokens(self.draft_tokens)
        # Made to be checked.
        BeamShape(self.beam_width, self.beam_length)

    @property
    def shape(self) -> BeamShape:
        """Width and length of the drafter head's beams."""
        return BeamShape(self.beam_width, self.beam_length)

    @property
    def sizes(self) -> dict[str, int]:
        """The settings for the size of the mode's drafts; empty for `off` and `auto`."""
        drafter = DRAFTERS.get(self.mode)
        return {name: getattr(self, name) for name in drafter.sizes} if drafter else {}

    def named(self, mode: Mode) -> str | None:
        """Return the folder or hub id that is set for a mode's drafter; None without any."""
        option = DRAFTERS[mode].option if mode in DRAFTERS else ""
        name: str | None = getattr(self, option) if option else None
        return name


class LookupMatch(NamedTuple):
    """A position in an earlier text that follows the same tokens as the end of the present text.

    Attributes:
        length: How many tokens before it are the same as those at the end of the text; at most
            `lookup_estimate.LONGEST_MATCH`.
        following: Tokens that followed; at most `lookup_index.DEEPEST`.
        earlier: Whether it is in an earlier reply.
    """

    length: int
    following: Sequence[int]
    earlier: bool = False


class NodeSource(IntEnum):
    """Where a node of a draft comes from.

    Attributes:
        DRAFTER: The drafter that the draft names.
        CHAT: Prompt lookup in this chat.
        REPLIES: Prompt lookup in earlier replies.
        SHAPE: The only text that the answer format, or the limit of a thought, allows.
        NGRAMS: The n-gram table: what often follows the last tokens, in answers that come with rdchat.
    """

    DRAFTER = 0
    CHAT = 1
    REPLIES = 2
    SHAPE = 3
    NGRAMS = 4

    def named(self, drafter: str) -> str:
        """Return the name of a token's source, given that of the draft's drafter."""
        return (drafter, Mode.LOOKUP.value, EARLIER_REPLIES, SHAPE, NGRAMS)[self]


@runtime_checkable
class EarlierReplies(Protocol):
    """Earlier replies that drafts may come from; `drafting.reply_index` implements it."""

    @property
    def memory_bytes(self) -> int:
        """Approximate memory that they take."""

    def matches(self, ending: Sequence[int]) -> list[LookupMatch]:
        """Return positions where the last tokens of `ending` stood."""


@dataclass(frozen=True, slots=True)
class CacheFolder:
    """Where the KV caches of a chat are kept on disk.

    Attributes:
        path: The chat's folder; where it is missing, nothing is kept.
        limit_bytes: Size limit of the caches of all chats.
        shared: The folder of the chat's project, where what all chats of it begin with is kept; None for none.
    """

    path: Path
    limit_bytes: int
    shared: Path | None = None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """All that determines a reply.

    Attributes:
        messages: The conversation so far. The last message is the assistant's where `continue_last` is set. Empty where
            `text` is given.
        sampling: How tokens are chosen.
        seed: The 64-bit reply seed (`reply_seed`). The text is a function of messages, tools, text, shape, thinking,
            sampling and seed.
        request_id: Chosen by the sender; every event of the reply carries it.
        continue_last: Continue the last message, which is an assistant's, instead of answering it.
        draft: How the reply is drafted.
        thinking: Whether or how much the model thinks; None leaves it to the chat template.
        earlier: Earlier replies to draft from; None for none.
        text: A text to continue, without a chat template. Words that look like a control token are plain text.
        tools: JSON list of the tools that the model may call, in OpenAI's form; empty for none.
        top_log_probs: How many of the most likely tokens each `TokenEvent` lists, 0 to `MAX_LOG_PROBS`; with 0 it has
            only the log-probability of its own token. None for neither.
        shape: Format of the answer; None for any text.
        partition: Whose KV caches the reply may read and leave behind; "" is the window. They are never shared between
            two owners, since the time of a reply would show one what the other requested.
        thinking_tokens: The most tokens of a thought: there it is closed by the model's own marker, and the answer
            begins; 0 for an answer at once. None for no limit.
        keep: Where its KV cache is kept on disk; None for nowhere.
        shared: What the messages of all chats of a project begin with. Its last message may be only the beginning of
            the message in its place in `messages`. `ChatSession` finds by it the tokens that are kept for the project.
            Empty outside of projects.
        image_cap: How many tokens an image may take.
        leaves_cache: Whether its KV cache is kept in memory, and may come from there. Otherwise those of chats stay as
            they are.
    """

    messages: tuple[ChatMessage, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    request_id: int = 0
    continue_last: bool = False
    draft: DraftSettings = field(default_factory=DraftSettings)
    thinking: ThinkingChoice | None = None
    earlier: EarlierReplies | None = None
    text: str | None = None
    tools: str = ""
    top_log_probs: int | None = None
    shape: AnswerShape | None = None
    partition: str = ""
    thinking_tokens: int | None = None
    keep: CacheFolder | None = None
    shared: tuple[ChatMessage, ...] = ()
    image_cap: ImageCap = ImageCap.MEDIUM
    leaves_cache: bool = True

    def __post_init__(self) -> None:
        check_thinking_tokens(self.thinking_tokens)
        if self.text is None:
            self._check_messages()
        else:
            require(not self.messages and not self.tools, "text", "given with messages or tools", "alone")
            if not self.text:
                raise InvalidSettingError("The prompt is empty.", "Give a text to continue.")
        if self.top_log_probs is not None:
            allowed = f"from 0 to {MAX_LOG_PROBS}"
            require(0 <= self.top_log_probs <= MAX_LOG_PROBS, "top-log-probs", self.top_log_probs, allowed)
        tools = parsed_json(self.tools) if self.tools else []
        if not isinstance(tools, list) or not all(isinstance(tool, dict) for tool in tools):
            raise InvalidSettingError("The tools of a request are not a JSON list of objects.")
        check_seed(self.seed)

    def _check_messages(self) -> None:
        if not self.messages:
            raise InvalidSettingError("A request needs at least one message.")
        if self.continue_last and self.messages[-1].role is not Role.ASSISTANT:
            raise InvalidSettingError("Only a message of the assistant can be continued.")


def check_thinking_tokens(tokens: int | None) -> None:
    """Raise InvalidSettingError if it is no limit of a thought."""
    if tokens is not None:
        require(tokens >= 0, "thinking-tokens", tokens, "at least 0")


def fresh_seed() -> int:
    """Return a random 64-bit seed."""
    return secrets.randbits(64)


def reply_seed(seed: int, turn: int, sibling: int) -> int:
    """Mix a seed with the position of a reply in its conversation, so that each regenerated sibling differs.

    Args:
        seed: The person's seed, or `fresh_seed()`.
        turn: Number of messages before the reply on its path.
        sibling: Number of earlier alternatives of the same reply.

    Returns:
        A 64-bit reply seed.
    """
    digest = hashlib.blake2b(f"{seed}/{turn}/{sibling}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
