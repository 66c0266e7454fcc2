"""`rdchat bench`: what it refuses, what it prints and draws, and how it ends."""

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import ClassVar

import pytest
from PySide6.QtCore import QCoreApplication

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX
from rdchat.cli import main
from rdchat.errors import ModelError
from rdchat.inference.api import (
    FIGURES,
    BenchEvent,
    BenchPlan,
    BenchProgress,
    BenchResult,
    BenchRun,
    Difference,
    Dtype,
    LookupMatch,
    ModelInfo,
)
from rdchat.inference.drafting.reply_index import ReplyIndex
from rdchat.inference.loading import load_model
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers
from tests.commands.running import Console
from tests.inference.benchmark.results import result, run, stored
from tests.inference.drafting.checkpoints.drafter_folders import saved_random_drafter
from tests.services.bench_runs import PLAN, bench_run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--modes", "off,telepathy"],
            "'telepathy' is not a valid Mode: choose from auto, off, draft-model, drafter, prompt-lookup",
        ),
        (["--modes", ""], "the list, or one of its items, is empty"),
        (["--dtype", "int3"], "'int3' is not a valid Dtype: choose from auto, float16"),
        (["--beam-width", "4,many"], "invalid literal for int() with base 10: 'many'"),
        (["--beam-width", "64", "--beam-length", "2,5"], "beam-width times beam-length 320 is out of range"),
        (["--beam-length", "1"], "beam-length 1 is out of range: it must be at least 2"),
        (["--draft-tokens", "2,0"], "draft-tokens 0 is out of range: it must be from 1 to 64"),
        (["--temperature", "0,-1"], "temperature -1.0 is out of range"),
        (["--max-tokens", "1"], "max-tokens 1 is out of range: it must be at least 2"),
        (["--trials", "0"], "trials 0 is out of range"),
        (["--per-group", "-1"], "per-group -1 is out of range"),
        (["--lookup-branch", "perhaps"], "'perhaps' is neither on nor off"),
        (["--modes", "speculative"], "Mode draft-model needs a draft model. Choose one with --draft-model."),
        (["--from", "x.jsonl", "--modes", "off"], "--from only shows a file: leave out --modes"),
    ],
)
def test_what_the_arguments_alone_show_to_be_wrong_is_one_line_and_exit_2(
    arguments: list[str], words: str, console: Console
) -> None:
    console.refuses(["bench", *arguments], words, 2)


def test_files_that_are_wrong_are_told_before_the_model_loads(tmp_path: Path, console: Console) -> None:
    (tmp_path / "broken.jsonl").write_text('{"prompt": "hi"}\n{"prompt":\n')
    (tmp_path / "empty.txt").write_text("\n")
    cases = {
        "broken.jsonl is damaged: it is not JSON": ["--prompts", tmp_path / "broken.jsonl"],
        "has no prompts": ["--prompts", tmp_path / "empty.txt"],
        "cannot be read: No such file": ["--prompts", tmp_path / "none.txt"],
        "There is no drafter folder": ["--drafter", tmp_path / "none"],
        "nowhere": ["--draft-model", tmp_path / "nowhere", "--modes", "speculative"],
        "cannot be written: Is a directory": ["--csv", tmp_path],
        f"{tmp_path} cannot be written": ["--results", tmp_path],
        "broken.jsonl has no reply": ["--reply-store", tmp_path / "broken.jsonl"],
        "none.jsonl cannot be read": ["--from", tmp_path / "none.jsonl"],
        "Choose a file that `rdchat bench --results` has written.": ["--from", tmp_path / "broken.jsonl"],
    }
    for words, arguments in cases.items():
        console.refuses(["bench", *arguments], words, 1)


def test_a_file_is_shown_as_what_was_measured_is(tmp_path: Path, console: Console) -> None:
    path = stored(tmp_path / "runs.jsonl", result())
    report = console.json("bench", "--from", path)
    assert [mode["mode"] for mode in report["modes"]] == ["off", "drafter", "lookup"]
    assert report["environment"]["model"] == "m"
    table = console.runs("bench", "--from", path).out
    assert "Drafter, 2 beams of 3 tokens" in table
    assert "Prompt lookup, 3 tokens: not run. No, it cannot." in table
    assert "differs most in prompt 1, from token 2 on: '\"b,\\n' for 'a'; scores differ by 0.5." in table


