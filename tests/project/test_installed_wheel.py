"""Whoever only wants to use rdchat installs its wheel alone, as `uv tool install` does: without pip and tests."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.project.scripts import ROOT

SOURCES = "rdchat", "pyproject.toml", "README.md", "LICENSE", "NOTICE"


def _pip(*arguments: str | Path) -> None:
    subprocess.run([sys.executable, "-m", "pip", "--disable-pip-version-check", *map(str, arguments)], check=True)


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
