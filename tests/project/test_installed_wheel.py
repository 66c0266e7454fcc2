"""Whoever only wants to use rdchat installs its wheel alone, as `uv tool install` does: without pip and tests."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.project.scripts import ROOT

SOURCES = "rdchat", "pyproject.toml", "README.md", "LICENSE", "NOTICE"


def _pip(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)], check=True)


def test_the_wheel_has_each_file_that_is_no_module() -> None:
    """`rdchat report` did not find the known replies."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    packages = settings["tool"]["setuptools"]["package-data"].items()
    folders = {name: ROOT.joinpath(*name.split(".")) for name, _ in packages}
    named = {path for name, patterns in packages for pattern in patterns for path in folders[name].glob(pattern)}
    files = {path for path in (ROOT / "rdchat").rglob("*") if path.is_file() and "__pycache__" not in path.parts}
    assert len(named) > 50
    assert {path for path in files - named if path.suffix != ".py"} == set()


@pytest.mark.slow
def test_the_wheel_alone_answers_a_question(tmp_path: Path) -> None:
    """Its environment had no pip, so that it could not download the default model."""
    source = tmp_path / "source"
    source.mkdir()
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copy
        copy(ROOT / name, source / name)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")

    tool = tmp_path / "tool"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tool], check=True)
    _pip("--python", tool / "bin/python", "install", "--constraint", ROOT / "constraints.txt", wheel)

    env = os.environ | {"RDCHAT_DATA_DIR": str(tmp_path / "data"), "RDCHAT_CACHE_DIR": str(tmp_path / "cache")}
    env.pop("PYTHONPATH", None)
    command = [tool / "bin/rdchat", "ask", "--max-tokens", "8", "Why is the sky blue?"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()
