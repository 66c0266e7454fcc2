"""Making training data: the target writes its own questions and answers them, many conversations in lockstep.

Zhang et al. 2024 train on answers that the target itself gives; where no corpus of questions is at hand, the chat
template's user prefix makes an instruction-tuned model write questions (Xu et al. 2024, "Magpie", arXiv 2406.08464).
"""

from collections.abc import Callable, Generator, Sequence
from contextlib import nullcontext

import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.inference.device import on_gpu
from rdchat.inference.requests import ChatMessage, Role
from rdchat.inference.target import LoadedModel
from rdchat.inference.training.folded_attention import folded_attention
from rdchat.inference.training.lanes import Lane, Template, decode
from rdchat.inference.training.lockstep import Lockstep, check_lockstep
from rdchat.inference.training.prompts import Opening
from rdchat.inference.training.shards import Conversation, ShardFolder

_ANSWER_TEMPERATURES = (0.0, 0.7)  # conversations take turns
_LONG_WAVES = 8  # every eighth wave asks about long passages; together, since the longest lane decides a step's cost
_PASSAGE_TOKENS = (40, 110)  # answers of this length serve as passages later, cut at the upper end
_PASSAGES = 600  # how many of the latest ones are drawn from
_MARK = "xquestionx"


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
    return Template(tuple(_encode(model, before)), tuple(_encode(model, after)), model.end_tokens)


def _encode(model: LoadedModel, text: str) -> list[int]:
    return list(model.tokenizer.encode(text, add_special_tokens=False))


class DataMaker:
    """Makes conversations, wave by wave; a wave is one shard.

    The lanes of a wave start together and leave it as they end. What a wave makes is a function of the seed, its number
    and the shards before it, so an interrupted and resumed run makes what an uninterrupted one makes.

    Args:
        model: The target.
        opening: Gives the opening of a conversation from its number, the passages there are, and whether it is to be a
            long one: `PromptSource.opening`.
        shards: Where they are kept; what is there is continued.
        seed: Of the training.
        lanes: Conversations in a wave: about a minute's worth on a slow machine.
        keep_states: Whether the hidden states of the answers are kept on disk, 2 bytes a number.
    """

    def __init__(
        self,
        model: LoadedModel,
        opening: Callable[[int, Sequence[str], bool], Opening],
        shards: ShardFolder,
        *,
        seed: int,
        lanes: int = 128,
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

    def waves(self) -> Generator[list[Conversation]]:
        """Make one shard after the other, for ever; to be closed."""
        with nullcontext() if on_gpu() else folded_attention(self._model.network):
            while True:
                made, states = self._wave(len(self._shards))
                self._shards.append(made, states if self._keep_states else None)
                self._remember(made)
                yield made

    def _wave(self, number: int) -> tuple[list[Conversation], npt.NDArray[np.float16]]:
        long = number % _LONG_WAVES == _LONG_WAVES - 1
        lanes = [self._lane(number * self._lanes + place, long) for place in range(self._lanes)]
        shared = self._template.before[:-1]  # a lane's last token is fed by its first step
        decode(Lockstep(self._model, shared, [lane.tokens[len(shared) : -1] for lane in lanes]), lanes)
        return [lane.conversation() for lane in lanes], np.stack([state for lane in lanes for state in lane.states])

    def _lane(self, number: int, long: bool) -> Lane:
        opening = self._opening(number, self._passages, long)
        question = _encode(self._model, opening.text)
        temperature = _ANSWER_TEMPERATURES[number % len(_ANSWER_TEMPERATURES)]
        return Lane(
            number,
            self._template,
            question,
            more_tokens=opening.more_tokens,
            temperature=temperature,
            seed=self._seed,
        )

    def _remember(self, made: Sequence[Conversation]) -> None:
        """Keep answers in prose as passages for later questions, up to the end of a sentence."""
        shortest, longest = _PASSAGE_TOKENS
        for item in made:
            if len(item.answer) >= shortest:
                answer = [token for token in item.answer[:longest] if token not in self._template.ends]
                text = self._model.decode(answer).strip()
                sentences, stop, _ = text.rpartition(". ")
                if "```" not in text and text.count("\n") <= 3:
                    self._passages.append((sentences or text) + stop.strip())
        del self._passages[:-_PASSAGES]


def answer_tokens(made: Sequence[Conversation]) -> int:
    """Return the number of answer tokens in conversations."""
    return sum(len(item.answer) for item in made)
