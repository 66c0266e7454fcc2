"""Making training data: the target writes its own questions and answers them, many conversations in lockstep.

Zhang et al. 2024 train on answers that the target itself gives; where no corpus of questions is at hand, the chat
template's user prefix makes an instruction-tuned model write questions (Xu et al. 2024, "Magpie", arXiv 2406.08464).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.inference.requests import ChatMessage, Role
from rdchat.inference.target import LoadedModel
from rdchat.inference.training.lockstep import Lockstep, check_lockstep
from rdchat.inference.training.prompts import Opening
from rdchat.inference.training.shards import Conversation, ShardFolder

_QUESTION_TEMPERATURE = 0.8
_ANSWER_TEMPERATURES = (0.0, 0.7)  # conversations take turns
_ANSWER_TOKENS = 224  # the most an answer may have
_PASSAGE_TOKENS = (30, 110)  # answers of this length serve as passages later, cut at the upper end
_PASSAGES = 600  # how many of the latest ones are drawn from
_LOOP_RUN, _LOOP_LENGTH = 8, 8  # an answer loops where this many runs of this many tokens in a row were all seen before
_FULL_ENOUGH = 0.85  # lanes that are over are dropped where at most this share still runs
_MARK = "xquestionx"


@dataclass(frozen=True, slots=True)
class Template:
    """The chat template's tokens around a question.

    Attributes:
        before: What comes before the user's first token.
        after: What ends the question and opens the answer.
    """

    before: tuple[int, ...]
    after: tuple[int, ...]


def chat_template(model: LoadedModel) -> Template:
    """Find what the template puts around a question.

    Raises:
        ModelError: If the model has no chat template, or one that changes or drops the user's text.
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
    return Template(tuple(_encode(model, before)), tuple(_encode(model, after)))


def _encode(model: LoadedModel, text: str) -> list[int]:
    return list(model.tokenizer.encode(text, add_special_tokens=False))


class DataMaker:
    """Makes conversations, wave by wave; a wave is one shard.

    The lanes of a wave start together and leave it as they end. What a wave makes is a function of the seed, its number
    and the shards before it, so an interrupted and resumed run makes what an uninterrupted one makes.

    Args:
        model: The target.
        opening: Gives the opening of a conversation from its number and the passages there are: `PromptSource.opening`.
        shards: Where they are kept; what is there is continued.
        seed: Of the training.
        lanes: Conversations in a wave: about a minute's worth on a slow machine.
        keep_states: Whether the hidden states of the answers are kept on disk, 2 bytes a number.
    """

    def __init__(
        self,
        model: LoadedModel,
        opening: Callable[[int, Sequence[str]], Opening],
        shards: ShardFolder,
        *,
        seed: int,
        lanes: int = 64,
        keep_states: bool = True,
    ) -> None:
        check_lockstep(model)
        self._model = model
        self._template = chat_template(model)
        self._opening = opening
        self._shards = shards
        self._seed = seed
        self._lanes = lanes
        self._keep_states = keep_states
        self._passages: list[str] = []

    def resume(self) -> int:
        """Take up where the shards end; return how many answer tokens they hold."""
        tokens = 0
        for number in range(len(self._shards)):
            made = self._shards.read(number)
            self._remember(made)
            tokens += answer_tokens(made)
        return tokens

    def waves(self) -> Iterator[list[Conversation]]:
        """Make one shard after the other, for ever."""
        while True:
            made, states = self._wave(len(self._shards))
            self._shards.append(made, states if self._keep_states else None)
            self._remember(made)
            yield made

    def _wave(self, number: int) -> tuple[list[Conversation], npt.NDArray[np.float16]]:
        mx.random.seed((self._seed << 20) + number)
        lanes = [self._lane(number * self._lanes + i) for i in range(self._lanes)]
        shared = self._template.before[:-1]  # a lane's last token is fed by its first step
        lockstep = Lockstep(self._model, shared, [lane.tokens[len(shared) : -1] for lane in lanes])
        done = 0
        running = lanes  # in lockstep's order; lanes that are over stay until enough are
        while done < len(lanes):
            logits, hidden = lockstep.step([lane.next_input() for lane in running])
            tokens = _sample(logits, [lane.temperature for lane in running])
            for lane, token, state in zip(running, tokens, np.array(hidden.astype(mx.float16)), strict=True):
                if not lane.over:
                    done += lane.take(token, state)
            places = [place for place, lane in enumerate(running) if not lane.over]
            if places and len(places) <= len(running) * _FULL_ENOUGH:
                lockstep.keep(places)
                running = [running[place] for place in places]
        return [lane.conversation() for lane in lanes], np.stack([state for lane in lanes for state in lane.states])

    def _lane(self, number: int) -> "_Lane":
        opening = self._opening(number, self._passages)
        tokens = [*self._template.before, *_encode(self._model, opening.text)]
        temperature = _ANSWER_TEMPERATURES[number % len(_ANSWER_TEMPERATURES)]
        return _Lane(
            number=number,
            tokens=tokens,
            more_tokens=opening.more_tokens,
            temperature=temperature,
            after=self._template.after,
            end_tokens=self._model.end_tokens,
        )

    def _remember(self, made: Sequence[Conversation]) -> None:
        """Keep answers as passages for later questions."""
        shortest, longest = _PASSAGE_TOKENS
        for item in made:
            if len(item.answer) >= shortest:
                answer = [token for token in item.answer[:longest] if token not in self._model.end_tokens]
                self._passages.append(self._model.decode(answer).strip())
        del self._passages[:-_PASSAGES]


