"""The set-up scripts, run for real with a PATH and a home of their own."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from tests.project.scripts import ROOT, write_program

SCRIPTS = ROOT / "scripts"
BASH = shutil.which("bash") or "/bin/bash"
needs_debian = pytest.mark.skipif(shutil.which("dpkg-query") is None, reason="for Debian and Ubuntu")
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def bin_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "bin"
    folder.mkdir()
    return folder


@pytest.fixture
def run_script(tmp_path: Path, bin_folder: Path) -> Run:
    """Run a script with nothing on PATH but `bin_folder`, and an empty home."""
    environment = {"PATH": str(bin_folder), "HOME": str(tmp_path)}

    def run(path: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [BASH, str(path), *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=120)

    return run


@pytest.fixture
def find_python(run_script: Run) -> Run:
    return partial(run_script, SCRIPTS / "find-python.sh")


@pytest.fixture
def python_3_13(bin_folder: Path) -> Path:
    """The Python of these tests on PATH, under the name of the first version that is looked for."""
    path = bin_folder / "python3.13"
    path.symlink_to(this_python())
    return path


def this_python() -> Path:
    return Path(sys.base_prefix) / "bin" / f"python3.{sys.version_info.minor}"


def link_programs(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).symlink_to(shutil.which(name) or name)


def test_without_any_python_it_says_which_would_do(find_python):
    done = find_python()
    assert done.returncode == 1
    assert done.stdout == ""
    assert "No Python 3.12 or newer with venv was found" in done.stderr
    assert "brew install python@3.13" in done.stderr
    assert "command not found" not in done.stderr


def test_a_python_on_the_path_is_found(find_python, python_3_13):
    assert find_python().stdout == f"{python_3_13}\n"


def test_a_shim_that_leads_nowhere_is_passed_over(find_python, bin_folder):
    """pyenv puts `python3.13` on PATH even where the version that is set lacks it."""
    write_program(bin_folder / "python3.13", "echo 'pyenv: python3.13: command not found' >&2; exit 127")
    (bin_folder / "python3.12").symlink_to(this_python())
    assert find_python().stdout == f"{bin_folder}/python3.12\n"


def test_a_python_without_venv_is_passed_over(find_python, bin_folder):
    """Debian's python3 has no ensurepip until python3-venv is installed."""
    write_program(bin_folder / "python3.13", f"exec {this_python()} -S -c 'import no_ensurepip_here'")
    assert find_python().returncode == 1


def test_pyenv_versions_are_found_without_pyenv_on_the_path(find_python, tmp_path):
    place = tmp_path / ".pyenv" / "versions" / "3.13.9" / "bin"
    place.mkdir(parents=True)
    (place / "python").symlink_to(this_python())
    assert find_python().stdout == f"{place}/python\n"


def test_uv_is_used_where_there_is_no_python(find_python, bin_folder):
    (bin_folder / "uv").symlink_to(Path(sys.prefix) / "bin" / "uv")
    assert find_python().stdout == "uv\n"


_OLD = "rdchat's window needs macOS 14.4 or later; this Mac has {}. Update macOS first.\n"
_EARLY_26 = "rdchat needs macOS 26.2 or later where macOS is 26; this Mac has {}. Update macOS first.\n"


@pytest.mark.usefixtures("python_3_13")
@pytest.mark.parametrize(
    ("version", "refusal"),
    [
        ("14.3.1", _OLD), ("13.6", _OLD), ("14.4", ""),
        ("26.0", _EARLY_26), ("26.1", _EARLY_26), ("26.1.1", _EARLY_26), ("26.2", ""), ("27.0", ""),
    ],
)  # fmt: skip
def test_a_macos_that_is_too_old_is_refused_before_anything_is_installed(find_python, bin_folder, version, refusal):
    write_program(bin_folder / "sw_vers", f"echo {version}")
    done = find_python()
    assert (done.returncode, done.stderr) == (int(refusal != ""), refusal.format(version))
    assert bool(done.stdout) is not bool(refusal)


