"""The rule that chooses tokens, its noise and its reductions, against definitions in NumPy."""

import math
from functools import cache

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import SamplingParams
from rdchat.inference.decoding import reductions
from rdchat.inference.decoding.reductions import log_denominator
from rdchat.inference.decoding.sampling import TokenChooser, gumbel_noise, noise_of_one, penalize, warp
from tests.grids import grid, share
from tests.inference.graphs import launches

RNG = np.random.default_rng(0)
SAMPLINGS = [
    SamplingParams(top_p=1),
    SamplingParams(top_p=0.9),
    SamplingParams(top_p=1e-6),
    SamplingParams(top_p=1, top_k=1),
    SamplingParams(top_p=1, top_k=7),
    SamplingParams(top_p=1, top_k=10_000),
    SamplingParams(top_p=1, min_p=0.1),
    SamplingParams(top_p=1, min_p=1),
    SamplingParams(top_p=0.8, top_k=12, min_p=0.02),
]


def kept(log_probs: np.ndarray, params: SamplingParams) -> np.ndarray:
    """Tokens that all filters keep, one row at a time, by their textbook definitions."""
    mask = np.ones_like(log_probs, dtype=bool)
    for row, keep in zip(log_probs, mask, strict=True):
        order = np.argsort(-row, kind="stable")
        probs = np.exp(row.astype(np.float64))
        if params.top_k:
            keep[order[params.top_k :]] = False
        if params.top_p < 1:
            before = np.concatenate([[0], np.cumsum(probs[order])[:-1]])
            keep[order[before >= params.top_p]] = False
        if params.min_p:
            keep[probs < params.min_p * probs.max()] = False
    return mask


def log_softmax(logits: mx.array) -> mx.array:
    return logits - mx.logsumexp(logits, axis=-1, keepdims=True)


@pytest.mark.parametrize("params", SAMPLINGS, ids=str)
def test_filters_keep_what_their_definitions_keep(params: SamplingParams) -> None:
    logits = mx.array(RNG.normal(size=(20, 100)) * 3, dtype=mx.float32)
    log_probs = log_softmax(logits)
    warped = np.array(warp(log_probs, params))
    expected = kept(np.array(log_probs), params)
    assert (np.isfinite(warped) == expected).all()
    relative = np.array(log_probs) - np.array(log_probs).max(axis=-1, keepdims=True)
    assert warped[expected] == pytest.approx(relative[expected] / params.temperature, abs=1e-5)


@pytest.mark.parametrize("temperature", [0, 1e-40, 5e-5, 1e-4, 1e-3])
def test_a_tiny_temperature_takes_the_most_likely_token(temperature: float) -> None:
    """Divided by 1e-40, all scores became minus infinity, and token 0 ended the reply."""
    logits = mx.array(RNG.normal(size=(50, 100)) * 3 - 200, dtype=mx.float32)
    chosen = TokenChooser(SamplingParams(temperature, top_p=1, min_p=0.5), 1, 100).choose(logits, range(50))
    gap = np.sort(np.array(logits), axis=-1)[:, -1] - np.sort(np.array(logits), axis=-1)[:, -2]
    clear = gap > 30 * temperature  # no noise bridges that
    assert clear.sum() > 40
    assert (np.array(chosen)[clear] == np.array(logits).argmax(axis=-1)[clear]).all()


def test_ties_at_the_border_are_kept_together() -> None:
    log_probs = log_softmax(mx.array([[1.0, 1.0, 1.0, 0.0]]))
    assert np.isfinite(np.array(warp(log_probs, SamplingParams(top_p=1, top_k=2)))).sum() == 3


