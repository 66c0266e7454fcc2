"""`rdchat ask` on the real default model: what it prints, where, and with which exit status."""

import argparse
import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path
from typing import Any

import psutil
import pytest

from rdchat import paths
from rdchat.cli import main
from rdchat.commands import ask, preparation
from rdchat.commands.preparation import prepare
from rdchat.files.atomic_file import FileLock, make_folder
from rdchat.files.privacy import close_to_others
from rdchat.inference import blas, session
from rdchat.inference.api import DraftSettings, Dtype, Mode
from rdchat.inference.loading import load_model
from rdchat.inference.models.default_conversion import convert
from tests.commands.running import Console
from tests.inference.gguf_samples import write_gguf
from tests.inference.prompts.folders import with_template

QUESTION = "Explain in three sentences why the sky is blue."
JSON_FIELDS = {
    "model", "model_path", "dtype", "drafter", "drafter_kind", "mode", "requested_mode", "mode_reason", "seed",
    "sampling", "text", "token_ids", "finish_reason", "stats", "verification",
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ask"], "Give either a prompt or --prompt-file"),
        (["ask", "hi", "--prompt-file", "x"], "Give either a prompt or --prompt-file."),
        (["ask", ""], "The prompt is empty. Type something to ask."),
        (["ask", " \n"], "The prompt is empty"),
        (["ask", "hi", "--max-tokens", "0"], "max-tokens 0 is out of range: it must be at least 1"),
        (["ask", "hi", "--temperature", "-1"], "temperature -1.0 is out of range: it must be from 0 to 10"),
        (["ask", "hi", "--temperature", "nan"], "temperature nan is out of range"),
        (["ask", "hi", "--top-p", "0"], "top-p 0.0 is out of range"),
        (["ask", "hi", "--top-k", "-1"], "top-k -1 is out of range: it must be 0 (off) or a positive whole number"),
        (["ask", "hi", "--top-k", "many"], "invalid int value: 'many'"),
        (["ask", "hi", "--min-p", "2"], "min-p 2.0 is out of range"),
        (["ask", "hi", "--repetition-penalty", "0"], "repetition penalty 0.0 is out of range"),
        (["ask", "hi", "--stop", ""], "stop '' is out of range"),
        (["ask", "hi", "--seed", "-1"], "seed -1 is out of range"),
        (["ask", "hi", "--seed", str(2**64)], "is out of range"),
        (["ask", "hi", "--mode", "telepathy"], "invalid choice: 'telepathy'"),
        (["ask", "hi", "--dtype", "int3"], "invalid choice: 'int3'"),
        (["ask", "hi", "--what"], "unrecognized arguments: --what"),
        (["answer"], "There is no file or command answer. (see rdchat --help)"),
        (["nofile.txt"], "There is no file nofile.txt."),
        (["sub/nofile"], "There is no file sub/nofile."),
        ([__file__, "nofile.txt"], "There is no file nofile.txt."),
        (
            ["ask", "hi", "--mode", "lookup", "--draft-model", "x"],
            "--draft-model has no effect with --mode prompt-lookup. Add --mode draft-model",
        ),
        (
            ["ask", "hi", "--mode", "off", "--drafter", "x"],
            "--drafter has no effect with --mode off. Add --mode drafter",
        ),
        (["ask", "hi", "--model", ""], "The model's name is empty"),
        (["ask", "gr\udcfc\udcdfe"], "The prompt is not UTF-8 text. Set the terminal to UTF-8."),
        (["ask", "hi", "--system", "\udcfc"], "The system prompt is not UTF-8 text"),
        (["ask", "hi", "--stop", "\udcfc"], "The stop string is not UTF-8 text"),
    ],
)
def test_what_the_arguments_alone_show_to_be_wrong_is_one_line_and_exit_2(
    arguments: list[str], words: str, console: Console
) -> None:
    console.refuses(arguments, words, 2)


def test_what_had_to_be_looked_at_is_one_line_and_exit_1(tmp_path: Path, console: Console) -> None:
    (tmp_path / "empty.txt").write_text(" \n")
    (tmp_path / "latin1.txt").write_bytes(b"gr\xfc\xdfe")
    cases = {
        "cannot be read: No such file": ["ask", "--prompt-file", tmp_path / "missing.txt"],
        "cannot be read: Is a directory": ["ask", "--prompt-file", tmp_path],
        "is empty": ["ask", "--prompt-file", tmp_path / "empty.txt"],
        "is not UTF-8": ["ask", "--prompt-file", tmp_path / "latin1.txt"],
        "nowhere": ["ask", "hi", "--model", tmp_path / "nowhere"],
        "There is no model named nosuch. `rdchat models list` has the names.": ["ask", "hi", "--model", "nosuch"],
    }
    for words, arguments in cases.items():
        console.refuses(arguments, words, 1)


