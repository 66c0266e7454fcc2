"""Makes training data: the target writes questions and answers them, a batch of conversations at a time.

Zhang et al. 2024 train on answers of the target itself. Without a corpus of questions, the chat template's user prefix
makes an instruction-tuned model write questions (Xu et al. 2024, "Magpie", arXiv 2406.08464).
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.training.data.batched_decoding import write_on
from rdchat.inference.training.data.seed_prompts import SeedPrompt
from rdchat.inference.training.data.shards import ShardFolder, TrainingConversation, answer_tokens
from rdchat.inference.verification.target import LoadedModel

_QUESTION_TEMPERATURE = 0.8
MAX_ANSWER_TOKENS = 224
# Room in a conversation for an article or search results, a task, and an answer.
MAX_SEQUENCE_TOKENS = 1408


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


# Answers of consecutive conversations take these temperatures in turn.
_ANSWER_TEMPERATURES = (0.0, 0.7)
# Every fourth batch asks about long texts; a batch's longest sequence decides the cost of a step.
_LONG_BATCHES = 4
# Length of answers that serve as passages later, cut at the upper end.
_PASSAGE_TOKENS = (40, 110)
# Number of latest passages to draw from.
_PASSAGES = 600
_MARK = "xquestionx"


def chat_template(model: LoadedModel) -> Template:
    """Return the tokens that the chat template puts around a question.

    Raises:
        ModelError: If the model has no chat template, or one that changes the user's text or does not mark turns.
    """
    tokenizer = model.tokenizer
    encode = model.prompts.encode_text
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
        template = self.template
        long = number % _LONG_BATCHES == _LONG_BATCHES - 1
        numbers = range(number * self.sequences, (number + 1) * self.sequences)
        prompts = [self.seed_prompt(each, self.passages, long) for each in numbers]
        questions = [self._question(prompt) for prompt in prompts]
        mx.random.seed(self.seed << 32 | number)
        # First the target finishes the questions that are only begun.
        begun = [question for question, prompt in zip(questions, prompts, strict=True) if prompt.more_tokens]
        limits = [prompt.more_tokens for prompt in prompts if prompt.more_tokens]
        ends = template.ends | {template.after[0]}
        for _ in write_on(self.model, begun, limits, [_QUESTION_TEMPERATURE] * len(begun), ends):
            yield 0
        for question in begun:
            if question[-1] in ends:
                question.pop()
        texts = [[*question, *template.after] for question in questions]
        made = [
            TrainingConversation(each, text, len(text), _ANSWER_TEMPERATURES[each % len(_ANSWER_TEMPERATURES)])
            for each, text in zip(numbers, texts, strict=True)
        ]
        temperatures = [item.temperature for item in made]
        for _ in write_on(self.model, texts, [MAX_ANSWER_TOKENS] * len(made), temperatures, template.ends):
            yield answer_tokens(made)
        self.shards.append(made)
        self._remember(made)

    def _question(self, prompt: SeedPrompt) -> list[int]:
        """Return the token ids up to the end of the seed prompt, cut to fit the context and the batch's memory."""
        before = self.template.before
        text = self.model.prompts.encode_text(prompt.text)
        limit = min(MAX_SEQUENCE_TOKENS, self.model.info.context_length)
        room = limit - MAX_ANSWER_TOKENS - len(before) - len(self.template.after) - prompt.more_tokens
        return [*before, *text[: max(room, 1)]]

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