@pytest.mark.parametrize(("params", "seed", "vocabulary"), grid(SAMPLINGS, [1, 2**63], [5, 31, 12_000]), ids=str)
def test_the_quick_choice_is_the_full_one_wherever_it_is_sure(
    params: SamplingParams, seed: int, vocabulary: int
) -> None:
    chooser = TokenChooser(params, seed, vocabulary)
    depths = mx.array([0, 1, 1, 2, 3, 3])
    for spread in (0.3, 3, 30):
        logits = mx.array(RNG.normal(size=(6, vocabulary)) * spread, dtype=mx.float32)
        quick, sure = chooser.choose_quickly(logits, 70, depths, 3)
        full = chooser.choose(logits, (70 + depths).tolist())
        assert mx.all((quick == full) | ~sure).item()
        if spread == 30 or vocabulary < 100:
            assert mx.all(sure).item()


@pytest.mark.parametrize("params", [SamplingParams(top_p=0.9), SamplingParams(top_p=1, top_k=5)], ids=str)
def test_the_quick_choice_is_not_sure_where_more_is_kept_than_it_looked_at(params: SamplingParams) -> None:
    """Ties are kept together."""
    _, sure = TokenChooser(params, 1, 40_000).choose_quickly(mx.zeros((2, 40_000)), 0, mx.array([0, 1]), 1)
    assert sure.tolist() == [False, False]


def test_denominator_is_that_of_the_softmax_to_float32_precision() -> None:
    logits = RNG.normal(size=(4, 40_000)) * 4
    exact = np.log(np.exp(logits).sum(axis=1))
    assert np.array(log_denominator(mx.array(logits, dtype=mx.float32)))[:, 0] == pytest.approx(exact, abs=4e-6)


def test_penalty_divides_positive_and_multiplies_negative_logits_of_seen_tokens() -> None:
    logits = mx.array([[2.0, -2.0, 2.0, -2.0]])
    seen = mx.array([1, 2, 0, 0])
    assert penalize(logits, seen, SamplingParams(repetition_penalty=2)).tolist() == [[1.0, -4.0, 2.0, -2.0]]


def test_the_replys_penalties_leave_the_prompt_alone() -> None:
    params = SamplingParams(presence_penalty=0.5, frequency_penalty=0.25)
    chooser = TokenChooser(params, 0, 5)
    seen = chooser.with_tokens(chooser.seen([0, 1, 1]), mx.array([1, 2, 1, 3, 9]))
    assert penalize(mx.full((1, 5), 2.0), seen, params).tolist() == [[2.0, 1.0, 1.25, 1.25, 2.0]]


def test_earlier_replies_do_not_keep_a_reply_from_ending() -> None:
    chooser = TokenChooser(SamplingParams(temperature=0, repetition_penalty=1.3), 0, 5)
    logits = mx.array([[0.0, 0.0, 2.0, 1.8, 0.0]])
    prompt = [0, 2, 1, 2, 7]
    assert chooser.choose(logits, [5], chooser.seen(prompt)).tolist() == [3]
    assert chooser.choose(logits, [5], chooser.seen(prompt, {2, 4})).tolist() == [2]
    assert chooser.seen(prompt, {2, 4}).tolist() == [1, 1, 0, 0, 0]


@pytest.mark.parametrize("penalty", ["repetition_penalty", "presence_penalty", "frequency_penalty"])
def test_each_penalty_needs_what_was_seen(penalty: str) -> None:
    assert TokenChooser(SamplingParams(**{penalty: 1.1}), 0, 6).seen([1]).tolist() == [0, 1, 0, 0, 0, 0]
    assert TokenChooser(SamplingParams(), 0, 6).seen([1]) is None


