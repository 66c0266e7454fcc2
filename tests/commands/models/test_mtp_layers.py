"""`rdchat models mtp` shows the size first, fetches MTP layers, and resumes."""

from pathlib import Path

import pytest

from rdchat.cli import main
from rdchat.inference.drafting.checkpoints.drafter_folder import bound_hash
from rdchat.inference.models.safetensors_file import target_hash
from tests.commands.running import Console
from tests.hub.downloads.downloading import download
from tests.hub.hub_server import HubServer
from tests.hub.mtp_samples import (
    ORIGINAL,
    SECOND,
    SHARDS,
    TARGET,
    Original,
    check_layers,
    make_target,
    stored,
)

_QUANTIZED = {"tags": ["mlx", f"base_model:quantized:{ORIGINAL}"]}


@pytest.fixture
def original(hub: HubServer) -> Original:
    original = Original()
    original.put(hub)
    return original


@pytest.fixture
def target(hub: HubServer, tmp_path: Path) -> Path:
    """A quantised version in the hub's cache; its card names no original."""
    made = make_target(tmp_path / "made")
    hub.add(TARGET, {path.name: path.read_bytes() for path in made.iterdir()})
    return download(TARGET)[0]


@pytest.mark.slow
def test_the_layers_come_after_their_size_was_agreed_to(
    hub: HubServer,
    original: Original,
    target: Path,
    console: Console,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hub.repositories[TARGET].facts |= _QUANTIZED
    assert console.runs("models", "mtp", TARGET, status=2).err.splitlines() == [
        f"MTP layers for {TARGET}: 1 MB to download from {ORIGINAL}. Only that part is kept.",
        "rdchat: There is no terminal to ask you. Add --yes.",
    ]
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stdin.readline", lambda: "n\n", raising=False)
    console.runs("models", "mtp", TARGET, status=1)
    report = console.json("models", "mtp", TARGET, "--yes")
    check_layers(Path(report["folder"]), original)
    assert (report["model"], report["repository"]) == (TARGET, ORIGINAL)
    assert bound_hash(Path(report["folder"])) == target_hash(target)
    console.refuses(["models", "mtp", TARGET, "--yes"], "There is nothing to get", 1)
    console.runs("models", "delete", Path(report["folder"]).name, "--yes")


@pytest.mark.slow
def test_an_unknown_original_is_asked_for(hub: HubServer, original: Original, target: Path, console: Console) -> None:
    console.refuses(["models", "mtp", TARGET, "--yes"], "Name its original: --from ORG/NAME.", 1)
    console.refuses(["models", "mtp", "gone", "--yes"], "There is no model gone", 1)
    folder = console.json("models", "mtp", TARGET, "--yes", "--from", ORIGINAL)["folder"]
    check_layers(Path(folder), original)


def test_a_pause_names_the_command_that_goes_on(
    hub: HubServer, original: Original, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.repositories[TARGET].facts |= _QUANTIZED
    commands: list[str] = []
    monkeypatch.setattr("rdchat.commands.models.run_download", lambda _download, command: commands.append(command))
    assert main(["models", "mtp", TARGET, "--yes"]) == 130
    assert commands == [f"rdchat models mtp {TARGET} --yes"]


@pytest.mark.slow
def test_layers_that_cannot_be_used_are_named(hub: HubServer, target: Path, console: Console) -> None:
    original = Original()
    original.shards[SHARDS[1]] = stored({**SECOND, "mtp.norm.weight": ("BF16", (9,))}, 2)
    original.put(hub)
    assert (
        "mtp.norm.weight has the shape (9,) instead of (8,)"
        in console.runs("models", "mtp", TARGET, "--yes", "--from", ORIGINAL, status=1).err.splitlines()[-1]
    )