EVERYWHERE = [[], ["ask"], ["bench"], ["doctor"], ["models"], ["models", "list"], ["models", "install-default"]]


@pytest.fixture
def later(monkeypatch: pytest.MonkeyPatch) -> list[DraftSettings]:
    """The settings that are prepared after the command, instead of in a child."""
    asked: list[DraftSettings] = []
    monkeypatch.setattr(ask, "prepare_later", lambda _model, _dtype, draft: asked.append(draft))
    return asked


@pytest.fixture
def new_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[str]:
    """Nothing is compiled yet; the modes that are compiled, and the ends of replies."""
    did: list[str] = []

    def warm(_model: Any, _drafters: Any, drafts: Sequence[DraftSettings]) -> Generator[bool]:
        did.extend(draft.mode.value for draft in drafts)
        yield True

    monkeypatch.setattr(session, "warm", warm)
    monkeypatch.setattr(blas, "compiled_marker", lambda kind: tmp_path / "kernels" / sha256(kind.encode()).hexdigest())
    printed = ask.print_json
    monkeypatch.setattr(ask, "print_json", lambda report: (did.append("reply"), printed(report)))
    return did


def test_the_first_answer_of_the_automatic_mode_is_plain_and_drafting_is_prepared_after_the_command(
    small_model: Path,
    new_machine: list[str],
    later: list[DraftSettings],
    untried: list[str],
    console: Console,
) -> None:
    arguments = ("--model", small_model, "--max-tokens", "6", "--temperature", "0", "--seed", "1")
    first = console.json("ask", "hi", *arguments)
    assert (new_machine, untried) == (["off", "reply"], []), "the first answer waits for no trial of the model"
    assert (first["mode"], first["requested_mode"], first["verification"]) == ("off", "auto", None)
    assert "is prepared once on this computer" in first["mode_reason"]
    assert later == [DraftSettings()]
    prepare(str(small_model), Dtype.AUTO, later.pop(), lambda _: None)
    assert (new_machine[2:], untried) == (["lookup", "drafter"], ["trial"])
    second = console.json("ask", "hi", *arguments)
    assert (new_machine[4:], later, untried, second["verification"]) == (["reply"], [], ["trial"], "trees")
    assert (second["mode"], second["mode_reason"]) == ("auto", None)
    assert second["token_ids"] == first["token_ids"]


def test_a_chosen_mode_is_compiled_before_the_answer(
    small_model: Path, new_machine: list[str], console: Console
) -> None:
    report = console.json("ask", "hi", "--model", small_model, "--mode", "lookup", "--max-tokens", "6")
    assert new_machine == ["lookup", "reply"]
    assert (report["mode"], report["mode_reason"]) == ("lookup", None)


def test_a_drafter_that_is_wrong_is_reported_by_the_first_answer(
    small_model: Path, new_machine: list[str], untried: list[str], console: Console
) -> None:
    console.refuses(["ask", "hi", "--model", small_model, "--draft-model", "/nowhere"], "/nowhere", 1)


@pytest.mark.slow
def test_preparation_begins_when_the_command_has_ended(small_model: Path, untried: list[str]) -> None:
    """Until then, the command holds the model in memory."""
    child = preparation.prepare_later(str(small_model), "auto", DraftSettings(), rest_s=0)
    with child, pytest.raises(subprocess.TimeoutExpired):
        child.wait(1.0)
    assert child.returncode == 0
    assert load_model(small_model).is_tried()


def test_only_one_process_prepares(small_model: Path) -> None:
    make_folder(paths.cache_dir())
    with (
        FileLock(paths.cache_dir() / preparation.LOCK),
        preparation.prepare_later(None, "auto", DraftSettings(), rest_s=0) as child,
    ):
        pass
    assert child.returncode == 1


def touch_later() -> None:
    """Begin a command after the preparation noted the last one."""
    file = paths.cache_dir() / preparation.LOCK
    noted = file.stat().st_mtime_ns
    preparation.command_begins()
    os.utime(file, ns=(noted + 10**9, noted + 10**9))


