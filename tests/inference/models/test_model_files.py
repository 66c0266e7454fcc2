"""Finding models and their weights, and finding problems from headers alone: each becomes a message."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from mlx.utils import tree_flatten
from mlx_lm import utils as mlx_lm_utils
from mlx_lm.models.cache import make_prompt_cache
from safetensors.numpy import save_file

from rdchat.errors import InvalidSettingError, ModelError
from rdchat.hub.known_files import FAMILIES, unpackable
from rdchat.inference.api import Dtype
from rdchat.inference.loading import Part, load_model, load_part
from rdchat.inference.models.model_config import kv_values_per_token
from rdchat.inference.models.model_files import check_model_folder, resolve_model
from rdchat.inference.sharding.model_split import split_of
from tests.inference.model_folders import change_config, refusal, rewrite_header


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


def test_a_folder_that_is_missing_empty_or_another(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone").message == f"There is no folder at {tmp_path / 'gone'}."
    assert refusal(tmp_path).message == f"The folder {tmp_path} is empty."
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
        ({"num_hidden_layers": 4, "hidden_size": 4096, "num_key_value_heads": 8}, 0),
    ],
    ids=["gpt2", "nonsense", "without heads"],
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
    modules = "rdchat.inference.models.default_conversion, rdchat.inference.models.model_files"
    code = f"import sys, {modules}; print({{'mlx.core', 'mlx_lm', 'transformers'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "set()\n"


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


Weights = dict[str, mx.array]
INDEX = "model.safetensors.index.json"


def stored(folder: Path) -> Weights:
    return dict(mx.load(str(folder / "model.safetensors")))


def read(folder: Path) -> Weights:
    return dict(tree_flatten(load_part(folder, Dtype.AUTO, Part()).parameters()))


def same(one: Weights, other: Weights) -> bool:
    return one.keys() == other.keys() and all(mx.array_equal(one[name], other[name]).item() for name in one)


@pytest.fixture(scope="module")
def unharmed(small_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(shutil.copytree(small_model, tmp_path_factory.mktemp("weights") / "model"))


@settings(max_examples=10)
@given(some.data())
def test_with_an_index_its_files_are_the_weights(unharmed: Path, data: some.DataObject) -> None:
    """A second `model*.safetensors` won or lost by the order of the folder."""
    folder = unharmed.parent / "indexed"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(unharmed, folder)
    weights = stored(folder)
    wanted = read(folder)
    (folder / "model.safetensors").unlink()
    names = [f"model-{place}.safetensors" for place in data.draw(some.permutations(range(4)))]
    own = names[:2]
    others = names[2:]
    index = {name: data.draw(some.sampled_from(own)) for name in weights}
    for file in {*index.values()}:
        mx.save_safetensors(str(folder / file), {name: weights[name] for name in weights if index[name] == file})
    for file in others:
        mx.save_safetensors(str(folder / file), {name: mx.zeros_like(array) for name, array in weights.items()})
    (folder / INDEX).write_text(json.dumps({"weight_map": index}))
    assert same(read(folder), wanted)


def test_without_an_index_no_name_comes_twice(folder: Path) -> None:
    shutil.copy(folder / "model.safetensors", folder / "model_old.safetensors")
    error = refusal(folder)
    assert "twice: in model_old.safetensors and in another file" in error.message
    assert error.hint == "Remove the files that belong to another version of the model."


def test_an_index_of_files_that_are_gone_is_skipped(folder: Path) -> None:
    wanted = read(folder)
    names = stored(folder)
    (folder / INDEX).write_text(json.dumps({"weight_map": dict.fromkeys(names, "model-00001-of-00030.safetensors")}))
    assert same(read(folder), wanted)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    assert "it has 1 of 2 files of weights" in refusal(folder).message
    (folder / "model-00001-of-00002.safetensors").unlink()
    assert "model-00001-of-00030.safetensors is missing" in refusal(folder).message


def test_configurations_may_begin_with_a_byte_order_mark(folder: Path) -> None:
    """mlx-lm drops such a generation_config.json with its end tokens, and refuses such a config.json."""
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": [2, 7]}))
    for path in folder.glob("*.json"):
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert {2, 7} <= load_model(folder).end_tokens


def plain_llama(folder: Path) -> dict[str, np.ndarray]:
    """Give a folder weights in floats."""
    network = load_part(folder, Dtype.FLOAT32, Part())
    change_config(folder, quantization=None)
    weights = {name: np.array(array) for name, array in tree_flatten(network.parameters())}
    save_file(weights, folder / "model.safetensors")
    return weights


@pytest.mark.parametrize("kind", ["U8", "I8", "F8_E4M3"])
def test_numbers_of_8_bits_without_scales_are_refused(folder: Path, kind: str) -> None:
    """MLX computed with their codes."""
    weights = plain_llama(folder)
    read(folder)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file(weights | {name: weights[name].astype(np.uint8)}, folder / "model.safetensors")
    rewrite_header(folder, lambda header: header[name].update(dtype=kind))
    with pytest.raises(ModelError, match=rf"The weights of {re.escape(name)} have 8 bits, but no scales") as caught:
        load_model(folder)
    assert "Download" not in caught.value.hint


@pytest.mark.parametrize("method", ["gptq", "compressed-tensors", "modelopt", "fp8", "mxfp8", "bitsandbytes"])
def test_weights_of_other_tools_are_refused_by_the_configuration(folder: Path, method: str) -> None:
    """They were downloaded, and then to be downloaded again."""
    change_config(folder, quantization=None, quantization_config={"quant_method": method})
    error = refusal(folder)
    assert error.message == f"mlx-lm cannot unpack weights of {method} for the architecture 'llama'."
    assert "Download" not in error.hint


def test_modelopts_own_file_names_the_method_too(folder: Path) -> None:
    change_config(folder, quantization=None)
    (folder / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4"}}))
    assert "cannot unpack weights of modelopt" in refusal(folder).message


def test_every_module_that_unpacks_is_in_the_table() -> None:
    """A newer mlx-lm may have others."""
    parts = {"compressed-tensors": "weight_packed", "fp8": "_scale_inv", "modelopt": "weight_scale_2"}
    for module in (Path(mlx_lm.__path__[0]) / "models").glob("*.py"):
        for method, part in parts.items():
            if part in module.read_text(encoding="utf-8"):
                assert unpackable(module.stem, {"quant_method": method}) == "", (module.stem, method)
    for method, families in FAMILIES.items():
        assert (unpackable("llama", {"quant_method": method}) == "") == (families is None)


@pytest.mark.parametrize(
    ("family", "settings"),
    [
        ("llama", {"quant_method": "awq", "bits": 8}),
        ("llama", {"quant_method": "awq", "bits": [4]}),
        ("deepseek_v3", {"quant_method": "compressed-tensors", "format": "float-quantized"}),
        ("muse_spark", {"quant_method": "modelopt", "quant_algo": "FP8"}),
    ],
)
def test_kinds_of_a_method_that_mlx_lm_refuses_are_known_too(family: str, settings: dict[str, Any]) -> None:
    assert unpackable(family, settings).startswith(f"mlx-lm cannot unpack weights of {settings['quant_method']} with ")


@pytest.mark.parametrize("read_it", [load_model, lambda folder: split_of(folder, 2)])
def test_a_module_that_exits_is_a_refusal(folder: Path, read_it: Any) -> None:
    """`olmo` ends the program when it is imported without a package of its authors."""
    sizes = {"d_model": 64, "n_layers": 2, "mlp_hidden_size": 128, "n_heads": 4, "embedding_size": 265}
    change_config(folder, model_type="olmo", **sizes)
    assert check_model_folder(folder).architecture == "olmo"
    with pytest.raises(ModelError, match="mlx-lm's module for the architecture 'olmo' needs a package"):
        read_it(folder)
