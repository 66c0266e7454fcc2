"""`ChatSession` makes the replies of one loaded model, on the engine thread, and keeps KV caches between turns.

MLX compiles a kernel when it is first needed, which takes seconds with g++. So `warm` has the model write a few tokens
in advance, in short slices: those of a plain reply while the model loads, those of drafting while the app is idle after
the first reply on a machine. A marker file says that a mode's kernels are compiled.
"""

from rdchat.inference import blas  # before MLX

# isort: split
import logging
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, nullcontext, suppress
from dataclasses import replace
from functools import cached_property, partial
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import mlx.core as mx
import numpy as np

from rdchat import __version__
from rdchat.errors import PromptTooLongError
from rdchat.inference.api import (
    DRAFTERS,
    ChatMessage,
    DraftOptions,
    DraftSettings,
    Dtype,
    GenerationRequest,
    LoadProgress,
    Mode,
    OnProgress,
    Role,
    SamplingParams,
    Stage,
    StoppedError,
    TokenIterator,
    not_prepared,
)
from rdchat.inference.auto.auto_drafter import AvailableDrafters
from rdchat.inference.caches_on_disk.disk_caches import DiskCaches
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import Clock, ReplyJob, reply_start, thought_end
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.decoding.reply_matcher import ReplyMatcher, Rules
from rdchat.inference.decoding.thought_limit import ThoughtLimit
from rdchat.inference.device import device_errors, on_gpu
from rdchat.inference.drafters import Drafters
from rdchat.inference.loading import load_model
from rdchat.inference.verification import KVCache, LoadedModel, PrefixCaches, shared_prefix

if TYPE_CHECKING:
    from rdchat.inference.decoding.shape_matcher import ShapeVocabulary

_LOG = logging.getLogger(__name__)
# Length of the prompt with which kernels are compiled. Its tokens come several times, so that prompt lookup drafts.
_PROMPT_TOKENS = 24
_REPEATED = 3
# Most tokens of a reply with which kernels are compiled.
_TOKENS = 16
# Most replies for a mode: each ends once a kernel was compiled, and may end with its first token.
_SEEDS = 40
# For progress: kernels of a plain reply, and of the automatic mode's drafts; a model or a drafter may have a few more.
_KERNELS = 20
_DRAFTING_KERNELS = 33
# At most this many replies skip drafting while kernels are missing: a busy server has no idle moment to compile them.
PLAIN_REPLIES = 3


def warm(model: LoadedModel, drafters: Drafters, drafts: Sequence[DraftSettings]) -> Generator[bool]:
    """Write a few sampled and traced tokens with each of these settings that the model can use, to compile kernels.

    The replies have caches of their own, and the automatic mode does not learn from them. If a model fails, the warming
    ends, and the first reply reports the error.

    Args:
        model: The target.
        drafters: Its drafters.
        drafts: See `warmed_by`.

    Yields:
        True after each slice; whoever needs the thread closes the generator.
    """
    try:
        for draft in drafts:
            loaded = drafters.load_drafters(draft)
            if isinstance(loaded, str):
                continue
            if draft.mode is Mode.DRAFTER:
                # Short drafts need some of the kernels: not all are compiled together.
                yield from _write(model, drafters, loaded, replace(draft, beam_width=1, beam_length=2))
            yield from _write(model, drafters, loaded, draft)
    except Exception:
        _LOG.exception("Warming up failed")


def warmed_by(settings: DraftSettings) -> list[DraftSettings]:
    """Return the settings to warm up for replies with these settings: one for each mode that may be used."""
    modes = (Mode.OFF, *reversed(DRAFTERS)) if settings.mode is Mode.AUTO else (settings.mode,)
    usable = (mode for mode in modes if mode is not Mode.SPECULATIVE or settings.draft_model)
    return [replace(settings, mode=mode, trace=True) for mode in usable]


class _KernelLedger(Ledger):
    """Waits for arrays one by one, and ends the reply once a kernel was compiled: a compile cannot be interrupted.

    `queue` waits too: arrays that are computed together could compile several kernels.
    """

    def wait(self, *arrays: mx.array | None) -> None:
        for array in arrays:
            before = blas.compiled_kernels()
            super().wait(array)
            if blas.compiled_kernels() > before:
                raise StoppedError

    queue = wait


def _compile(model: LoadedModel, drafters: Drafters, missing: Sequence[tuple[DraftSettings, Path]]) -> Generator[bool]:
    """Compile the kernels of drafting for each of these settings, as `warm` does, and then write the marker file."""
    for draft, marker in missing:
        yield from warm(model, drafters, [draft])
        # Without the marker it is done again at the next start.
        with suppress(OSError):
            marker.parent.mkdir(parents=True, exist_ok=True)
            marker.touch()


