"""`rdchat models search | download | list | verify | delete`, against a hub on this machine."""

import io
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.cli import main
from rdchat.hub import snapshot_of
from rdchat.inference.drafting.checkpoints.drafter_search import resolve_drafter
from rdchat.inference.library.local_models import named_card
from rdchat.services.models.deletion_and_verification import RemovalQuestion
from tests.commands.running import Console
from tests.hub.downloads.downloading import (
    NAME,
    cached,
    check_nothing_installed,
    check_whole,
    largest_part,
    put_model,
    small_files,
)
from tests.hub.hub_server import HubServer
from tests.hub.keychains import Keychain
from tests.inference.drafting.checkpoints.drafter_folders import saved_random_drafter, with_files
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder
from tests.inference.drafting.suggested_pairs import suggest
from tests.inference.fakes import tiny_llama


@pytest.fixture
def model_files(hub: HubServer, small_model: Path) -> dict[str, bytes]:
    """A model that can be loaded, at the hub."""
    return put_model(hub, small_model)


def test_a_model_is_found_downloaded_listed_verified_loaded_and_deleted(
    hub: HubServer,
    model_files: dict[str, bytes],
    system_trash: Path,
    console: Console,
) -> None:
    found = console.json("models", "search", "small")["models"]
    assert [model["repository"] for model in found] == [NAME]
    told = console.json("models", "download", NAME)
    assert told["fetched_bytes"] == told["bytes"] == sum(map(len, model_files.values()))
    check_whole(Path(told["folder"]), model_files)
    listed = console.models()[NAME]
    assert (listed["family"], listed["complete"]) == ("llama", True)
    assert console.json("models", "verify", NAME)["whole"]

    from rdchat.inference.loading import load_model

    assert load_model(NAME) is not None

    assert console.json("models", "delete", NAME, "--yes") == {"model": NAME, "restorable": True}
    assert console.models() == {}
    assert list(cached().folder.parent.iterdir()) == []
    assert [path.name for path in system_trash.iterdir()] == [cached().folder.name]


@pytest.mark.slow
def test_without_a_hub_there_is_one_line(
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    console: Console,
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    console.refuses(["models", "search", "x"], "127.0.0.1:9 cannot be reached", 1)
    console.refuses(["models", "download", NAME], "127.0.0.1:9 cannot be reached", 1)
    check_nothing_installed()
    console.refuses(["models", "download", "../evil"], "is not the name of a model", 1)
    console.refuses(["models", "verify", NAME], "is not in the Hugging Face cache", 1)
    console.refuses(["models", "delete", "gone"], "There is no model gone", 1)
    console.refuses(["models", "search", "x", "--limit", "0"], "from 1 to 100", 2)
    monkeypatch.setenv("HF_ENDPOINT", "nowhere")
    console.refuses(["models", "search", "x"], "HF_ENDPOINT is not a web address: nowhere", 2)


@pytest.mark.slow
def test_ctrl_c_pauses_and_the_same_command_goes_on(
    hub: HubServer,
    console: Console,
) -> None:
    files = small_files()
    hub.add(NAME, files)
    hub.holds_at = 100_000
    command = [sys.executable, "-m", "rdchat", "models", "download", NAME]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True) as process:
        end = time.monotonic() + 120
        while not any(path.stat().st_size > 50_000 for path in cached().work.glob("*.part")):
            assert time.monotonic() < end
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    assert (process.returncode, out) == (130, "")
    last = err.splitlines()[-1]
    assert last.startswith("Paused: ")
    assert last.endswith(f"downloaded. `rdchat models download {NAME}` resumes it.")
    listed = console.models()[NAME]
    assert (listed["complete"], listed["size"]) == (False, sum(map(len, files.values())))
    assert 0 < listed["here"] < listed["size"]
    part = largest_part()
    here = part.stat().st_size
    hub.holds_at = None
    check_whole(Path(console.runs("models", "download", NAME).out.strip()), files)
    assert hub.starts(files["model.safetensors"]) == [0, here]


@pytest.mark.slow
def test_a_damaged_model_is_listed_as_such_and_verify_says_what_to_do(
    model_files: dict[str, bytes], console: Console
) -> None:
    folder = Path(console.json("models", "download", NAME)["folder"])
    (folder / "model.safetensors").write_bytes(b"x")
    listed = console.models()[NAME]
    assert (listed["complete"], listed["family"]) == (False, "llama")
    out = console.runs("models", "verify", NAME, status=1).out
    assert "model.safetensors: damaged" in out
    assert f"`rdchat models download {NAME} --revision {folder.name}` repairs it." in out
    assert main(["models", "download", NAME]) == 0
    console.runs("models", "verify", NAME)