@pytest.fixture
def prepared(monkeypatch: pytest.MonkeyPatch) -> list[str | None]:
    """The models that `preparation.main` prepares, of which one is asked for; resting is over at once."""
    models: list[str | None] = []
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(["tiny", "auto", None, None, 30.0])))
    monkeypatch.setattr(os, "nice", lambda _more: 19)
    monkeypatch.setattr(preparation.time, "sleep", lambda _seconds: None)
    monkeypatch.setattr(preparation, "prepare", lambda model, *_rest: models.append(model))
    return models


def test_preparation_rests_until_half_a_minute_after_the_command(
    prepared: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    rested: list[float] = []
    monkeypatch.setattr(preparation.time, "sleep", rested.append)
    assert preparation.main() == 0
    assert (rested, prepared) == ([30.0], ["tiny"])


def test_another_command_ends_a_preparation_that_rests(
    prepared: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preparation.time, "sleep", lambda _seconds: touch_later())
    with pytest.raises(SystemExit) as ended:
        preparation.main()
    assert (ended.value.code, prepared) == (0, [])


def test_another_command_ends_a_preparation_that_runs_and_frees_its_lock(
    prepared: list[str | None], monkeypatch: pytest.MonkeyPatch
) -> None:
    def prepare_until_another(model: str | None, _dtype: Any, _draft: Any, show: Callable[[Any], None]) -> None:
        show(None)
        prepared.append(model)
        touch_later()
        show(None)
        prepared.append("not reached")

    monkeypatch.setattr(preparation, "prepare", prepare_until_another)
    with pytest.raises(SystemExit) as ended:
        preparation.main()
    assert (ended.value.code, prepared) == (0, ["tiny"])
    with FileLock(paths.cache_dir() / preparation.LOCK):
        pass


def test_a_command_with_a_model_says_that_it_begins(
    small_model: Path, later: list[DraftSettings], console: Console
) -> None:
    file = paths.cache_dir() / preparation.LOCK
    make_folder(file.parent)
    file.touch()
    os.utime(file, ns=(1, 1))
    console.json("ask", "hi", "--model", small_model, "--max-tokens", "1")
    assert file.stat().st_mtime_ns > 1


def test_the_lock_of_preparation_is_known_as_a_file_of_rdchat() -> None:
    """A cache folder of the person's own is closed to others only if nothing else is in it."""
    folder = paths.cache_dir()
    folder.mkdir(parents=True)
    (folder / preparation.LOCK).touch()
    folder.chmod(0o755)
    close_to_others(folder, default=False)
    assert folder.stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    "arguments", [[*command, option] for command in EVERYWHERE for option in ("--version", "--help")]
)
def test_version_and_help_everywhere(arguments: list[str], console: Console) -> None:
    with pytest.raises(SystemExit, match="0"):
        main(arguments)
    assert "rdchat" in console.printed().out


@pytest.mark.slow
def test_output_that_cannot_be_written_is_one_line_and_exit_1(tmp_path: Path) -> None:
    (paths.models_dir() / "tiny").mkdir(parents=True)
    convert(write_gguf(tmp_path / "tiny.gguf"), paths.models_dir() / "tiny", lambda _progress: None)
    for where, words in (
        (">/dev/full", "The output cannot be written: No space left on device. Write it to another file."),
        (">&-", "Standard output is closed, so nothing can be written. Redirect it to a file."),
    ):
        command = f'"{sys.executable}" -m rdchat models list {where}'
        environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub")}
        done = subprocess.run(command, shell=True, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr) == (1, "", f"rdchat: {words}\n")


@pytest.mark.slow
def test_ctrl_c_while_the_prompt_is_read_gives_the_object_under_json() -> None:
    command = [sys.executable, "-m", "rdchat", "ask", "--prompt-file", "-", "--json", "--seed", "7"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"x" * 2**20)  # more than a pipe holds: once it is written, it is being read
        process.stdin.flush()
        while psutil.Process(process.pid).status() != psutil.STATUS_SLEEPING:  # waits for more
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        process.wait(60)
        assert process.stdout is not None
        report = json.loads(process.stdout.read())
    assert process.returncode == 130
    assert report.keys() == JSON_FIELDS
    assert (report["finish_reason"], report["seed"], report["model"]) == ("cancelled", 7, None)


