"""Making training data: the target writes its own questions and answers them, many conversations in lockstep.

Zhang et al. 2024 train on answers that the target itself gives; where no corpus of questions is at hand, the chat
template's user prefix makes an instruction-tuned model write questions (Xu et al. 2024, "Magpie", arXiv 2406.08464).
"""

from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from time import monotonic

from rdchat.errors import ModelError
from rdchat.inference.api.requests import ChatMessage, Role
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batch import Wave
from rdchat.inference.training.data.batched_decoding import Lockstep
from rdchat.inference.training.data.folded_attention import lane_attention
from rdchat.inference.training.data.prompt_source import Opening
from rdchat.inference.training.data.sequences import Lane, Template
from rdchat.inference.training.data.shards import Conversation, ShardFolder

_ANSWER_TEMPERATURES = (0.0, 0.7)  # conversations take turns
_LONG_WAVES = 8  # every eighth wave asks about long passages; together, since the longest lane decides a step's cost
_PASSAGE_TOKENS = (40, 110)  # answers of this length serve as passages later, cut at the upper end
_PASSAGES = 600  # how many of the latest ones are drawn from
_PUT_ASIDE_EVERY = 45.0  # seconds of a wave that an interruption may cost
_MARK = "xquestionx"


def chat_template(model: LoadedModel) -> Template:
    """Find what the template puts around a question.

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
    """Return the tokens of a question, without any that would begin or end a text."""
    return model.prompts.encode_text(text)


class DataMaker:
    """Makes conversations, wave by wave; a wave is one shard.

    The lanes of a wave start together and leave it as they end. What a wave makes is a function of the seed, its number
    and the shards before it, so an interrupted and resumed run makes what an uninterrupted one makes. Where a wave
    takes long it is put aside now and then.

    Args:
        model: The target; `check_lockstep` found nothing against it.
        template: What is put around questions.
        opening: Gives the opening of a conversation from its number, the passages there are, and whether it is to be a
            long one: `PromptSource.opening`.
        shards: Where they are kept; what is there is continued.
        aside: The file that a wave is put aside in.
        seed: Of the training.
        lanes: Conversations in a wave.
        keep_states: Whether the hidden states of the answers are kept on disk, 2 bytes a number.
        now: A clock, in seconds.
    """

    def __init__(
        self,
        model: LoadedModel,
        template: Template,
        opening: Callable[[int, Sequence[str], bool], Opening],
        shards: ShardFolder,
        aside: Path,
        *,
        seed: int,
        lanes: int,
        keep_states: bool,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._model = model
        self._template = template
        self._opening = opening
        self._shards = shards
        self._aside = aside
        self._seed = seed
        self._lanes = lanes
        self._keep_states = keep_states
        self._now = now
        self._passages: list[str] = []

    def resume(self) -> int:
        """Take up where the shards end; return how many answer tokens they hold."""
        tokens = 0
        for number in range(len(self._shards)):
            made = self._shards.read(number)
            self._remember(made)
            tokens += answer_tokens(made)
        return tokens

    def wave(self) -> Generator[int]:
        """Make one more shard; yield, token by token, how many answer tokens it has so far. To be closed."""
        number, saved = len(self._shards), self._now()
        with lane_attention(self._model.network):
            wave = Wave.restore(self._aside, number, self._model, self._template) or self._begin(number)
            while not wave.over:
                wave.step()
                yield wave.answer_tokens
                if self._now() - saved > _PUT_ASIDE_EVERY:
                    wave.save(self._aside, number)
                    saved = self._now()
        made, states = wave.result()
        self._shards.append(made, states if self._keep_states else None)
        self._aside.unlink(missing_ok=True)
        self._remember(made)

    def _begin(self, number: int) -> Wave:
        long = number % _LONG_WAVES == _LONG_WAVES - 1
        lanes = [self._lane(number * self._lanes + place, long) for place in range(self._lanes)]
        shared = self._template.before[:-1]  # a lane's last token is fed by its first step
        lockstep = Lockstep.read(self._model, shared, [lane.tokens[len(shared) : -1] for lane in lanes])
        return Wave(lockstep, lanes, range(len(lanes)))

    def _lane(self, number: int, long: bool) -> Lane:
        opening = self._opening(number, self._passages, long)
        question = encode(self._model, opening.text)
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
