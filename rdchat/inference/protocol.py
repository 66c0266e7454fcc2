"""What crosses from the engine to everything above it: plain frozen data and the `TokenIterator` protocol.

No MLX and no Qt here: the window imports this module before the engine exists, and a later version may run the engine
in another process without a change above this line.
"""

import hashlib
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from rdchat.errors import InvalidSettingError


class Mode(StrEnum):
    """How the next tokens are proposed.

    `off` is plain decoding; a draft model (`speculative`), a recurrent drafter (`recurrent`) or prompt lookup
    (`lookup`) proposes tokens that the target verifies.
    """

    OFF = "off"
    SPECULATIVE = "speculative"
    RECURRENT = "recurrent"
    LOOKUP = "lookup"


class Dtype(StrEnum):
    """In which precision a model's weights are held; `auto` lets the device decide."""

    AUTO = "auto"
    FLOAT16 = "float16"
    BFLOAT16 = "bfloat16"
    FLOAT32 = "float32"
    EIGHT_BIT = "8bit"
    FOUR_BIT = "4bit"


class FinishReason(StrEnum):
    """Why a reply ended."""

    EOS = "eos"
    LENGTH = "length"
    STOP_STRING = "stop_string"
    CONTEXT_FULL = "context_full"
    CANCELLED = "cancelled"


class Role(StrEnum):
    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How a token is chosen from the model's distribution; the defaults serve the app and the command line alike.

    Attributes:
        temperature: Divides the log-probabilities; 0, and anything below 0.0001, always takes the likeliest token.
        top_p: Keep the smallest set of likeliest tokens whose probabilities sum to at least this; 1 keeps all.
        top_k: Keep this many likeliest tokens; 0 keeps all.
        min_p: Keep tokens at least this many times as likely as the likeliest; 0 keeps all.
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
        """Whether the likeliest token is always taken; a temperature below 1e-4 leaves nothing to chance either."""
        return self.temperature < 1e-4

    def __post_init__(self) -> None:
        _require(0 <= self.temperature <= 10, "temperature", self.temperature, "from 0 to 10")
        _require(0 < self.top_p <= 1, "top-p", self.top_p, "above 0 and at most 1")
        _require(self.top_k >= 0, "top-k", self.top_k, "0 (off) or a positive whole number")
        _require(0 <= self.min_p <= 1, "min-p", self.min_p, "from 0 to 1")
        _require(0.1 <= self.repetition_penalty <= 10, "repetition penalty", self.repetition_penalty, "from 0.1 to 10")
        _require(self.max_tokens >= 1, "max-tokens", self.max_tokens, "at least 1")
        _require(all(self.stop), "stop", "''", "a string that is not empty")


def _require(holds: bool, name: str, value: object, allowed: str) -> None:
    if not holds:  # also where value is NaN: every comparison with it is false
        raise InvalidSettingError(f"{name} {value} is out of range: it must be {allowed}.")


@dataclass(frozen=True, slots=True)
class DraftSettings:
    """How a reply is drafted. None of it changes what the reply says.

    Attributes:
        mode: Who proposes tokens.
        draft_model: Model folder or hub id of the draft model, for `speculative`.
        draft_tokens: The most tokens that a draft model or prompt lookup proposes in a round.
        drafter: Folder of the recurrent drafter, for `recurrent`; None finds the one made for the target.
        beam_width: Beams of the recurrent drafter.
        beam_length: Their length; it counts the token that the target already chose.
        lookup_branch: Whether the recurrent drafter's tree gets a branch from prompt lookup.
        profile: Evaluate at every border between stages, so that the ledger's times are exact. It costs speed.
        trace: Add the whole prefix tree of each round to its events.

    Raises:
        InvalidSettingError: If a value is out of range.
    """

    mode: Mode = Mode.OFF
    draft_model: str | None = None
    draft_tokens: int = 4
    drafter: str | None = None
    beam_width: int = 4
    beam_length: int = 5
    lookup_branch: bool = True
    profile: bool = False
    trace: bool = False

    def __post_init__(self) -> None:
        _require(1 <= self.draft_tokens <= 64, "draft-tokens", self.draft_tokens, "from 1 to 64")
        _require(self.beam_width >= 1, "beam-width", self.beam_width, "at least 1")
        _require(self.beam_length >= 2, "beam-length", self.beam_length, "at least 2")
        rows = self.beam_width * self.beam_length
        _require(rows <= MOST_BEAM_ROWS, "beam-width times beam-length", rows, f"at most {MOST_BEAM_ROWS}")


