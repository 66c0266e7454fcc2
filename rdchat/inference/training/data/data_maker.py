"""Making training data: the target writes its own questions and answers them, a batch of conversations at a time.

Zhang et al. 2024 train on answers that the target itself gives; where no corpus of questions is at hand, the chat
template's user prefix makes an instruction-tuned model write questions (Xu et al. 2024, "Magpie", arXiv 2406.08464).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from time import monotonic

from rdchat.errors import ModelError
from rdchat.inference.api.requests import ChatMessage, Role
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batch import (
    MOST_ANSWER_TOKENS,
    MOST_SEQUENCE_TOKENS,
    ConversationBatch,
    Template,
    TokenSequence,
)
from rdchat.inference.training.data.batched_decoding import BatchedDecoder
from rdchat.inference.training.data.seed_prompts import SeedPrompt
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation

_ANSWER_TEMPERATURES = (0.0, 0.7)  # conversations take turns
_LONG_BATCHES = 4  # every fourth batch asks about long texts: its longest sequence decides the cost of a step
_PASSAGE_TOKENS = (40, 110)  # answers of this length serve as passages later, cut at the upper end
_PASSAGES = 600  # how many of the latest ones are drawn from
_SAVE_EVERY = 45.0  # seconds of a batch that an interruption may cost
_MARK = "xquestionx"


def chat_template(model: LoadedModel) -> Template:
    """Return the tokens that the model's chat template puts around a question.

    Raises:
        ModelError: If the model has no chat template, or one that changes or drops the user's text, or marks no turns.
    """
    tokenizer = model.tokenizer
    if not tokenizer.has_chat_template:
        raise ModelError(f"{model.info.name} has no chat template.", "Pick an instruction-tuned model.")
    text = model.decode(model.encode_chat((ChatMessage(Role.USER, _MARK),), continue_last=False))
    before, mark, after = text.partition(_MARK)
    if not mark:
        raise ModelError(
            f"{model.info.name}'s chat template does not show the user's text as it is.",
            "Pick an instruction-tuned model with a user role.",
        )
    template = Template(tuple(encode(model, before)), tuple(encode(model, after)), model.end_tokens)
    if not template.before or not template.after:
        raise ModelError(
            f"{model.info.name}'s chat template does not say where the user's text begins and ends.",
            "Pick an instruction-tuned model with a user role.",
        )
    return template


def encode(model: LoadedModel, text: str) -> list[int]:
    """Return the token ids of a question, without special tokens such as those that begin or end a text."""
    return model.prompts.encode_text(text)


@dataclass
class DataMaker:
    """Makes conversations, batch by batch; a batch is one shard.

    A batch depends on the seed, its number and the shards before it alone, so an interrupted and resumed run makes the
    same data as an uninterrupted one. A batch that takes long is saved every 45 seconds.
    """

    model: LoadedModel  # the target; `check_batched_decoding` accepts it
    template: Template
    seed_prompt: Callable[[int, Sequence[str], bool], SeedPrompt]  # such as `SeedPromptSource.seed_prompt`
    shards: ShardFolder  # new ones are added
    saved: Path  # the file that an unfinished batch is saved in
    _: KW_ONLY
    seed: int  # of the training; from 0 to 2**31 - 1
    sequences: int  # conversations in a batch
    keep_states: bool  # whether the hidden states of the answers are kept on disk, as float16
    now: Callable[[], float] = monotonic  # a clock, in seconds
    passages: list[str] = field(default_factory=list)  # answers that later questions may be about

    def resume(self) -> list[list[TrainingConversation]]:
        """Continue after the last shard; return the shards that there are."""
        made = [self.shards.read(number) for number in range(len(self.shards))]
        for shard in made:
            self._remember(shard)
        return made

    def make_shard(self) -> Generator[int]:
        """Make one more shard; after each step yield its answer tokens so far. The caller closes the generator."""
        number, saved = len(self.shards), self.now()
        batch = ConversationBatch.restore(self.saved, number, self.model, self.template) or self._begin(number)
        while not batch.over:
            batch.step()
            try:
                yield batch.answer_tokens
            except GeneratorExit:  # a pause, which costs no token
                batch.save(self.saved, number)
                raise
            if self.now() - saved > _SAVE_EVERY:
                batch.save(self.saved, number)
                saved = self.now()
        made, states = batch.result()
        self.shards.append(made, states if self.keep_states else None)
        self.saved.unlink(missing_ok=True)
        self._remember(made)

    def _begin(self, number: int) -> ConversationBatch:
        long = number % _LONG_BATCHES == _LONG_BATCHES - 1
        sequences = [self._sequence(number * self.sequences + place, long) for place in range(self.sequences)]
        shared = self.template.before[:-1]  # a sequence's last token is fed by its first step
        rows = sorted(range(len(sequences)), key=lambda place: len(sequences[place].tokens))
        prompts = [sequences[place].tokens[len(shared) : -1] for place in rows]
        return ConversationBatch(BatchedDecoder.read(self.model, shared, prompts), sequences, rows)

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
        """The most tokens of a question: a longer one is cut, as the context or the batch's memory has no more room."""
        around = len(self.template.before) + len(self.template.after)
        most = min(MOST_SEQUENCE_TOKENS, self.model.info.context_length)
        return most - MOST_ANSWER_TOKENS - around

    def _remember(self, made: Sequence[TrainingConversation]) -> None:
        """Keep answers in prose as passages for later questions, up to the end of a sentence."""
        shortest, longest = _PASSAGE_TOKENS
        for item in made:
            if len(item.answer) >= shortest:
                answer = [token for token in item.answer[:longest] if token not in self.template.ends]
                text = self.model.decode(answer).strip()
                sentences, stop, _ = text.rpartition(". ")
                if "```" not in text and text.count("\n") <= 3:
                    self.passages.append((sentences or text) + stop.strip())
        del self.passages[:-_PASSAGES]
