"""A batch of conversations that are decoded together, from first token to last; it can be saved and restored."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.files.atomic_file import atomic_file
from rdchat.files.foreign_files import parse_json
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import BatchedDecoder
from rdchat.inference.training.data.shards import TrainingConversation

_FULL_ENOUGH = 0.93  # sequences that have ended are dropped once at most this share of the rows still runs
_QUESTION_TEMPERATURE = 0.8
_TOP_P = 0.95  # what chats are sampled with by default
_REACH = 10.0  # tokens that are e^-10 times as likely as the most likely are never drawn
MOST_ANSWER_TOKENS = 224
MOST_SEQUENCE_TOKENS = 1408  # of a conversation: an article or search results, a task, and an answer
_SAVED = ("number", "temperature", "tokens", "over", "fed", "question_limit", "answer_start")  # of a sequence
_LOOP_RUN, _LOOP_LENGTH = 8, 8  # an answer loops where this many runs of this many tokens in a row were all seen before


@dataclass(frozen=True, slots=True)
class Template:
    """The chat template's token ids around a question."""

    before: tuple[int, ...]  # before the user's first token
    after: tuple[int, ...]  # end the question and begin the answer
    ends: frozenset[int]  # end a turn


class TokenSequence:
    """One conversation being decoded.

    Args:
        number: Of the conversation; it decides the random draws, with the seed.
        template: Tokens around the question.
        question: Token ids of the seed prompt.
        more_tokens: The most tokens that the target may add to the question; 0 where it is whole.
        temperature: Of the answer.
        seed: Of the training.

    Attributes:
        tokens: Token ids of the conversation so far.
        states: For each token of the answer, (width,) float16: the hidden state that it was chosen from.
        over: Whether the answer has ended.
        fed: Tokens that were fed so far.
        question_limit: Tokens of template and question, at most.
        answer_start: Index of the answer's first token; None while the question is written.
    """

    def __init__(
        self, number: int, template: Template, question: list[int], *, more_tokens: int, temperature: float, seed: int
    ) -> None:
        self.tokens = [*template.before, *question]
        self.states: list[npt.NDArray[np.float16]] = []
        self.over = False
        self.number = number
        self._template = template
        self.temperature = temperature
        self._draw = np.random.default_rng([seed, number])
        self.question_limit = len(self.tokens) + more_tokens
        self.answer_start: int | None = None
        self._runs: set[tuple[int, ...]] = set()
        self._repeats = 0
        if not more_tokens:
            self._open_answer()
        self.fed = len(self.tokens) - 1

    def next_input(self) -> int:
        """Return the token to feed next; an arbitrary one where the conversation is over."""
        self.fed = min(self.fed + 1, len(self.tokens))
        return self.tokens[self.fed - 1]

    def take(self, logits: npt.NDArray[np.float32], state: npt.NDArray[np.float16]) -> None:
        """Choose the token after the last input.

        Args:
            logits: (vocabulary,).
            state: (width,) the hidden state that they come from.
        """
        if self.fed < len(self.tokens):
            return  # the next token is given: the template's
        if self.answer_start is None:
            token = sample(logits, _QUESTION_TEMPERATURE, self._draw)
            ended = token in self._template.ends or token == self._template.after[0]
            if not ended:
                self.tokens.append(token)
            if ended or len(self.tokens) >= self.question_limit:
                self._open_answer()
            return
        token = sample(logits, self.temperature, self._draw)
        self.tokens.append(token)
        self.states.append(state)
        length = self.answer_tokens
        self.over = token in self._template.ends or length >= MOST_ANSWER_TOKENS or self._loops(length)

    @property
    def answer_tokens(self) -> int:
        """Tokens of the answer so far."""
        return 0 if self.answer_start is None else len(self.tokens) - self.answer_start

    def to_dict(self) -> dict[str, Any]:
        """Return all but the states as a JSON object, for `from_dict`."""
        return {name: getattr(self, name) for name in _SAVED} | {"draw": self._draw.bit_generator.state}

    @classmethod
    def from_dict(cls, data: dict[str, Any], states: npt.NDArray[np.float16], template: Template) -> "TokenSequence":
        """Return the sequence that `to_dict` described; `states` are (answer tokens, width)."""
        made = cls(data["number"], template, [], more_tokens=1, temperature=data["temperature"], seed=0)
        for name in _SAVED:
            setattr(made, name, data[name])
        made.states = list(states)
        made._draw.bit_generator.state = data["draw"]
        for length in range(1, made.answer_tokens + 1):
            made._loops(length)
        return made

    def conversation(self) -> TrainingConversation:
        """Return the ended conversation."""
        assert self.answer_start is not None
        return TrainingConversation(self.number, self.tokens, self.answer_start, self.temperature)

    def _open_answer(self) -> None:
        self.tokens += self._template.after
        self.answer_start = len(self.tokens)

    def _loops(self, length: int) -> bool:
        """Note the answer's last run of `_LOOP_RUN` tokens; return whether `_LOOP_LENGTH` in a row occurred before."""
        if length >= _LOOP_RUN:
            assert self.answer_start is not None
            end = self.answer_start + length
            run = tuple(self.tokens[end - _LOOP_RUN : end])
            self._repeats = self._repeats + 1 if run in self._runs else 0
            self._runs.add(run)
        return self._repeats >= _LOOP_LENGTH