@pytest.mark.slow
def test_a_deletion_is_asked_about(
    model_files: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, console: Console
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    console.json("models", "download", NAME)
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert "which other programs may use" in console.runs("models", "delete", NAME, status=1).err
    assert cached().folder.exists()
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert "Add --yes" in console.runs("models", "delete", NAME, status=2).err
    monkeypatch.setattr(sys, "stdin", Terminal("y\nn\n"))
    assert (
        "cannot be moved to the Trash. It will be deleted for good."
        in console.runs("models", "delete", NAME, status=1).err
    )
    assert cached().folder.exists()
    monkeypatch.setattr(sys, "stdin", Terminal("y\ny\n"))
    assert f"{NAME} is deleted." in console.runs("models", "delete", NAME).out
    assert not cached().folder.exists()


@pytest.mark.slow
def test_drafters_are_listed_and_deleted(hub: HubServer, system_trash: Path, tmp_path: Path, console: Console) -> None:
    target = with_files(tiny_llama(), tmp_path / "target", "{}")
    own = saved_random_drafter(target, paths.drafters_dir() / "mine", 32)
    eagle = eagle3_folder(tmp_path / "eagle", target)
    hub.add("a/eagle", {path.name: path.read_bytes() for path in eagle.iterdir()})
    cached = Path(console.json("models", "download", "a/eagle")["folder"])
    assert {name: (model["kind"], model["family"]) for name, model in console.models().items()} == {
        "mine": ("drafter", "Recurrent"),
        "a/eagle": ("drafter", "EAGLE-3"),
    }
    assert "EAGLE-3 drafter" in console.runs("models", "list").out
    for name, folder in (("mine", own), ("a/eagle", cached)):
        assert resolve_drafter(name) == folder
        console.runs("models", "delete", name, "--yes")
        assert not folder.exists()
        assert name not in console.models()
    assert not list(paths.drafters_dir().iterdir())
    assert len(list(system_trash.iterdir())) == 2


@pytest.fixture
def keychain() -> dict[tuple[str, str], str]:
    import keyring

    backend = Keychain()
    keyring.set_keyring(backend)
    return backend.kept


@pytest.mark.slow
def test_the_token_goes_into_the_keychain_unseen(
    hub: HubServer,
    keychain: dict[tuple[str, str], str],
    monkeypatch: pytest.MonkeyPatch,
    console: Console,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hf_right\n"))
    assert main(["models", "token"]) == 0
    assert list(keychain.values()) == ["hf_right"]
    hub.add(NAME, small_files(), gated=True)
    assert main(["models", "download", NAME]) == 0
    assert main(["models", "token", "--forget"]) == 0
    assert keychain == {}
    shown = console.printed()
    assert "hf_right" not in shown.out + shown.err


def test_without_a_keychain_the_token_command_says_so(
    hub: HubServer,
    monkeypatch: pytest.MonkeyPatch,
    console: Console,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("hf_right\n"))
    console.refuses(["models", "token"], "no keychain for the token. Set HF_TOKEN", 1)


@pytest.mark.slow
def test_another_revision_is_verified_and_deleted(
    hub: HubServer,
    model_files: dict[str, bytes],
    console: Console,
) -> None:
    hub.repositories[NAME].commits["a" * 40] = model_files | {"README.md": b"# Older"}
    hub.repositories[NAME].branches["older"] = "a" * 40
    for revision in ("main", "older"):
        console.json("models", "download", NAME, "--revision", revision)
    assert console.json("models", "verify", NAME, "--revision", "older")["commit"] == "a" * 40
    assert (
        "Files shared with version main are kept."
        in console.runs("models", "delete", NAME, "--revision", "older", "--yes").err
    )
    assert console.json("models", "verify", NAME)["whole"]


EAGLE = "maker/small-eagle3"


@pytest.fixture
def eagle_files(small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """A drafter of random weights for the small model, which the list for newcomers names."""
    from rdchat.inference.loading import load_model

    suggest(monkeypatch, "EAGLE-3", NAME, EAGLE)
    folder = eagle3_folder(tmp_path / "eagle", load_model(small_model))
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.slow
def test_a_suggested_model_is_downloaded_with_its_drafter(
    hub: HubServer,
    model_files: dict[str, bytes],
    eagle_files: dict[str, bytes],
    console: Console,
) -> None:
    hub.add(EAGLE, eagle_files)
    told = console.json("models", "download", NAME)
    assert (told["repository"], told["drafter"]) == (NAME, EAGLE)
    check_whole(Path(told["folder"]), model_files)
    check_whole(snapshot_of(EAGLE), eagle_files)
    assert {name: model["kind"] for name, model in console.models().items()} == {NAME: "model", EAGLE: "drafter"}
    requests = len(hub.requests)
    assert console.json("models", "download", NAME)["drafter"] == EAGLE
    assert not [each for each in hub.requests[requests:] if EAGLE in each.path], "it is here"

    question = RemovalQuestion.for_model(named_card(NAME))
    assert f"Its drafter, {EAGLE}, stays." in question.question_text()


@pytest.mark.slow
def test_a_drafter_that_cannot_be_downloaded_does_not_lose_the_model(
    hub: HubServer,
    model_files: dict[str, bytes],
    eagle_files: dict[str, bytes],
    console: Console,
) -> None:
    out, err = console.runs("models", "download", NAME)
    check_whole(Path(out.strip()), model_files)
    reason = f"{EAGLE} is private or no longer on Hugging Face."
    words = f"Its drafter could not be downloaded. {reason}"
    assert words in err
    assert err.endswith(f"The model works without it. `rdchat models download {EAGLE}` gets it later.\n")
    hub.add(EAGLE, eagle_files)
    console.runs("models", "download", NAME, "--no-drafter")
    assert snapshot_of(EAGLE) is None
    assert console.json("models", "download", NAME, "--no-drafter")["drafter"] == ""
    console.runs("models", "download", EAGLE)
    assert snapshot_of(EAGLE) is not None


def test_the_list_for_newcomers_is_printed(console: Console) -> None:
    models = console.json("models", "suggested")["models"]
    assert {"repository", "licence", "weights_gb", "drafter", "memory_gb", "chosen"} <= models[0].keys()
    lines = console.runs("models", "suggested").out.splitlines()
    assert len(lines) == len(models)
    assert all(model["repository"] in line for model, line in zip(models, lines, strict=True))
