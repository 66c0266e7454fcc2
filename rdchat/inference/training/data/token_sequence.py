"""One conversation that the target writes token by token, and the sampling of its tokens."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rdchat.inference.training.data.shards import TrainingConversation

_QUESTION_TEMPERATURE = 0.8
_TOP_P = 0.95  # the default of chats
_REACH = 10.0  # tokens less likely than e^-10 times the most likely one are never drawn
MOST_ANSWER_TOKENS = 224
MOST_SEQUENCE_TOKENS = 1408  # of a conversation: an article or search results, a task, and an answer
_LOOP_RUN, _LOOP_LENGTH = 8, 8  # an answer loops if this many consecutive runs of this many tokens were all seen before


@dataclass(frozen=True, slots=True)
class Template:
    """The chat template's token ids around a question."""

    before: tuple[int, ...]  # before the user's first token
    after: tuple[int, ...]  # end the question and begin the answer
    ends: frozenset[int]  # end a turn


class TokenSequence:
    """One conversation being decoded.

    Args:
        number: Number of the conversation; with the seed it decides the random draws.
        template: Tokens around the question.
        question: Token ids of the seed prompt.
        more_tokens: Most tokens that the target may add to the question; 0 if it is whole.
        temperature: Temperature of the answer.
        seed: Seed of the training.

    Attributes:
        tokens: Token ids of the conversation so far.
        states: For each token of the answer, (width,) float16: the hidden state from which it was chosen.
        over: Whether the answer has ended.
    """

    def __init__(
        self, number: int, template: Template, question: list[int], *, more_tokens: int, temperature: float, seed: int
    ) -> None:
        self.tokens = [*template.before, *question]
        self.states: list[npt.NDArray[np.float16]] = []
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

    def take(self, logits: npt.NDArray[np.float32], state: npt.NDArray[np.float16]) -> None:
        """Choose the token after the last input.

        Args:
            logits: (vocabulary,).
            state: (width,) the hidden state of these logits.
        """
        if self._fed < len(self.tokens):
            return  # the template decides the next token
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
        self.states.append(state)
        length = self.answer_tokens
        self.over = token in self._template.ends or length >= MOST_ANSWER_TOKENS or self._loops(length)

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

    Done on the host in a tenth of a millisecond; noise for a whole vocabulary takes ten times as long on a CPU.

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
    kept = int(np.searchsorted(sums, _TOP_P * sums[-1])) + 1
    chosen = np.searchsorted(sums[:kept], draw.random() * sums[kept - 1], side="right")
    return int(likely[order[min(chosen, kept - 1)]])