def test_a_tokens_choice_depends_on_its_position_and_not_on_its_row() -> None:
    chooser = TokenChooser(SamplingParams(temperature=1, top_p=1), 9, 50)
    logits = mx.array(RNG.normal(size=(1, 50)), dtype=mx.float32)
    alone = [chooser.choose(logits, [p]).item() for p in range(30)]
    together = chooser.choose(mx.repeat(logits, 30, axis=0), range(30)).tolist()
    assert alone == together
    assert len(set(alone)) > 10


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_tokens_are_drawn_from_the_softmax(temperature: float) -> None:
    params = SamplingParams(temperature=temperature, top_p=1)
    logits = np.array([2.0, 1.0, 0.0, -1.0], dtype=np.float32)
    chooser = TokenChooser(params, 123, 4)
    count = 10_000
    drawn = np.array(chooser.choose(mx.broadcast_to(mx.array(logits), (count, 4)), range(count)))
    expected = np.exp(logits / temperature) / np.exp(logits / temperature).sum()
    for token, p in enumerate(expected):
        assert (drawn == token).mean() == pytest.approx(p, abs=5 * math.sqrt(p * (1 - p) / count))


def test_half_precision_logits_are_scored_in_float32() -> None:
    chooser = TokenChooser(SamplingParams(), 1, 8)
    logits = mx.array(RNG.normal(size=(4, 8))).astype(mx.float16)
    assert chooser.choose(logits, range(4)).tolist() == chooser.choose(logits.astype(mx.float32), range(4)).tolist()


VOCABULARY = 49152


def noise(seed: int, positions: list[int], tokens: int = VOCABULARY) -> np.ndarray:
    return np.array(gumbel_noise(seed, positions, mx.arange(tokens)))


def uniforms(values: np.ndarray) -> np.ndarray:
    """Map Gumbel noise to what is uniform on (0, 1) if it is Gumbel."""
    return np.exp(-np.exp(-values.astype(np.float64)))


@pytest.mark.parametrize("seed", share([0, 1, 2**32, 2**64 - 1], 4))
def test_distribution_is_uniform_in_256_bins(seed: int) -> None:
    counts, _ = np.histogram(uniforms(noise(seed, list(range(20)))), bins=256, range=(0, 1))
    expected = counts.sum() / 256
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert 255 - 5 * math.sqrt(2 * 255) < chi_squared < 255 + 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize(
    ("seed", "position", "step"),
    [*((3, 100 + step, 0) for step in (1, 2, 64, 2**16)), *((3, 100, step) for step in (1, 2, 256, 4096)),
     *((seed, 100, 0) for seed in (4, 2**32 + 3, 3 ^ 2**31, 3 ^ 2**63))],
)  # fmt: skip
def test_neighbouring_positions_tokens_and_seeds_are_independent(seed: int, position: int, step: int) -> None:
    first = uniforms(noise(3, [100])[0])[: VOCABULARY - step]
    second = uniforms(noise(seed, [position])[0])[step:]
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(VOCABULARY)


def test_a_few_candidates_get_the_noise_of_the_whole_vocabulary() -> None:
    whole = noise(5, [9, 10])
    candidates = mx.array([48_000, 3, 17])
    few = np.array(gumbel_noise(5, [9, 10], candidates))
    assert (few == whole[:, [48_000, 3, 17]]).all()


def test_the_noise_of_one_token_is_that_of_all_tokens() -> None:
    seed = (1 << 63) + 12_345
    whole = noise(seed, [3, 100_000])
    alone = [[noise_of_one(seed, position, token) for token in range(200)] for position in (3, 100_000)]
    assert whole[:, :200] == pytest.approx(np.array(alone), abs=1e-4)


@pytest.mark.slow
def test_top_of_a_large_vocabulary_has_no_ties() -> None:
    """`mx.random.gumbel` ends at 16.6, where many tokens of many positions tie."""
    values = noise(1, list(range(2_000)), tokens=4096)
    top_two = np.sort(values, axis=1)[:, -2:]
    assert np.isfinite(values).all()
    assert (top_two[:, 0] < top_two[:, 1]).all()
    assert values.max() < 23


