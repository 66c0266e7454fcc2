"""Finding models, and finding problems from headers alone."""

import ast
import json
from pathlib import Path
from typing import Any

import mlx.core as mx
import pytest
from mlx_lm import utils as mlx_lm_utils
from mlx_lm.models.cache import make_prompt_cache

import rdchat
from rdchat.errors import ModelError
from rdchat.inference.models.model_config import kv_values_per_token
from rdchat.inference.models.model_files import check_model_folder, resolve_model
from tests.inference.model_folders import change_config, refusal


def shard(folder: Path, indexed: bool) -> None:
    """Split the weights into three files, as large models have them."""
    weights = dict(mx.load(str(folder / "model.safetensors")))
    (folder / "model.safetensors").unlink()
    names = sorted(weights)
    index = {}
    for number in range(3):
        file = f"model-{number + 1:05d}-of-00003.safetensors"
        part = names[number::3]
        mx.save_safetensors(str(folder / file), {name: weights[name] for name in part})
        index |= dict.fromkeys(part, file)
    if indexed:
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": index}))


def test_what_the_headers_say_is_what_mlx_loads(folder: Path) -> None:
    files = check_model_folder(folder)
    model, _ = mlx_lm_utils.load_model(folder)
    assert files.architecture == "llama"
    assert files.sizes.parameters == mlx_lm_utils.get_total_parameters(model)
    assert files.sizes.quantization_bits == 4
    assert files.sizes.context_length == 512
    assert 0 < (folder / "model.safetensors").stat().st_size - files.sizes.stored_bytes < 10_000
    cache = make_prompt_cache(model)
    model(mx.zeros((1, 256), mx.int32), cache=cache)
    held = sum(array.size for layer in cache for array in layer.state[:2])  # keys and values
    assert files.sizes.kv_values_per_token * 4 * 256 == held * 4


def test_shards_are_counted_together(folder: Path) -> None:
    whole = check_model_folder(folder)
    shard(folder, indexed=True)
    files = check_model_folder(folder)
    assert (files.sizes.parameters, files.sizes.stored_bytes) == (whole.sizes.parameters, whole.sizes.stored_bytes)


@pytest.mark.parametrize("indexed", [True, False])
def test_missing_shards_are_named(folder: Path, indexed: bool) -> None:
    shard(folder, indexed)
    (folder / "model-00002-of-00003.safetensors").unlink()
    error = refusal(folder)
    reason = "model-00002-of-00003.safetensors is missing" if indexed else "it has 2 of 3 files of weights"
    assert error.message == f"{folder} is incomplete: {reason}."


def test_a_missing_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone").message == f"There is no folder at {tmp_path / 'gone'}."


def test_an_empty_folder(tmp_path: Path) -> None:
    assert refusal(tmp_path).message == f"The folder {tmp_path} is empty."


def test_some_other_folder(tmp_path: Path) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    assert refusal(tmp_path).message == f"{tmp_path} is not a model folder: it has no config.json."


@pytest.mark.parametrize("text", ["[]", '{"hidden_size": 3}', '{"model_type": 3}'])
def test_a_damaged_config(folder: Path, text: str) -> None:
    (folder / "config.json").write_text(text)
    assert str(folder / "config.json") in refusal(folder).message


@pytest.mark.parametrize("name", ["banana", "switch_layers", "../../etc/passwd", "base", ""])
def test_an_unknown_architecture_is_named(folder: Path, name: str) -> None:
    change_config(folder, model_type=name)
    assert refusal(folder).message == f"The installed mlx-lm does not support the architecture '{name}'."


@pytest.mark.parametrize("name", sorted(mlx_lm_utils.MODEL_REMAPPING))
def test_architectures_that_share_a_module_are_known(folder: Path, name: str) -> None:
    change_config(folder, model_type=name)
    assert check_model_folder(folder).architecture == name


def test_a_model_with_its_own_code_is_refused(folder: Path) -> None:
    change_config(folder, model_file="model.py")
    assert "needs its own code (model.py)" in refusal(folder).message


@pytest.mark.parametrize("cut", [1, 4096, 500_000])
def test_truncated_weights_are_named_with_their_sizes(folder: Path, cut: int) -> None:
    path = folder / "model.safetensors"
    whole = path.stat().st_size
    with path.open("r+b") as file:
        file.truncate(whole - cut)
    assert refusal(folder).message == f"{path} is incomplete: {whole - cut:,} of {whole:,} bytes."


@pytest.mark.parametrize("kept", [0, 5, 8, 100])
def test_weights_cut_within_their_header(folder: Path, kept: int) -> None:
    path = folder / "model.safetensors"
    with path.open("r+b") as file:
        file.truncate(kept)
    assert "is incomplete or not a safetensors file" in refusal(folder).message


def test_overlong_weights_and_a_scrambled_header(folder: Path) -> None:
    path = folder / "model.safetensors"
    data = path.read_bytes()
    path.write_bytes(data + b"more")
    assert "is longer than it should be" in refusal(folder).message
    path.write_bytes(data[:8] + b"#" + data[9:])
    assert refusal(folder).message.startswith(f"The header of {path} is damaged: it is not JSON")


