"""What memory a model needs, and whether it is available."""

import pytest

from rdchat.inference.api import Dtype, Fit, MemoryNeed, MemoryRoom, ModelSizes

SIZES = ModelSizes(1000, 600, 4, Dtype.BFLOAT16, 8, 8192)
FLOATS = ModelSizes(1000, 2000, None, Dtype.BFLOAT16, 8, 8192)


@pytest.mark.parametrize(
    ("sizes", "dtype", "on_gpu", "weights", "cache", "precision"),
    [
        (SIZES, Dtype.AUTO, True, 600, 8 * 2 * 4096, "4bit"),
        (SIZES, Dtype.AUTO, False, 4000, 8 * 4 * 4096, "float32"),
        (SIZES, Dtype.FOUR_BIT, False, 600, 8 * 4 * 4096, "4bit"),
        (SIZES, Dtype.FLOAT16, True, 2000, 8 * 2 * 4096, "float16"),
        (FLOATS, Dtype.AUTO, True, 2000, 8 * 2 * 4096, "bfloat16"),
        (FLOATS, Dtype.FOUR_BIT, True, 562, 8 * 2 * 4096, "4bit"),
        (FLOATS, Dtype.EIGHT_BIT, False, 1125, 8 * 4 * 4096, "8bit"),
    ],
)
def test_weights_and_cache_by_precision_and_device(
    sizes: ModelSizes, dtype: Dtype, on_gpu: bool, weights: int, cache: int, precision: str
) -> None:
    need = MemoryNeed.for_sizes(sizes, dtype, on_gpu)
    assert (need.weights_bytes, need.cache_bytes, need.precision) == (weights, cache, precision)


def test_no_cache_is_larger_than_the_context() -> None:
    assert MemoryNeed.for_sizes(SIZES, Dtype.AUTO, True, 100_000).tokens == 8192


@pytest.mark.parametrize(
    ("limit", "free", "fit"),
    [(1000, 1000, Fit.TIGHT), (1112, 1001, Fit.FITS), (999, 10**9, Fit.TOO_LARGE), (10**9, 999, Fit.TIGHT)],
)
def test_what_is_refused_and_what_is_warned_of(limit: int, free: int, fit: Fit) -> None:
    need = MemoryNeed.for_sizes(ModelSizes(500, 1000, None, Dtype.BFLOAT16, 0, 1), Dtype.AUTO, on_gpu=True)
    assert need.total_bytes == 1000
    assert need.fit(MemoryRoom(limit, free)) is fit