MOST_BEAM_ROWS = 256  # beam width times beam length: beyond, verifying costs more memory than any draft is worth


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message as the model's chat template sees it."""

    role: Role
    content: str


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
    """

    messages: tuple[ChatMessage, ...]
    sampling: SamplingParams = field(default_factory=SamplingParams)
    seed: int = 0
    request_id: int = 0
    continue_last: bool = False
    draft: DraftSettings = field(default_factory=DraftSettings)

    def __post_init__(self) -> None:
        last = Role.ASSISTANT if self.continue_last else Role.USER
        if not self.messages or self.messages[-1].role is not last:
            raise InvalidSettingError(f"The last message of a request must be the {last.value}'s.")
        if not self.messages[-1].content.strip():
            raise InvalidSettingError("The prompt is empty.", "Type something to ask.")
        _require(0 <= self.seed < 2**64, "seed", self.seed, "a whole number from 0 to 2**64 - 1")


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


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What is known of a loaded model.

    Attributes:
        name: The folder's or hub repository's name, for people.
        path: The model folder.
        architecture: mlx-lm's model type, such as `llama`.
        dtype: Precision the weights are held in: `float32`, `float16`, `bfloat16`, `4bit`, `6bit` and so on.
        device: Such as `Apple M3 Max` or `CPU`.
        context_length: Tokens that prompt and reply may have together.
        vocabulary_size: Rows of the output matrix.
        parameters: Number of weights.
        weights_bytes: Bytes they take in memory.
        load_ms: How long loading took.
    """

    name: str
    path: Path
    architecture: str
    dtype: str
    device: str
    context_length: int
    vocabulary_size: int
    parameters: int
    weights_bytes: int
    load_ms: float


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A step of loading a model: `fraction` is from 0 to 1, or None where it cannot be told."""

    stage: str
    fraction: float | None


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """Host-side time spent in one function or stage; `parent` is empty at the top."""

    name: str
    parent: str
    calls: int
    total_ms: float


@dataclass(frozen=True, slots=True)
class RoundStatistics:
    """Counters of one round.

    Attributes:
        round: Its number, from 1.
        drafted: Depth offered.
        accepted: Drafted tokens accepted.
        emitted: Tokens the round added to the reply.
        verified_nodes: Packed rows, the root included.
    """

    round: int
    drafted: int
    accepted: int
    emitted: int
    verified_nodes: int


@dataclass(frozen=True, slots=True)
class RoundTree:
    """The prefix tree of one round, as `DraftSettings.trace` asks for it; nodes are numbered parents first.

    Attributes:
        tokens: Token id of each node, the root first.
        parents: Index of each node's parent; -1 for the root.
        drafters: Who proposed each node: `speculative`, `recurrent` or `lookup`; empty for the root.
        log_probs: The target's log-probability of each node after its parent, before temperature and filters; 0 for the
            root.
        path: Accepted nodes, the root first.
        correction: The token that the target chose after the last of them.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    drafters: tuple[str, ...]
    log_probs: tuple[float, ...]
    path: tuple[int, ...]
    correction: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """Counters of a reply, so far or whole. Rates are derived here and stored nowhere.

    Attributes:
        prompt_tokens: Tokens of the whole prompt, cached ones included.
        cached_prompt_tokens: Those that were in the KV cache already.
        generated_tokens: Tokens of the reply: the first one and a final EOS included, what a stop string cuts
            excluded.
        prefill_ms: From the start of prefill until the first token is known, or until it was cancelled.
        ttft_ms: From the request until the first token is known.
        decode_ms: From the first token to the last.
        rounds: Target calls of a drafting mode; 0 in plain decoding.
        drafted: Depth offered, summed over rounds.
        accepted: Drafted tokens accepted, summed over rounds.
        target_calls: Decode calls whose output is used; prefill does not count.
        verified_nodes: Packed rows of all rounds, the roots included, padding excluded.
        host_syncs: Times the host waited for the device while decoding.
        drafted_lengths: Rounds by depth offered: entry n counts those that offered n tokens.
        accepted_lengths: Rounds by accepted length: entry n counts those of which n drafted tokens were accepted.
        peak_memory_bytes: The most memory MLX held during the reply.
        context_tokens: Tokens in the context at this moment.
        ledger: Where the time went.
    """

    prompt_tokens: int = 0
    cached_prompt_tokens: int = 0
    generated_tokens: int = 0
    prefill_ms: float = 0.0
    ttft_ms: float = 0.0
    decode_ms: float = 0.0
    rounds: int = 0
    drafted: int = 0
    accepted: int = 0
    target_calls: int = 0
    verified_nodes: int = 0
    host_syncs: int = 0
    drafted_lengths: tuple[int, ...] = ()
    accepted_lengths: tuple[int, ...] = ()
    peak_memory_bytes: int = 0
    context_tokens: int = 0
    ledger: tuple[LedgerEntry, ...] = ()

    @property
    def decode_tps(self) -> float | None:
        """Decoded tokens a second: the first token belongs to prefill; None before there are two."""
        if self.generated_tokens < 2 or self.decode_ms <= 0:
            return None
        return (self.generated_tokens - 1) / self.decode_ms * 1000

    @property
    def prefill_tps(self) -> float | None:
        """Prompt tokens processed a second; cached ones do not count."""
        processed = self.prompt_tokens - self.cached_prompt_tokens
        finished = self.ttft_ms > 0
        return processed / self.prefill_ms * 1000 if finished and self.prefill_ms > 0 and processed > 0 else None

    @property
    def acceptance_rate(self) -> float | None:
        return self.accepted / self.drafted if self.drafted else None

    @property
    def acceptance_by_position(self) -> tuple[float, ...]:
        """Of the rounds that offered a token at a draft position, from the first on, the share that accepted it."""
        offered = [sum(self.drafted_lengths[n:]) for n in range(1, len(self.drafted_lengths))]
        accepted = [sum(self.accepted_lengths[n:]) for n in range(1, len(self.drafted_lengths))]
        return tuple(a / o for a, o in zip(accepted, offered, strict=True) if o)

    @property
    def tokens_per_target_call(self) -> float | None:
        """Decoded tokens for each target call; None before there are two tokens, as for `decode_tps`."""
        if self.generated_tokens < 2 or not self.target_calls:
            return None
        return (self.generated_tokens - 1) / self.target_calls


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Prompt tokens processed so far, cached ones included, of `total`."""

    request_id: int
    processed: int
    total: int
    cached: int


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of the reply.

    Attributes:
        request_id: The request's.
        index: Position in the reply, from 0.
        token_id: Its id.
        text: Characters that became final with it; may be empty (half a character, the start of a stop string),
            and may hold characters of earlier tokens.
        drafter: Who drafted it: `speculative`, `recurrent` or `lookup`; empty for the target's own.
        position: Its place in the draft, from 1; 0 for the target's own.
        round: Statistics of the round that ends with this token; None inside a round and in plain decoding.
        tree: The round's prefix tree, with its last token, where the request asks for it.
    """

    request_id: int
    index: int
    token_id: int
    text: str
    drafter: str = ""
    position: int = 0
    round: RoundStatistics | None = None
    tree: RoundTree | None = None


