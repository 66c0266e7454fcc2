"""`rdchat eval-drafter`: its table, its JSON, and what it refuses."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX
from rdchat import paths
from rdchat.cli import main
from tests.inference.drafting.drafter_folders import saved_random_drafter
from tests.inference.fakes import lenient_llama

ROW = {
    "setup", "beam_width", "beam_length", "lookup_branch", "group", "prompts", "decoded_tokens", "target_calls",
    "tokens_per_target_call", "acceptance_by_position", "repeated_runs",
}  # fmt: skip


@pytest.fixture
def drafter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A random drafter of the model that the command loads."""
    model = lenient_llama()
    monkeypatch.setattr("rdchat.inference.models.loading.load_model", lambda *_, **__: model)
    return saved_random_drafter(model, tmp_path / "d", hidden_size=32)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [{"prompt": f"{group} {number}", "category": group} for number in range(3) for group in ("maths", "rag")]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def evaluate(*arguments: object) -> int:
    return main(["eval-drafter", *(str(argument) for argument in arguments), "--max-tokens", "12"])


@pytest.mark.slow
def test_json_holds_every_setup_and_group(drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--drafter", drafter, "--prompts", prompts, "--beam-width", 1, 3, "--beam-length", 3, 4, "--json")
    assert evaluate(*options) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["model"] == "tiny"
    assert report["drafter"] == str(drafter)
    rows = report["rows"]
    assert all(set(row) == ROW for row in rows)
    setups = ["W1 L3", "W1 L3 + lookup", "W3 L3", "W3 L3 + lookup", "lookup L3"]
    setups += [setup.replace("L3", "L4") for setup in setups]
    assert [(row["setup"], row["group"]) for row in rows] == [
        (setup, group) for setup in setups for group in ("maths", "rag", "all")
    ]
    assert {row["prompts"] for row in rows if row["group"] == "all"} == {6}
    assert len({row["decoded_tokens"] for row in rows if row["group"] == "all"}) == 1  # drafts never change the text
    for row in rows:
        assert len(row["acceptance_by_position"]) == row["beam_length"] - 1
        assert row["tokens_per_target_call"] == row["decoded_tokens"] / row["target_calls"] >= 1


def test_it_says_how_far_it_is_though_it_prints_json(
    drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--drafter", drafter, "--prompts", prompts, "--per-group", 1, "--beam-width", 1, "--beam-length", 3)
    assert evaluate(*options, "--json") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["complete"]
    cells = ["W1 L3, maths", "W1 L3, rag", "W1 L3 + lookup, maths", "W1 L3 + lookup, rag", "lookup L3, maths"]
    stages = [f"Decoding {number} of 6: {cell}…" for number, cell in enumerate([*cells, "lookup L3, rag"], start=1)]
    assert [line for line in shown.err.splitlines() if line.startswith("Decoding")] == stages


def test_the_table_has_a_line_for_each(drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate("--drafter", drafter, "--prompts", prompts, "--per-group", 1, "--beam-length", 3) == 0
    header, *lines = capsys.readouterr().out.splitlines()
    assert header.split() == ["setup", "group", "prompts", "tokens/step", "loops", "acceptance", "by", "position"]
    assert len(lines) == 5 * 3
    assert lines[0].split()[:4] == ["W1", "L3", "maths", "1"]
    assert lines[-1].split()[:4] == ["lookup", "L3", "all", "2"]


@pytest.mark.parametrize(
    ("options", "words", "status"),
    [
        (["--beam-width", "0"], "beam-width 0 is out of range", 2),
        (["--beam-length", "1"], "beam-length 1 is out of range", 2),
        (["--beam-width", "99"], "beam-width times beam-length 495 is out of range: it must be at most 256", 2),
        (["--per-group", "-1"], "per-group -1 is out of range", 2),
        (["--temperature", "-1"], "temperature -1.0 is out of range", 2),
        (["--drafter", "nowhere"], "There is no drafter at nowhere", 1),
    ],
)
def test_what_is_refused(
    options: list[str], words: str, status: int, drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["eval-drafter", "--prompts", str(prompts), *options]) == status
    shown = capsys.readouterr()
    assert words in shown.err
    assert shown.out == ""


def test_broken_prompts_are_refused_before_the_model_is_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rdchat.inference.models.loading.load_model", lambda *_, **__: pytest.fail("the model was loaded")
    )
    (tmp_path / "prompts").write_text('{"prompt": 3}\n')
    assert evaluate("--prompts", tmp_path / "prompts") == 1
    assert "Line 1 of" in capsys.readouterr().err


def test_a_model_without_a_drafter(drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate("--prompts", prompts) == 1
    assert "There is no drafter for tiny" in capsys.readouterr().err


def test_the_drafter_made_for_the_model_is_found(
    drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = paths.drafters_dir() / "mine"
    place.parent.mkdir(parents=True)
    drafter.rename(place)
    assert evaluate("--prompts", prompts, "--per-group", 1, "--json") == 0
    assert json.loads(capsys.readouterr().out)["drafter"] == str(place)


def test_loops_and_what_was_asked_are_told(drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ("--drafter", drafter, "--prompts", prompts, "--per-group", 1, "--beam-width", 1)
    assert evaluate(*options, "--temperature", 0.7, "--seed", 3, "--json") == 0
    report = json.loads(capsys.readouterr().out)
    told = {name: report[name] for name in ("temperature", "top_p", "max_tokens", "seed", "complete")}
    assert told == {"temperature": 0.7, "top_p": 0.95, "max_tokens": 12, "seed": 3, "complete": True}
    loops = f"{report['rows'][0]['repeated_runs']:.0%}"
    assert evaluate(*options, "--temperature", 0.7, "--seed", 3) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[5] == loops


def test_a_width_that_is_named_twice_is_measured_once(
    drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate("--drafter", drafter, "--prompts", prompts, "--beam-width", 1, 1, "--json") == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert {row["prompts"] for row in rows if row["group"] == "all"} == {6}


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What is decoded, a prompt each reply."""
    from rdchat.inference.benchmark import recording

    done: list[str] = []
    plain = recording.record

    def record(session: Any, request: Any, cancelled: Any) -> Any:
        done.append(request.messages[0].content)
        return plain(session, request, cancelled)

    monkeypatch.setattr(recording, "record", record)
    return done


@pytest.mark.slow
def test_a_measurement_goes_on_where_it_was_interrupted(
    drafter: Path,
    prompts: Path,
    tmp_path: Path,
    decoded: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Ctrl-C after four replies: what was measured is printed and kept; the next run ends in the whole table."""
    from rdchat.inference.benchmark import recording

    options = ("--drafter", drafter, "--prompts", prompts, "--beam-width", 1, "--beam-length", 3)
    assert evaluate(*options) == 0
    whole = capsys.readouterr().out
    everything = len(decoded)

    plain = recording.record

    def interrupt(*arguments: Any) -> Any:
        if len(decoded) == 3:
            signal.raise_signal(signal.SIGINT)
        return plain(*arguments)

    decoded.clear()
    with monkeypatch.context() as patch:
        patch.setattr(recording, "record", interrupt)
        assert evaluate(*options, "--results", tmp_path / "kept") == 130
    assert capsys.readouterr().out.splitlines() == whole.splitlines()[:2]
    some = len(decoded)
    assert evaluate(*options, "--results", tmp_path / "kept") == 0
    assert capsys.readouterr().out == whole
    assert 0 < some < everything == len(decoded)
    assert "maths 0" not in (tmp_path / "kept").read_text()  # no text of anybody's


def test_results_of_another_measurement_are_refused(
    drafter: Path, prompts: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ("--drafter", drafter, "--prompts", prompts, "--per-group", 1, "--beam-length", 3)
    assert evaluate(*options, "--results", tmp_path / "kept") == 0
    capsys.readouterr()
    assert evaluate(*options, "--results", tmp_path / "kept", "--temperature", 0.5) == 1
    assert "has other content than results of this measurement" in capsys.readouterr().err
    assert evaluate(*options, "--results", prompts) == 1
    assert "has other content" in capsys.readouterr().err


def test_a_prompt_that_leaves_no_room_is_named_before_anything_is_decoded(
    drafter: Path, tmp_path: Path, decoded: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "long").write_text("short\n" + 600 * "word ")
    assert evaluate("--drafter", drafter, "--prompts", tmp_path / "long") == 1
    assert "Prompt 2 is " in capsys.readouterr().err
    assert not decoded


def test_a_drafter_of_another_model_is_refused(
    drafter: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = json.loads((drafter / "config.json").read_text())
    config["target"] |= {"hash": "0" * 64, "name": "somebody"}
    (drafter / "config.json").write_text(json.dumps(config))
    assert evaluate("--drafter", drafter, "--prompts", prompts) == 1
    assert "was trained for the model somebody" in capsys.readouterr().err
