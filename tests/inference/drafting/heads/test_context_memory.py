"""The memory of a head that attends to the text: each token's row once, computed from the right pair."""

from collections.abc import Sequence

import mlx.core as mx
import pytest
from hypothesis import given, settings, strategies as some

from rdchat.inference.drafting.heads.context_memory import ContextMemory
from rdchat.inference.drafting.heads.head import HeadState, Root


class Noting(ContextMemory):
    """Notes what it is fed; a hidden state is its token's position, so rows can be told apart."""

    def __init__(self, *, looks_ahead: bool) -> None:
        super().__init__(1, looks_ahead=looks_ahead)
        self.fed: list[list[tuple[int, int, int]]] = []

    def feed(self, hidden: mx.array, following: mx.array, positions: Sequence[int]) -> None:
        row = hidden[None, None, :, :]
        self.buffers[0].append_rows([row, row], 0)
        states = [int(value) for value in hidden[:, 0].tolist()]
        tokens = following.tolist() if following.size else [-1] * len(states)
        assert isinstance(tokens, list)
        self.fed.append(list(zip(states, tokens, positions, strict=True)))

    def root_state(self, root: Root) -> HeadState:
        raise NotImplementedError

    @property
    def rows(self) -> list[int]:
        """Positions of the rows, by what the buffers hold."""
        held = self.buffers[0].view(0)[0] if self.buffers[0].arrays else mx.zeros((1, 1, 0, 1))
        return [int(value) for value in held[0, 0, :, 0].tolist()]


def hidden_of(positions: Sequence[int]) -> mx.array:
    return mx.array(list(positions), mx.float32)[:, None]


def root_at(position: int, token: int = 99) -> Root:
    return Root(token, position, mx.array([position - 1.0]))


@pytest.mark.parametrize("looks_ahead", [False, True])
def test_rows_are_those_of_the_tokens_before_the_root(looks_ahead: bool) -> None:
    memory = Noting(looks_ahead=looks_ahead)
    memory.begin_reply([10, 11, 12, 13])
    memory.take_committed([10, 11, 12], hidden_of(range(3)), 0)
    memory.take_committed([13], hidden_of([3]), 3)
    memory.catch_up(root_at(4))
    assert memory.positions == memory.rows == [0, 1, 2, 3]
    behind = [11, 12, 13, 99] if looks_ahead else [-1] * 4
    assert [pair for pairs in memory.fed for pair in pairs] == list(zip(range(4), behind, range(4), strict=True))
    memory.take_committed([99, 20], hidden_of([4, 5]), 4)
    memory.catch_up(root_at(6, 21))
    assert memory.positions == memory.rows == list(range(6))
    assert memory.fed[-1] == [(4, 20 if looks_ahead else -1, 4), (5, 21 if looks_ahead else -1, 5)]


def test_a_long_prompt_is_computed_at_once_but_for_its_last_row() -> None:
    memory = Noting(looks_ahead=True)
    prompt = list(range(100, 300))
    memory.begin_reply(prompt)
    memory.take_committed(prompt[:150], hidden_of(range(150)), 0)
    assert memory.positions == list(range(149))


@pytest.mark.parametrize(("looks_ahead", "kept"), [(False, 3), (True, 2)])
def test_the_next_prompt_keeps_what_it_shares(looks_ahead: bool, kept: int) -> None:
    """Looking ahead, a row depends on the token behind its own, too."""
    memory = Noting(looks_ahead=looks_ahead)
    memory.begin_reply([1, 2, 3, 4])
    memory.take_committed([1, 2, 3, 4], hidden_of(range(4)), 0)
    memory.catch_up(root_at(4))
    memory.begin_reply([1, 2, 3, 7, 8])
    assert memory.positions == memory.rows == list(range(kept))


