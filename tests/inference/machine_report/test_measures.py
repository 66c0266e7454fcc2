"""What `rdchat report` measures, on a small random model."""

from pathlib import Path

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import pytest

from rdchat.inference.api.requests import Dtype, Mode
from rdchat.inference.machine_report.divergences import count_divergences
from rdchat.inference.machine_report.graph_size import graph_sizes, primitives
from rdchat.inference.machine_report.model_report import ModelReport
from rdchat.inference.machine_report.plain_decoding import compare_plain
from rdchat.inference.machine_report.row_costs import ROWS, cost_by_rows
from rdchat.inference.models.loading import load_model
from rdchat.inference.session import ChatSession


@pytest.fixture(scope="module")
def session(small_model: Path) -> ChatSession:
    return ChatSession(load_model(small_model, Dtype.FLOAT32))


def never() -> bool:
    return False


def test_primitives_are_counted_without_views() -> None:
    values = mx.array([1.0, 2.0, 3.0, 4.0])
    assert primitives(mx.exp(values.reshape(2, 2)).transpose() + 1) == {"Exp": 1, "Add": 1}
    assert not primitives(values)


def test_a_call_queues_more_than_a_plain_step_and_the_session_answers_afterwards(session: ChatSession) -> None:
    counts = graph_sizes(session)
    assert counts["a call of 5 rows"]["primitives"] > counts["a plain step"]["primitives"] > 20
    assert "a recurrent draft" not in counts  # it has no drafter
    assert list(count_divergences(session, Mode.LOOKUP, 0.0, 4))


def test_calls_are_measured_by_their_rows(session: ChatSession) -> None:
    costs = cost_by_rows(session.model, 16, never)
    assert set(costs["call_ms"]) == set(ROWS)
    assert costs["in_plain_steps"][1] == costs["call_ms"][1] / costs["plain_step_ms"]
    assert cost_by_rows(session.model, 16, lambda: True) == {}


def test_plain_decoding_is_compared_with_mlx_lm_at_a_depth(session: ChatSession) -> None:
    found = compare_plain(session, 100, never)
    assert 80 <= found["prompt_tokens"] <= 120
    assert found["pairs"] == 3
    assert set(found["peak_memory_bytes"]) == {"rdchat", "mlx-lm"}
    assert compare_plain(session, 100, lambda: True)["pairs"] == 0


def test_in_float32_on_a_cpu_drafts_change_no_token(session: ChatSession) -> None:
    *_, last = count_divergences(session, Mode.LOOKUP, 0.7, 8)
    assert last.tokens > 0
    assert last.gaps == ()


def test_what_there_was_no_time_for_is_listed(session: ChatSession) -> None:
    report = ModelReport(session, 0.0)
    steps = [step.words for step in report]
    assert steps
    assert report.found["rows"] == {}
    assert "bench" not in report.found
    assert any("beyond the model's context" in what for what in report.left_out)
    assert any("turns of the benchmark: no time left" in what for what in report.left_out)
    assert report.found["graph"]
    errors = report.found["capability"]["errors"]
    assert errors["second"] <= errors["limit"] < errors["mask"]
