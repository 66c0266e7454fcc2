"""The noise must be Gumbel, independent over tokens, positions and seeds, and the same however it is asked for."""

import math

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.decoding.sampling import gumbel_noise, noise_of_one
from tests.grids import share

VOCABULARY = 49152
EULER = 0.5772156649


def noise(seed: int, positions: list[int], tokens: int = VOCABULARY) -> np.ndarray:
    return np.array(gumbel_noise(seed, positions, mx.arange(tokens)))


def uniforms(values: np.ndarray) -> np.ndarray:
    """Map Gumbel noise to what is uniform on (0, 1) if it is Gumbel."""
    return np.exp(-np.exp(-values.astype(np.float64)))


def test_mean_and_variance_are_a_gumbels() -> None:
    values = noise(7, list(range(100)))
    count = values.size
    assert values.mean() == pytest.approx(EULER, abs=5 * math.sqrt(math.pi**2 / 6 / count))
    assert values.var() == pytest.approx(math.pi**2 / 6, rel=0.01)


@pytest.mark.parametrize("seed", share([0, 1, 2**32, 2**64 - 1], 4))
def test_distribution_is_uniform_in_256_bins(seed: int) -> None:
    counts, _ = np.histogram(uniforms(noise(seed, list(range(50)))), bins=256, range=(0, 1))
    expected = counts.sum() / 256
    chi_squared = ((counts - expected) ** 2 / expected).sum()
    assert 255 - 5 * math.sqrt(2 * 255) < chi_squared < 255 + 5 * math.sqrt(2 * 255)


@pytest.mark.parametrize("step", [1, 2, 64, 2**16])
def test_neighbouring_positions_are_independent(step: int) -> None:
    first, second = uniforms(noise(3, [100, 100 + step]))
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(VOCABULARY)


@pytest.mark.parametrize("other", [4, 2**32 + 3, 3 ^ 2**31, 3 ^ 2**63])
def test_neighbouring_seeds_are_independent(other: int) -> None:
    first = uniforms(noise(3, [100])[0])
    second = uniforms(noise(other, [100])[0])
    assert abs(np.corrcoef(first, second)[0, 1]) < 5 / math.sqrt(VOCABULARY)


@pytest.mark.parametrize("step", [1, 2, 256, 4096])
def test_neighbouring_tokens_are_independent(step: int) -> None:
    values = uniforms(noise(3, [100])[0])
    assert abs(np.corrcoef(values[:-step], values[step:])[0, 1]) < 5 / math.sqrt(VOCABULARY)


def test_winner_of_equal_tokens_is_uniform_over_positions() -> None:
    winners = noise(11, list(range(20_000)), tokens=16).argmax(axis=1)
    counts = np.bincount(winners, minlength=16)
    chi_squared = ((counts - 1250) ** 2 / 1250).sum()
    assert chi_squared < 15 + 5 * math.sqrt(30)


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