def test_the_next_turn_keeps_the_hidden_state_that_waits_for_the_token_behind_it() -> None:
    """It was forgotten, so that each turn left a gap where the last reply ended."""
    memory = Noting(looks_ahead=True)
    memory.begin_reply([1, 2, 3])
    memory.take_committed([1, 2, 3], hidden_of(range(3)), 0)
    memory.begin_reply([1, 2, 3, 7, 8])
    memory.take_committed([7, 8], hidden_of([3, 4]), 3)
    memory.catch_up(root_at(5))
    assert memory.positions == memory.rows == [0, 1, 2, 3, 4]
    assert memory.fed[-1][-3:] == [(2, 7, 2), (3, 8, 3), (4, 99, 4)]


def test_tokens_that_were_never_read_leave_a_gap() -> None:
    memory = Noting(looks_ahead=False)
    memory.begin_reply([1, 2, 3, 4, 5])
    memory.take_committed([4, 5], hidden_of([3, 4]), 3)
    memory.catch_up(root_at(5))
    assert memory.positions == [3, 4]
    memory.begin_reply([1, 2, 9])
    assert memory.positions == []


def test_a_token_before_a_gap_has_no_row() -> None:
    """It had one, of a token that nobody told of."""
    memory = Noting(looks_ahead=True)
    memory.begin_reply([1, 2, 3])
    memory.take_committed([1, 2, 3], hidden_of(range(3)), 0)
    memory.take_committed([7, 8], hidden_of([5, 6]), 5)
    memory.catch_up(root_at(7))
    assert memory.fed == [[(0, 2, 0), (1, 3, 1), (5, 8, 5), (6, 99, 6)]]


def test_the_hidden_state_before_a_root_is_enough_to_begin_with() -> None:
    memory = Noting(looks_ahead=True)
    memory.begin_reply([0])
    memory.catch_up(root_at(1, 5))
    assert memory.fed == [[(0, 5, 0)]]
    memory.catch_up(root_at(1, 5))
    assert len(memory.fed) == 1, "what is held is not computed again"


def test_what_is_taken_again_replaces_what_was_held() -> None:
    memory = Noting(looks_ahead=False)
    memory.begin_reply([1, 2, 3])
    memory.take_committed([1, 2, 3], hidden_of([0, 1, 2]), 0)
    memory.catch_up(root_at(3))
    memory.take_committed([7, 8], hidden_of([11, 12]), 1)
    memory.catch_up(root_at(3))
    assert memory.positions == [0, 1, 2]
    assert memory.rows == [0, 11, 12]


@settings(max_examples=30)
@given(
    text=some.lists(some.sampled_from([1, 2, 3, -2, -3]), min_size=1, max_size=150),
    cuts=some.sets(some.integers(1, 149)),
    looks_ahead=some.booleans(),
    skipped=some.integers(0, 150),
)
def test_each_row_is_of_a_token_and_the_next_but_for_images(
    text: list[int], cuts: set[int], looks_ahead: bool, skipped: int
) -> None:
    """Also where the first ones were read for an earlier reply that ended there."""
    memory = Noting(looks_ahead=looks_ahead)
    text = [*text, 4]
    known = min(skipped, len(text) - 1)
    ends = sorted({each for each in cuts if each < len(text)} | {len(text)})
    memory.begin_reply(text)
    memory.take_committed(text[:known], hidden_of(range(known)), 0)
    memory.begin_reply(text)
    for end in ends:
        if (start := max([known, *(each for each in ends if each < end)])) < end:
            memory.take_committed(text[start:end], hidden_of(range(start, end)), start)
    memory.catch_up(root_at(len(text)))
    following = [*text[1:], 99] if looks_ahead else [-1] * len(text)
    rows = [at for at, pair in enumerate(zip(text, following, strict=True)) if not looks_ahead or min(pair) >= 0]
    assert memory.positions == memory.rows == rows
    assert sorted(pair for pairs in memory.fed for pair in pairs) == [(at, following[at], at) for at in rows]
