"""Unforeseen faults in a model's name or files become messages."""

import subprocess
import sys
from pathlib import Path

import pytest

from rdchat.errors import InvalidSettingError, ModelError
from rdchat.inference.models.model_files import resolve_model
from tests.inference.model_folders import change_config, refusal


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("~nosuchuser/model", r"There is no model at .*~nosuchuser/model\. Check the path"),
        ("/" + "x" * 300, r"^/x{199}\.\.\. cannot be read: File name too long\. Check the path"),
        ("nul\0byte", "There is no model named nul"),
    ],
)
def test_names_that_the_system_stumbles_over(name: str, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        resolve_model(name)


@pytest.mark.parametrize("name", ["", " "])
def test_an_empty_name_is_not_the_current_folder(name: str) -> None:
    with pytest.raises(InvalidSettingError, match="The model's name is empty"):
        resolve_model(name)


def test_an_index_that_names_no_files(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": 3}}')
    assert refusal(folder).message == f"{folder / 'model.safetensors.index.json'} is damaged."


def test_a_header_with_the_unforeseen(folder: Path) -> None:
    change_config(folder, quantization={"bits": 4, "group_size": 32, "model.embed_tokens": {"group_size": "many"}})
    assert refusal(folder).message == "rdchat does not support the model's quantisation of model.embed_tokens."


AS_NOBODY = """
import os, sys
from pathlib import Path
from rdchat.errors import ModelError
from rdchat.inference.models.model_files import check_model_folder, resolve_model
if os.geteuid() == 0:
    os.setuid(65534)
for look in (lambda: resolve_model(sys.argv[1] + "/model"), lambda: check_model_folder(Path(sys.argv[1]))):
    try:
        look()
    except ModelError as error:
        print(error)
"""


@pytest.mark.slow
def test_a_folder_that_may_not_be_read(tmp_path: Path) -> None:
    """As the user `nobody` where the tests run as root, to whom nothing is forbidden."""
    (tmp_path / "locked").mkdir(mode=0)
    command = [sys.executable, "-c", AS_NOBODY, str(tmp_path / "locked")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    advice = "cannot be read: Permission denied. Check the path and its permissions."
    assert done.stdout.splitlines() == [f"{tmp_path}/locked/model {advice}", f"{tmp_path}/locked {advice}"], done.stderr
