"""Keeps KV caches of chats on disk, so that a prompt is not read again after a restart.

A cache is stored as segments, a file for each (see `segments`): blocks of rows, and ends, where a prompt or a reply
ended. Each chat has a folder for them; what all chats of a project begin with is kept in the project's folder
(`shared`). `ChatSession` completes a prompt's cache from the files (`extend_cache`), and hands over caches of ended
replies, which are written while nothing else is to do (`write_next`).
"""

import logging
import os
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import version
from pathlib import Path

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.files.cache_folders import make_room
from rdchat.inference.api import CacheFolder
from rdchat.inference.caches_on_disk.segments import ROWS, CacheLayout, Segment, digests_of
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.inference.models.stored_facts import stamp_of
from rdchat.inference.verification import KVCache, LoadedModel, UnsupportedCacheError
from rdchat.work import Job, SerialThread

_LOG = logging.getLogger(__name__)
# Shorter conversations, and shorter beginnings of projects, are quickly read again.
_MIN_TOKENS = 1000
# Reading fewer tokens from disk gains nothing.
_MIN_GAIN = 64
# Most ends of a chat; each may take 100 MB. A turn makes two: where its prompt ends, and where its reply does.
_ENDS = 8
# Pause while the writer's thread is busy.
_WAIT_S = 0.005
# Version of the files; increased, it makes older ones useless.
_VERSION = 3


@dataclass(slots=True)
class _Work:
    """A conversation's cache that is to be written, segment by segment.

    Attributes:
        folder: The folders to write into.
        cache: The cache; it may be dropped meanwhile.
        states: The states of the layers that cannot be trimmed where `note_prompt` was called, by the number of tokens.
        shared: Length of the beginning that belongs to the project.
        segments: The segments that are not written yet, in order; None before the folder was looked at.
        failed: Whether nothing more of it is written. The writer sets it where a file could not be written, and
            `DiskCaches.leave` where a reply is about to change the cache.
    """

    folder: CacheFolder
    cache: weakref.ref[KVCache]
    states: dict[int, list[mx.array]]
    shared: int
    segments: list[Segment] | None = None
    failed: bool = False

    def path_of(self, segment: Segment) -> Path:
        """Return the chat's or the project's folder, to which a segment belongs; it has a folder for each model."""
        shared = self.folder.shared
        return shared if shared is not None and segment.end <= self.shared else self.folder.path


