"""`rdchat models`: listing, and downloading the default model."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rdchat import paths
from rdchat.cli import main


def rdchat(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "rdchat", *arguments]
    return subprocess.run(
        command, env=os.environ | environment, capture_output=True, text=True, timeout=120, check=False
    )


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


def test_install_default_prints_the_folder_and_is_quick_when_it_is_there(default_model: Path) -> None:
    done = rdchat("models", "install-default")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{default_model}\n", "")


@pytest.mark.slow
def test_install_default_says_why_it_cannot() -> None:
    done = rdchat("models", "install-default", RDCHAT_MODEL_WHEEL="/gone.whl")
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].endswith(
        "/gone.whl cannot be read: No such file or directory. Check RDCHAT_MODEL_WHEEL."
    )


@pytest.mark.slow
def test_list_shows_own_models_and_the_hub_cache_but_nothing_else(model: Path, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    put_into_hub_cache(model, hub, "some-org/small-4bit")
    (tmp_path / "pictures").mkdir()
    (tmp_path / "pictures" / "config.json").write_text('{"model_type": "painter"}')
    put_into_hub_cache(tmp_path / "pictures", hub, "some-org/painter")
    done = rdchat("models", "list", HF_HUB_CACHE=str(hub), HOME=str(tmp_path))
    assert done.returncode == 0
    rows = [line.split() for line in done.stdout.splitlines()]
    assert [row[0] for row in rows] == [model.name, "some-org/small-4bit"]
    assert rows[0][1:] == ["llama", "1", "M", "parameters", "4-bit", "794", "KB", "rdchat"]
    assert rows[1][-2:] == ["Hugging", "Face"]


def test_list_says_what_to_do_where_there_is_nothing(tmp_path: Path) -> None:
    done = rdchat("models", "list", HF_HUB_CACHE=str(tmp_path / "hub"), HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "No models yet. `rdchat models install-default` downloads the default one.\n"
    assert not paths.models_dir().exists()


@pytest.mark.slow
def test_a_hub_model_in_the_cache_is_found_by_its_name(model: Path, tmp_path: Path) -> None:
    put_into_hub_cache(model, tmp_path / "hub", "some-org/small-4bit")
    code = "from rdchat.inference.models.model_files import resolve_model; print(resolve_model('some-org/small-4bit'))"
    environment = os.environ | {"HF_HUB_CACHE": str(tmp_path / "hub")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert (Path(done.stdout.strip()) / "config.json").exists()
    assert Path(done.stdout.strip()).is_relative_to(tmp_path / "hub")


@pytest.fixture
def other_model(model: Path, tmp_path: Path) -> Path:
    """The same model, to which most ids mean another token."""
    folder = Path(shutil.copytree(model, tmp_path / "other"))
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    tokenizer["model"]["vocab"] = dict(zip(vocabulary, [*vocabulary.values()][::-1], strict=True))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def check_pair(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    """Return exit status, standard output and standard error."""
    status = main(["models", "check-pair", *map(str, arguments)])
    shown = capsys.readouterr()
    return status, shown.out, shown.err


def test_check_pair_tells_a_pair_from_strangers(
    model: Path, other_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = f"{model.name} can draft for {model.name}: both have the same 265 tokens.\n"
    assert check_pair(capsys, model, model) == (0, told, "")
    status, out, _ = check_pair(capsys, model, other_model)
    assert status == 1
    assert re.match(rf"other cannot draft for {re.escape(model.name)}: \d+ of the 265 ids that both have", out)


def test_check_pair_prints_one_json_object(model: Path, other_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, out, _ = check_pair(capsys, model, other_model, "--json")
    verdict = json.loads(out)
    assert status == 1
    assert (verdict["target"], verdict["draft"], verdict["compatible"]) == (model.name, "other", False)
    assert verdict["differences"][0].endswith("of the 265 ids that both have are different tokens.")
    same = json.loads(check_pair(capsys, model, model, "--json")[1])
    assert (same["compatible"], same["shared_tokens"], same["differences"]) == (True, 265, [])


def test_check_pair_says_which_model_is_missing(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, out, err = check_pair(capsys, model, tmp_path / "gone")
    assert (status, out) == (1, "")
    assert err.startswith(f"rdchat: There is no model at {tmp_path / 'gone'}.")
