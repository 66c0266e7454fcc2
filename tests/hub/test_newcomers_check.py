"""The script that checks the list for newcomers asks a hub, writes what it says, and fails where something is gone."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.hub.downloads.downloading import small_files
from tests.hub.hub_server import HubServer
from tests.project.scripts import ROOT

LIST = ROOT / "assets" / "newcomers" / "newcomers.json"


def check(path: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, str(ROOT / "scripts" / "check_newcomers.py"), "--list", str(path), *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


@pytest.mark.slow
def test_what_the_hub_says_is_written_into_the_list(hub: HubServer, tmp_path: Path) -> None:
    path = Path(shutil.copy(LIST, tmp_path))
    models = json.loads(path.read_text())["models"]
    gone = models[0]["drafter"]["repository"]
    gated = models[2]["repository"]
    for name in {entry["repository"] for model in models for entry in (model, model["drafter"])} - {gone}:
        facts = {"tags": ["mlx", "license:mit"]} if name == models[4]["repository"] else {}
        hub.add(name, small_files(), gated=name == gated, **facts)
    done = check(path)
    assert done.returncode == 1
    assert f"{gone}: {gone} is private or no longer on Hugging Face." in done.stdout
    written = json.loads(path.read_text())["models"]
    assert written[0]["drafter"]["checked"]["problem"]
    assert written[0]["drafter"]["weights_gb"] == models[0]["drafter"]["weights_gb"]
    assert written[2]["checked"]["problem"] == f"{gated} is gated: you need access from its authors."
    said = written[4]["checked"]
    assert (said["problem"], said["licence"], said["gated"], said["files"]) == ("", "mit", False, 4)
    assert said["download_bytes"] == sum(len(data) for data in small_files().values())
    assert written[4]["licence"] == "mit"
    assert written[4]["size_from"] == "The hub's own listing of its files."
    assert [model["why"] for model in written] == [model["why"] for model in models]


@pytest.mark.slow
def test_a_dry_run_writes_nothing(hub: HubServer, tmp_path: Path) -> None:
    path = Path(shutil.copy(LIST, tmp_path))
    assert check(path, "--dry-run").returncode == 1
    assert path.read_bytes() == LIST.read_bytes()
