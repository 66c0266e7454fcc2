"""Makes training data: the target writes questions and answers them, a batch of conversations at a time.

Zhang et al. 2024 train on answers of the target itself. Without a corpus of questions, the chat template's user prefix
makes an instruction-tuned model write questions (Xu et al. 2024, "Magpie", arXiv 2406.08464).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field

import mlx.core as mx
import numpy as np

from rdchat.errors import ModelError
from rdchat.inference.api.requests import ChatMessage, Role
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import BatchedDecoder
from rdchat.inference.training.data.seed_prompts import SeedPrompt
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation
from rdchat.inference.training.data.token_sequence import (
    MOST_ANSWER_TOKENS,
    MOST_SEQUENCE_TOKENS,
    Template,
    TokenSequence,
)

_ANSWER_TEMPERATURES = (0.0, 0.7)  # conversations take turns
_LONG_BATCHES = 4  # every fourth batch asks about long texts; a batch's longest sequence decides the cost of a step
_PASSAGE_TOKENS = (40, 110)  # length of answers that serve as passages later, cut at the upper end
_PASSAGES = 600  # number of latest passages to draw from
_FULL_ENOUGH = 0.93  # ended conversations are dropped when at most this share of the rows is still running
_MARK = "xquestionx"


def chat_template(model: LoadedModel) -> Template:
    """Return the tokens that the chat template puts around a question.

    Raises:
        ModelError: If the model has no chat template, or one that changes the user's text or does not mark turns.
    """
    tokenizer = model.tokenizer
    if not tokenizer.has_chat_template:
        raise ModelError(f"{model.info.name} has no chat template.", "Choose an instruction-tuned model.")
    text = model.decode(model.encode_chat((ChatMessage(Role.USER, _MARK),), continue_last=False))
    before, mark, after = text.partition(_MARK)
    if not mark:
        raise ModelError(
            f"{model.info.name}'s chat template changes the user's text.",
            "Choose an instruction-tuned model with a user role.",
        )
    template = Template(tuple(encode(model, before)), tuple(encode(model, after)), model.end_tokens)
    if not template.before or not template.after:
        raise ModelError(
            f"{model.info.name}'s chat template does not mark where the user's text begins and ends.",
            "Choose an instruction-tuned model with a user role.",
        )
    return template


def encode(model: LoadedModel, text: str) -> list[int]:
    """Return the token ids of a question, without special tokens."""
    return model.prompts.encode_text(text)


@dataclass
class DataMaker:
    """Makes conversations, batch by batch; a batch is one shard.

    A batch depends only on the seed, its number and the shards before it, so a resumed run makes the same data as an
    uninterrupted one. An interrupted batch begins again.
    """

    model: LoadedModel  # the target, accepted by `check_batched_decoding`
    template: Template
    seed_prompt: Callable[[int, Sequence[str], bool], SeedPrompt]  # such as `SeedPromptSource.seed_prompt`
    shards: ShardFolder  # where new shards are added
    _: KW_ONLY
    seed: int  # of the training; from 0 to 2**31 - 1
    sequences: int  # conversations in a batch
    keep_states: bool  # whether the answers' hidden states are kept on disk, as float16
    passages: list[str] = field(default_factory=list)  # answers that later questions may be about

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
        sequences = [self._sequence(number * self.sequences + place, long) for place in range(self.sequences)]
        shared = self.template.before[:-1]  # the first step feeds a sequence's last token
        running = sorted(sequences, key=lambda sequence: len(sequence.tokens))
        decoder = BatchedDecoder.read(self.model, shared, [each.tokens[len(shared) : -1] for each in running])
        while running:
            logits, hidden = decoder.step([sequence.next_input() for sequence in running])
            for sequence, row, state in zip(
                running, *fetch(logits.astype(mx.float32), hidden.astype(mx.float16)), strict=True
            ):
                if not sequence.over:
                    sequence.take(row, state)
            rows = [row for row, sequence in enumerate(running) if not sequence.over]
            if len(rows) <= len(running) * _FULL_ENOUGH:
                running = [running[row] for row in rows]
                if rows:
                    decoder.keep(rows)
            yield sum(sequence.answer_tokens for sequence in sequences)
        made = [sequence.conversation() for sequence in sequences]
        states = [state for sequence in sequences for state in sequence.states]
        self.shards.append(made, np.stack(states) if self.keep_states else None)
        self._remember(made)

    def _sequence(self, number: int, long: bool) -> TokenSequence:
        prompt = self.seed_prompt(number, self.passages, long)
        question = encode(self.model, prompt.text)[: max(self._room - prompt.more_tokens, 1)]
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
        most = min(MOST_SEQUENCE_TOKENS, self.model.info.context_length)
        return most - MOST_ANSWER_TOKENS - around

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