def test_json_has_every_field_and_its_figures_agree(small_model: Path, console: Console) -> None:
    asked = (QUESTION, "--model", small_model, "--mode", "off", "--temperature", "0", "--max-tokens", "12")
    report = console.json("ask", *asked)
    assert report.keys() == JSON_FIELDS
    assert (report["model_path"], report["finish_reason"]) == (str(small_model), "length")
    assert (report["mode"], report["mode_reason"], report["verification"]) == ("off", None, None)
    stats = report["stats"]
    assert stats["generated_tokens"] == len(report["token_ids"])
    assert stats["target_calls"] == stats["generated_tokens"] - 1
    assert stats["tokens_per_target_call"] == 1
    assert (stats["rounds"], stats["drafted"], stats["accepted"], stats["verified_nodes"]) == (0, 0, 0, 0)
    assert stats["acceptance_rate"] is None
    assert stats["choice"] is None
    assert stats["decode_tps"] == pytest.approx(1000 * stats["target_calls"] / stats["decode_ms"])
    assert stats["peak_memory_bytes"] > 0
    assert stats["ledger_exact"] is False


@pytest.mark.slow
@pytest.mark.across_rows
def test_recurrent_mode_finds_the_drafter_that_is_shipped_and_profile_times_it(
    default_model: Path, console: Console
) -> None:
    asked = (QUESTION, "--temperature", "0", "--max-tokens", "12")
    plain = console.json("ask", *asked, "--mode", "off")
    assert "sky" in plain["text"]
    report = console.json("ask", *asked, "--mode", "drafter", "--profile")
    assert (report["mode"], report["mode_reason"], report["verification"]) == ("drafter", None, "trees")
    assert Path(report["drafter"]).name == "smollm2-135m-instruct"
    assert (Path(report["drafter"]) / "model.safetensors").is_file()
    assert report["stats"]["accepted"] > 0
    assert report["token_ids"] == plain["token_ids"]
    assert report["stats"]["ledger_exact"] is True
    rows = {(row["parent"], row["name"]): row for row in report["stats"]["ledger"]}
    search = rows["round/draft", "beam search"]
    draft = rows["round", "draft"]
    assert search["mean_ms"] == pytest.approx(search["total_ms"] / search["calls"])
    assert search["percent_of_parent"] == pytest.approx(100 * search["total_ms"] / draft["total_ms"])
    parts = [row["percent_of_parent"] for row in rows.values() if row["parent"] == "round"]
    assert 95 < sum(parts) <= 100, "nothing of a round is left untimed"


@pytest.mark.slow
def test_profile_shows_where_the_time_went(small_model: Path, console: Console) -> None:
    question = ["hello", "--model", small_model, "--mode", "lookup", "--temperature", "0", "--max-tokens", "12"]
    plainly = console.runs("ask", *question).out
    shown = console.runs("ask", *question, "--profile")
    assert shown.out == plainly
    header, *table = shown.err[shown.err.index("stage ") :].splitlines()
    assert header.split() == ["stage", "calls", "mean", "ms", "total", "ms", "%", "of", "parent"]
    stages = [line[: header.index("calls")].rstrip() for line in table]
    for stage in ("reply", "  drafting", "    look up", "  checking", "    forward", "    choice", "  other"):
        assert stage in stages
    assert "Exact times" in table[-1]


@pytest.mark.slow
@pytest.mark.across_rows
def test_same_seed_same_text_and_no_seed_is_drawn_and_told(small_model: Path, console: Console) -> None:
    question = ("hello", "--model", small_model, "--max-tokens", "24", "--temperature", "1.2")
    drawn = console.json("ask", *question)
    again = console.json("ask", *question, "--seed", drawn["seed"])
    other = console.json("ask", *question)
    assert drawn["token_ids"] == again["token_ids"]
    assert drawn["seed"] != other["seed"]
    assert drawn["token_ids"] != other["token_ids"]


