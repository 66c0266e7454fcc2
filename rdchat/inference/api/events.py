"""The engine's events and facts: plain frozen data. No MLX and no Qt here."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rdchat.inference.api.drafter_facts import DrafterFit, HeadKind, TargetMatch
from rdchat.inference.api.reply_statistics import RoundStatistics, Statistics
from rdchat.inference.api.requests import Mode, ThinkingChoice


class FinishReason(StrEnum):
    """Why a reply ended."""

    EOS = "eos"
    LENGTH = "length"
    STOP_STRING = "stop_string"
    CONTEXT_FULL = "context_full"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """Name, sizes, precision and device of a loaded model.

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
        load_ms: Time of loading.
        warning: A sentence that says that memory is tight; empty where it is not.
        thinking: What can be chosen of thinking; empty where the chat template has no switch.
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
    warning: str = ""
    thinking: tuple[ThinkingChoice, ...] = ()


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A step of loading a model: `fraction` is from 0 to 1, or None where it cannot be told."""

    stage: str
    fraction: float | None


@dataclass(frozen=True, slots=True)
class RoundTree:
    """The prefix tree of one round, as `DraftSettings.trace` asks for it; nodes are numbered parents first.

    Attributes:
        tokens: Token id of each node, the root first.
        parents: Index of each node's parent; -1 for the root.
        drafters: Who proposed each node: `speculative`, `drafter` or `lookup`; empty for the root.
        log_probs: The target's log-probability of each node after its parent, before temperature and filters; 0 for the
            root.
        path: Accepted nodes, the root first.
        correction: The token that the target chose after the last of them.
        texts: Text of each node's token.
        correction_text: Text of the correction.
        correction_log_prob: The target's log-probability of it.
    """

    tokens: tuple[int, ...]
    parents: tuple[int, ...]
    drafters: tuple[str, ...]
    log_probs: tuple[float, ...]
    path: tuple[int, ...]
    correction: int
    texts: tuple[str, ...] = ()
    correction_text: str = ""
    correction_log_prob: float = 0.0


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
class TokenEvent:
    """One token of the reply.

    Attributes:
        request_id: The request's.
        index: Position in the reply, from 0.
        token_id: Its id.
        text: Characters that became final with it; may be empty (half a character, the start of a stop string),
            and may hold characters of earlier tokens.
        drafter: Who drafted it: `speculative`, `drafter` or `lookup`; empty for the target's own.
        position: Its place in the draft, from 1; 0 for the target's own.
        round: Statistics of the round that ends with this token; None inside a round and in plain decoding.
        tree: The round's prefix tree, with its last token, where the request asks for it.
        log_prob: The target's log-probability of the token, before temperature and filters, where the request asks for
            the tree; None else.
    """

    request_id: int
    index: int
    token_id: int
    text: str
    drafter: str = ""
    position: int = 0
    round: RoundStatistics | None = None
    tree: RoundTree | None = None
    log_prob: float | None = None


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
        mode_reason: A sentence that says why it is not the one asked for, or why a drafter was left out of the rest
            of the reply; None where neither is so.
        drafter: Path or name of what drafted; None where nothing did.
        control_offsets: Where in `text` control tokens stand; see `ChatMessage.own_control`.
        kind: Of the head that drafted, or in mode `auto` was there to draft; None without.
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
    control_offsets: tuple[int, ...] = ()
    kind: HeadKind | None = None


@dataclass(frozen=True, slots=True)
class ModeOption:
    """Availability of a drafting mode for the loaded model.

    Attributes:
        mode: The mode.
        available: Whether it can run now.
        reason: A sentence that says why not, or what limits it; empty where there is nothing to say.
        source: What would draft: a path or a name; empty where there is none.
        command: A shell command that makes it available; empty where there is none.
        kind: Of the head that drafts; None where none does.
        match: How sure it is that the head was made for the model.
        trees: Whether beams of the mode make a tree; else a draft is a single path, however many there are.
    """

    mode: Mode
    available: bool
    reason: str = ""
    source: str = ""
    command: str = ""
    trees: bool = True
    kind: HeadKind | None = None
    match: TargetMatch | None = None


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """The drafting modes of the loaded model under some settings.

    Attributes:
        model: Path of the loaded model.
        modes: One for each mode.
        drafters: Whether those that were asked about fit the model, or the first of them.
    """

    model: Path
    modes: tuple[ModeOption, ...]
    drafters: tuple[DrafterFit, ...] = ()


GenerationEvent = PrefillProgress | TokenEvent | ReplyEnd