class DiskCaches:
    """Writes caches of ended replies in slices, and completes the cache of a prompt from the files.

    All methods belong to the engine thread. It copies a segment to the host, and a thread of this object writes the
    file, so a slow disk holds nothing up. A cache belongs to a chat until another reply takes it.

    Args:
        model: The target.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        # Identity of the files that were loaded; they may be replaced later.
        self._loaded = _identity(model.info.path)
        self._work: list[_Work] = []
        # States within the present prompt; see `_Work.states`.
        self._states: dict[int, list[mx.array]] = {}
        self._writer = SerialThread("caches on disk")

    @cached_property
    def _layout(self) -> CacheLayout | None:
        """The layout of the model's caches; None if they cannot be kept."""
        info = self._model.info
        if self._loaded is None:
            return None
        try:
            return CacheLayout(
                self._model.network,
                (_VERSION, self._loaded, info.dtype, info.computed_with, mx.default_device(), *_programs()),
            )
        except (UnsupportedCacheError, RuntimeError) as error:
            _LOG.warning("Caches of this model cannot be kept on disk: %s", error)
            return None

    # Reading

    def extend_cache(
        self, cache: KVCache, prompt: list[int], folder: CacheFolder | None, check: Callable[[], None]
    ) -> int:
        """Append to a cache what the disk has of a prompt; return how many tokens.

        Args:
            cache: Holds a proper prefix of the prompt, before and afterwards; it has the prompt's images.
            prompt: Token ids.
            folder: The chat's; None for none.
            check: Called before each file; what it raises ends the work, and the cache is as it was, or longer. After
                an error of the disk or the device it is empty.
        """
        if folder is None or len(prompt) < _MIN_TOKENS or (layout := self._layout) is None:
            return 0
        before = len(cache.tokens)
        try:
            _read(layout, cache, prompt, [each / layout.key for each in _folders(folder)], check)
        except (OSError, RuntimeError):
            _LOG.warning("A cache on disk could not be used", exc_info=True)
            cache.drop_tokens()
        return max(len(cache.tokens) - before, 0)

    # Writing

    def note_prompt(self, cache: KVCache, folder: CacheFolder | None) -> None:
        """Remember the state within a prompt, or at its end, where an edit, another reply or another chat goes on."""
        is_stored = folder is not None and len(cache.tokens) >= _MIN_TOKENS
        if is_stored and self._layout is not None and self._layout.has_state:
            self._states[len(cache.tokens)] = self._layout.copy_state(cache)

    def write_cache(self, cache: KVCache, folder: CacheFolder | None, shared: int = 0) -> None:
        """Write a cache after its reply, slice by slice; without a folder nothing is written.

        The first `shared` tokens belong to the project.
        """
        states = self._states
        self._states = {}
        if folder is not None and len(cache.tokens) >= _MIN_TOKENS:
            self._work.append(_Work(folder, weakref.ref(cache), states, shared if shared >= _MIN_TOKENS else 0))

    def leave(self, cache: KVCache, folder: CacheFolder | None) -> None:
        """Write no more of a cache, since a reply is about to change it, and nothing more into that reply's folder.

        Messages may have been deleted from the chat meanwhile; what it still has is written after the reply.
        """
        for work in self._work:
            is_same_folder = folder is not None and work.folder.path == folder.path
            if is_same_folder or work.cache() in {None, cache}:
                # The writer's thread may have the work's last segment, and then does not write it.
                work.failed = True
        self._work = [work for work in self._work if not work.failed]
        self._states = {}

    def write_next(self) -> bool:
        """Give the next segment to the writer; return whether there is more to do. It takes some milliseconds."""
        if not self._work:
            return False
        # One segment may wait behind the one that is written: each waiting copy takes memory.
        if self._writer.has_more:
            time.sleep(_WAIT_S)
            return True
        work = self._work[0]
        has_more = False
        try:
            has_more = not work.failed and self._write_next(work)
        except (OSError, RuntimeError):
            _LOG.warning("A cache is not kept on disk", exc_info=True)
        if not has_more:
            self._work.remove(work)
        return bool(self._work)

    def _write_next(self, work: _Work) -> bool:
        """Give the next segment of a cache to the writer; return whether there was one.

        The state of an end is that of `note_prompt` there, or, at the end of the reply, the cache's own.
        """
        layout = self._layout
        cache = work.cache()
        if layout is None or cache is None:
            return False
        if work.segments is None:
            work.segments = _missing(layout, work, cache)
        if not work.segments:
            return False
        segment = work.segments.pop(0)
        arrays = layout.copy_rows(cache, segment)
        if segment.is_end:
            arrays += work.states[segment.end] if segment.end in work.states else layout.copy_state(cache)
        if (data := layout.data(segment, arrays)) is None:
            return False

        def write(_job: Job[None]) -> None:
            work.failed = work.failed or not _written(layout, work, segment, data)

        self._writer.do(write)
        return True

    def finish_writing(self, timeout_s: float) -> None:
        """Write what is left, but only this long; nothing is written afterwards."""
        end = time.monotonic() + timeout_s
        while time.monotonic() < end and self.write_next():
            pass
        self._work = []
        self._writer.wait_for_jobs(max(end - time.monotonic(), 0.0))


@cache
def _programs() -> tuple[str, ...]:
    """Return versions of the code that computes rows: rows of an earlier version may be wrong, as with another rope."""
    package = Path(__file__).parents[1]
    code = (stamp_of(package / name).digest for name in ("mlx_lm_fixes", "models", "verification", "vision"))
    return version("mlx"), version("mlx-lm"), version("transformers"), *code


def _identity(folder: Path) -> tuple[str, str] | None:
    """Return the stamp and the hash of a model's files, by which files that replace them are noticed.

    The hash is of samples of the files, so both are needed. None if they cannot be read.
    """
    try:
        return stamp_of(folder).digest, target_hash(folder)
    except ModelError as error:
        _LOG.warning("Caches of this model cannot be kept on disk: %s", error)
        return None


def _folders(folder: CacheFolder) -> list[Path]:
    """Return the chat's folder, and that of its project if it has one."""
    return [folder.path, folder.shared] if folder.shared else [folder.path]