def test_a_file_is_shown_without_mlx(tmp_path: Path) -> None:
    path = stored(tmp_path / "runs.jsonl", result())
    code = "import sys; from rdchat.cli import main; print(main(sys.argv[1:]), 'mlx.core' in sys.modules)"
    command = [sys.executable, "-c", code, "bench", "--from", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout.splitlines()[-1], done.stderr) == ("0 False", "")


class _TalkativeEngine:
    """Has one run to tell of, and libraries that print."""

    def load(self, _model: str | None, _dtype: Dtype, _show: object, _anyway: bool) -> ModelInfo:
        sys.stdout.write("loading, with a warning\n")
        return ModelInfo("m", Path("m"), "llama", "float32", "CPU", 512, 30, 0, 0, 0.0)

    def benchmark(self, plan: BenchPlan) -> Iterator[BenchRun]:
        sys.stdout.write("[WARNING] Generating with a model that requires much memory.\n")
        yield run(plan, 0, 10)
        yield run(plan, 1, 10)


@pytest.fixture
def talkative(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rdchat.inference.local_engine.LocalEngine", _TalkativeEngine)


def test_what_libraries_print_is_no_part_of_the_report(talkative: None, console: Console) -> None:
    shown = console.runs("bench", "--modes", "lookup", "--json")
    report = json.loads(shown.out)
    assert (report["modes"][0]["ratio_to_plain"]["median"], report["complete"]) == (1, True)
    assert "much memory" in shown.err


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full once the figures are written."""

    def full(_file: object, _record: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("rdchat.commands.bench.write_csv", full)


def test_a_full_disk_does_not_cost_the_report(
    talkative: None, full_disk: None, tmp_path: Path, console: Console
) -> None:
    shown = console.runs("bench", "--modes", "lookup", "--json", "--csv", tmp_path / "runs.csv", status=1)
    assert json.loads(shown.out)["modes"][0]["mode"] == "lookup"
    assert "runs.csv cannot be written: the disk is full." in shown.err.splitlines()[-1]


class _EngineThatFailsOnce(_TalkativeEngine):
    """Fails in the second turn; later it makes the turns that are not finished."""

    plans: ClassVar[list[BenchPlan]] = []

    def benchmark(self, plan: BenchPlan) -> Iterator[BenchEvent]:
        self.plans.append(plan)
        for prompt in range(len(plan.prompts)):
            if (0, prompt, 0) in plan.finished:
                continue
            yield BenchProgress(prompt, 4, "Off")
            yield run(plan, 0, 10, prompt=prompt)
            if prompt and not plan.finished:
                raise ModelError("The device was lost.")
            yield run(plan, 1, 20, prompt=prompt, difference=Difference(prompt, 1, "a", "b", 0.5))


@pytest.fixture
def resumed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """The arguments of a benchmark of two prompts that fails in its second turn."""
    monkeypatch.setattr(_EngineThatFailsOnce, "plans", [])
    monkeypatch.setattr("rdchat.inference.local_engine.LocalEngine", _EngineThatFailsOnce)
    (tmp_path / "prompts.txt").write_text("Say hello.\nCount to nine.\n")
    arguments = ["bench", "--modes", "lookup", "--trials", "1", "--no-mlx-lm"]
    arguments += ["--csv", str(tmp_path / "runs.csv"), "--json"]
    return [*arguments, "--prompts", str(tmp_path / "prompts.txt"), "--results", str(tmp_path / "runs.jsonl")]


def test_an_interrupted_benchmark_resumes_after_its_last_whole_turn(
    resumed: list[str], tmp_path: Path, console: Console
) -> None:
    shown = console.runs(*resumed, status=1)
    assert json.loads(shown.out)["complete"] is False
    assert "The device was lost." in shown.err.splitlines()[-1]
    assert len((tmp_path / "runs.csv").read_text().splitlines()) == 4
    content = (tmp_path / "runs.jsonl").read_text()
    assert len(content.splitlines()) == 2
    assert "hello" not in content
    half = console.json("bench", "--from", resumed[-1])
    assert (half["complete"], half["modes"][0]["decode_tps"]["n"]) == (False, 1)
    assert (tmp_path / "runs.jsonl").read_text() == content
    for _ in range(2):  # the second time nothing is left to do
        report = console.json(*resumed[:-5], *resumed[-4:])
        assert report["complete"] is True
        (lookup,) = report["modes"]
        assert (lookup["decode_tps"]["n"], lookup["ratio_to_plain"]["median"]) == (2, 2)
        assert lookup["first_difference"]["plain"] == "a"
        assert console.json("bench", "--from", resumed[-1]) == report
    assert [plan.finished for plan in _EngineThatFailsOnce.plans] == [
        set(),
        {(0, 0, 0)},
        {(0, 0, 0), (0, 1, 0)},
    ]


@pytest.mark.parametrize("content", ["no JSON", '{"rdchat": "0"}\n', ""])
def test_a_file_of_something_else_or_of_other_settings_is_left_as_it_is(
    content: str, resumed: list[str], tmp_path: Path, console: Console
) -> None:
    runs = tmp_path / "runs.jsonl"
    runs.write_text(content)
    assert main(resumed) == 1
    content = content or runs.read_text()
    console.printed()
    shown = console.runs(*resumed, "--seed", "1", status=1)
    assert "has other content than runs of this benchmark" in shown.err
    assert shown.out == "", "nothing was measured"
    assert runs.read_text() == content


def test_of_two_failures_the_first_is_told(full_disk: None, resumed: list[str], console: Console) -> None:
    shown = console.runs(*resumed, status=1)
    assert json.loads(shown.out)["modes"][0]["mode"] == "lookup"
    assert "The device was lost." in shown.err.splitlines()[-1]


@pytest.fixture(scope="module")
def drafter(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random drafter of the small model."""
    place = tmp_path_factory.mktemp("drafter") / "random"
    return saved_random_drafter(load_model(small_model), place, hidden_size=256)


@pytest.mark.across_rows
def test_json_has_every_mode_in_the_order_asked(
    small_model: Path, drafter: Path, tmp_path: Path, console: Console
) -> None:
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text(
        '{"prompt": "Say hello.", "category": "short"}\n{"prompt": "Count to nine.", "category": "long"}\n'
    )
    arguments = ("--prompts", prompts, "--modes", "drafter,off,lookup", "--trials", "1", "--max-tokens", "4")
    arguments += ("--model", small_model, "--drafter", drafter, "--results", tmp_path / "runs.jsonl")
    report = console.json("bench", *arguments)
    assert report["complete"] is True
    modes = report["modes"]
    assert [mode["mode"] for mode in modes] == ["drafter", "off", "lookup"]
    for mode in modes:
        assert mode["identical_text"] is True
        assert mode["first_difference"] is None
        assert mode["mode_reason"] is None
        assert mode["groups"].keys() == {"short", "long"}
        for figures in (mode, *mode["groups"].values()):
            assert set(FIGURES) <= figures.keys()
        for name in ("decode_tps", "ratio_to_plain", "ratio_to_mlx_lm"):
            figure = mode[name]
            assert figure.keys() == {"median", "low", "high", "n"}
            assert 0 < figure["low"] <= figure["median"] <= figure["high"]
            assert figure["n"] == 2
    recurrent, off, _lookup = modes
    assert recurrent["overhead"]["n"] == 2
    assert recurrent["host_syncs_per_round"]["median"] >= 1
    assert (off["overhead"], off["acceptance_rate"]) == (None, None)
    assert off["tokens_per_target_call"]["median"] == 1
    assert console.json("bench", "--from", tmp_path / "runs.jsonl") == report


@pytest.mark.slow
@pytest.mark.across_rows
def test_a_sweep_has_an_entry_for_each_cell(small_model: Path, drafter: Path, tmp_path: Path, console: Console) -> None:
    (tmp_path / "prompt.txt").write_text("Count to nine.")
    quick = ("--prompts", tmp_path / "prompt.txt", "--trials", "1", "--max-tokens", "4")
    arguments = ("--modes", "lookup,drafter", "--beam-width", "1,2", "--draft-tokens", "2,4")
    other = shutil.copytree(drafter, tmp_path / "other")
    arguments += ("--model", small_model, "--drafter", f"{drafter},{other}")
    arguments += ("--lookup-branch", "off,on", "--no-mlx-lm", "--temperature", "0.7")
    report = console.json("bench", *quick, *arguments)
    names = ("beam_width", "lookup_branch", "draft_tokens")
    shapes = [tuple(mode.get(name) for name in names) for mode in report["modes"]]
    heads = [(width, branch, None) for branch in (False, True) for width in (1, 2)]
    assert shapes == [(None, None, 2), (None, None, 4), *heads * 2]
    assert [mode.get("drafter") for mode in report["modes"]] == [None, None, *[str(drafter)] * 4, *[str(other)] * 4]
    assert all(mode["identical_text"] for mode in report["modes"])
    assert all(mode["ratio_to_mlx_lm"] is None for mode in report["modes"])


@pytest.mark.slow
@pytest.mark.across_rows
def test_earlier_replies_of_a_file_are_drafted_from(
    small_model: Path, tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    used: set[int] = set()

    class Watched(ReplyIndex):
        def matches(self, ending: Sequence[int]) -> list[LookupMatch]:
            used.add(self.tokens)
            return super().matches(ending)

    monkeypatch.setattr("rdchat.inference.benchmark.runner.ReplyIndex", Watched)
    (tmp_path / "prompt.txt").write_text("Count to nine.")
    (tmp_path / "replies.jsonl").write_text('{"reply": "One, two, three."}\n{"reply": "Four."}\n')
    arguments = ("--prompts", tmp_path / "prompt.txt", "--trials", "1", "--max-tokens", "8", "--no-mlx-lm")
    arguments += ("--model", small_model, "--modes", "lookup", "--reply-store", tmp_path / "replies.jsonl")
    (lookup,) = console.json("bench", *arguments)["modes"]
    assert lookup["identical_text"] is True
    tokens = [len(shared_tokenizers().encode_text(small_model, text)) for text in ("One, two, three.", "Four.")]
    assert used == {sum(tokens) + 2}, "the measured reply is not added"


@pytest.mark.slow
def test_ctrl_c_reports_what_was_run(small_model: Path, tmp_path: Path) -> None:
    (tmp_path / "prompts.jsonl").write_text("".join(f'{{"prompt": "{number}"}}\n' for number in range(6)))
    command = [sys.executable, "-m", "tests.slow_replies", "bench", "--modes", "off", "--no-mlx-lm", "--json"]
    command += ["--model", str(small_model), "--prompts", str(tmp_path / "prompts.jsonl"), "--max-tokens", "200"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "prompt 2 of 6" in line:
                process.send_signal(signal.SIGINT)
                break
        out, _ = process.communicate(timeout=120)
    assert process.returncode == 130
    report = json.loads(out)
    assert report["complete"] is False
    assert 1 <= report["modes"][0]["decode_tps"]["n"] <= 3


@pytest.fixture
def measured(tmp_path: Path) -> Path:
    """A benchmark's stored runs: prompt lookup at twice the speed of plain decoding."""
    return stored(tmp_path / "bench.jsonl", BenchResult(PLAN, (bench_run(0, 20), bench_run(1, 10)), {}))


def test_a_file_is_drawn_several_times(qapp: QCoreApplication, measured: Path) -> None:
    pictures = [measured.with_suffix(kind) for kind in (".png", ".pdf")]
    options = [option for picture in pictures for option in ("--picture", str(picture))]
    assert main(["bench", "--from", str(measured), *options]) == 0
    assert pictures[0].read_bytes().startswith(b"\x89PNG")
    assert pictures[1].read_bytes().startswith(b"%PDF-")


@pytest.mark.slow
def test_pictures_need_no_display(measured: Path) -> None:
    unset = ("DISPLAY", "WAYLAND_DISPLAY", "QT_QPA_PLATFORM")
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    picture = measured.with_suffix(".pdf")
    command = [sys.executable, "-m", "rdchat", "bench", "--from", str(measured), "--picture", str(picture)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert picture.read_bytes().startswith(b"%PDF-")


@pytest.mark.parametrize(("name", "status", "words"), [("bench.gif", 2, ".png or .pdf"), ("no/b.png", 1, "written")])
def test_a_picture_that_cannot_be_is_refused_first(
    measured: Path, console: Console, name: str, status: int, words: str
) -> None:
    console.refuses(["bench", "--from", measured, "--picture", measured.parent / name], words, status)
