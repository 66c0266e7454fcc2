"""Many texts in one batch: each goes on as it would alone, and ends where it should."""

import mlx.core as mx
import numpy as np
import pytest
from mlx_lm.models.cache import make_prompt_cache

from rdchat.inference.training import data_maker
from rdchat.inference.training.data_maker import loops, write_on
from tests.inference.fakes import tiny_llama

pytestmark = pytest.mark.across_rows

SHORT = [[7], [3, 4, 5, 8, 9, 10, 11, 12, 13], [3, 1, 2], [3, 4, 20, 21, 22, 23]]
LONG = [number % 25 + 1 for number in range(260)]
"""Longer than the steps by which mlx-lm's buffers grow, 256."""


def written(texts: list[list[int]], limits: list[int], temperature: float = 0.0, *, seed: int = 0,
            ends: frozenset[int] = frozenset(), window: int | None = None) -> list[list[int]]:  # fmt: skip
    """Return what is added to the texts."""
    longer = [[*text] for text in texts]
    model = tiny_llama(1, sliding_window=window)
    mx.random.seed(seed)  # The model was made from another one.
    for _ in write_on(model, longer, limits, [temperature] * len(texts), ends):
        pass
    assert all(new[: len(text)] == text for new, text in zip(longer, texts, strict=True))
    return [new[len(text) :] for new, text in zip(longer, texts, strict=True)]


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("call_tokens", [5, 256])
def test_each_text_sees_its_own_tokens_only(
    window: int | None, call_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of different lengths, some dropped on the way, prompts read in several calls; windows count tokens."""
    monkeypatch.setattr(data_maker, "_CALL_TOKENS", call_tokens)
    monkeypatch.setattr(data_maker, "loops", lambda _tokens: False)
    texts = [*SHORT * 2, LONG, [5, 6]]
    limits = [70, 5, 6, 69, 1, 2, 30, 7, 70, 40]
    model = tiny_llama(1, sliding_window=window)
    for text, added, limit in zip(texts, written(texts, limits, window=window), limits, strict=True):
        assert len(added) == limit
        logits = model.network(mx.array([[*text, *added]]), cache=make_prompt_cache(model.network))[0]
        assert added == mx.argmax(logits, axis=-1)[len(text) - 1 : -1].tolist()


def test_a_text_ends_with_its_end_token_or_at_its_limit_or_when_it_loops(monkeypatch: pytest.MonkeyPatch) -> None:
    free = written(SHORT, [60] * 4)
    end = free[1][2]
    ended = written(SHORT, [60, 60, 60, 2], ends=frozenset({end}))
    assert ended[1] == free[1][: free[1].index(end) + 1]
    assert len(ended[3]) == 2
    monkeypatch.setattr(data_maker, "_LOOP_RUN", 1)
    monkeypatch.setattr(data_maker, "_LOOP_LENGTH", 2)
    for alone, looping in zip(free, written(SHORT, [60] * 4), strict=True):
        assert looping == alone[: next(length for length in range(61) if loops(alone[:length]))]


@pytest.mark.parametrize("period", [1, 3, 20])
def test_a_text_loops_after_eight_runs_of_eight_tokens_that_were_all_seen_before(period: int) -> None:
    tokens = [30, 31, *(number % period for number in range(100))]
    first = next(length for length in range(100) if loops(tokens[:length]))
    assert first == 2 + period + 8 + 7
    assert not loops([])
    assert not loops(list(range(100)))


def test_what_is_drawn_depends_on_the_seed() -> None:
    first, again, other = (written(SHORT, [12] * 4, 0.7, seed=seed) for seed in (4, 4, 5))
    assert first == again != other


@pytest.mark.slow
def test_tokens_are_drawn_with_their_probabilities_among_those_that_top_p_keeps() -> None:
    """Probabilities 0.5, 0.3, 0.16, 0.04 at temperature 0.5: the last is beyond the 0.95 that are kept."""
    row = 0.5 * mx.log(mx.array([[0.16, 0.5, 0.04, 0.3]]))
    mx.random.seed(3)
    drawn = np.array(data_maker._draw(0.5, mx.repeat(row, 20_000, axis=0)))
    counts = np.bincount(drawn, minlength=4) / 20_000
    np.testing.assert_allclose(counts, [0.16 / 0.96, 0.5 / 0.96, 0, 0.3 / 0.96], atol=0.015)
    assert data_maker._draw(0.0, row).tolist() == [1]
