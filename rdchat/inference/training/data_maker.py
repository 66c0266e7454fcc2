"""Makes training data: the target writes questions and answers them, a batch of conversations at a time.

A conversation is one question and one answer. `DataMaker` makes a batch; before that, `check_batched_decoding` and
`chat_template` refuse a model with which this does not work.

Zhang et al. 2024 train on answers of the target itself. Without a corpus of questions, the chat template's user prefix
makes an instruction-tuned model write questions (Xu et al. 2024, "Magpie", arXiv 2406.08464). A batch is decoded with
mlx-lm's batch generator, and becomes a shard on disk, which is written completely or not at all.
"""

from collections.abc import Callable, Generator, Iterator, Sequence, Set
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import batched, count
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt
from mlx_lm.models.cache import make_prompt_cache
from mlx_lm.sample_utils import make_sampler

from rdchat.errors import ModelError
from rdchat.files import atomic_file, make_folder
from rdchat.inference.api import ChatMessage, Role
from rdchat.inference.decoding.reductions import top_k
from rdchat.inference.device import fetch, is_device_error
from rdchat.inference.drafting.shipped_answers import TrainingConversation, conversations_in
from rdchat.inference.mlx_lm_fixes.unwired import BatchGenerator
from rdchat.inference.training.seed_prompts import SeedPrompt
from rdchat.inference.verification import HiddenReads, LoadedModel, median_error, on_host, rounding_limit, row_errors

SHARDS = "shards"
"""The folder of a training's conversations in its own folder."""
Halves = npt.NDArray[np.float16]
# Draws among tokens with a mass of 0.95 (Holtzman et al. 2020, arXiv 1904.09751), the default of chats, too.
_nucleus = make_sampler(1.0, 0.95)
# Most likely tokens among which one is drawn: on a CPU, sorting a whole vocabulary takes ten times as long.
_CANDIDATES = 512
# A text loops if this many consecutive runs of this many tokens were all seen before.
_LOOP_RUN = 8
_LOOP_LENGTH = 8
# Tokens of a prompt in one call, which reads up to 8 prompts.
_CALL_TOKENS = 256
# Conversations of one call that reads hidden states.
_STATE_SEQUENCES = 4
# Prompts to try a model with, how many tokens to write after each, so that they end in different calls, and how many
# tokens of a prompt one call reads.
_PROMPTS = [[1, 2, 3], [1, 2, 4, 5, 6, 7, 8], [1, 2, 9, 3, 7], [1, 2, 6, 4]]
_LIMITS = [3, 5, 2, 4]
_TRIED_TOKENS = 3
_QUESTION_TEMPERATURE = 0.8
MAX_ANSWER_TOKENS = 224
# Room in a conversation for an article or search results, a task, and an answer.
MAX_SEQUENCE_TOKENS = 1408

# Answers of consecutive conversations take these temperatures in turn.
_ANSWER_TEMPERATURES = (0.0, 0.7)

# Every fourth batch asks about long texts; a batch's longest sequence decides the cost of a step.
_LONG_BATCHES = 4

# Length of answers that serve as passages later, cut at the upper end.
_PASSAGE_TOKENS = (40, 110)

# Number of latest passages to draw from.
_PASSAGES = 600

_MARK = "xquestionx"


def answer_tokens(conversations: Sequence[TrainingConversation]) -> int:
    """Return the number of answer tokens in conversations."""
    return sum(len(item.answer) for item in conversations)


class ShardFolder:
    """Shards in order, in one folder.

    Args:
        folder: Created if it does not exist.
        vocabulary_size: Decides whether ids are stored in 2 bytes.

    Raises:
        StorageFullError: If the disk is full; so do all methods that write.
        StorageError: If a file cannot be written.
    """

    def __init__(self, folder: Path, vocabulary_size: int) -> None:
        self._folder = folder
        self._dtype = np.uint16 if vocabulary_size <= 2**16 else np.uint32
        make_folder(folder)

    def __len__(self) -> int:
        return next(number for number in count() if not self._path(number).exists())

    def read_shard(self, number: int) -> list[TrainingConversation]:
        """Return the conversations of shard `number`, from 0."""
        return conversations_in(self._path(number))

    def append_shard(self, conversations: Sequence[TrainingConversation]) -> None:
        """Add a shard of at least one conversation; a crash leaves all of it or nothing."""
        tokens, facts = columns(conversations, self._dtype)
        temperatures = np.array([item.temperature for item in conversations], np.float64)
        with atomic_file(self._path(len(self))) as temporary, temporary.open("wb") as file:
            np.savez(file, tokens=tokens, facts=facts, temperatures=temperatures)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:05d}.npz"


