"""The engine's events and facts, and two protocols: `Engine`, and `TokenIterator`, a reply that yields events.

Plain frozen data. No MLX and no Qt here: the window imports this module before the engine exists, and a later version
may run the engine in another process without a change above this line.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from rdchat.errors import ModelError
from rdchat.inference.api.bench_plan import BenchPlan, BenchRunner
from rdchat.inference.api.messages import ChatMessage, ToolCall
from rdchat.inference.api.model_facts import DrafterFit, HeadKind, TargetMatch
from rdchat.inference.api.parts_reader import Piece
from rdchat.inference.api.reply_statistics import RoundStatistics, Statistics
from rdchat.inference.api.requests import (
    DraftSettings,
    Dtype,
    GenerationRequest,
    Mode,
    SamplingDefaults,
    ThinkingChoice,
)
from rdchat.inference.api.thoughts import NOTHING_TOLD, Thoughts, openings

UNKNOWN_LENGTH = 2**31 - 1
"""The context length of a model whose server does not say it."""


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
        name: Name of the folder or the hub repository, for people.
        path: The model folder.
        architecture: Model type of mlx-lm, such as `llama`.
        dtype: Precision of the weights: `float32`, `float16`, `bfloat16`, `4bit`, `6bit` and so on.
        device: Name of the device, such as `Apple M3 Max` or `CPU`.
        context_length: Maximum tokens of prompt and reply together.
        vocabulary_size: Rows of the output matrix.
        parameters: Number of weights.
        weights_bytes: Memory of the weights.
        load_ms: Time of loading.
        warning: Sentences if memory is tight, or replies can differ from those of the original; else empty.
        may_differ: Whether the warning says that replies can differ.
        thinking: Choices of thinking; empty where the chat template has no switch.
        thinking_default: The one of them that applies where nothing is chosen; None where it is unknown.
        tool_markers: Texts that begin and end a tool call in a reply; the second is empty where a call lasts to the
            reply's end. A base model has none.
        trained_for_tools: Whether the chat template has a place for tools, and the markers are its own. Otherwise tools
            are described in the system prompt, in one form for all such models.
        token_markers: Markers of thoughts and answers that the model writes with control tokens.
        server: Name of the remote server that runs it, with its address as `device`; empty where this computer runs it.
            Sizes that such a server does not say are 0.
        sees: Whether it takes images.
        blind: See `FolderFacts`.
        goes_back: Whether its KV cache can be cut at any token. With recurrent state or a window it cannot: a prompt
            that does not continue the last one is read from its beginning.
        cpu_kernels: What a CPU's times and roundings depend on, such as `libopenblas.so SkylakeX avx2,fma`; empty where
            none computes.
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
    may_differ: bool = False
    thinking: tuple[ThinkingChoice, ...] = ()
    thinking_default: ThinkingChoice | None = None
    sampling: SamplingDefaults = SamplingDefaults()  # noqa: RUF009  it is frozen
    tool_markers: tuple[str, str] | None = None
    trained_for_tools: bool = False
    token_markers: frozenset[str] = frozenset()
    server: str = ""
    sees: bool = False
    blind: str = ""
    goes_back: bool = True
    cpu_kernels: str = ""

    @property
    def computed_with(self) -> str:
        """Device and kernels: what times and roundings depend on, besides versions."""
        return f"{self.device} {self.cpu_kernels}".rstrip()

    @property
    def may_think(self) -> bool:
        """Whether it has a switch for thinking, or markers of thoughts."""
        return bool(self.thinking) or any(each.marker in self.token_markers for each in openings())

    @property
    def longest_count(self) -> int:
        """Tokens of a prompt, as they are counted here, from which on it is surely too long.

        For a remote server they are estimated, so it is twice the context: nothing is refused that might fit.
        """
        return self.context_length * (2 if self.server else 1)


@dataclass(frozen=True, slots=True)
class LoadProgress:
    """A step of loading a model.

    Attributes:
        stage: What is done.
        fraction: How much of it is done, from 0 to 1; None where that is unknown.
        once: Whether it is done only once on a machine.
    """

    stage: str
    fraction: float | None
    once: bool = False


OnProgress = Callable[[LoadProgress], None]
"""Takes the progress of a load; what it raises ends the work."""


@dataclass(frozen=True, slots=True)
class RoundTree:
    """The prefix tree of one round, as `DraftSettings.trace` asks for it; nodes are numbered parents first.

    Attributes:
        tokens: Token id of each node, the root first.
        parents: Index of each node's parent; -1 for the root.
        drafters: Who proposed each node: `speculative`, `drafter`, `lookup`, or another source of `NodeSource.named`;
            empty for the root.
        log_probs: The target's log-probability of each node after its parent, before temperature and filters; 0 for the
            root.
        path: Indices of the accepted nodes, the root first.
        correction: The token that the target chose after the last accepted node.
        texts: Text of each node's token.
        correction_text: Text of the correction.
        correction_log_prob: The target's log-probability of the correction.
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

    `in_thought`: the prompt opens a thought, which the reply begins with. `images`: how many to see first.
    """

    request_id: int
    processed: int
    total: int
    cached: int
    in_thought: bool = False
    images: int = 0


@dataclass(frozen=True, slots=True)
class LikelyToken:
    """A token that the target could have chosen, with its chance before temperature and filters.

    Attributes:
        token_id: Id of the token.
        data: Its text in UTF-8, perhaps only a part of a character.
        log_prob: Natural logarithm of its probability.
    """

    token_id: int
    data: bytes
    log_prob: float


@dataclass(frozen=True, slots=True)
class TokenEvent:
    """One token of the reply.

    Attributes:
        request_id: Id of the request.
        index: Position in the reply, from 0.
        token_id: Id of the token; -1 for text of a remote server, which may be of several tokens.
        text: Characters that became final with this token. It may be empty (half a character, the start of a stop
            string), and it may hold characters of earlier tokens.
        drafter: Who drafted the token, as in `RoundTree.drafters`; empty for the target's own.
        position: Depth of the token in the draft, from 1; 0 for the target's own.
        round: Statistics of the round that ends with this token; None inside a round and in plain decoding.
        tree: The round's prefix tree, with the round's last token, where the request asks for a trace.
        log_prob: The target's log-probability of the token before temperature and filters, where the request asks for a
            trace or for `top_log_probs`; otherwise None.
        alternatives: The `top_log_probs` most likely tokens at its index, the most likely first. The
            token itself need not be among them.
        data: Text of this token alone in UTF-8, as in `LikelyToken`, if the request asks for `top_log_probs`.
        pieces: The new text, split into thought and answer. Text that is held back until the end is in `ReplyEnd.told`.
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
    alternatives: tuple[LikelyToken, ...] = ()
    data: bytes = b""
    pieces: tuple[Piece, ...] = ()