@pytest.mark.usefixtures("python_3_13")
@pytest.mark.parametrize("translated", [True, False])
def test_a_terminal_under_rosetta_is_told_how_to_leave_it(find_python, bin_folder, translated: bool):
    """It said that there was no Python."""
    write_program(bin_folder / "uname", "echo Darwin")
    answers = f"hw.optional.arm64) echo 1;; sysctl.proc_translated) echo {int(translated)};;"
    write_program(bin_folder / "sysctl", f"case $2 in {answers} *) exit 1;; esac")
    done = find_python()
    said = "This terminal runs under Rosetta. Turn off Open using Rosetta in its Get Info window, and open it again.\n"
    assert (done.returncode, done.stderr) == ((1, said) if translated else (0, ""))
    assert bool(done.stdout) is not translated


@pytest.fixture
def checkout(tmp_path: Path, bin_folder: Path) -> Path:
    """A checkout with the real set-up scripts, and a Python that makes environments of nothing."""
    link_programs(bin_folder, "bash", "dirname", "sed", "rm", "cat", "head", "grep", "cksum", "touch", "mkdir", "chmod")
    write_program(
        bin_folder / "python3.13",
        """[ "$1" = -c ] && exit 0
mkdir -p "$3/bin"
printf '#!%s/%s/bin/python\n' "$(pwd -P)" "$3" >"$3/bin/pip"
printf '#!/bin/sh\ncase "$2" in *getcwd*) pwd -P;; esac\n' >"$3/bin/python"
cat "$3/bin/python" >"$3/bin/rdchat"
chmod +x "$3/bin/python" "$3/bin/rdchat\"""",
    )
    checkout = tmp_path / "checkout"
    shutil.copytree(SCRIPTS, checkout / "scripts")
    for name in ("pyproject.toml", "constraints.txt"):
        shutil.copy(ROOT / name, checkout)
    return checkout


@pytest.fixture
def set_up(run_script: Run) -> Callable[[Path], str]:
    """Set a checkout up, and return what the script printed."""

    def set_up(checkout: Path) -> str:
        done = run_script(checkout / "scripts" / "setup.sh")
        assert (done.returncode, done.stderr) == (0, "")
        return done.stdout

    return set_up


def test_set_up_ends_with_the_message_and_an_error(run_script, checkout, bin_folder):
    (bin_folder / "python3.13").unlink()
    done = run_script(checkout / "scripts" / "setup.sh")
    assert done.returncode == 1
    assert "No Python 3.12 or newer" in done.stderr
    assert not (checkout / ".venv").exists()


def test_a_moved_checkout_gets_a_new_environment(set_up, checkout, tmp_path):
    """The scripts in the old one began with the old path: `make check` ended with `not found`."""
    assert "Making .venv with" in set_up(checkout)
    assert set_up(checkout) == ""
    moved = checkout.rename(tmp_path / "moved")
    assert "Making .venv with" in set_up(moved)
    assert str(moved) in (moved / ".venv" / "bin" / "pip").read_text()
    assert set_up(moved) == ""


def test_a_checkout_behind_a_link_is_left_alone(set_up, checkout, tmp_path):
    set_up(checkout)
    (tmp_path / "link").symlink_to(checkout, target_is_directory=True)
    assert set_up(tmp_path / "link") == ""


def test_the_letter_case_of_a_typed_path_changes_nothing(set_up, checkout, tmp_path):
    """On a disk that ignores case, Python names the folder as it is written there, and the shell as it was typed."""
    set_up(checkout)
    write_program(checkout / ".venv" / "bin" / "python", f"case $2 in *getcwd*) echo '{checkout.resolve()}';; esac")
    assert set_up(checkout.rename(tmp_path / "Checkout")) == ""


def test_a_checkout_renamed_in_letter_case_alone_gets_a_new_environment(set_up, checkout, tmp_path):
    """On a disk that tells case apart, the old scripts lead nowhere."""
    set_up(checkout)
    renamed = checkout.rename(tmp_path / "Checkout")
    assert "Making .venv with" in set_up(renamed)
    assert set_up(renamed) == ""