def columns(
    conversations: Sequence[TrainingConversation], dtype: npt.DTypeLike
) -> tuple[npt.NDArray[Any], npt.NDArray[np.int32]]:
    """Return the tokens of conversations, concatenated, and for each its number, length and answer start."""
    facts = [[item.number, len(item.tokens), item.answer_start] for item in conversations]
    return np.concatenate([np.array([*item.tokens], dtype) for item in conversations]), np.array([*facts], np.int32)


def write_on(
    model: LoadedModel,
    texts: Sequence[list[int]],
    limits: Sequence[int],
    temperatures: Sequence[float],
    ends: Set[int],
) -> Generator[None]:
    """Let the target continue texts together, each until it ends, loops or reaches its limit; yield after each call.

    What is drawn depends on the seed of `mx.random`. Closing the generator frees the memory.

    Args:
        model: The target.
        texts: Token ids, at least one each; new tokens are added to them, the one that ends a text included.
        limits: The most tokens to add to each text; at least 1.
        temperatures: Temperature of each text; 0 takes the most likely token.
        ends: Tokens that end a text.
    """
    starts = [len(text) for text in texts]
    stops = [[token] for token in ends]
    generator = BatchGenerator(
        model.network, stop_tokens=stops, completion_batch_size=len(texts), prefill_step_size=_CALL_TOKENS
    )
    # It numbers them from 0 on: in `_step`, `uid` is the index of a text.
    generator.insert(texts, limits, samplers=[partial(_draw, each) for each in temperatures])
    with closing(generator):
        while _step(generator, texts, starts):
            yield


def _draw(temperature: float, logprobs: mx.array) -> mx.array:
    """Draw a token for each row of (n, vocabulary) from the nucleus after the temperature; at 0 take the argmax."""
    if not temperature:
        return mx.argmax(logprobs, axis=-1)
    ids, values = top_k(logprobs.astype(mx.float32), min(_CANDIDATES, logprobs.shape[-1]))
    return mx.take_along_axis(ids, _nucleus(values / temperature)[:, None], axis=-1)[:, 0]


def _step(generator: BatchGenerator, texts: Sequence[list[int]], starts: Sequence[int]) -> bool:
    """Make one call and add its tokens to the texts; return whether there was anything to do."""
    read, written = generator.next()
    for each in written:
        texts[each.uid].append(each.token)
    over = [each.uid for each in written if each.finish_reason or loops(texts[each.uid][starts[each.uid] :])]
    if over:
        generator.remove(over)  # Those that it ended itself are no longer there.
        mx.clear_cache()
    return bool(read or written)


def loops(tokens: Sequence[int]) -> bool:
    """Return whether the last `_LOOP_LENGTH` runs of `_LOOP_RUN` tokens all occurred before."""
    runs = [tuple(tokens[start : start + _LOOP_RUN]) for start in range(len(tokens) - _LOOP_RUN + 1)]
    return bool(runs) and set(runs[:-_LOOP_LENGTH]).issuperset(runs[-_LOOP_LENGTH:])


def check_batched_decoding(model: LoadedModel) -> None:
    """Refuse a model whose logits in a batch differ from those of each sequence alone, tried on a few tokens.

    Feeding sequences at once and token by token shows how much rounding alone explains.

    Raises:
        ModelError: If the model keeps more than keys and values between tokens, or has its own way of reading positions
            or masks; the message says so.
    """
    if any(not hasattr(layer, "keys") for layer in make_prompt_cache(model.network)):
        raise _refusal(model, "it keeps more than keys and values between tokens")
    try:
        error, limit = _compare(model)
    except Exception as failure:  # Models may use caches and masks in any way.
        if is_device_error(failure):
            raise
        raise _refusal(model, " ".join(str(failure).split())[:120]) from failure
    if not error <= limit:  # Also where it is NaN.
        raise _refusal(model, f"its logits in a batch were different (off by {error:.2g} deviations)")


def _refusal(model: LoadedModel, reason: str) -> ModelError:
    """Return the error about a model that cannot decode a batch."""
    return ModelError(
        f"{model.info.name} cannot answer several questions at once, so no drafter can be trained for it: {reason}.",
        "Choose another model.",
    )


