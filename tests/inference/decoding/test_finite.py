"""Whether rows of logits are finite, in few launches."""

import re
from pathlib import Path

import mlx.core as mx
import pytest

from rdchat.inference.decoding import reductions

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
