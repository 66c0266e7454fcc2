"""Makes training data: the target writes questions and answers them, a batch of conversations at a time.

Zhang et al. 2024 train on answers of the target itself. Without a corpus of questions, the chat template's user prefix
makes an instruction-tuned model write questions (Xu et al. 2024, "Magpie", arXiv 2406.08464).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.training.data.batched_decoding import BatchedDecoder
from rdchat.inference.training.data.seed_prompts import SeedPrompt
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation
from rdchat.inference.verification.fetch import fetch
from rdchat.inference.verification.target import LoadedModel

_QUESTION_TEMPERATURE = 0.8
# The default of chats, too.
_TOP_P = 0.95
# Tokens less likely than e^-10 times the most likely one are never drawn.
_REACH = 10.0
MAX_ANSWER_TOKENS = 224
# Room in a conversation for an article or search results, a task, and an answer.
MAX_SEQUENCE_TOKENS = 1408
# An answer loops if this many consecutive runs of this many tokens were all seen before.
_LOOP_RUN, _LOOP_LENGTH = 8, 8


@dataclass(frozen=True, slots=True)
class Template:
    """The chat template's token ids around a question.

    Attributes:
        before: Tokens before the user's first token.
        after: Tokens that end the question and begin the answer.
        ends: Tokens that end a turn.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]
    ends: frozenset[int]


class TokenSequence:
    """One conversation being decoded.

    Args:
        number: Number of the conversation; with the seed it decides the random draws.
        template: Tokens around the question.
        question: Token ids of the seed prompt.
        more_tokens: Limit of the tokens that the target may add to the question; 0 if it is complete.
        temperature: Temperature of the answer.
        seed: Seed of the training.

    Attributes:
        tokens: Token ids of the conversation so far.
        over: Whether the answer has ended.
    """

    def __init__(
        self, number: int, template: Template, question: list[int], *, more_tokens: int, temperature: float, seed: int
    ) -> None:
        self.tokens = [*template.before, *question]
        self.over = False
        self._number = number
        self._template = template
        self._temperature = temperature
        self._draw = np.random.default_rng([seed, number])
        self._question_limit = len(self.tokens) + more_tokens
        self._answer_start: int | None = None
        self._runs: set[tuple[int, ...]] = set()
        self._repeats = 0
        if not more_tokens:
            self._open_answer()
        self._fed = len(self.tokens) - 1

    def next_input(self) -> int:
        """Return the token to feed next; arbitrary once the conversation is over."""
        self._fed = min(self._fed + 1, len(self.tokens))
        return self.tokens[self._fed - 1]

    def take(self, logits: npt.NDArray[np.float32]) -> None:
        """Choose the token after the last input from its (vocabulary,) logits."""
        if self._fed < len(self.tokens):
            return  # The template decides the next token.
        if self._answer_start is None:
            token = sample(logits, _QUESTION_TEMPERATURE, self._draw)
            ended = token in self._template.ends or token == self._template.after[0]
            if not ended:
                self.tokens.append(token)
            if ended or len(self.tokens) >= self._question_limit:
                self._open_answer()
            return
        token = sample(logits, self._temperature, self._draw)
        self.tokens.append(token)
        length = self.answer_tokens
        self.over = token in self._template.ends or length >= MAX_ANSWER_TOKENS or self._loops(length)

    @property
    def answer_tokens(self) -> int:
        """Tokens of the answer so far."""
        return 0 if self._answer_start is None else len(self.tokens) - self._answer_start

    def conversation(self) -> TrainingConversation:
        """Return the finished conversation."""
        assert self._answer_start is not None
        return TrainingConversation(self._number, self.tokens, self._answer_start, self._temperature)

    def _open_answer(self) -> None:
        self.tokens += self._template.after
        self._answer_start = len(self.tokens)

    def _loops(self, length: int) -> bool:
        """Record the last run of `_LOOP_RUN` tokens; return whether `_LOOP_LENGTH` in a row occurred before."""
        if length >= _LOOP_RUN:
            assert self._answer_start is not None
            end = self._answer_start + length
            run = tuple(self.tokens[end - _LOOP_RUN : end])
            self._repeats = self._repeats + 1 if run in self._runs else 0
            self._runs.add(run)
        return self._repeats >= _LOOP_LENGTH


def sample(logits: npt.NDArray[np.float32], temperature: float, draw: np.random.Generator) -> int:
    """Draw a token from the nucleus of 0.95 (Holtzman et al. 2020, arXiv 1904.09751); at temperature 0 take the argmax.

    Done on the host in a tenth of a millisecond; noise for all of a vocabulary takes ten times as long on a CPU.

    Args:
        logits: (vocabulary,).
        temperature: Divides the logits.
        draw: Gives one number, unless the temperature is 0.
    """
    best = int(logits.argmax())
    if not temperature:
        return best
    likely = np.flatnonzero(logits > logits[best] - _REACH * temperature)
    weights = np.exp((logits[likely] - logits[best]) / temperature)
    order = np.argsort(-weights, kind="stable")
    sums = np.cumsum(weights[order])
    likely_enough = int(np.searchsorted(sums, _TOP_P * sums[-1])) + 1
    chosen = np.searchsorted(sums[:likely_enough], draw.random() * sums[likely_enough - 1], side="right")
    return int(likely[order[min(chosen, likely_enough - 1)]])


