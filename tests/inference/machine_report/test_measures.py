"""What `rdchat report` measures, on a small random model."""

import json
from pathlib import Path

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import pytest

from rdchat.commands.report_page import report_page
from rdchat.inference.api.benchmark import EVERYDAY_PROMPTS
from rdchat.inference.api.requests import Dtype, Mode
from rdchat.inference.machine_report import model_report
from rdchat.inference.machine_report.measures import (
    ROWS,
    compare_plain,
    cost_by_rows,
    count_divergences,
    graph_sizes,
    primitives,
)
from rdchat.inference.machine_report.model_report import ModelReport
from rdchat.inference.models.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import TargetEmbeddings
from tests.inference.drafting.drafter_folders import apple_checkpoint, saved_random_drafter


@pytest.fixture(scope="module")
def session(small_model: Path) -> ChatSession:
    return ChatSession(load_model(small_model, Dtype.FLOAT32))


def never() -> bool:
    return False


def test_primitives_are_counted_without_views() -> None:
    values = mx.array([1.0, 2.0, 3.0, 4.0])
    assert primitives(mx.exp(values.reshape(2, 2)).transpose() + 1) == {"Exp": 1, "Add": 1}
    assert not primitives(values)


@pytest.mark.skipif("config.getoption('round_by_rows')", reason="on that device a product is many operations")
def test_a_call_queues_more_than_a_plain_step_and_the_session_answers_afterwards(session: ChatSession) -> None:
    counts = graph_sizes(session)
    assert counts["a call of 5 rows"]["primitives"] > counts["a plain step"]["primitives"] > 20
    assert "a draft" not in counts  # it has no drafter
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
    assert compare_plain(session, 100, lambda: True) == {}


def test_in_float32_on_a_cpu_drafts_change_no_token(session: ChatSession) -> None:
    *_, last = count_divergences(session, Mode.LOOKUP, 0.7, 8)
    assert last.tokens > 0
    assert last.gaps == ()


def test_what_there_was_no_time_for_is_listed(session: ChatSession) -> None:
    report = ModelReport(session, 0.0)
    steps = list(report)
    assert steps
    assert report.found["rows"] == {}
    assert "bench" not in report.found
    assert any("beyond the model's context" in what for what in report.left_out)
    assert any("turns of the benchmark: no time left" in what for what in report.left_out)
    assert report.found["graph"]
    errors = report.found["capability"]["errors"]
    assert errors["second"] <= errors["limit"] < errors["mask"]


@pytest.mark.slow
def test_drafters_are_measured_one_after_the_other_and_none_is_named(
    session: ChatSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("DEPTHS", "_PLAIN_DEPTHS", "_TEMPERATURES"):
        monkeypatch.setattr(model_report, name, ())
    monkeypatch.setattr(model_report, "EVERYDAY_PROMPTS", EVERYDAY_PROMPTS[:1])
    monkeypatch.setattr(model_report, "_TOKENS", 4)
    monkeypatch.setattr(ModelReport, "_modes", lambda _: ())
    model = session.model
    width = TargetEmbeddings(model.network, model.info.vocabulary_size).width
    own = saved_random_drafter(model, tmp_path / "Aunt Mary's", width)
    apple_checkpoint(tmp_path / "of Bob", width, 2 * width, 0, False, model.info.vocabulary_size)
    drafters = [str(own), str(tmp_path / "none"), str(tmp_path / "of Bob")]
    report = ModelReport(session, 3600.0, drafters=drafters)
    steps = list(report)
    assert any(step.startswith("Benchmark of drafter 3: ") for step in steps)
    told = report.found["drafters"]
    kinds = [(one["drafter"], one["kind"], one["sure"]) for one in told]
    assert kinds == [(1, "recurrent", True), (3, "recurrent", False)]
    for one in told:
        assert one["graph"]["primitives"] > 10
        modes = {mode["mode"]: mode for mode in one["bench"]["modes"]}
        assert set(modes) == {"off", "drafter", "auto"}
        assert modes["drafter"]["mode_reason"] is None
        assert modes["drafter"]["tokens_per_target_call"]["median"] >= 1
    said = "drafter 2: it cannot be used with this model; rdchat ask --mode drafter says why"
    assert report.left_out == [said]
    page = report_page({"machine": {}, "models": [report.found], "left_out": report.left_out})
    assert "Drafter 3: recurrent, of sizes that fit the model" in page
    for text in (page, json.dumps(report.found)):
        assert not any(word in text for word in ("Mary", "Bob", str(tmp_path)))
