"""The protocols of the engine: `TokenIterator` and `Engine`.

No MLX and no Qt here: the window imports this module before the engine exists, and a later version may run the engine
in another process without a change above this line.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from rdchat.errors import ModelError
from rdchat.inference.api.bench_plan import BenchPlan, BenchRunner
from rdchat.inference.api.events import DraftOptions, GenerationEvent, LoadProgress, ModelInfo, PrefixCacheFacts
from rdchat.inference.api.messages import ChatMessage
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import DraftSettings, Dtype, GenerationRequest


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

    def load(
        self, model: str | None, dtype: Dtype, on_progress: Callable[[LoadProgress], None], anyway: bool = False
    ) -> ModelInfo:
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

    def load_drafters(self, settings: DraftSettings, on_progress: Callable[[LoadProgress], None]) -> None:
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
        """Let the system page out the model's memory, until the next reply or benchmark."""

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