# Answers of consecutive conversations take these temperatures in turn.
_ANSWER_TEMPERATURES = (0.0, 0.7)
# Every fourth batch asks about long texts; a batch's longest sequence decides the cost of a step.
_LONG_BATCHES = 4
# Length of answers that serve as passages later, cut at the upper end.
_PASSAGE_TOKENS = (40, 110)
# Number of latest passages to draw from.
_PASSAGES = 600
# Ended conversations are dropped when at most this share of the rows is still running.
_FULL_ENOUGH = 0.93
_MARK = "xquestionx"


def chat_template(model: LoadedModel) -> Template:
    """Return the tokens that the chat template puts around a question.

    Raises:
        ModelError: If the model has no chat template, or one that changes the user's text or does not mark turns.
    """
    tokenizer, encode = model.tokenizer, model.prompts.encode_text
    if not tokenizer.has_chat_template:
        raise ModelError(f"{model.info.name} has no chat template.", "Choose an instruction-tuned model.")
    text = model.decode(model.encode_chat((ChatMessage(Role.USER, _MARK),), continue_last=False))
    before, mark, after = text.partition(_MARK)
    if not mark:
        raise ModelError(
            f"{model.info.name}'s chat template changes the user's text.",
            "Choose an instruction-tuned model with a user role.",
        )
    template = Template(tuple(encode(before)), tuple(encode(after)), model.end_tokens)
    if not template.before or not template.after:
        raise ModelError(
            f"{model.info.name}'s chat template does not mark where the user's text begins and ends.",
            "Choose an instruction-tuned model with a user role.",
        )
    return template


@dataclass
class DataMaker:
    """Makes conversations, batch by batch; a batch is one shard.

    A batch depends only on the seed, its number and the shards before it, so a resumed run makes the same data as an
    uninterrupted one. An interrupted batch begins again.

    Attributes:
        model: The target, accepted by `check_batched_decoding`.
        seed_prompt: Draws the seed prompt of a conversation from its number, the passages, and whether it is long.
        shards: The folder to which new shards are added.
        seed: Seed of the training, from 0 to 2**31 - 1.
        sequences: Conversations in a batch.
        passages: Answers that later questions may be about.
    """

    model: LoadedModel
    template: Template
    seed_prompt: Callable[[int, Sequence[str], bool], SeedPrompt]
    shards: ShardFolder
    seed: int
    sequences: int
    passages: list[str] = field(default_factory=list)

    def resume(self) -> list[list[TrainingConversation]]:
        """Continue after the last shard; return the existing shards."""
        made = [self.shards.read(number) for number in range(len(self.shards))]
        for shard in made:
            self._remember(shard)
        return made

    def make_shard(self) -> Generator[int]:
        """Make one more shard; after each target call yield its number of answer tokens so far."""
        number = len(self.shards)
        long = number % _LONG_BATCHES == _LONG_BATCHES - 1
        sequences = [self._sequence(number * self.sequences + index, long) for index in range(self.sequences)]
        shared = self.template.before[:-1]  # The first step feeds a sequence's last token.
        running = sorted(sequences, key=lambda sequence: len(sequence.tokens))
        decoder = BatchedDecoder(self.model, shared, [each.tokens[len(shared) : -1] for each in running])
        while running:
            logits = fetch(decoder.step([sequence.next_input() for sequence in running]).astype(mx.float32))
            for sequence, row in zip(running, logits, strict=True):
                if not sequence.over:
                    sequence.take(row)
            rows = [row for row, sequence in enumerate(running) if not sequence.over]
            if len(rows) <= len(running) * _FULL_ENOUGH:
                running = [running[row] for row in rows]
                if rows:
                    decoder.keep(rows)
            yield sum(sequence.answer_tokens for sequence in sequences)
        made = [sequence.conversation() for sequence in sequences]
        self.shards.append(made)
        self._remember(made)

    def _sequence(self, number: int, long: bool) -> TokenSequence:
        prompt = self.seed_prompt(number, self.passages, long)
        question = self.model.prompts.encode_text(prompt.text)[: max(self._room - prompt.more_tokens, 1)]
        temperature = _ANSWER_TEMPERATURES[number % len(_ANSWER_TEMPERATURES)]
        return TokenSequence(
            number,
            self.template,
            question,
            more_tokens=prompt.more_tokens,
            temperature=temperature,
            seed=self.seed,
        )

    @property
    def _room(self) -> int:
        """Most tokens of a question; longer ones are cut to fit the context and the batch's memory."""
        around = len(self.template.before) + len(self.template.after)
        limit = min(MAX_SEQUENCE_TOKENS, self.model.info.context_length)
        return limit - MAX_ANSWER_TOKENS - around

    def _remember(self, made: Sequence[TrainingConversation]) -> None:
        """Keep answers in prose, up to the end of a sentence, as passages for later questions."""
        shortest, longest = _PASSAGE_TOKENS
        for item in made:
            if len(item.answer) >= shortest:
                answer = [token for token in item.answer[:longest] if token not in self.template.ends]
                text = self.model.decode(answer).strip()
                sentences, stop, _ = text.rpartition(". ")
                if "```" not in text and text.count("\n") <= 3:
                    self.passages.append((sentences or text) + stop.strip())
        del self.passages[:-_PASSAGES]
