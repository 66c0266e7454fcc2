"""Requests to the engine: plain frozen data. No MLX and no Qt here."""

import hashlib
import secrets
from dataclasses import dataclass, field
from enum import StrEnum

from rdchat.errors import InvalidSettingError

MOST_DRAFT_TOKENS = 64  # of a draft model or prompt lookup, in a round
MOST_BEAM_ROWS = 256  # beam width times beam length: beyond, verifying costs more memory than any draft is worth


def require(holds: bool, name: str, value: object, allowed: str) -> None:
    """Refuse a setting that is out of range.

    Args:
        holds: Whether it is in range; false where it is NaN, as every comparison with that is.
        name: Its name for people.
        value: Its value.
        allowed: The range, in words that follow "it must be".

    Raises:
        InvalidSettingError: If `holds` is false.
    """
    if not holds:
        raise InvalidSettingError(f"{name} {value} is out of range: it must be {allowed}.")


def check_seed(seed: int) -> None:
    """Refuse a seed that is no 64-bit number; see `require`."""
    require(0 <= seed < 2**64, "seed", seed, "a whole number from 0 to 2**64 - 1")


def check_draft_tokens(draft_tokens: int) -> None:
    """Refuse a draft that is too long, or empty; see `require`."""
    require(1 <= draft_tokens <= MOST_DRAFT_TOKENS, "draft-tokens", draft_tokens, f"from 1 to {MOST_DRAFT_TOKENS}")


class Mode(StrEnum):
    """How the next tokens are proposed.

    `off` is plain decoding; a draft model (`speculative`), a drafter head (`drafter`) or prompt lookup
    (`lookup`) proposes tokens that the target verifies; `auto` picks, round by round, what costs the least.
    """

    AUTO = "auto"
    OFF = "off"
    SPECULATIVE = "speculative"
    DRAFTER = "drafter"
    LOOKUP = "lookup"

    @classmethod
    def _missing_(cls, value: object) -> "Mode | None":
        """Read the names that older versions wrote; people may go on typing them."""
        return cls.DRAFTER if value == "recurrent" else None

    @property
    def words(self) -> str:
        """Its name for people."""
        return {"speculative": "Draft model", "lookup": "Prompt lookup"}.get(self.value, self.value.capitalize())


class Dtype(StrEnum):
    """In which precision a model's weights are held; `auto` is what a model is stored in, on a CPU float32."""

    AUTO = "auto"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    EIGHT_BIT = "8bit"
    FOUR_BIT = "4bit"