def test_a_git_lfs_pointer(folder: Path) -> None:
    (folder / "model.safetensors").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n")
    error = refusal(folder)
    assert error.message.endswith("is a Git LFS pointer, not the weights.")
    assert error.hint == "Run `git lfs pull` in its folder."


@pytest.mark.parametrize("name", ["pytorch_model.bin", "consolidated.pth", "weights.npz", "weights.safetensors"])
def test_weights_in_another_format_get_advice(folder: Path, name: str) -> None:
    (folder / "model.safetensors").rename(folder / name)
    error = refusal(folder)
    assert error.message == f"{folder} has its weights in {name}, which mlx-lm cannot read."
    assert error.hint.startswith(f"Convert it first: `mlx_lm.convert --hf-path {folder}")


def test_no_weights_and_no_tokenizer(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    assert refusal(folder).message == f"{folder} has no tokenizer (tokenizer.json)."
    (folder / "model.safetensors").unlink()
    assert refusal(folder).message == f"{folder} has no weights (model*.safetensors)."


@pytest.mark.parametrize(
    "changes",
    [
        {"quantization": {"bits": 7, "group_size": 32}},
        {"quantization": {"bits": 4, "group_size": 32, "mode": "magic"}},
        {"quantization": "four"},
        {"quantization": {"bits": [4], "group_size": "many"}},
        {"quantization": None, "quantization_config": "awq"},
        {"quantization": None, "quantization_config": {"quant_method": "magic"}},
        {"quantization": None, "quantization_config": {"bits": 4, "group_size": 32}},
        {"quantization": None, "quantization_config": {"quant_method": None, "load_in_4bit": True}},
        {"quantization": None, "text_config": {"quantization_config": {"load_in_8bit": True}}},
    ],
)
def test_an_unknown_quantisation(folder: Path, changes: dict[str, Any]) -> None:
    change_config(folder, **changes)
    starts = ("The model's quantisation is unknown: ", "mlx-lm cannot unpack weights of magic ")
    starts += ("The model's quantization_config does not say how its weights are packed",)
    assert refusal(folder).message.startswith(starts)


def test_quantisation_of_other_tools_is_known(folder: Path) -> None:
    change_config(folder, quantization=None, quantization_config={"quant_method": "awq"})
    assert check_model_folder(folder).sizes.quantization_bits == 4
    change_config(folder, model_type="minimax", quantization=None, quantization_config={"quant_method": "fp8"})
    assert check_model_folder(folder).sizes.quantization_bits is None  # mlx-lm makes floats of it
    change_config(folder, quantization=None, quantization_config=None)
    assert check_model_folder(folder).sizes.quantization_bits is None


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"max_position_embeddings": None, "n_positions": 1024}, 1024),
        ({"max_position_embeddings": None, "text_config": {"max_position_embeddings": 2048}}, 2048),
        ({"max_position_embeddings": None}, 512),  # from tokenizer_config.json
        ({"max_position_embeddings": -1}, 512),
    ],
)
def test_context_length_under_other_names(folder: Path, changes: dict[str, Any], expected: int) -> None:
    change_config(folder, **changes)
    assert check_model_folder(folder).sizes.context_length == expected


@pytest.mark.parametrize(
    ("config", "values"),
    [
        ({"n_layer": 12, "n_head": 12, "n_embd": 768}, 2 * 12 * 768),
        ({"num_hidden_layers": 4, "kv_lora_rank": 512, "qk_rope_head_dim": "some"}, 4 * 512),
    ],
    ids=["gpt2", "nonsense"],
)
def test_cache_size_of_other_families(config: dict[str, Any], values: int) -> None:
    assert kv_values_per_token(config) == values


def test_the_default_model_is_found(default_model: Path) -> None:
    assert resolve_model(None) == default_model


def test_paths_that_lead_nowhere(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"There is no model at .*/no/such/folder\. Check the path\."):
        resolve_model("/no/such/folder")
    (tmp_path / "notes.txt").write_text("")
    with pytest.raises(ModelError, match=r"notes\.txt is a file, not a model\."):
        resolve_model(str(tmp_path / "notes.txt"))


@pytest.mark.parametrize("name", ["some-org/not-fetched", "some--org/strange..name"])
def test_a_hub_model_that_is_not_in_the_cache_gets_the_command(name: str) -> None:
    with pytest.raises(ModelError) as caught:
        resolve_model(name)
    assert caught.value.message == f"{name} is neither a folder nor a model in the Hugging Face cache."
    assert caught.value.hint.startswith(f"Download it with `rdchat models download {name}`")


def test_the_check_needs_no_mlx() -> None:
    """It runs where a broken folder must be refused at once, before seconds of importing."""
    for module in (
        "inference/models/model_files",
        "inference/models/model_config",
        "inference/models/safetensors_file",
        "inference/models/default_conversion",
        "inference/models/default_model",
        "inference/models/model_locations",
        "files/atomic_file",
        "files/foreign_files",
    ):
        source = (Path(rdchat.__file__).parent / f"{module}.py").read_text()
        tree = ast.parse(source)
        imported = {
            name
            for node in ast.walk(tree)
            if isinstance(node, ast.Import | ast.ImportFrom)
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [a.name for a in node.names])
        }
        assert not {name for name in imported if name.split(".")[0] in {"mlx", "mlx_lm", "transformers"}}
