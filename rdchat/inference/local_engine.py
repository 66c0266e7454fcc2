"""The engine of models on this machine: one model at a time, one reply at a time. It belongs to the engine thread.

It loads and frees the model; `ChatSession` makes the replies. The chosen model is the one that `load` was called for,
but perhaps not the loaded one: a benchmark loads another precision for a while, and after `sleep` none is loaded. The
next call that needs the chosen model loads it again.
"""

from rdchat.inference import blas  # before MLX

# isort: split
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import mlx.core as mx

from rdchat.inference.api import (
    BenchPlan,
    BenchRunner,
    ChatMessage,
    DraftOptions,
    DraftSettings,
    Dtype,
    GenerationRequest,
    LoadProgress,
    ModelInfo,
    OnProgress,
    PrefixCacheFacts,
    TokenIterator,
    no_model,
)
from rdchat.inference.benchmark.runner import InterleavedRunner
from rdchat.inference.device import free_memory, held_bytes
from rdchat.inference.drafters import Drafters
from rdchat.inference.loading import load_model
from rdchat.inference.session import PLAIN_REPLIES, ChatSession
from rdchat.inference.sharding import rank_messages
from rdchat.inference.sharding.rank_messages import Kind, meet, send
from rdchat.inference.verification import usual_limit
from rdchat.inference.wired_memory import unwire_weights, wire_weights

# When the model is unloaded or the app quits, caches that are not on disk yet are written for at most this long.
_FINISH_S = 2.0


@dataclass(frozen=True, slots=True)
class _Chosen:
    """The arguments of `load`, and its result."""

    model: str | None
    dtype: Dtype
    anyway: bool
    info: ModelInfo


