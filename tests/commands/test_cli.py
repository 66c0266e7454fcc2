"""Closed streams, missing home folders, devices as files: one line and an exit status; and no Qt for commands."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rdchat import cli, host, paths
from rdchat.errors import InvalidSettingError
from tests.commands.running import Console
from tests.grids import grid
from tests.time_limits import at_most


def run(command: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        f'"{sys.executable}" -m rdchat {command}',
        shell=True,
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.slow
def test_closed_standard_input_is_no_file_of_the_models(small_model: Path) -> None:
    """A file of the model got its number, and was read where standard input was meant."""
    done = run(f"ask hi --mode off --max-tokens 2 --temperature 0 --model {small_model} <&-")
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_prompt_from_standard_input_that_is_closed() -> None:
    done = run("ask --prompt-file - <&-")
    assert (done.returncode, done.stderr) == (
        1,
        "rdchat: Standard input is closed. Give the prompt as an argument or with --prompt-file.\n",
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "variable"), grid(["doctor", "", "models list"], ["RDCHAT_DATA_DIR", "RDCHAT_CACHE_DIR"], one_in=4)
)
def test_folders_in_the_home_of_nobody(command: str, variable: str) -> None:
    """It was a traceback. Without a command it is the window."""
    if (command, variable) == ("models list", "RDCHAT_DATA_DIR"):
        command = "models install-default"
    done = run(command, **{variable: "~nosuchuser/x"})
    told = f"rdchat: {variable} cannot be ~nosuchuser/x: there is no home folder ~nosuchuser. Give the full path.\n"
    assert (done.returncode, done.stdout, done.stderr) == (2, "", told)


@pytest.mark.slow
@pytest.mark.skipif(host.MACOS, reason="names of files are text there")
def test_a_file_whose_name_is_no_text(tmp_path: Path) -> None:
    """Printing its name was "something unexpected" where the terminal's locale is strict, as en_US.UTF-8 is."""
    name = tmp_path / os.fsdecode(b"a\xff.json")
    name.write_text("[]")
    done = run(f"chats import --json '{name}'", PYTHONIOENCODING="utf-8:strict")
    assert done.returncode == 1, done.stderr
    assert json.loads(done.stdout)["files"][0]["file"] == name.name


@pytest.mark.slow
def test_a_folder_of_ours_whose_path_is_no_text() -> None:
    """A model was written there that MLX could not read."""
    done = run("models list", RDCHAT_CACHE_DIR=os.fsdecode(b"/nowhere\xff"))
    told = "the path is not UTF-8 text. Set RDCHAT_CACHE_DIR to another folder.\n"
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.endswith(told)


def test_only_the_home_of_nobody_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert paths.expanded("~/x", "It") == tmp_path / "x"
    assert paths.expanded("a~b/x", "It") == Path("a~b/x")
    with pytest.raises(InvalidSettingError, match="It cannot be ~nosuchuser"):
        paths.expanded("~nosuchuser", "It")


@pytest.mark.parametrize(
    "arguments",
    [
        ["train-drafter", "--out", "~nosuchuser/x"],
        ["train-drafter", "--out", "x", "--prompts", "~nosuchuser/x"],
        ["bench", "--prompts", "~nosuchuser/x"],
        ["bench", "--drafter", "~nosuchuser/x"],
    ],
)
def test_arguments_in_the_home_of_nobody(arguments: list[str], console: Console) -> None:
    console.refuses(arguments, "there is no home folder ~nosuchuser.", 2)


def test_prompts_without_end(console: Console, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with at_most(60):
        console.refuses(["ask", "--prompt-file", "/dev/zero"], "/dev/zero is longer than 64 MB.", 1)
        console.refuses(["bench", "--prompts", "/dev/zero"], "is a device, not a file.", 1)
        console.refuses(["bench", "--prompts", tmp_path / "pipe"], "is a named pipe, not a file.", 1)


@pytest.mark.slow
def test_a_prompt_in_a_named_pipe_is_read() -> None:
    """As the shell gives it with `<(...)`; here nothing but a space."""
    done = run("ask --prompt-file /dev/stdin < /dev/null")
    assert done.stderr == "rdchat: The prompt file /dev/stdin is empty. Write a question in it.\n"


@pytest.mark.parametrize("command", ["ask hi --model", "bench --model", "models check-pair x"])
def test_a_pipe_in_a_model_folder(command: str, small_model: Path, tmp_path: Path, console: Console) -> None:
    shutil.copytree(small_model, tmp_path / "model")
    (tmp_path / "model" / "tokenizer.json").unlink()
    os.mkfifo(tmp_path / "model" / "tokenizer.json")
    arguments = [tmp_path / "model" if part == "x" else part for part in command.split()]
    with at_most(60):
        console.refuses([*arguments, tmp_path / "model"], "tokenizer.json is a named pipe, not a file.", 1)


@pytest.mark.slow
def test_doctor_names_a_damaged_drafter() -> None:
    bad = paths.drafters_dir() / "bad"
    bad.mkdir(parents=True)
    os.mkfifo(bad / "config.json")
    done = run("doctor")
    assert done.returncode == 0, done.stderr
    assert f"The drafter bad is not used: {bad / 'config.json'} is a named pipe, not a file." in done.stdout


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (OSError(36, "File name too long", "/x"), "/x cannot be used: File name too long."),
        (RecursionError(), "A file is nested too deeply to be read."),
    ],
)
def test_what_files_bring_about_is_never_unexpected(
    error: Exception, words: str, monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    def fail(*_arguments: object) -> int:
        raise error

    monkeypatch.setattr(cli, "_run", fail)
    console.refuses(["models", "list"], words, 1)


def test_a_command_does_not_wait_for_the_event_loop_of_tools() -> None:
    code = "import sys, rdchat.cli; print('asyncio' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout == "False\n"


CODE = """
import json, sys
from contextlib import suppress
from rdchat.cli import main
imported = {}
for command in json.loads(sys.argv[1]):
    with suppress(SystemExit):
        main(command.split())
    imported[command] = [name for name in sys.modules if name.startswith(("PySide6", "shiboken6"))]
print(json.dumps(imported), file=sys.stderr)
"""
COMMANDS = (
    "models list",
    "models delete no-such-model --yes",
    "models verify no-such-model",
    "models check-pair no-such-model no-such-draft",
    "models download ../evil",
    "chats list",
    "ask --help",
    "bench --help",
    "train-drafter --help",
)


@pytest.mark.slow
def test_no_command_imports_qt() -> None:
    """They run in one process, since its start takes half a second; the first that imports Qt has it in its list."""
    run = [sys.executable, "-c", CODE, json.dumps(COMMANDS)]
    done = subprocess.run(run, capture_output=True, text=True, timeout=120, check=True)
    assert json.loads(done.stderr.splitlines()[-1]) == {command: [] for command in COMMANDS}
