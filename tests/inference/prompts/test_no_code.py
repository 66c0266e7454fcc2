"""Code that comes with a model is never run, nor asked about."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import rdchat
from rdchat.errors import ModelError
from rdchat.inference.prompts.model_prompts import read_tokenizer
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, tokenizer_view
from tests.inference.prompts.folders import changed

EVIL = """
from pathlib import Path
Path({marker!r}).touch()
from transformers import PreTrainedTokenizerFast
class EvilTokenizer(PreTrainedTokenizerFast):
    pass
"""
READERS = {"from_pretrained", "load_tokenizer", "load_model", "load", "get_class_from_dynamic_module"}
MODULES = {"mlx_lm_utils", "mlx_lm", "AutoTokenizer", "AutoConfig", "PreTrainedTokenizerFast", "transformers"}


def evil(model: Path, place: Path, code: str = "evil.EvilTokenizer") -> Path:
    """Return the marker that the code of a model folder at `place` makes where it is run."""
    marker = place.parent / "was-run"

    def name_code(config: dict[str, Any]) -> None:
        config |= {"tokenizer_class": "EvilTokenizer", "auto_map": {"AutoTokenizer": [code, code]}}

    changed(model, place, "tokenizer_config.json", name_code)
    changed(model, place, "config.json", lambda config: config.update(auto_map={"AutoConfig": code}))
    (place / "evil.py").write_text(EVIL.format(marker=str(marker)))
    return marker


@pytest.mark.slow
@pytest.mark.parametrize("code", ["evil.EvilTokenizer", "someone/repo--evil.EvilTokenizer"])
def test_a_tokenizer_that_names_code_is_read_without_it(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, code: str
) -> None:
    folder = tmp_path / "evil"
    marker = evil(small_model, folder, code)
    plain = read_tokenizer(small_model, process)
    read = read_tokenizer(folder, process)
    assert read.encode("Hello world 12") == plain.encode("Hello world 12")
    assert not marker.exists()


@pytest.mark.slow
def test_nobody_is_asked_whether_to_run_code_and_a_yes_runs_none(small_model: Path, tmp_path: Path) -> None:
    folder = tmp_path / "evil"
    marker = evil(small_model, folder)
    command = [sys.executable, "-m", "rdchat", "ask", "hi", "--model", str(folder), "--max-tokens", "4"]
    told = subprocess.run(command, input="y\ny\ny\n", capture_output=True, text=True, timeout=120, check=False)
    assert told.returncode == 0, told.stderr
    assert "custom code" not in told.stdout + told.stderr
    assert not marker.exists()


def test_a_tokenizer_that_is_code_alone_is_refused_by_name(
    small_model: Path, tmp_path: Path, process: TokenizerProcess
) -> None:
    folder = tmp_path / "evil"
    marker = evil(small_model, folder)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(ModelError, match=r"needs its own code \(evil.EvilTokenizer\)"):
        read_tokenizer(folder, process)
    assert not marker.exists()


def test_transformers_sees_no_code_and_no_word_of_it(small_model: Path, tmp_path: Path) -> None:
    evil(small_model, tmp_path / "evil")
    with tokenizer_view(tmp_path / "evil") as view:
        assert not list(view.glob("*.py"))
        assert "auto_map" not in json.loads((view / "tokenizer_config.json").read_text())
        assert set(json.loads((view / "config.json").read_text())) <= {"model_type", "tokenizer_class"}


@pytest.mark.slow
def test_every_call_into_transformers_and_mlx_lm_says_that_no_code_is_trusted() -> None:
    found = []
    for path in Path(rdchat.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
                continue
            if node.func.attr in READERS and ast.unparse(node.func.value) in MODULES:
                found.append((path.name, ast.unparse(node)))
    assert {name for name, _ in found} == {"loading.py", "model_prompts.py", "tokenizers_child.py"}
    for name, call in found:
        assert "trust_remote_code=False" in call or "NO_CODE" in call, (name, call)
        assert "trust_remote_code=True" not in call


@pytest.mark.slow
def test_the_child_takes_no_module_from_the_folder_it_is_started_in(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "jinja2.py").write_text(f"open({os.fspath(tmp_path / 'was-run')!r}, 'w')")
    monkeypatch.chdir(tmp_path)
    process = TokenizerProcess()
    try:
        assert process.read_tokenizer(small_model)["<|im_start|>"] == 1
    finally:
        process.child.close()
    assert not (tmp_path / "was-run").exists()