class ThinkingChoice(StrEnum):
    """Whether or how much a model is to think before it answers, where its chat template has a switch for it."""

    OFF = "off"
    ON = "on"
    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is chosen from the model's distribution; the defaults serve the app and the command line alike.

    Attributes:
        temperature: Divides the log-probabilities; 0, and anything below 0.0001, always takes the most likely token.
        top_p: Keep the smallest set of most likely tokens whose probabilities sum to at least this; 1 keeps all.
        top_k: Keep this many most likely tokens; 0 keeps all.
        min_p: Keep tokens at least this many times as likely as the most likely; 0 keeps all.
        repetition_penalty: Divides positive and multiplies negative logits of tokens seen before (Keskar et al.
            2019, arXiv 1909.05858); 1 changes nothing.
        max_tokens: The most tokens a reply may have.
        stop: The reply ends just before the first of these strings.

    Raises:
        InvalidSettingError: If a value is out of range.
    """

    temperature: float = 0.7
    top_p: float = 0.95
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int = 1024
    stop: tuple[str, ...] = ()

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken; a temperature below 1e-4 leaves nothing to chance either."""
        return self.temperature < 1e-4

    def __post_init__(self) -> None:
        require(0 <= self.temperature <= 10, "temperature", self.temperature, "from 0 to 10")
        require(0 < self.top_p <= 1, "top-p", self.top_p, "above 0 and at most 1")
        require(self.top_k >= 0, "top-k", self.top_k, "0 (off) or a positive whole number")
        require(0 <= self.min_p <= 1, "min-p", self.min_p, "from 0 to 1")
        require(0.1 <= self.repetition_penalty <= 10, "repetition penalty", self.repetition_penalty, "from 0.1 to 10")
        require(self.max_tokens >= 1, "max-tokens", self.max_tokens, "at least 1")
        require(all(self.stop), "stop", "''", "a string that is not empty")


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
        require(rows <= MOST_BEAM_ROWS, "beam-width times beam-length", rows, f"at most {MOST_BEAM_ROWS}")


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """How a reply is drafted. None of it changes what the reply says.

    Attributes:
        mode: Who proposes tokens.
        draft_model: Model folder or hub id of the draft model, for `speculative`, and for `auto` to choose from.
        draft_tokens: The most tokens that a draft model or prompt lookup proposes in a round.
        drafter: Folder or hub id of the drafter head, for `drafter` and `auto`; None finds the one made for the target.
        beam_width: Beams of the drafter head.
        beam_length: Their length; it counts the token that the target already chose.
        lookup_branch: Whether the drafter head's tree gets a branch from prompt lookup.
        profile: Evaluate at every border between stages, so that the ledger's times are exact. It costs speed.
        trace: Add the whole prefix tree of each round, and each token's log-probability, to the events.

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
        BeamShape(self.beam_width, self.beam_length)  # refuses what cannot be

    @property
    def shape(self) -> BeamShape:
        """Of the drafter head's beams."""
        return BeamShape(self.beam_width, self.beam_length)


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as the model's chat template sees it.

    Attributes:
        role: Whose it is.
        content: Its text. What spells a control token in it is text.
        own_control: Offsets in `content` of control tokens that the model itself wrote, which stay tokens.
        answer: Where in `content` its answer stands, ends excluded, where the model thought too; None where all of it
            is said. Chat templates that want no thoughts get the answer alone.
    """

    role: Role
    content: str
    own_control: tuple[int, ...] = ()
    answer: tuple[tuple[int, int], ...] | None = None


@dataclass(frozen=True, slots=True)
class GenerationRequest:
    """Everything that decides a reply.

    Attributes:
        messages: The conversation so far; the last one is the user's, or the assistant's own where
            `continue_last` is set.
        sampling: How tokens are chosen.
        seed: The 64-bit reply seed (`reply_seed`). The text is a function of messages, sampling and seed.
        request_id: Chosen by the sender; every event of the reply carries it.
        continue_last: Write on at the end of the last message, an assistant's, instead of answering it.
        draft: How it is drafted.
        thinking: Whether or how much the model is to think; None leaves it to the chat template.
    """

    messages: tuple[ChatMessage, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    request_id: int = 0
    continue_last: bool = False
    draft: DraftSettings = field(default_factory=DraftSettings)
    thinking: ThinkingChoice | None = None

    def __post_init__(self) -> None:
        last = Role.ASSISTANT if self.continue_last else Role.USER
        if not self.messages or self.messages[-1].role is not last:
            raise InvalidSettingError(f"The last message of a request must be the {last.value}'s.")
        if not self.messages[-1].content.strip():
            raise InvalidSettingError("The prompt is empty.", "Type something to ask.")
        check_seed(self.seed)


def fresh_seed() -> int:
    """Return 64 bits of fresh entropy."""
    return secrets.randbits(64)


def reply_seed(seed: int, turn: int, sibling: int) -> int:
    """Mix a seed with the place of a reply in its conversation, so that each regenerated sibling differs.

    Args:
        seed: The person's seed, or `fresh_seed()`.
        turn: Number of messages before the reply on its path.
        sibling: Number of earlier alternatives of the same reply.

    Returns:
        A 64-bit reply seed.
    """
    digest = hashlib.blake2b(f"{seed}/{turn}/{sibling}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")