@dataclass(frozen=True, slots=True)
class ReplyEnd:
    """The last event of every reply that ran.

    Attributes:
        request_id: The request's.
        text: The whole text of the reply; what a stop string cuts, and half characters at the end, are gone.
        token_ids: Its tokens: a final EOS included, what a stop string cuts excluded.
        trailing_text: The end of `text` that no `TokenEvent` carried.
        finish_reason: Why it ended.
        statistics: Its counters.
        mode: The drafting mode that ran.
        mode_reason: A sentence that says why it is not the one asked for; None where it is.
        drafter: Path or name of what drafted; None where nothing did.
    """

    request_id: int
    text: str
    token_ids: tuple[int, ...]
    trailing_text: str
    finish_reason: FinishReason
    statistics: Statistics
    mode: Mode = Mode.OFF
    mode_reason: str | None = None
    drafter: str | None = None


GenerationEvent = PrefillProgress | TokenEvent | ReplyEnd


class TokenIterator(Protocol):
    """A reply being made: yields prefill progress, then tokens one at a time, then one `ReplyEnd`.

    Used from one thread, except for `cancel`. Errors that a person can act on come as `RdchatError` from `__next__`.
    """

    def __iter__(self) -> Iterator[GenerationEvent]: ...

    def __next__(self) -> GenerationEvent: ...

    def update(self, settings: DraftSettings) -> None:
        """Draft by other settings from the next round on, as far as the mode that runs allows.

        Beams and the number of draft tokens change at once; another mode, model or drafter counts from the next reply.
        """

    def cancel(self) -> None:
        """Ask for an early end, from any thread: within a prefill chunk, or two tokens (one round)."""

    def close(self) -> None:
        """End now and leave the cache holding just the committed tokens. Idempotent."""

    @property
    def statistics(self) -> Statistics:
        """The counters so far."""


class Engine(Protocol):
    """What the engine thread drives. Every method but `TokenIterator.cancel` runs on that one thread."""

    def load(self, model: str | None, dtype: Dtype, on_progress: Callable[[LoadProgress], None]) -> ModelInfo:
        """Replace the loaded model. Frees the old one first.

        Args:
            model: A model folder, a hub id in the hub's cache, or None for the default model.
            dtype: Precision of the weights.
            on_progress: Called now and then while it loads.

        Raises:
            RdchatError: What is wrong with the model and what to do. No model is loaded then.
        """

    def generate(self, request: GenerationRequest) -> TokenIterator:
        """Begin a reply. Raises RdchatError where no model is loaded or the conversation does not fit."""

    def unload(self) -> None:
        """Free the model and its memory."""