def _write(model: LoadedModel, drafters: Drafters, loaded: AvailableDrafters, draft: DraftSettings) -> Generator[bool]:
    """Write replies with one of these settings until one ends without a compile, and has drafted; see `warm`.

    In the mode Off none drafts, so the first one without a compile is the last.
    """
    tokens = np.random.default_rng(0).integers(0, model.info.vocabulary_size, _PROMPT_TOKENS // _REPEATED).tolist()
    sampling = SamplingParams(max_tokens=_TOKENS)
    for seed in range(_SEEDS):
        # With exact times each stage waits, so few kernels are compiled together.
        request = GenerationRequest((ChatMessage(Role.USER, "-"),), sampling, seed, draft=replace(draft, profile=True))
        job = replace(ReplyJob.fresh(model, tokens * _REPEATED, request), ledger=_KernelLedger())
        with suppress(StoppedError), closing(ReplyIterator(*drafters.prepare_job(job, loaded))) as events:
            for _ in events:
                yield True
            if draft.mode is Mode.OFF or events.statistics.rounds:
                return
        yield True


class ChatSession:
    """Makes replies, one at a time, and reads only what is new in a prompt.

    A reply's text depends on the request alone, up to rounding. It begins with the cache that shares most with its
    prompt: after a further turn only the new tokens are read, after an edit those after it.

    Args:
        model: The target.
        drafters: The model's drafters, if another session has loaded some.
        cache_bytes: Maximum memory of the KV caches for later turns; with 0, the last one is kept.
        disk: The model's caches on disk, if another session has opened them: to open them reads much of the model's
            files.

    Attributes:
        model: The target.
        drafters: Give a reply its drafter.
        caches: The KV caches of earlier conversations.
        disk: Keeps caches on disk, for requests that name a folder.
        cache: The KV cache of the last reply.
        plain_replies: Number of replies that may still skip drafting, because the model is not tried out or the
            kernels are not compiled; `work_while_idle` compiles them.
    """

    def __init__(
        self,
        model: LoadedModel,
        drafters: Drafters | None = None,
        cache_bytes: int = 0,
        disk: DiskCaches | None = None,
    ) -> None:
        self.model = model
        self.caches = PrefixCaches(model.network, cache_bytes)
        self.disk = disk or DiskCaches(model)
        self.cache = KVCache(model.network)
        self.drafters = drafters or Drafters(model)
        # The last reply, also after its end; None before the first.
        self._running: ReplyIterator | None = None
        # That of the last reply's request.
        self._partition = ""
        # What `work_while_idle` goes on with: set by `warm_up`, then by replies that skip drafting. A reply ends it.
        self._warming: Generator[bool] | None = None
        self.plain_replies = 0

    @classmethod
    def of_model(
        cls,
        model: str | None = None,
        dtype: Dtype = Dtype.AUTO,
        on_progress: OnProgress = lambda _: None,
        *,
        anyway: bool = False,
    ) -> "ChatSession":
        """Load a model, and return a session of it.

        Args:
            model: A model folder, a name in `rdchat models list`, or None for the default model.
            dtype: Precision of the weights.
            on_progress: Called during the work; an exception from it ends the loading.
            anyway: Load it, and a draft model, even if one seems too large for the memory.

        Raises:
            RdchatError: As `load_model` does.
        """
        loaded = load_model(model, dtype, on_progress, anyway=anyway)
        return cls(loaded, Drafters(loaded, anyway))

    def generate(self, request: GenerationRequest, stopped: Callable[[], bool] = lambda: False) -> TokenIterator:
        """Begin a reply; one that still runs is closed first, unless it is paused.

        In this order: load what drafts, make the prompt's tokens, take the KV cache that shares most with them, and
        append to it what the disk has of the prompt. The reply itself is written as the result is iterated.

        `stopped` is called while the chat template, which is foreign code, is rendered.

        If the model cannot use a drafting mode, or its drafter or draft model is missing or unsuitable, decoding is
        plain; the end of the reply has the reason.

        Raises:
            PromptTooLongError: If the conversation leaves no room for a reply.
            ModelError: If the chat template refuses the conversation.
            StoppedError: If `stopped` returned true.
        """
        check = partial(_check_stopped, stopped)
        self._warming = None
        self._end_running(request.partition)
        loaded, missing = self._load_drafters(request.draft)
        clock = Clock()
        ledger = Ledger()
        with ledger.stage(Stage.TOKENIZE):
            prompt, images = self.model.encode_request(request, check)
            self._check_length(len(prompt))
            shared = self._shared_length(request, prompt, check)
            matcher = self._matcher(request, prompt, check)
        mx.reset_peak_memory()
        with device_errors("for this reply"):
            # A cache that is not kept comes from none that are kept.
            caches = self.caches if request.leaves_cache else PrefixCaches(self.model.network, 0)
            cache = caches.take_cache(prompt, request.partition, images)
            self.cache = cache
        self.disk.leave(cache, request.keep)
        # The time of reading the disk counts as time of reading the prompt. The cache is given back here if that fails,
        # else at the end of the reply.
        try:
            with ledger.stage(Stage.PREFILL) if request.keep else nullcontext():
                from_disk = self.disk.extend_cache(cache, prompt, request.keep, check)
        except BaseException:
            caches.give_back(cache, request.partition)
            raise
        costs = self.drafters.auto.costs
        self.drafters.auto.has_replied = True
        job = ReplyJob(
            self.model,
            cache,
            prompt,
            request,
            ledger,
            clock,
            plain_ms=costs.plain_ms,
            plain_error=lambda: costs.plain_error,
            matcher=matcher,
            # A reference to the session would be a cycle.
            release=partial(_release, self.caches, self.disk, cache, request, shared=shared),
            from_disk=from_disk,
            shared=shared,
            mark_prompt=partial(_mark_prompt, self.disk, cache, request),
        )
        # The reply is plain although it could draft: what it lacks is made once it is written.
        if missing is not None:
            self.plain_replies -= 1
            self._warming = _compile(self.model, self.drafters, missing)
        drafter = None
        if isinstance(loaded, str):
            job = replace(job, mode_reason=loaded)
        else:
            job, drafter = self.drafters.prepare_job(job, loaded)
        self._running = ReplyIterator(job, drafter)
        return self._running

    def _load_drafters(
        self, draft: DraftSettings
    ) -> tuple[AvailableDrafters | str, list[tuple[DraftSettings, Path]] | None]:
        """Load what a reply drafts with.

        Returns:
            That, or why the reply is plain, as a sentence; and what is to be compiled, if it is plain because drafting
            is not prepared yet, else None. The list is empty for a model that is not tried out yet.
        """
        unprepared = not_prepared(self.model.info.name)
        # A trial takes some 60 calls of the model.
        if self.plain_replies > 0 and not self.model.is_tried():
            return unprepared, []
        loaded = self.drafters.load_drafters(draft)
        # A GPU compiles in some seconds; g++ takes half a minute.
        drafts = not isinstance(loaded, str)
        if self.plain_replies and drafts and not on_gpu() and (missing := self._missing(draft)):
            return unprepared, missing
        return loaded, None

    def _shared_length(self, request: GenerationRequest, prompt: list[int], check: Callable[[], None]) -> int:
        """Return the length of the prompt's beginning that all chats of its project have; 0 where it is not kept."""
        if request.keep is None or request.keep.shared is None or not request.shared:
            return 0
        beginning = replace(request, messages=request.shared, continue_last=False)
        return shared_prefix(self.model.encode_request(beginning, check)[0], prompt)

    def _matcher(self, request: GenerationRequest, prompt: list[int], check: Callable[[], None]) -> ReplyMatcher | None:
        """Return what keeps a reply within its format and its thought's limit; None where it has neither."""
        if request.shape is None and request.thinking_tokens is None:
            return None
        model = self.model
        rules: Rules | None = None
        start = reply_start(model, prompt, request)
        begun = request.messages[-1].content if request.continue_last else ""
        closing = thought_end(model, prompt[:start])
        if request.shape is not None:
            model.prompts.process.check_shape(request.shape, check)
            rules = self._vocabulary.rules(request.shape, closing, begun)
        if request.thinking_tokens is not None:
            rules = ThoughtLimit(model, request.thinking_tokens, closing, prompt[start:], rules)
        assert rules is not None
        return ReplyMatcher(rules, model.info.vocabulary_size, model.end_tokens)

    @cached_property
    def _vocabulary(self) -> "ShapeVocabulary":
        from rdchat.inference.decoding.shape_matcher import ShapeVocabulary  # noqa: PLC0415  seldom needed

        return ShapeVocabulary(self.model)

    def draft_options(self, settings: DraftSettings, drafters: Sequence[str] = ()) -> DraftOptions:
        """Return which modes the target can have with `settings`, and which of some drafters fit it."""
        options = self.drafters.draft_options(settings, drafters)
        return replace(options, is_prepared=not self._missing(settings))

    def prepare(self, settings: DraftSettings, on_progress: OnProgress) -> None:
        """Compile what replies with these settings need, unless that was done on this machine."""
        before = blas.compiled_kernels()
        usual = _KERNELS if settings.mode is Mode.OFF else _DRAFTING_KERNELS
        for _ in _compile(self.model, self.drafters, self._missing(settings)):
            # A GPU's kernels are no files to count.
            share = (blas.compiled_kernels() - before) / usual
            # A model may need more kernels than usual; how many is not known.
            is_known = share < 1 and not on_gpu()
            stage = f"Preparing {self.model.info.name}, once"
            on_progress(LoadProgress(stage, share if is_known else None, once=True))

    def is_prepared(self, settings: DraftSettings) -> bool:
        """Return whether what replies with these settings need is tried out and compiled on this machine."""
        return settings.mode is Mode.OFF or (self.model.is_tried() and not self._missing(settings))

    def _missing(self, settings: DraftSettings) -> list[tuple[DraftSettings, Path]]:
        """Return what must be compiled for replies with these settings, and the marker file of each."""
        return [(draft, marker) for draft in warmed_by(settings) if not (marker := self._marker(draft)).exists()]

    def _marker(self, draft: DraftSettings) -> Path:
        """Return the marker file of the kernels that replies with these settings need."""
        head = self.drafters.auto.available.head
        network = type(self.model.network).__module__
        versions = f"{__version__} {version('mlx')} {network} {self.model.info.dtype} {head and head.head.kind}"
        return blas.compiled_marker(f"{versions} {draft.mode} {draft.drafter} {draft.draft_model}")

    def work_while_idle(self) -> bool:
        """Do a slice of background work; see `Engine.idle`. Nothing is measured before the first reply."""
        if self._warming is not None:
            more = next(self._warming, False)
            self._warming = self._warming if more else None
            return more
        if self.disk.write_next() or (self._running is not None and self.drafters.auto.measure()):
            return True
        self.drafters.ngrams.count_when_missed()
        return False

    def fork(self) -> "ChatSession":
        """Return another session of the same model and drafters, with its own empty KV cache."""
        return ChatSession(self.model, self.drafters, disk=self.disk)

    def _end_running(self, partition: str) -> None:
        """Close a reply that still runs, unless it is paused, before a reply of a partition.

        A reply of another partition, or after a paused one, must not find the last reply's memory in the drafters.
        """
        paused = self._running is not None and self._running.is_paused
        if self._running is not None and not paused:
            self._running.close()
        if paused or partition != self._partition:
            self.drafters.clear_memory()
        self._partition = partition

    def drop_caches(self) -> None:
        """Drop the KV caches, also the draft model's, and rows of images: the next reply starts without any."""
        self._end_running(self._partition)
        self.caches.drop_caches()
        if self.model.image_input:
            self.model.image_input.drop_rows()
        self.cache = KVCache(self.model.network)
        self.drafters.clear_memory()

    def warm_up(self, on_progress: OnProgress = lambda _: None) -> None:
        """Run the network once, load the usual mode's drafters, and compile what a plain reply needs.

        `work_while_idle` runs what is compiled already, until there is a reply: a device may compile for each process.
        A GPU compiles there what is missing too, since its first reply drafts. Otherwise, where something is missing,
        nothing runs there: `generate` begins that work with a reply that skips drafting (`plain_replies`).
        """
        with device_errors(f"to run {self.model.info.name}"):
            cache = KVCache(self.model.network)
            for tokens in ([0] * 8, [0]):
                mx.eval(self.model.network(mx.array([tokens]), cache=cache.layers))
            self.drafters.load_drafters(DraftSettings())
            self.prepare(DraftSettings(Mode.OFF), on_progress)
        usual = DraftSettings()
        missing = self._missing(usual)
        if missing and on_gpu():
            self._warming = _compile(self.model, self.drafters, missing)
        else:
            self._warming = warm(self.model, self.drafters, [] if missing else warmed_by(usual))

    def _check_length(self, length: int) -> None:
        """Raise PromptTooLongError where a prompt leaves no room for a reply."""
        context = self.model.info.context_length
        if length >= context:
            raise PromptTooLongError(
                f"This chat has {length:,} tokens; together with the reply, {self.model.info.name} takes {context:,}.",
                "Shorten the prompt, start a new chat, or choose a model with a longer context.",
            )


def _mark_prompt(disk: DiskCaches, cache: KVCache, request: GenerationRequest) -> None:
    """Remember the present state, in memory and on disk: an edit, another reply or a further turn goes on there."""
    cache.mark_prompt()
    disk.note_prompt(cache, request.keep)


def _release(
    caches: PrefixCaches, disk: DiskCaches, cache: KVCache, request: GenerationRequest, failed: bool, *, shared: int
) -> None:
    """Give a cache back after its reply, in memory and, where the request names a folder, on disk."""
    if request.leaves_cache or failed:
        caches.give_back(cache, request.partition, failed)
    if not failed:
        disk.write_cache(cache, request.keep, shared)


def _check_stopped(stopped: Callable[[], bool]) -> None:
    """Raise StoppedError if the reply was stopped."""
    if stopped():
        raise StoppedError