def _read(
    layout: CacheLayout, cache: KVCache, prompt: list[int], folders: Sequence[Path], check: Callable[[], None]
) -> None:
    """Append the segments of a prompt that are in some folders to a cache; see `DiskCaches.extend_cache`."""
    reached = len(cache.tokens)
    folder_of = dict[Segment, Path]()
    for folder in folders:
        for path in folder.glob("*"):
            if (stored := Segment.named(path.name)) is not None:
                folder_of[stored] = folder
    segments = [each for each in _plan(prompt, folder_of, layout.has_state) if each.end > reached]
    if not segments or segments[-1].end - reached < _MIN_GAIN:
        return
    # A folder in use counts as new when room is made.
    for folder in {folder_of[each] for each in segments}:
        os.utime(folder)
    try:
        for segment in segments:
            folder = folder_of[segment]
            check()
            arrays = layout.read_segment(folder, segment)
            if arrays is None:
                break
            # The cache has the segment's first rows already.
            known = max(reached - segment.start, 0)
            layout.append_rows(cache, [array[..., known:, :] for array in arrays[: layout.row_arrays]])
            reached = segment.end
            if segment.is_end:
                layout.set_state(cache, arrays[layout.row_arrays :], reached)
            # The cache gets tokens only up to where a prompt can go on: an end, or, without state, any block that ends
            # outside of images. Rows behind them wait for the next segment, or `cut` drops them.
            if segment.is_end or not (layout.has_state or cache.cuts_image(reached)):
                cache.extend(prompt[len(cache.tokens) : reached])
    finally:
        layout.cut(cache)


def _plan(prompt: list[int], stored: Iterable[Segment], has_state: bool) -> list[Segment]:
    """Return the segments that make the longest proper prefix of a prompt, in order.

    These are the blocks from the beginning without a gap, or some of them and then an end. The end is the farthest one
    that follows on them. With state there must be one; without state it is taken only if it reaches beyond the blocks.

    Args:
        prompt: Token ids.
        stored: Those of the chat and of its project, for one model.
        has_state: Whether a cache can only begin at an end.
    """
    short_enough = [segment for segment in stored if 0 < segment.end < len(prompt)]
    digests = digests_of(prompt, {segment.end for segment in short_enough})
    fitting = {
        (segment.end, segment.is_end): segment for segment in short_enough if digests[segment.end] == segment.digest
    }
    blocks = list[Segment]()
    while (block := fitting.get((len(blocks) * ROWS + ROWS, False))) is not None:
        blocks.append(block)
    reach = len(blocks) * ROWS
    # An end needs all blocks before it.
    ends = [segment for segment in fitting.values() if segment.is_end and segment.start <= reach]
    last = max(ends, key=lambda segment: segment.end, default=None)
    if last is not None and (has_state or last.end > reach):
        return [*blocks[: last.start // ROWS], last]
    return [] if has_state else blocks


def _missing(layout: CacheLayout, work: _Work, cache: KVCache) -> list[Segment]:
    """Return the segments of a cache that have no file."""
    length = len(cache.tokens)
    blocks = range(ROWS, length + 1, ROWS)
    # A cache without state can be cut anywhere, so only the end of the shared beginning is of use besides the last one;
    # 0 is none.
    positions = {*work.states, 0 if layout.has_state else work.shared}
    ends = [*sorted(each for each in positions if 0 < each < length), length]
    digests = digests_of(cache.tokens, {*blocks, *ends})
    segments = [Segment(end, digests[end], False) for end in blocks]
    segments += [Segment(end, digests[end], True) for end in ends]
    names = set[str]()
    for parent in _folders(work.folder):
        folder = parent / layout.key
        # A folder in use counts as new when room is made.
        with suppress(FileNotFoundError):
            os.utime(folder)
        names |= {path.name for path in folder.glob("*")}
    return [segment for segment in segments if segment.name not in names]


def _written(layout: CacheLayout, work: _Work, segment: Segment, data: bytes) -> bool:
    """Write a segment's file, if there is room; return whether it was written. Runs on the writer's thread.

    The oldest ends make room for a new one, and other chats' folders for files beyond the limit.
    """
    path = work.path_of(segment) / layout.key
    try:
        path.mkdir(mode=0o700, exist_ok=True)
        if segment.is_end:
            # The oldest go, so that there are at most `_ENDS` with the new one. They go before room is made, so that
            # their own room counts, even where it is not enough in the end.
            ends = sorted(path.glob("*.end"), key=lambda file: file.stat().st_mtime)
            for oldest in ends[: 1 - _ENDS]:
                oldest.unlink()
        if not make_room(path.parent.parent, work.folder.limit_bytes, len(data), spared=path):
            return False
        layout.write_segment(path, segment, data)
    except FileNotFoundError:
        # The chat was deleted, or the caches were cleared.
        return False
    except OSError as error:
        _LOG.warning("Caches cannot be kept on disk: %s", error.strerror)
        return False
    return True
