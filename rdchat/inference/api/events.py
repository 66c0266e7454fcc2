"""The engine's events and facts: plain frozen data. No MLX and no Qt here."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rdchat.inference.api.model_facts import DrafterFit, HeadKind, TargetMatch
from rdchat.inference.api.reply_statistics import RoundStatistics, Statistics
from rdchat.inference.api.requests import Mode, SamplingDefaults, ThinkingChoice, ToolCall


class FinishReason(StrEnum):
    """Why a reply ended."""

    EOS = "eos"
    LENGTH = "length"
    STOP_STRING = "stop_string"
    CONTEXT_FULL = "context_full"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Name, sizes, precision and device of a loaded model."""

    name: str  # the folder's or hub repository's name, for people
    path: Path  # the model folder
    architecture: str  # mlx-lm's model type, such as `llama`
    dtype: str  # precision the weights are held in: `float32`, `float16`, `bfloat16`, `4bit`, `6bit` and so on
    device: str  # such as `Apple M3 Max` or `CPU`
    context_length: int  # tokens that prompt and reply may have together
    vocabulary_size: int  # rows of the output matrix
    parameters: int  # number of weights
    weights_bytes: int  # bytes they take in memory
    load_ms: float  # time of loading
    warning: str = ""  # a sentence where memory is tight, else empty
    # Choices of thinking; empty where the chat template has no switch.
    thinking: tuple[ThinkingChoice, ...] = ()
    sampling: SamplingDefaults = SamplingDefaults()  # noqa: RUF009  it is frozen
    # Texts that begin and end a tool call in a reply; the second is empty where a call lasts to the reply's end. None
    # where mlx-lm has no parser for the model's calls.
    tool_markers: tuple[str, str] | None = None
    # Markers of thoughts and answers that the model writes with control tokens.
    token_markers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A step of loading a model: `fraction` is from 0 to 1, or None where it is unknown."""

    stage: str
    fraction: float | None


@dataclass(frozen=True, slots=True)
class RoundTree:
    """The prefix tree of one round, as `DraftSettings.trace` asks for it; nodes are numbered parents first."""

    tokens: tuple[int, ...]  # token id of each node, the root first
    parents: tuple[int, ...]  # index of each node's parent; -1 for the root
    drafters: tuple[str, ...]  # who proposed each node: `speculative`, `drafter` or `lookup`; empty for the root
    # The target's log-probability of each node after its parent, before temperature and filters; 0 for the root.
    log_probs: tuple[float, ...]
    path: tuple[int, ...]  # accepted nodes, the root first
    correction: int  # the token that the target chose after the last of them
    texts: tuple[str, ...] = ()  # text of each node's token
    correction_text: str = ""  # text of the correction
    correction_log_prob: float = 0.0  # the target's log-probability of the correction


@dataclass(frozen=True, slots=True)
class PrefillProgress:
    """Prompt tokens processed so far, cached ones included, of `total`.

    `in_thought`: the prompt opens a thought, which the reply begins with.
    """

    request_id: int
    processed: int
    total: int
    cached: int
    in_thought: bool = False


@dataclass(frozen=True, slots=True)
class LikelyToken:
    """A token that the target could have chosen, with its chance before temperature and filters."""

    token_id: int  # its id
    data: bytes  # its text in UTF-8: perhaps only a part of a character
    log_prob: float  # natural logarithm of its probability


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of the reply."""

    request_id: int  # of the reply
    index: int  # position in the reply, from 0
    token_id: int  # its id
    # Characters that became final with this token. It may be empty (half a character, the start of a stop string), and
    # it may hold characters of earlier tokens.
    text: str
    drafter: str = ""  # who drafted it: `speculative`, `drafter` or `lookup`; empty for the target's own
    position: int = 0  # its place in the draft, from 1; 0 for the target's own
    # Statistics of the round that ends with this token; None inside a round and in plain decoding.
    round: RoundStatistics | None = None
    # The round's prefix tree, with the round's last token, where the request asks for a trace.
    tree: RoundTree | None = None
    # The target's log-probability of the token before temperature and filters, where the request asks for a trace or
    # for `top_log_probs`; otherwise None.
    log_prob: float | None = None
    # The most likely tokens at its place, the most likely first, as many as `top_log_probs` says. The token itself need
    # not be among them.
    alternatives: tuple[LikelyToken, ...] = ()
    data: bytes = (
        b""  # the token's own text in UTF-8, as `LikelyToken.data`, where the request asks for `top_log_probs`
    )
    # Where in the reply's text control tokens stand whose place was found with this token. Their text may come later.
    control_offsets: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyEnd:
    """The last event of every reply that ran."""

    request_id: int  # of the reply
    text: str  # the whole text of the reply, without what a stop string cuts and without half characters at the end
    token_ids: tuple[int, ...]  # its tokens: a final EOS included, what a stop string cuts excluded
    trailing_text: str  # the end of `text` that no `TokenEvent` carried
    finish_reason: FinishReason  # why it ended
    statistics: Statistics  # its counters
    mode: Mode = Mode.OFF  # the drafting mode that ran
    # A sentence: why it is not the mode asked for, or why a drafter was left out of the rest of the reply. None where
    # neither happened.
    mode_reason: str | None = None
    drafter: str | None = None  # path or name of what drafted; None where nothing did
    control_offsets: tuple[int, ...] = ()  # where in `text` control tokens stand; see `ChatMessage.own_control`
    kind: HeadKind | None = None  # of the head that drafted, or in mode `auto` was there to draft; None without
    # Tool calls in the text behind a thought, in order. Only a request with tools has them; a call that cannot be
    # parsed stays text.
    tool_calls: tuple[ToolCall, ...] = ()
    content: str = ""  # `text` without these calls and their markers
    stop: str = ""  # the stop string before which it ended; empty where none did
    content_control_offsets: tuple[int, ...] = ()  # where in `content` control tokens stand


@dataclass(frozen=True, slots=True)
class PrefixCacheFacts:
    """The KV caches of conversations that the engine keeps, to read only what is new in a prompt."""

    count: int  # number of conversations
    held_bytes: int  # their memory
    limit_bytes: int  # the most that is kept; one conversation is kept whatever its size


@dataclass(frozen=True, slots=True)
class ModeOption:
    """Availability of a drafting mode for the loaded model."""

    mode: Mode  # the mode
    available: bool  # whether it can run now
    reason: str = ""  # a sentence that says why not, or what limits it; empty where there is nothing to say
    source: str = ""  # what would draft: a path or a name; empty where there is none
    command: str = ""  # a shell command that makes it available; empty where there is none
    # Whether beams of the mode make a tree; else a draft is a single path, whatever the number of beams.
    trees: bool = True
    kind: HeadKind | None = None  # of the head that drafts; None where none does
    match: TargetMatch | None = None  # how sure it is that the head was made for the model


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """The drafting modes of the loaded model under some settings."""

    model: Path  # path of the loaded model
    modes: tuple[ModeOption, ...]  # one for each mode
    # Whether the drafters asked about fit the model; perhaps only the first of them.
    drafters: tuple[DrafterFit, ...] = ()


GenerationEvent = PrefillProgress | TokenEvent | ReplyEnd