RANDOM = np.random.default_rng(2)
LOGITS = mx.array(RANDOM.normal(size=(2, 49_152)).astype(np.float32) * 3)
HALVED = {  # and the primitives for one row before they were halved
    SamplingParams(temperature=0): 2,
    SamplingParams(temperature=1, top_p=1): 18,
    SamplingParams(): 49,
    SamplingParams(top_k=40): 50,
}


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Build graphs as for a GPU."""
    monkeypatch.setattr(reductions, "on_gpu", lambda: True)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("sampling", HALVED, ids=str)
@pytest.mark.skipif("config.getoption('round_by_rows')", reason="on that device a product is many operations")
def test_a_choice_on_a_gpu_takes_half_the_launches_of_before(sampling: SamplingParams) -> None:
    chooser = TokenChooser(sampling, 1, LOGITS.shape[1])
    mx.eval(chooser._token_ids, LOGITS)
    made = launches(*chooser.choose_quickly(LOGITS[:1], 40, mx.array([0]), 0))
    assert len(made) <= -(-HALVED[sampling] // 2)
    assert made.count("ArgPartition") <= 2


@pytest.mark.parametrize("sampling", HALVED, ids=str)
def test_both_devices_graphs_choose_the_same(sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = TokenChooser(sampling, 9, LOGITS.shape[1])
    depths = mx.array([0, 1])
    chosen = []
    for on_gpu in (True, False):
        monkeypatch.setattr(reductions, "on_gpu", lambda on_gpu=on_gpu: on_gpu)
        chosen.append([array.tolist() for array in chooser.choose_quickly(LOGITS, 70, depths, 1)])
    assert chosen[0] == chosen[1]


@cache
def shuffled() -> tuple[np.ndarray, np.ndarray]:
    """Return rows of different numbers, and their places from the largest on."""
    rows = np.stack([np.random.default_rng(seed).permutation(262_144) for seed in (0, 1)])
    return rows, np.argsort(-rows, axis=1)


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("count", [1, 7, 256, 1025, 2373, 4000])
def test_the_largest_are_found_in_order(count: int, on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "on_gpu", lambda: on_gpu)
    rows, order = shuffled()
    ids, values = reductions.top_k(mx.array(rows, mx.float32), count)
    expected = order[:, :count]
    assert (np.array(ids) == expected).all()
    assert (np.array(values) == np.take_along_axis(rows, expected, axis=1)).all()


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("columns", [101, 1001, 4101])
def test_every_candidate_is_a_column_also_where_few_are_finite(
    columns: int, on_gpu: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What blocks are filled up with was given as a token beyond the vocabulary."""
    monkeypatch.setattr(reductions, "on_gpu", lambda: on_gpu)
    logits = mx.where(mx.arange(columns) == 7, 1.0, -mx.inf)[None]
    ids = np.array(reductions.top_k(logits, 5)[0])
    assert ids[0, 0] == 7
    assert ids.max() < columns


NAN = float("nan")
INF = float("inf")
# What is known of each row: a token cannot be chosen from NaN, or where the largest logit is infinite.
ROWS = [
    ([0.0, 1.0, 2.0], True),
    ([0.0, NAN, 2.0], False),
    ([0.0, INF, 2.0], False),
    ([0.0, -INF, 2.0], True),
    ([-INF, -INF, -INF], False),
    ([NAN, NAN, NAN], False),
    ([-INF, NAN, INF], False),
    ([65504.0, -65504.0, 0.0], True),
]


@pytest.mark.parametrize("dtype", [mx.float16, mx.bfloat16, mx.float32], ids=str)
@pytest.mark.parametrize(("gpu", "count"), [(False, 3), (True, 2)])
def test_rows_are_finite_as_isfinite_says_in_few_launches(
    gpu: bool, count: int, dtype: mx.Dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "on_gpu", lambda: gpu)
    logits = mx.array([row for row, _ in ROWS]).astype(dtype)
    mx.eval(logits)
    rows = reductions.finite_rows(logits)
    constant = {"Full", "AsType"}
    assert len([name for name in launches(rows) if name not in constant]) == count
    assert rows.tolist() == [known for _, known in ROWS] == mx.isfinite(mx.max(logits, axis=-1)).tolist()
