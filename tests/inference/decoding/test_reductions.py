"""The primitives of a choice on a GPU and on a CPU, which give the same result."""

import re
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest

from rdchat.inference.api import SamplingParams
from rdchat.inference.decoding import reductions
from rdchat.inference.decoding.sampling import TokenChooser
from tests.inference.graphs import launches

RNG = np.random.default_rng(2)
LOGITS = mx.array(RNG.normal(size=(2, 49_152)).astype(np.float32) * 3)
SAMPLINGS = {  # and the primitives for one row before they were halved
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
@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
@pytest.mark.skipif("config.getoption('round_by_rows')", reason="on that device a product is many operations")
def test_a_choice_on_a_gpu_takes_half_the_launches_of_before(sampling: SamplingParams) -> None:
    chooser = TokenChooser(sampling, 1, LOGITS.shape[1])
    mx.eval(chooser._token_ids, LOGITS)
    made = launches(*chooser.choose_quickly(LOGITS[:1], 40, mx.array([0]), 0))
    assert len(made) <= -(-SAMPLINGS[sampling] // 2)
    assert made.count("ArgPartition") <= 2


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=str)
def test_both_devices_graphs_choose_the_same(sampling: SamplingParams, monkeypatch: pytest.MonkeyPatch) -> None:
    chooser = TokenChooser(sampling, 9, LOGITS.shape[1])
    depths = mx.array([0, 1])
    chosen = []
    for on_gpu in (True, False):
        monkeypatch.setattr(reductions, "on_gpu", lambda on_gpu=on_gpu: on_gpu)
        chosen.append([array.tolist() for array in chooser.choose_quickly(LOGITS, 70, depths, 1)])
    assert chosen[0] == chosen[1]


@pytest.mark.parametrize("on_gpu", [False, True])
@pytest.mark.parametrize("count", [1, 7, 256])
def test_the_largest_are_found_in_order(count: int, on_gpu: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reductions, "on_gpu", lambda: on_gpu)
    ids, values = reductions.top_k(LOGITS, count)
    expected = np.argsort(-np.array(LOGITS), axis=1)[:, :count]
    assert (np.array(ids) == expected).all()
    assert (np.array(values) == np.take_along_axis(np.array(LOGITS), expected, axis=1)).all()


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
@pytest.mark.parametrize(("gpu", "launches"), [(False, 3), (True, 2)])
def test_rows_are_finite_as_isfinite_says_in_few_launches(
    gpu: bool, launches: int, dtype: mx.Dtype, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reductions, "on_gpu", lambda: gpu)
    logits = mx.array([row for row, _ in ROWS]).astype(dtype)
    mx.eval(logits)
    rows = reductions.finite_rows(logits)
    graph = tmp_path / "graph.dot"
    mx.export_to_dot(str(graph), rows)
    # The others change shapes, or make a constant.
    free = {"Broadcast", "Squeeze", "Full", "AsType"}
    assert (
        len([name for name in re.findall(r'label ?="([A-Za-z]+)"', graph.read_text()) if name not in free]) == launches
    )
    assert rows.tolist() == [known for _, known in ROWS] == mx.isfinite(mx.max(logits, axis=-1)).tolist()
