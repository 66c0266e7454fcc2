"""Law: the weights are those that the folder names, whatever other files it has, or the folder is refused."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx_lm
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from mlx.utils import tree_flatten
from safetensors.numpy import save_file

from rdchat.errors import ModelError
from rdchat.hub.known_files import FAMILIES, unpackable
from rdchat.inference.api import Dtype
from rdchat.inference.loading import Part, load_model, load_part
from rdchat.inference.models.model_files import check_model_folder
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.sharding.model_split import split_of
from tests.inference.model_folders import change_config, refusal

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


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_numbers_of_8_bits_without_scales_are_refused(folder: Path, kind: str) -> None:
    """MLX computed with their codes."""
    weights = plain_llama(folder)
    read(folder)
    coded = {name: (array * 100).astype(kind) if "mlp" in name else array for name, array in weights.items()}
    save_file(coded, folder / "model.safetensors")
    with pytest.raises(ModelError, match=r"The weights of model\.layers\.0\.mlp\.\w+\.weight have 8 bits") as caught:
        load_model(folder)
    assert "Download" not in caught.value.hint


def test_floats_of_8_bits_without_scales_are_refused(folder: Path) -> None:
    weights = plain_llama(folder)
    name = "model.layers.1.mlp.up_proj.weight"
    save_file(weights | {name: weights[name].astype(np.uint8)}, folder / "model.safetensors")
    data = (folder / "model.safetensors").read_bytes()
    assert read_header(folder / "model.safetensors")[name].dtype == "U8"
    length = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + length])
    header[name]["dtype"] = "F8_E4M3"
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(len(text).to_bytes(8, "little") + text + data[8 + length :])
    with pytest.raises(ModelError, match=rf"The weights of {re.escape(name)} have 8 bits, but no scales"):
        read(folder)


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
