"""What `rdchat report` measures, on a small random model."""

import json
from pathlib import Path

import pytest

from rdchat.inference.api import EVERYDAY_PROMPTS, Dtype
from rdchat.inference.benchmark import model_report
from rdchat.inference.benchmark.model_report import ModelReport
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import TargetEmbeddings
from tests.inference.drafting.checkpoints.drafter_folders import apple_checkpoint, saved_random_drafter


@pytest.fixture(scope="module")
def session(small_model: Path) -> ChatSession:
    return ChatSession(load_model(small_model, Dtype.FLOAT32))


def test_parts_without_time_are_listed(session: ChatSession) -> None:
    report = ModelReport(session, 0.0)
    assert [*report]
    assert "bench" not in report.facts
    assert any("turns of the benchmark: no time left" in part for part in report.left_out)
    capability = report.facts["capability"]
    errors = capability["errors"]
    assert errors["others"] <= errors["limit"] < errors["mask"]
    assert (capability["verification"], capability["inputs"]) == ("trees", 3)


@pytest.mark.slow
def test_a_report_has_costs_and_a_benchmark_of_drafters_without_names(
    session: ChatSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quiet_machine: None
) -> None:
    monkeypatch.setattr(model_report, "EVERYDAY_PROMPTS", EVERYDAY_PROMPTS[:1])
    monkeypatch.setattr(model_report, "_MAX_TOKENS", 4)
    model = session.model
    width = TargetEmbeddings(model.network, model.info.vocabulary_size).width
    own = saved_random_drafter(model, tmp_path / "Aunt Mary's", width)
    apple_checkpoint(tmp_path / "of Bob", width, 2 * width, 0, False, model.info.vocabulary_size)
    drafters = [str(own), str(tmp_path / "none"), str(tmp_path / "of Bob")]

    report = ModelReport(session, 3600.0, drafters=drafters)
    steps = list(report)

    told = [step for step in steps if step.startswith("Benchmark: ")]
    assert told[0].startswith("Benchmark: 0 of ")
    counted = [step for step in told if "Benchmark: 0 of" not in step]
    assert len(counted) == len(set(counted)), "each reply is told once"
    assert report.facts["costs_ms"]["calls"]
    assert report.facts["differences"] == []  # in float32 on a CPU drafts change no token
    modes = report.facts["bench"]["modes"]
    assert {each["temperature"] for each in modes} == {0.0, 0.7}
    assert all(each["identical_text"] for each in modes)
    assert {each["drafter"] for each in modes if each["mode"] == "drafter"} == {"drafter 1", "drafter 3"}
    assert all(each["tokens_per_target_call"]["median"] >= 1 for each in modes if each["mode"] == "drafter")
    assert report.left_out == ["drafter 2: it cannot be used with this model; rdchat ask --mode drafter says why"]
    text = json.dumps(report.facts)
    assert not any(name in text for name in ("Mary", "Bob", str(tmp_path)))