@pytest.mark.slow
def test_options_reach_the_engine(small_model: Path, console: Console) -> None:
    question = ("What?", "--model", small_model, "--max-tokens", "30")
    greedy = console.json("ask", *question, "--temperature", "0")
    assert greedy["finish_reason"] == "length"
    assert len(greedy["token_ids"]) == 30
    assert console.json("ask", *question, "--top-k", "1")["text"] == greedy["text"]
    assert console.json("ask", *question, "--min-p", "1")["text"] == greedy["text"]
    assert console.json("ask", *question, "--temperature", "1e-40")["text"] == greedy["text"]
    stop = greedy["text"][9:11]
    stopped = console.json("ask", *question, "--temperature", "0", "--stop", stop)
    assert stopped["finish_reason"] == "stop_string"
    assert stopped["text"] == greedy["text"].split(stop)[0]
    empty = console.json("ask", *question, "--temperature", "0", "--stop", greedy["text"][:1])
    assert (empty["text"], empty["stats"]["target_calls"], empty["stats"]["tokens_per_target_call"]) == ("", 0, None)
    pirate = console.json("ask", *question, "--temperature", "0", "--system", "Answer in one word.")
    assert pirate["stats"]["prompt_tokens"] != greedy["stats"]["prompt_tokens"]


@pytest.mark.slow
def test_text_streams_to_standard_output_and_nothing_else_does(
    small_model: Path, tmp_path: Path, console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "question.txt").write_text("What?")
    terminal = ["--model", small_model, "--temperature", "0", "--max-tokens", "12"]
    from_file = console.runs("ask", "--prompt-file", tmp_path / "question.txt", *terminal)
    with (tmp_path / "question.txt").open() as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        assert console.runs("ask", "--prompt-file", "-", *terminal) == from_file
    assert len(from_file.out) > 4
    assert from_file.out.endswith("\n")
    assert from_file.err == ""


def test_thinking_that_the_template_has_no_switch_for_is_refused(small_model: Path, console: Console) -> None:
    assert main(["ask", "Hello", "--thinking", "on", "--model", str(small_model)]) in {1, 2}
    shown = console.printed()
    assert shown.out == ""
    assert "has no setting for thinking on" in shown.err


@pytest.mark.slow
def test_thinking_reaches_the_template(small_model: Path, tmp_path: Path, console: Console) -> None:
    template = "{% if enable_thinking %}think {% endif %}{% for message in messages %}{{ message.content }}{% endfor %}"
    folder = with_template(small_model, tmp_path / "model", template)
    tokens = []
    for chosen in ("on", "off"):
        told = console.json("ask", "Hello", "--thinking", chosen, "--max-tokens", "1", "--model", folder)
        tokens.append(told["stats"]["prompt_tokens"])
    on, off = tokens
    assert on > off


def test_prompt_longer_than_the_context_is_refused_with_figures(
    small_model: Path, tmp_path: Path, console: Console
) -> None:
    (tmp_path / "long.txt").write_text("word " * 900)
    asked = ("ask", "--prompt-file", tmp_path / "long.txt", "--json", "--model", small_model)
    shown = console.runs(*asked, status=1)
    assert shown.out == ""
    assert "tokens; together with the reply, model takes 512" in shown.err


@pytest.mark.slow
def test_ctrl_c_prints_what_there_is_and_exits_130(small_model: Path) -> None:
    command = [sys.executable, "-m", "tests.slow_replies", "ask", "hello", "--temperature", "0"]
    command += ["--model", str(small_model), "--mode", "prompt-lookup"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        first = os.read(process.stdout.fileno(), 1)
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=120)
    assert process.returncode == 130
    assert len(first + rest) > 1
    assert errors == b""


@pytest.mark.slow
def test_ctrl_c_under_json_gives_the_partial_object(small_model: Path) -> None:
    """It comes once the tokenizer's process is there: while the model is loaded, or soon after."""
    command = [sys.executable, "-m", "tests.slow_replies", "ask", "hello", "--json", "--temperature", "0"]
    command += ["--model", str(small_model)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        while not psutil.Process(process.pid).children():
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
            assert process.returncode is None
        process.send_signal(signal.SIGINT)
        out, errors = process.communicate(timeout=120)
    report = json.loads(out)
    assert process.returncode == 130, errors
    assert report["finish_reason"] == "cancelled"
    assert report.keys() == JSON_FIELDS


@pytest.mark.parametrize("mode", Mode)
def test_a_mode_has_one_name_in_the_window_and_the_terminal_and_its_old_one_works(mode: Mode) -> None:
    """The window said Draft model, the terminal speculative."""
    assert mode.option.replace("-", " ") == mode.label.lower()
    assert Mode(mode.option) is Mode(mode.value) is mode
    parser = argparse.ArgumentParser()
    ask.add_options(parser)
    for name in (mode.option, mode.value):
        assert Mode(parser.parse_args(["hi", "--mode", name]).mode) is mode
    assert all(each.option in parser.format_help() for each in Mode)
    assert "speculative" not in parser.format_help()
