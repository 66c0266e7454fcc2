"""Each child process is begun by the app's own entry point, bundled or not."""

import ast
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import rdchat
from rdchat import host
from rdchat.children import run_child
from rdchat.commands.terminal import INTERRUPTED
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from rdchat.work.served import packed
from tests.bundles import write_stub

MULTIPROCESSING = """
import multiprocessing, sys
from multiprocessing import resource_tracker
if __name__ == "__main__":
    sys.executable = sys.argv[1]
    context = multiprocessing.get_context("spawn")
    context.set_executable(sys.argv[1])
    lock = context.Lock()  # as tqdm makes one; the resource tracker is started with it
    child = context.Process(target=print, args=("spawned",))
    child.start()
    child.join()
    del lock  # before the tracker ends, which would say that it leaks
    resource_tracker._resource_tracker._stop()
    print("status", child.exitcode)
"""
RUNS_PROGRAMS = {"Popen", "run", "call", "check_call", "check_output", "execv", "execve", "spawnv", "posix_spawn"}


@pytest.fixture(params=["bundled", "unbundled"])
def program(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Python's interpreter, or the program of a bundle in its place."""
    if request.param == "bundled":
        monkeypatch.setattr(sys, "executable", str(write_stub(tmp_path)))
    assert host.in_bundle() == (request.param == "bundled")
    return sys.executable


@pytest.mark.slow
@pytest.mark.parametrize("program", ["bundled"], indirect=True)
def test_the_tokenizers_child_answers(program: str, small_model: Path) -> None:
    """Unbundled, the tests of prompts start it."""
    process = TokenizerProcess()
    try:
        assert process.read_tokenizer(small_model)["<|im_start|>"] == 1
    finally:
        process.child.close()


@pytest.mark.slow
def test_the_pip_child_runs_pip_and_ends_with_the_one_who_asked(program: str) -> None:
    command = [*host.child_command("pip"), "--version"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.read().startswith("pip ")
    waiting = [*host.child_command("pip"), "download", "--find-links", "http://127.0.0.1:9/", "x"]
    ended = subprocess.run(waiting, stdin=subprocess.DEVNULL, capture_output=True, timeout=120, check=False)
    assert ended.returncode == 1


@pytest.mark.slow
def test_a_child_that_waits_for_commands_ends_with_its_input(program: str) -> None:
    for commands in (subprocess.DEVNULL, subprocess.PIPE):
        command = host.child_command("downloads")
        with subprocess.Popen(command, stdin=commands, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
            said, complaints = child.communicate(timeout=120)
            assert said in (b"", packed({"ready": True}))
            assert complaints == b""
            assert child.returncode == 0


@pytest.mark.slow
def test_pythons_own_helpers_are_begun_too(tmp_path: Path) -> None:
    """multiprocessing starts its resource tracker and children by `-c`, which a bundle's program does not know."""
    script = tmp_path / "spawning.py"
    script.write_text(MULTIPROCESSING)
    command = [sys.executable, str(script), str(write_stub(tmp_path))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (done.stdout, done.stderr) == ("spawned\nstatus 0\n", "")


def test_no_child_touches_qt(tmp_path: Path) -> None:
    """Nor does it import the command line."""
    code = (
        "import sys\n"
        "sys.argv = ['rdchat', '--child', 'nobody']\n"
        "from rdchat.__main__ import main\n"
        "print(main(), {'PySide6', 'rdchat.cli', 'rdchat.app'} & set(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert (done.stdout, done.stderr) == ("2 set()\n", "")


def test_what_is_no_child_is_left_to_the_command_line() -> None:
    for arguments in ([], ["ask", "hi"], ["ask", "-c", "import os"], ["-c", "import os; os.abort()"]):
        assert run_child(arguments) is None


@pytest.mark.parametrize(
    ("program", "bundled"),
    [
        ("/Applications/rdchat.app/Contents/MacOS/rdchat", True),
        ("/opt/homebrew/Frameworks/Python.framework/Versions/3.13/Resources/Python.app/Contents/MacOS/Python", False),
        ("/somewhere/.venv/bin/python3.13", False),
        ("", False),
    ],
)
def test_a_bundle_is_known_by_its_program(program: str, bundled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", program)
    assert host.in_bundle() is bundled


def test_nobody_else_starts_a_program_of_pythons() -> None:
    """Whoever runs a program of ours has its command from `host.child_command`."""
    # The compiler, which MLX runs too, programs of macOS, and on Linux, where nothing is a bundle, a bare Python.
    programs = {"loading.py", "mac_calls.py", "mac_desktop.py", "processor.py"}
    found = set()
    for path in Path(rdchat.__file__).parent.rglob("*.py"):
        source = path.read_text()
        if not any(f".{name}(" in source for name in RUNS_PROGRAMS):
            continue
        tree = ast.parse(source)
        calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
        if any(
            call.func.attr in RUNS_PROGRAMS and ast.unparse(call.func.value) in {"subprocess", "os"}
            for call in calls
            if isinstance(call.func, ast.Attribute)
        ):
            found.add(path.name)
            if path.name in programs:
                continue
            assert "host.child_command(" in source, path
            assert "env=os.environ" in source or "env=environment" in source, path  # MLX's TMPDIR is not for children
    assert found == {"child_process.py", "default_model.py", "preparation.py", *programs}


CTRL_C = """
import signal, sys
signal.signal(signal.SIGINT, signal.{before})
from rdchat import __main__, cli
def wait(*_arguments):
    print("begun", flush=True)
    sys.stdin.read()
    return 0
cli._run = wait
sys.argv = ["rdchat", "doctor"]
sys.exit(__main__.main())
"""


@pytest.mark.parametrize(
    ("before", "status"),
    [("SIG_DFL", INTERRUPTED), ("default_int_handler", INTERRUPTED), ("SIG_IGN", 0)],
    ids=["in a bundle", "in a terminal", "in the background"],
)
def test_ctrl_c_ends_a_command_in_good_order(before: str, status: int) -> None:
    command = [sys.executable, "-c", CTRL_C.format(before=before)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"begun\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate() == (b"", b"")
        assert process.returncode == status


def test_the_guides_script_calls_the_app_from_a_shell(tmp_path: Path) -> None:
    guide = (Path(rdchat.__file__).parents[1] / "docs/guide.md").read_text()
    (block,) = [each for each in re.findall(r"```sh\n(.*?)```", guide, re.DOTALL) if "/usr/local/bin" in each]
    app = write_stub(tmp_path / "my apps").parents[2]
    quoted = block.replace("/Applications/rdchat.app", f'"{app}"').replace("/usr/local/bin", str(tmp_path / "bin"))
    subprocess.run(["/bin/sh", "-ec", quoted.replace("sudo ", "")], stdout=subprocess.DEVNULL, check=True)
    command = [tmp_path / "bin" / "rdchat", "--version", "--not an option"]
    done = subprocess.run(command[:2], cwd="/", capture_output=True, text=True, timeout=120, check=False)
    assert done.stdout.strip().endswith(rdchat.__version__)
    done = subprocess.run([command[0], *command[2:]], capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, "--not an option" in done.stderr) == (2, True)
