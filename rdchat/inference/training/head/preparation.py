"""From conversations to what a trainer needs: draft vocabulary, whitening, the teacher's top-k at every token."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.fetch import fetch
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.head.samples import Answers, Ints, SampleReader, StateWindows, Teacher, draft_vocabulary
from rdchat.inference.training.head.whitening import Whitening
from rdchat.inference.training.training_progress import Phase, TrainingProgress

_MEASURED_STATES = 20_000  # hidden states that the standardisation is measured on
_SIMULATED = 8192  # held-out tokens that are looked at while training


@dataclass(frozen=True, slots=True)
class HeldOut:
    """Answers that are not trained on; the head is evaluated on them while it is trained.

    Attributes:
        roots: (n,) int64, ascending: indices of answer tokens, of held-out answers at temperature 0.
        states: (n, width) float16: their hidden states.
    """

    roots: npt.NDArray[np.int64]
    states: npt.NDArray[np.float16]


@dataclass(frozen=True, slots=True)
class Prepared:
    """The prepared data of a training.

    Attributes:
        reader: Gives the samples.
        windows: Give their hidden states.
        whitening: Of hidden states, embeddings and output rows.
        vocabulary: (candidates,) int32 ids of the tokens that can be drafted, ascending.
        counts: (candidates,) int32: how often each occurs in the answers.
        held_out: Answers that the head is evaluated on while it is trained.
    """

    reader: SampleReader
    windows: StateWindows
    whitening: Whitening
    vocabulary: mx.array
    counts: Ints
    held_out: HeldOut


def prepare(
    embeddings: TargetEmbeddings,
    curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]],
    vocabulary_size: int,
    shards: Sequence[Sequence[TrainingConversation]],
    read_states: Callable[[int], npt.NDArray[np.float16]],
    *,
    candidates: int,
    steps: int,
    window_tokens: int,
    kept: Path | None = None,
    known: Ints | None = None,
) -> Generator[TrainingProgress, None, Prepared]:
    """Read all data once; yield progress after each window.

    Args:
        embeddings: The target's.
        curve: The target's logits from products of hidden states and output rows: see `LogitCurve`.
        vocabulary_size: Tokens of the target.
        shards: Their conversations.
        read_states: Returns the (answer tokens, width) hidden states of a shard; the first columns are the trunk's.
        candidates: Tokens that can be drafted, at most.
        steps: Tokens drafted behind the root.
        window_tokens: Answer tokens whose states are in memory together.
        kept: Folder for the teacher's top-k of each window, so that an interruption costs one window.
        known: (candidates,) ids that a head which is trained further could draft before; see `draft_vocabulary`.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If what is kept cannot be written.
    """
    answers = Answers.of([item for shard in shards for item in shard])
    vocabulary = draft_vocabulary(answers, candidates, known)
    ids = mx.array(vocabulary)
    rows = embeddings.output_rows(ids).astype(mx.float32)
    teacher = Teacher.blank(len(answers), len(vocabulary))
    reader = SampleReader(answers, teacher, vocabulary, steps)
    counts = [sum(len(item.answer) for item in shard) for shard in shards]
    windows = StateWindows(counts, read_states, window_tokens)
    some, held_roots, held_states = [], [], []
    draw = np.random.default_rng(0)
    for window in range(len(windows)):
        (start, stop), states = windows.span(window), windows.load(window)
        part = teacher.part(start, stop)
        part.fill_or_read(kept, window, partial(states.__getitem__, np.s_[:, : rows.shape[1]]), rows, curve)
        share = -(-_MEASURED_STATES * (stop - start) // len(answers))
        some.append(states[draw.permutation(stop - start)[:share]])
        roots = reader.roots(start, stop, held_out=True)
        roots = roots[answers.greedy[roots]]
        held_roots.append(roots[:_SIMULATED])
        held_states.append(states[roots[:_SIMULATED] - start])
        yield TrainingProgress(Phase.PREPARE, stop / len(answers))
    table = fetch(embeddings.embed(mx.arange(vocabulary_size)).astype(mx.float32))
    frequencies = np.bincount(answers.tokens, minlength=vocabulary_size).astype(np.int32)
    measured = np.concatenate(some).astype(np.float32)
    return Prepared(
        reader,
        windows,
        Whitening.of(measured, table, frequencies, fetch(rows)),
        ids,
        frequencies[vocabulary],
        HeldOut(np.concatenate(held_roots)[:_SIMULATED], np.concatenate(held_states)[:_SIMULATED]),
    )


def at_once(steps: Generator[TrainingProgress, None, Prepared]) -> Prepared:
    """Run a preparation to its end and return its result, without reporting progress."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            prepared: Prepared = end.value
            return prepared