def sample(logits: npt.NDArray[np.float32], temperature: float, draw: np.random.Generator) -> int:
    """Draw a token from the nucleus of 0.95 (Holtzman et al. 2020, arXiv 1904.09751); at temperature 0 take the argmax.

    On the host, where this takes a tenth of a millisecond: noise for a whole vocabulary costs ten times as much on a
    CPU.

    Args:
        logits: (vocabulary,).
        temperature: Divides the logits.
        draw: One number is drawn from it, unless the temperature is 0.
    """
    best = int(logits.argmax())
    if not temperature:
        return best
    likely = np.flatnonzero(logits > logits[best] - _REACH * temperature)
    weights = np.exp((logits[likely] - logits[best]) / temperature)
    order = np.argsort(-weights, kind="stable")
    sums = np.cumsum(weights[order])
    kept = int(np.searchsorted(sums, _TOP_P * sums[-1])) + 1
    chosen = np.searchsorted(sums[:kept], draw.random() * sums[kept - 1], side="right")
    return int(likely[order[min(chosen, kept - 1)]])


class ConversationBatch:
    """Conversations that started together.

    Args:
        decoder: Holds, for each sequence of `running` in that order, all its tokens but the last.
        sequences: All of the batch.
        running: Indices of the sequences that still have a row in the decoder: ended ones keep theirs until at most
            `_FULL_ENOUGH` of the rows run.
    """

    def __init__(self, decoder: BatchedDecoder, sequences: Sequence[TokenSequence], running: Sequence[int]) -> None:
        self._decoder = decoder
        self._sequences = list(sequences)
        self._running = list(running)

    @property
    def over(self) -> bool:
        """Whether all conversations have ended."""
        return not self._running

    @property
    def answer_tokens(self) -> int:
        """Answer tokens so far."""
        return sum(sequence.answer_tokens for sequence in self._sequences)

    def step(self) -> None:
        """Make one target call and let every conversation that has not ended choose a token."""
        running = [self._sequences[place] for place in self._running]
        logits, hidden = self._decoder.step([sequence.next_input() for sequence in running])
        rows, states = fetch(logits.astype(mx.float32), hidden.astype(mx.float16))
        for sequence, row, state in zip(running, rows, states, strict=True):
            if not sequence.over:
                sequence.take(row, state)
        places = [place for place, sequence in enumerate(running) if not sequence.over]
        if len(places) <= len(running) * _FULL_ENOUGH:
            self._running = [self._running[place] for place in places]
            if places:
                self._decoder.keep(places)

    def result(self) -> tuple[list[TrainingConversation], npt.NDArray[np.float16]]:
        """Return the ended conversations, and (answer tokens, width) float16: the hidden states of their answers."""
        return [sequence.conversation() for sequence in self._sequences], self._states()

    def _states(self) -> npt.NDArray[np.float16]:
        return np.stack([state for sequence in self._sequences for state in sequence.states])

    def save(self, path: Path, number: int) -> None:
        """Save the batch exactly: restored, it makes the same tokens as if it had never been interrupted.

        Args:
            path: A safetensors file, replaced atomically.
            number: The shard that the batch is to become; `restore` wants the same.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If it cannot be written.
        """
        held, layers = self._decoder.state()
        tensors = {}
        for place, (keys, values) in enumerate(layers):
            tensors[f"keys.{place}"], tensors[f"values.{place}"] = keys, values
        if self.answer_tokens:
            tensors["states"] = mx.array(self._states())
        facts = {"number": number, "held": held, "running": self._running}
        facts["lanes"] = [sequence.to_dict() for sequence in self._sequences]
        with atomic_file(path) as temporary:
            mx.save_safetensors(str(temporary), tensors, {"wave": json.dumps(facts)})

    @classmethod
    def restore(cls, path: Path, number: int, model: LoadedModel, template: Template) -> "ConversationBatch | None":
        """Return the saved batch; None where there is none, it is damaged, or it is of another shard."""
        if not path.exists():
            return None
        try:
            read_header(path)
        except ModelError:  # damaged: it is made again from its beginning
            return None
        loaded: Any = mx.load(str(path), return_metadata=True)
        tensors, metadata = loaded
        facts = parse_json(metadata["wave"], f"{path} is damaged", "Delete it: the batch is then made again.")
        if facts["number"] != number:
            return None
        mx.eval(tensors)  # before the file is replaced
        states, sequences = fetch(tensors["states"]) if "states" in tensors else np.empty((0, 0), np.float16), []
        for data in facts["lanes"]:
            count = len(data["tokens"]) - data["answer_start"] if data["answer_start"] else 0
            sequences.append(TokenSequence.from_dict(data, states[:count], template))
            states = states[count:]
        layers = [(tensors[f"keys.{i}"], tensors[f"values.{i}"]) for i in range(len(tensors) // 2)]
        return cls(BatchedDecoder.of_state(model, facts["held"], layers), sequences, facts["running"])