class LocalEngine:
    """Implements `api.events.Engine` in this process. All calls belong to one thread (MLX's rule).

    Args:
        group: The ranks that compute a model together, of which this is the first; None computes it here. The others
            run `ranks.follower`, with the model that is loaded here. Over ranks no cache is kept on disk.
    """

    def __init__(self, group: mx.distributed.Group | None = None) -> None:
        self._group = group
        # The session of the loaded model.
        self._session: ChatSession | None = None
        # Kept while the model sleeps, or a benchmark has loaded another precision.
        self._chosen: _Chosen | None = None
        # Counts tokens with the loaded model's tokenizer, also while it sleeps. Other threads read it.
        self._count: Callable[[Sequence[ChatMessage] | GenerationRequest], int] | None = None
        self._cache_bytes = usual_limit()
        # Whether the loaded model is not to be used: from `rest` to `wake`, or until it is unloaded.
        self._resting = False

    def load(self, model: str | None, dtype: Dtype, on_progress: OnProgress, anyway: bool = False) -> ModelInfo:
        # If the loading fails, no model is chosen.
        self._chosen = None
        info = self._open(model, dtype, anyway, on_progress)
        self._chosen = _Chosen(model, dtype, anyway, info)
        return info

    def unload(self) -> int:
        before = held_bytes()
        self._chosen = None
        self._unload()
        return max(before - held_bytes(), 0)

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> TokenIterator:
        self.wake()
        if self._group is not None:
            request = replace(request, keep=None)
        return self._loaded().generate(request, stopped)

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        return self._loaded().draft_options(settings, drafters)

    def load_drafters(self, settings: DraftSettings, on_progress: OnProgress) -> None:
        self._loaded().drafters.load_drafters(settings, on_progress)

    def prefix_caches(self, limit_bytes: int | None = None) -> PrefixCacheFacts:
        if limit_bytes is not None:
            self._cache_bytes = limit_bytes
        if self._session is None:
            return PrefixCacheFacts(0, 0, self._cache_bytes)
        if limit_bytes == 0:
            self._session.drop_caches()
        self._session.caches.limit(self._cache_bytes)
        return self._session.caches.facts

    def count_tokens(self, prompt: Sequence[ChatMessage] | GenerationRequest) -> int:
        count = self._count
        if count is None:
            raise no_model()
        return count(prompt)

    def idle(self, *, hidden: bool = False) -> bool:
        session = self._session
        # While the model rests, only caches are written: other work would bring its memory back.
        return session is not None and (
            session.disk.write_next() if hidden or self._resting else session.work_while_idle()
        )

    def rest(self) -> None:
        if self._session is not None and not self._resting:
            unwire_weights()
            self._resting = True
        if self._group is not None:
            send(self._group, Kind.REST)

    def sleep(self) -> None:
        count = self._count
        self._unload()
        # Counting needs the tokenizer alone, and no weights.
        self._count = count

    def wake(self) -> None:
        if self._chosen is not None:
            self._loaded()
        self._resting = False

    def benchmark(self, plan: BenchPlan) -> BenchRunner:
        # Raises where no model is chosen, which `wake` does not.
        self._loaded()
        self.wake()
        # mlx-lm computes on a stream of its own, whose collectives could interleave with the last reply's.
        plan = replace(plan, mlx_lm=plan.mlx_lm and self._group is None)
        return InterleavedRunner(plan, self._session_in, self._go_back)

    def _session_in(self, dtype: Dtype) -> ChatSession:
        """Return a session for a benchmark, with its own caches; another precision replaces the loaded model."""
        chosen = self._chosen
        assert chosen is not None
        # `auto` is here the precision that the model was loaded in.
        precision = chosen.info.dtype if dtype is Dtype.AUTO else dtype.value
        if precision == chosen.info.dtype:
            self._go_back()
        elif self._session is None or self._session.model.info.dtype != precision:
            self._open(chosen.model, dtype, chosen.anyway)
        return self._loaded().fork()

    def _go_back(self) -> None:
        """Load the chosen model again, if a benchmark replaced it."""
        chosen = self._chosen
        assert chosen is not None
        if self._session is None or self._session.model.info.dtype != chosen.info.dtype:
            self._open(chosen.model, chosen.dtype, chosen.anyway)

    def _open(
        self,
        model: str | None,
        dtype: Dtype,
        anyway: bool,
        on_progress: OnProgress = lambda _: None,
    ) -> ModelInfo:
        """Load a model in place of the loaded one; `_chosen` is not changed."""
        # First, since two models may not fit into memory.
        self._unload()
        first = blas.is_first_use()

        def report(progress: LoadProgress) -> None:
            # The longest step alone has a share, so that one bar shows it: what is done once, or reading the weights.
            share = progress.fraction if progress.once is first else None
            on_progress(replace(progress, fraction=share, once=first or progress.once))

        if self._group is None:
            loaded = load_model(model, dtype, report, anyway=anyway)
        else:
            loaded = rank_messages.load(self._group, model, dtype, report, anyway)
        wire_weights(loaded.network)
        report(LoadProgress("Warming up", None))
        session = ChatSession(loaded, Drafters(loaded, anyway), self._cache_bytes)
        session.warm_up(report)
        # How many replies may skip drafting until its kernels are compiled: none over ranks.
        session.plain_replies = PLAIN_REPLIES if self._group is None else 0
        self._session = session
        self._count = partial(loaded.prompts.count, context_length=loaded.info.context_length)
        return loaded.info

    def _loaded(self) -> ChatSession:
        """Return the session; load the chosen model again if it sleeps, and raise ModelError if there is none."""
        if self._session is None and self._chosen is not None:
            self._go_back()
        if self._session is None:
            raise no_model()
        return self._session

    def close(self) -> None:
        self._unload()
        if self._group is not None:
            send(self._group, Kind.END)
            meet(self._group)
        # A stopped reply may have queued work on a stream that is freed now.
        mx.synchronize()
        # This also clears the thread's compiled functions, as MLX requires of every thread but the main one.
        mx.clear_streams()

    def _unload(self) -> None:
        if self._session is not None:
            self._session.disk.finish_writing(_FINISH_S)
            self._session.drafters.ngrams.stop_counting()
        self._session = None
        self._count = None
        self._resting = False
        if self._group is not None:
            send(self._group, Kind.UNLOAD)
        free_memory()