@dataclass(frozen=True, slots=True)
class ReplyEnd:
    """The last event of every reply that ran.

    Attributes:
        request_id: Id of the request.
        text: The complete text, without what a stop string cuts and without half characters at the end.
        token_ids: Ids of all tokens: a final EOS included, what a stop string cuts excluded.
        trailing_text: The end of `text` that no `TokenEvent` carried.
        finish_reason: Why the reply ended.
        statistics: Counters of the reply.
        mode: The drafting mode that ran; None where a remote server does not say it.
        mode_reason: A sentence: why it is not the requested mode, or why a drafter was left out of the rest of the
            reply. None where neither happened.
        drafter: Path or name of the drafter; None without one.
        kind: Kind of the drafter head that drafted, or that `auto` could use; None without one.
        tool_calls: Tool calls in the text behind a thought, in order. Only a request with tools has them; a call that
            cannot be parsed stays text.
        told: `text` without the tool calls and their markers, split into thought and answer.
        stop: The stop string that ended the reply; empty if none did.
    """

    request_id: int
    text: str
    token_ids: tuple[int, ...]
    trailing_text: str
    finish_reason: FinishReason
    statistics: Statistics
    mode: Mode | None = Mode.OFF
    mode_reason: str | None = None
    drafter: str | None = None
    kind: HeadKind | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    told: Thoughts = NOTHING_TOLD
    stop: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether the model ended it by itself, outside of a thought."""
        return self.finish_reason in {FinishReason.EOS, FinishReason.STOP_STRING} and not self.told.unclosed


@dataclass(frozen=True, slots=True)
class PrefixCacheFacts:
    """The KV caches of conversations that the engine keeps, to read only what is new in a prompt.

    Attributes:
        count: Number of conversations.
        held_bytes: Memory of their caches.
        limit_bytes: Limit of that memory; the last conversation is kept whatever its size.
    """

    count: int
    held_bytes: int
    limit_bytes: int


@dataclass(frozen=True, slots=True)
class ModeOption:
    """Availability of a drafting mode for the loaded model.

    Attributes:
        mode: The mode.
        available: Whether it can run now.
        reason: A sentence: why it cannot run, or what limits it; empty if it runs without limits.
        source: Path or name of the drafter; empty without one.
        trees: Whether beams of the mode make a tree; else a draft is a single path, whatever the number of beams.
        kind: Kind of the drafter head; None without one.
        match: How sure it is that the head was made for the model.
    """

    mode: Mode
    available: bool
    reason: str = ""
    source: str = ""
    trees: bool = True
    kind: HeadKind | None = None
    match: TargetMatch | None = None


def not_prepared(model: str) -> str:
    """Return why the first replies of a model are not drafted."""
    return f"Drafting with {model} is prepared once on this computer, while it is idle."


@dataclass(frozen=True, slots=True)
class DraftOptions:
    """The drafting modes of the loaded model under some settings.

    Attributes:
        model: Path of the loaded model.
        modes: One option for each mode.
        drafters: Whether the requested drafters fit the model; perhaps only the first of them.
        is_prepared: Whether what replies with these settings need is compiled on this computer.
    """

    model: Path
    modes: tuple[ModeOption, ...]
    drafters: tuple[DrafterFit, ...] = ()
    is_prepared: bool = True


GenerationEvent = PrefillProgress | TokenEvent | ReplyEnd


class StoppedError(Exception):
    """A reply was stopped before it began."""


def no_model() -> ModelError:
    """Return the error of a call that needs a model."""
    return ModelError("No model is loaded.", "Choose one from the menu above the chat.")


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

    def paused(self) -> AbstractContextManager[None]:
        """Return a context in which the engine may make other replies, between two events of this one.

        The reply then goes on as if nothing had happened; its times leave the pause out.
        """

    def cancel(self) -> None:
        """Ask for an early end, from any thread: it takes at most a prefill chunk, or two tokens (one round)."""

    def close(self) -> None:
        """End now and leave only the committed tokens in the cache. Idempotent."""

    @property
    def statistics(self) -> Statistics:
        """The counters so far."""


class Engine(Protocol):
    """The engine as its thread drives it. Only `count_tokens` may be called from other threads."""

    def load(self, model: str | None, dtype: Dtype, on_progress: OnProgress, anyway: bool = False) -> ModelInfo:
        """Replace the loaded model. Frees the old one first.

        Args:
            model: A model folder, a hub id in the hub's cache, or None for the default model.
            dtype: Precision of the weights.
            on_progress: Called now and then while it loads.
            anyway: Load it even if it seems too large for the memory (`DoesNotFitError`).

        Raises:
            RdchatError: If the model cannot be loaded; it says what to do. No model is loaded then.
        """

    def unload(self) -> int:
        """Free the model; return the freed bytes of memory, 0 where none was loaded."""

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> TokenIterator:
        """Begin a reply.

        Args:
            request: Messages, sampling, seed and draft settings.
            stopped: Returns whether the reply was stopped meanwhile: rendering a chat template may take seconds.

        Raises:
            RdchatError: If no model is loaded or the conversation does not fit.
            StoppedError: If it was stopped.
        """

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        """Return the drafting modes that the loaded model can have with `settings`' draft model and drafter.

        Quick: it loads no weights. Raises RdchatError where no model is loaded.

        Args:
            settings: Draft settings.
            drafters: Folders and hub ids of drafters to check against the model. Where there are many, the answer may
                cover only the first ones, and more at the next call.
        """

    def load_drafters(self, settings: DraftSettings, on_progress: OnProgress) -> None:
        """Load what a mode drafts with, so that the first reply need not wait. A drafter that is wrong is left out."""

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        """Return the facts of the kept KV caches.

        Args:
            limit_bytes: The most memory that they may take from now on, also after another model is loaded. The least
                recently used ones beyond it are dropped. None leaves the limit, which at first depends on the machine.
        """

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        """Return the number of tokens in a conversation, or in a request's prompt, for the loaded model.

        It may be called from any thread, also during a reply.

        Raises:
            PromptTooLongError: If they far exceed the context.
            ModelError: If no model is loaded, or its chat template refuses the conversation.
        """

    def idle(self, *, hidden: bool = False) -> bool:
        """Do at most 200 ms of background work: compile kernels for drafting, measure the cost of target calls.

        A slice that compiles may take longer: it ends after the first part of a draft that needed a kernel. What
        drafts is compiled after the first reply on a machine; until then replies are plain, and say why.

        After `rest`, and while the window is hidden, only caches are written to disk.

        Returns:
            Whether there is more to do now. Work that waits for a charger is considered again after the next reply.
            Never raises for problems of a model.
        """

    def rest(self) -> None:
        """Unwire the model's weights, and only write caches, until the next reply or benchmark."""

    def sleep(self) -> None:
        """Free the model's memory. The next call that needs the model loads it again, or raises why it cannot."""

    def wake(self) -> None:
        """Undo `rest` and `sleep` in advance. Raises RdchatError if the model cannot be loaded again."""

    def benchmark(self, plan: BenchPlan) -> BenchRunner:
        """Begin a benchmark of the loaded model. Raises RdchatError where no model is loaded."""

    def close(self) -> None:
        """Free the model, its memory and what MLX keeps for the thread, which must not use MLX afterwards.

        A thread that has used the engine calls this before it ends. Otherwise MLX would free the rest while the thread
        ends, perhaps after Python is gone.
        """


class Engines(Protocol):
    """The engines of an app, of which one runs the chosen model. They belong to one thread."""

    @property
    def chosen(self) -> Engine:
        """The engine of the last load; before it, the one of models on this machine. Any thread may ask."""

    def load(self, model: str | None, dtype: Dtype, on_progress: OnProgress, anyway: bool = False) -> ModelInfo:
        """Choose the engine that runs a model, free the model of another one, and load it; see `Engine.load`."""

    def close(self) -> None:
        """Close all of them; see `Engine.close`."""