def _compare(model: LoadedModel) -> tuple[float, float]:
    """Return how far sequences in a batch are from those fed alone, in standard deviations, and the limit.

    The limit is how far a sequence fed token by token is from itself.
    """
    errors = list[float]()
    noise = list[float]()
    with closing(BatchGenerator(model.network, prefill_step_size=_TRIED_TOKENS)) as generator:
        generator.insert(_PROMPTS, _LIMITS)
        while responses := generator.next_generated():
            for each in responses:
                if each.finish_reason:
                    # The last token was drawn from `logprobs`: these come after the tokens before it.
                    *tokens, _ = each.all_tokens
                    expected = _alone(model, [tokens])
                    errors += row_errors(on_host(each.logprobs[None]), expected)
                    noise += row_errors(_alone(model, [[token] for token in tokens]), expected)
                    dtype = each.logprobs.dtype
    return median_error(errors), rounding_limit(noise, dtype)


def _alone(model: LoadedModel, calls: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
    """Return the (1, vocabulary) log-probabilities after the last token of a sequence fed in several calls."""
    caches = make_prompt_cache(model.network)
    for tokens in calls:
        logits = model.network(mx.array([tokens]), cache=caches)[:, -1]
    return on_host(logits - mx.logsumexp(logits, axis=-1, keepdims=True))


def hidden_states(
    model: LoadedModel, conversations: Sequence[TrainingConversation], reads: HiddenReads
) -> Iterator[tuple[int, Halves]]:
    """Yield the index of each conversation with its (tokens, width) states; those of similar length share a call."""
    model.hooks.record_states(reads)
    order = sorted(range(len(conversations)), key=lambda index: len(conversations[index].tokens))
    for group in batched(order, _STATE_SEQUENCES):
        width = len(conversations[group[-1]].tokens)
        rows = [conversations[index].tokens for index in group]
        # Padded on the right: later tokens cannot change a token's state.
        model.network(mx.array([[*row, *[0] * (width - len(row))] for row in rows]))
        assert model.hooks.hidden is not None
        states = fetch(model.hooks.hidden.astype(mx.float16))
        for index, row, state in zip(group, rows, states, strict=True):
            yield index, state[: len(row)]


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


def chat_template(model: LoadedModel) -> Template:
    """Return the tokens that the chat template puts around a question.

    Raises:
        ModelError: If the model has no chat template, or one that changes the user's text or does not mark turns.
    """
    tokenizer = model.tokenizer
    encode = model.prompts.encode_text
    if not tokenizer.has_chat_template:
        raise ModelError(f"{model.info.name} has no chat template.", "Choose an instruction-tuned model.")
    text = model.decode(model.encode_chat((ChatMessage(Role.USER, _MARK),)))
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
        template: The tokens around a question; see `chat_template`.
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
        shards = [self.shards.read_shard(number) for number in range(len(self.shards))]
        for shard in shards:
            self._remember(shard)
        return shards

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
        # The target may also write on as the template does behind a question.
        ends = template.ends | {template.after[0]}
        for _ in write_on(self.model, begun, limits, [_QUESTION_TEMPERATURE] * len(begun), ends):
            yield 0
        for question in begun:
            if question[-1] in ends:
                question.pop()
        # These lists grow while the target writes, and with them the answers of the conversations.
        texts = [[*question, *template.after] for question in questions]
        conversations = [
            TrainingConversation(each, text, len(text), _ANSWER_TEMPERATURES[each % len(_ANSWER_TEMPERATURES)])
            for each, text in zip(numbers, texts, strict=True)
        ]
        temperatures = [item.temperature for item in conversations]
        for _ in write_on(self.model, texts, [MAX_ANSWER_TOKENS] * len(texts), temperatures, template.ends):
            yield answer_tokens(conversations)
        self.shards.append_shard(conversations)
        self._remember(conversations)

    def _question(self, prompt: SeedPrompt) -> list[int]:
        """Return the token ids up to the end of the seed prompt, cut to fit the context and the batch's memory."""
        before = self.template.before
        text = self.model.prompts.encode_text(prompt.text)
        limit = min(MAX_SEQUENCE_TOKENS, self.model.info.context_length)
        room = limit - MAX_ANSWER_TOKENS - len(before) - len(self.template.after) - prompt.more_tokens
        return [*before, *text[: max(room, 1)]]

    def _remember(self, conversations: Sequence[TrainingConversation]) -> None:
        """Keep answers in prose, up to the end of a sentence, as passages for later questions."""
        shortest, longest = _PASSAGE_TOKENS
        for item in conversations:
            if len(item.answer) >= shortest:
                answer = [token for token in item.answer[:longest] if token not in self.template.ends]
                text = self.model.decode(answer).strip()
                sentences, stop, _ = text.rpartition(". ")
                if "```" not in text and text.count("\n") <= 3:
                    self.passages.append((sentences or text) + stop.strip())
        del self.passages[:-_PASSAGES]
