"""From conversations to what a trainer of a sequence head needs: vocabulary, teacher, scales, and a store of states."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, chain
from pathlib import Path

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.training.data.shards import TrainingConversation
from rdchat.inference.training.head.samples import Answers, Ints, StateWindows, Teacher, draft_vocabulary
from rdchat.inference.training.sequence_heads.samples import Sample
from rdchat.inference.training.training_progress import Phase, TrainingProgress

_HELD_OUT = 12  # conversations that are looked at while training

Halves = npt.NDArray[np.float16]


class ConversationStore:
    """All conversations, with the target's hidden states at all of their tokens read window by window.

    Args:
        shards: Their conversations.
        read: Returns the (tokens, width) states of a shard: the trunk's output, then those that the head reads.
        most_tokens: Tokens of a window, at most; but a window holds one shard at least.
        trunk: Width of the trunk's output.

    Attributes:
        conversations: All of them, in order.
        answers: Their answers, end to end.
    """

    def __init__(
        self,
        shards: Sequence[Sequence[TrainingConversation]],
        read: Callable[[int], Halves],
        most_tokens: int,
        trunk: int,
    ) -> None:
        self.conversations = list(chain.from_iterable(shards))
        self.answers = Answers.of(self.conversations)
        self._windows = StateWindows([sum(len(item.tokens) for item in shard) for shard in shards], read, most_tokens)
        self._starts = [0, *accumulate(len(item.tokens) for item in self.conversations)]
        self._answer_starts = [0, *accumulate(len(item.answer) for item in self.conversations)]
        self._trunk = trunk
        self._loaded: tuple[int, Halves] | None = None  # one that serves all epochs is read once

    def __len__(self) -> int:
        """The number of windows."""
        return len(self._windows)

    def inside(self, window: int) -> range:
        """Return the conversations of a window."""
        start, stop = self._windows.span(window)
        return range(self._starts.index(start), self._starts.index(stop))

    def answer_span(self, number: int) -> slice:
        """Return where the answer of a conversation is among all answers' tokens."""
        return slice(self._answer_starts[number], self._answer_starts[number + 1])

    def states(self, window: int, number: int) -> Halves:
        """Return (tokens, width) the hidden states of a conversation in a window."""
        if self._loaded is None or self._loaded[0] != window:
            self._loaded = None  # before the next one takes its memory
            self._loaded = window, self._windows.load(window)
        first = self._windows.span(window)[0]
        return self._loaded[1][self._starts[number] - first : self._starts[number + 1] - first]

    def trunk_states(self, window: int, number: int) -> Halves:
        """Return (answer tokens, trunk) what the target's logits of an answer were read from."""
        start = self.conversations[number].answer_start
        return self.states(window, number)[start - 1 : -1, : self._trunk]

    def window_trunk_states(self, window: int) -> Halves:
        """Return (answer tokens, trunk) those of all answers of a window, end to end."""
        return np.concatenate([self.trunk_states(window, number) for number in self.inside(window)])

    def features(self, window: int, number: int) -> Halves:
        """Return (tokens, features) what the head reads of a conversation."""
        return self.states(window, number)[:, self._trunk :]


@dataclass(frozen=True, slots=True)
class PreparedSequences:
    """The prepared data of a training.

    Attributes:
        store: The conversations and their hidden states.
        teacher: The target's top-k at each answer token.
        vocabulary: (candidates,) int32 ids of the tokens that can be drafted, ascending.
        counts: (vocabulary size,) int32: how often each token occurs in the answers.
        scales: (features,) float32: root mean square of each of the head's inputs; small ones are not blown up.
        held_out: Samples of answers at temperature 0 that are not trained on.
        question_tokens: Tokens of a question that a sample keeps.
    """

    store: ConversationStore
    teacher: Teacher
    vocabulary: Ints
    counts: Ints
    scales: npt.NDArray[np.float32]
    held_out: list[Sample]
    question_tokens: int

    def examples(self) -> list[Sample]:
        """Return a few samples: those that are looked at or, where there are none, the first one."""
        return self.held_out or [self.sample(0, 0)]

    def sample(self, window: int, number: int) -> Sample:
        """Return a conversation to be trained on."""
        span = self.store.answer_span(number)
        return Sample.of(
            self.store.conversations[number],
            self.store.features(window, number),
            self.teacher.part(span.start, span.stop),
            self.vocabulary,
            self.question_tokens,
        )


def prepare(
    embeddings: TargetEmbeddings,
    curve: Callable[[npt.NDArray[np.floating]], npt.NDArray[np.floating]],
    vocabulary_size: int,
    store: ConversationStore,
    *,
    candidates: int,
    question_tokens: int,
    kept: Path | None = None,
) -> Generator[TrainingProgress, None, PreparedSequences]:
    """Read all data once; yield progress after each window.

    Args:
        embeddings: The target's.
        curve: The target's logits from products of hidden states and output rows: see `LogitCurve`.
        vocabulary_size: Tokens of the target.
        store: The data.
        candidates: Tokens that can be drafted, at most.
        question_tokens: Tokens of a question that a sample keeps.
        kept: Folder for the teacher's top-k of each window, so that an interruption costs one window.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If what is kept cannot be written.
    """
    answers = store.answers
    vocabulary = draft_vocabulary(answers, candidates)
    rows = embeddings.output_rows(mx.array(vocabulary)).astype(mx.float32)
    teacher = Teacher.blank(len(answers), len(vocabulary))
    counts = np.bincount(answers.tokens, minlength=vocabulary_size).astype(np.int32)
    squares, tokens = np.zeros(0), 0
    held_out: list[Sample] = []
    for window in range(len(store)):
        inside = store.inside(window)
        part = teacher.part(store.answer_span(inside[0]).start, store.answer_span(inside[-1]).stop)
        part.fill_or_read(kept, window, partial(store.window_trunk_states, window), rows, curve)
        for number in inside:
            item, features = store.conversations[number], store.features(window, number)
            span = store.answer_span(number)
            here = features[item.answer_start :].astype(np.float64)
            squares = (here**2).sum(axis=0) + (squares if squares.size else 0)
            tokens += len(here)
            if answers.held_out[span.start] and answers.greedy[span.start] and len(held_out) < _HELD_OUT:
                taken = teacher.part(span.start, span.stop)
                held_out.append(Sample.of(item, features, taken, vocabulary, question_tokens))
        yield TrainingProgress(Phase.PREPARE, (window + 1) / len(store))
    scales = np.sqrt(squares / max(tokens, 1))
    scales = np.maximum(scales, 1e-3 * scales.max()).astype(np.float32)
    return PreparedSequences(store, teacher, vocabulary, counts, scales, held_out, question_tokens)