def answer_tokens(made: Sequence[Conversation]) -> int:
    """Return the number of answer tokens in conversations."""
    return sum(len(item.answer) for item in made)


class _Lane:
    """One conversation being decoded.

    Args:
        number: Of its opening.
        tokens: The template's beginning and the opening.
        more_tokens: The most tokens the target may add to the question; 0 where it is complete.
        temperature: Of the answer.
        after: The template's tokens between question and answer.
        end_tokens: Ids that end a turn.
    """

    def __init__(
        self,
        *,
        number: int,
        tokens: list[int],
        more_tokens: int,
        temperature: float,
        after: tuple[int, ...],
        end_tokens: frozenset[int],
    ) -> None:
        self.tokens = tokens
        self.over = False
        self.states: list[npt.NDArray[np.float16]] = []  # one for each token of the answer
        self._number = number
        self._temperature = temperature
        self._after = after
        self._ends = end_tokens
        self._question_limit = len(tokens) + more_tokens
        self._answer_start: int | None = None
        self._runs: set[tuple[int, ...]] = set()
        self._repeats = 0
        if not more_tokens:
            self._open_answer()
        self._fed = len(self.tokens) - 1

    @property
    def temperature(self) -> float:
        """Of the token that the next call chooses."""
        return _QUESTION_TEMPERATURE if self._answer_start is None else self._temperature

    def next_input(self) -> int:
        """Return the token to feed next; any, where the conversation is over."""
        self._fed = min(self._fed + 1, len(self.tokens))
        return self.tokens[self._fed - 1]

    def take(self, token: int, state: npt.NDArray[np.float16]) -> bool:
        """Take what the target chose after the last input, and the (width,) hidden state it was chosen from.

        Returns:
            Whether the conversation is over.
        """
        if self._fed < len(self.tokens):
            return False  # the next token is given: the template's
        if self._answer_start is None:
            ended = token in self._ends or token == self._after[0]
            if not ended:
                self.tokens.append(token)
            if ended or len(self.tokens) >= self._question_limit:
                self._open_answer()
            return False
        self.tokens.append(token)
        self.states.append(state)
        length = len(self.tokens) - self._answer_start
        self.over = token in self._ends or length >= _ANSWER_TOKENS or self._loops(length)
        return self.over

    def conversation(self) -> Conversation:
        """Return the whole, once it is over."""
        assert self._answer_start is not None
        return Conversation(self._number, self.tokens, self._answer_start, self._temperature)

    def _open_answer(self) -> None:
        self.tokens += self._after
        self._answer_start = len(self.tokens)

    def _loops(self, length: int) -> bool:
        if length >= _LOOP_RUN:
            run = tuple(self.tokens[-_LOOP_RUN:])
            self._repeats = self._repeats + 1 if run in self._runs else 0
            self._runs.add(run)
        return self._repeats >= _LOOP_LENGTH


def _sample(logits: mx.array, temperatures: Sequence[float]) -> list[int]:
    """Choose one token for each row; where the temperature is 0, the likeliest."""
    heat = mx.array(list(temperatures))[:, None]
    noise = mx.random.gumbel(logits.shape)  # cut off at 16.6, which is of no matter here
    chosen = mx.argmax(logits.astype(mx.float32) + heat * noise, axis=-1)
    return [int(token) for token in np.array(chosen)]