def test_an_environment_whose_python_is_gone_is_made_anew(set_up, checkout):
    """As after Homebrew removed the Python that it was made with."""
    set_up(checkout)
    python = checkout / ".venv" / "bin" / "python"
    python.unlink()
    python.symlink_to(checkout / "gone")
    assert "Making .venv with" in set_up(checkout)


@needs_debian
def test_installed_packages_need_nothing():
    done = subprocess.run([BASH, SCRIPTS / "system-packages.sh", "bash"], capture_output=True, text=True, check=True)
    assert done.stdout + done.stderr == ""


@pytest.mark.slow
@needs_debian
def test_without_permission_it_prints_the_command():
    """As the user `nobody`, who may not use sudo; the script comes over standard input as nobody may not read it."""
    command = [BASH, "-s", "--", "bash", "rdchat-no-such-package", "rdchat-no-such-font"]
    done = subprocess.run(
        command,
        input=(SCRIPTS / "system-packages.sh").read_text(),
        cwd="/",
        user="nobody" if os.geteuid() == 0 else None,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3
    assert "sudo apt-get install -y rdchat-no-such-package rdchat-no-such-font\n" in done.stderr


def test_debian_13_names_count_as_installed(run_script, bin_folder):
    link_programs(bin_folder, "dirname", "id", "grep")
    write_program(bin_folder / "dpkg-query", "echo '|libglib2.0-0t64 installed|'; echo '|libegl1 not-installed|'")
    write_program(bin_folder / "apt-get", "echo apt-get was called with $*")
    write_program(bin_folder / "env", "shift; exec $*")
    write_program(bin_folder / "apt-cache", "[ $2 = libegl1t64 ] && echo Candidate: 1.7; true")
    assert run_script(SCRIPTS / "system-packages.sh", "libglib2.0-0").stdout == ""
    if os.geteuid() == 0:
        done = run_script(SCRIPTS / "system-packages.sh", "libegl1")
        assert "install -y --no-install-recommends libegl1t64" in done.stdout


NEWER_THAN_BASH_3_2 = re.compile(
    r"\b(mapfile|readarray|coproc)\b|\b(declare|local|typeset) -[a-zA-Z]*[Anlu]"
    r"|\$\{[^}]*(\^\^?|,,?)\}|\$\{[^}]*@[QEPAaULu]\}"
    r"|&>>|\|&|;;?&|\bwait -n\b|\bshopt -s \w*globstar|\[\[ -v |\[-\d|\bEPOCHSECONDS\b|\bBASHPID\b|\\u[0-9a-fA-F]{4}"
)
NEWER_THAN_MAKE_3_81 = re.compile(
    r"^\.ONESHELL|^undefine |^\w+ *(!=|:::?=)|\$\((file|guile|let|intcmp) |^load |--output-sync|^[^#\n]*&:",
    re.MULTILINE,
)


@pytest.mark.parametrize("path", [*SCRIPTS.glob("*.sh"), ROOT / ".ci" / "run"], ids=lambda path: path.name)
def test_the_scripts_run_in_the_bash_of_macos(path):
    """macOS has bash 3.2, which shellcheck does not know."""
    code = re.sub(r"(^|\s)#.*", "", path.read_text())
    assert not NEWER_THAN_BASH_3_2.search(code), NEWER_THAN_BASH_3_2.search(code)


def test_the_makefile_runs_in_the_make_of_macos():
    assert not NEWER_THAN_MAKE_3_81.search((ROOT / "Makefile").read_text())


SHELLCHECK = [str(Path(sys.executable).with_name("shellcheck")), "-s", "sh", "-S", "error", "-"]
RECIPES = re.findall(r"^([a-z][a-z-]*):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE)


@pytest.mark.parametrize("target", RECIPES)
def test_the_makefiles_recipes_are_posix_shell(target):
    """`make` runs them with /bin/sh: dash on Debian, bash 3.2 in its POSIX mode on macOS."""
    command = ["make", "-n", "--no-print-directory", target]
    recipe = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert recipe
    for check in (SHELLCHECK, ["dash", "-n"], ["sh", "-n"]):
        if shutil.which(check[0]):
            done = subprocess.run(check, input=recipe, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stdout + done.stderr) == (0, "")
