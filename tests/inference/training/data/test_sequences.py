"""Token sequences: what is drawn, and when a conversation is over."""

import numpy as np
import pytest

from rdchat.inference.training.data.data_maker import Template, TokenSequence, sample

END, TURN = 9, 8
TEMPLATE = Template(before=(1, 2), after=(TURN, 3), ends=frozenset({END}))


def logits(token: int) -> np.ndarray:
    row = np.zeros(10, np.float32)
    row[token] = 30
    return row


def sequence(more_tokens: int = 0, temperature: float = 0.0, number: int = 0) -> TokenSequence:
    return TokenSequence(number, TEMPLATE, [5, 5], more_tokens=more_tokens, temperature=temperature, seed=1)


def feed(made: TokenSequence, tokens: list[int]) -> list[int]:
    """Let a sequence choose tokens one after another; return what it was fed."""
    fed = []
    for token in tokens:
        fed.append(made.next_input())
        made.take(logits(token))
    return fed


def test_a_closed_question_is_answered_at_once() -> None:
    made = sequence()
    assert feed(made, [4, 6, END]) == [3, 4, 6]
    assert made.over
    assert made.conversation().tokens == [1, 2, 5, 5, TURN, 3, 4, 6, END]
    assert made.conversation().answer == [4, 6, END]


@pytest.mark.parametrize("ending", [END, TURN])
def test_the_target_finishes_an_open_question(ending: int) -> None:
    """What ends its turn is replaced by the template, whose tokens are fed and not chosen."""
    made = sequence(more_tokens=5)
    assert feed(made, [7, ending, 0, 4, END]) == [5, 7, TURN, 3, 4]
    assert made.conversation().tokens == [1, 2, 5, 5, 7, TURN, 3, 4, END]
    assert made.conversation().answer == [4, END]


def test_a_question_has_a_limit() -> None:
    made = sequence(more_tokens=2)
    feed(made, [7, 7, 0, 0, 4, END])
    assert made.conversation().tokens == [1, 2, 5, 5, 7, 7, TURN, 3, 4, END]


def test_the_most_likely_token_is_taken_at_temperature_0() -> None:
    assert sample(np.array([1, 3, 2], np.float32), 0.0, np.random.default_rng(0)) == 1


@pytest.mark.slow
def test_tokens_are_drawn_with_their_probabilities_among_those_that_top_p_keeps() -> None:
    """Probabilities 0.5, 0.3, 0.16, 0.04 at temperature 0.5: the last is beyond the 0.95 that are kept."""
    probs = np.array([0.16, 0.5, 0.04, 0.3])
    row = (0.5 * np.log(probs) + 3).astype(np.float32)
    draw = np.random.default_rng(3)
    counts = np.bincount([sample(row, 0.5, draw) for _ in range(20_000)], minlength=4) / 20_000
    np.testing.assert_allclose(counts, [0.16 / 0.96, 0.5 / 0.96, 0, 0.3 / 0.96], atol=0.015)


def test_what_is_drawn_depends_on_seed_and_number() -> None:
    flat = np.zeros(10, np.float32)
    flat[[END, TURN]] = -50

    def drawn(number: int) -> list[int]:
        made = sequence(temperature=0.7, number=number)
        for _ in range(12):
            made.next_input()
            made.take(flat)
        return made.tokens

    assert drawn(4) == drawn(4)
    assert drawn(4) != drawn(5)
