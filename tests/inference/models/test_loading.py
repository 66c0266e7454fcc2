"""Loading a model folder in every precision, what is kept of it, and the messages where it fails."""

import gc
import os
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import psutil
import pytest
from mlx.utils import tree_flatten
from mlx_lm import utils as mlx_lm_utils
from safetensors.numpy import load_file, save_file

from rdchat import paths
from rdchat.errors import DoesNotFitError, ModelError, OutOfMemoryError
from rdchat.inference import loading
from rdchat.inference.api import Capability, DraftKind, LoadProgress
from rdchat.inference.device import MemoryRoom
from rdchat.inference.loading import load_model
from rdchat.inference.models import stored_facts
from rdchat.inference.verification.capability import check_capability, use_capability
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from tests.grids import share
from tests.inference.fakes import ALPHABET, tiny_llama
from tests.inference.families import COMMON, MOE, network_of
from tests.inference.known_capabilities import check_once
from tests.inference.model_folders import change_config, save_header, save_model
from tests.malloc import bytes_in_use

TOKENS = mx.array([[1, 2, 3, 4]])


def logits(folder: Path, dtype: str) -> np.ndarray:
    return np.array(load_model(folder, dtype).network(TOKENS).astype(mx.float32))


@pytest.mark.parametrize(
    ("dtype", "tolerance"),
    share([("float32", 0), ("float16", 0.02), ("bfloat16", 0.1), ("8bit", 0.1), ("4bit", 0.02)], 3),
)
def test_every_precision_gives_about_the_same_logits(small_model: Path, dtype: str, tolerance: float) -> None:
    exact = logits(small_model, "auto")  # on a CPU: float32
    assert np.abs(logits(small_model, dtype) - exact).max() <= tolerance * exact.std() * 4


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "8bit", "4bit"])
def test_what_is_loaded_is_what_is_said(small_model: Path, dtype: str) -> None:
    model = load_model(small_model, dtype)
    kinds = {str(array.dtype).removeprefix("mlx.core.") for _, array in _arrays(model.network)}
    assert model.info.dtype == dtype
    assert kinds == {dtype} if "float" in dtype else "uint32" in kinds
    assert model.info.weights_bytes == sum(array.nbytes for _, array in _arrays(model.network))
    assert model.info.vocabulary_size == model.network(TOKENS).shape[-1]


def _arrays(network: object) -> list[tuple[str, mx.array]]:
    return tree_flatten(network.parameters())  # type: ignore[attr-defined, no-any-return]


def test_progress_goes_from_nothing_to_all(small_model: Path) -> None:
    seen: list[LoadProgress] = []
    load_model(small_model, on_progress=seen.append)
    reading = [progress.fraction for progress in seen if progress.stage == "Reading weights"]
    assert (reading[0], reading[-1]) == (0, 1)
    assert reading == sorted(reading, key=lambda fraction: fraction or 0)


def test_a_tensor_that_is_missing_is_named(folder: Path) -> None:
    tensors = load_file(folder / "model.safetensors")
    del tensors["model.norm.weight"]
    save_file(tensors, folder / "model.safetensors", {"format": "mlx"})
    with pytest.raises(ModelError, match=r"cannot be loaded.*model\.norm\.weight"):
        load_model(folder)


def test_a_model_larger_than_memory_is_refused_before_it_is_read(folder: Path) -> None:
    """The weights are a sparse file with a true header, so the folder is whole and takes no room."""
    change_config(folder, quantization=None)
    rows = psutil.virtual_memory().total // 4096
    layers = [f"model.layers.{layer}.mlp.up_proj.weight" for layer in range(2)]
    save_header(folder / "model.safetensors", dict.fromkeys(layers, ("F16", (rows, 1024))))
    with pytest.raises(DoesNotFitError, match=r"needs [\d.]+ [MG]B for its weights as float32.*is available") as caught:
        load_model(folder)
    assert "smaller" in caught.value.hint


@pytest.fixture
def on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose as on a GPU; the arithmetic stays on the CPU, which knows all the kernels."""
    monkeypatch.setattr(loading, "on_gpu", lambda: True)


def quantized_model(folder: Path, source: Path, **packing: Any) -> Path:
    network, config = mlx_lm_utils.load_model(source)
    network = mlx_lm_utils.dequantize_model(network)
    nn.quantize(network, **packing)
    table = network.model.embed_tokens
    settings = {"group_size": table.group_size, "bits": table.bits, "mode": table.mode}
    return save_model(folder, source, network, config | {"quantization": settings})


PACKINGS: list[dict[str, Any]] = [
    *({"bits": bits} for bits in (4, 2, 3, 5, 6, 8)),
    # Without biases.
    *({"mode": mode} for mode in ("mxfp4", "mxfp8", "nvfp4")),
]


@pytest.mark.parametrize("packing", share(PACKINGS, 6), ids=str)
def test_a_gpu_keeps_the_models_own_quantisation(
    on_a_gpu: None, small_model: Path, tmp_path: Path, packing: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some were blown up to float16, with the memory that takes."""
    folder = quantized_model(tmp_path / "model", small_model, **packing)
    exact = logits(folder, "float32")
    files = loading.check_model_folder(folder)
    cache = files.sizes.kv_values_per_token * 2 * files.sizes.context_length
    room_of(files.sizes.stored_bytes + cache, 2**40, monkeypatch)
    model = load_model(folder)
    bits = files.sizes.quantization_bits
    assert model.info.dtype == f"{bits}bit"
    assert model.info.weights_bytes == files.sizes.stored_bytes
    assert np.abs(np.array(model.network(TOKENS).astype(mx.float32)) - exact).max() < 0.1 * exact.std()
    if bits != 8:
        with pytest.raises(DoesNotFitError, match="as float16"):
            load_model(folder, "float16")


def room_of(limit: int, free: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "memory_room", lambda: MemoryRoom(limit, free))


def test_what_seems_too_large_is_refused_unless_it_is_wanted_all_the_same(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_of(1000, 1000, monkeypatch)
    with pytest.raises(DoesNotFitError):
        load_model(small_model)
    model = load_model(small_model, anyway=True)
    assert "1 KB of memory is free" in model.info.warning


@pytest.mark.parametrize(
    ("limit", "free", "warns"),
    [(10**9, 10**9, False), (10**9, 1000, True)],
    ids=["room enough", "others would have to give way"],
)
def test_what_the_system_would_have_to_give_back_is_worth_a_warning(
    small_model: Path, limit: int, free: int, warns: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """psutil leaves out on macOS what the system gives back: good models were refused."""
    room_of(limit, free, monkeypatch)
    assert ("close some" in load_model(small_model).info.warning) == warns


def test_memory_that_is_not_enough_for_the_weights_is_said_plainly(
    small_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_arguments: object) -> None:
        raise RuntimeError("[metal::malloc] Resource limit (499000) exceeded.")

    monkeypatch.setattr(loading, "_make_real", fails)
    with pytest.raises(OutOfMemoryError, match=r"There was not enough memory for the weights of model\."):
        load_model(small_model)


@pytest.fixture(params=["float32", "float16", "bfloat16"])
def stored_floats(request: pytest.FixtureRequest, small_model: Path, tmp_path: Path) -> tuple[Path, str]:
    """A folder with unquantised weights, and what they are stored as; but for one norm, in float32."""
    network, config = mlx_lm_utils.load_model(small_model)
    config = {key: value for key, value in config.items() if not key.startswith("quantization")}
    network = mlx_lm_utils.dequantize_model(network)
    network.set_dtype(getattr(mx, request.param))
    network.model.norm.weight = network.model.norm.weight.astype(mx.float32)
    network.model.embed_tokens.weight[3, 4] = 1e4
    return save_model(tmp_path / "model", small_model, network, config), request.param


def test_a_gpu_keeps_what_unquantised_weights_are_stored_as(
    on_a_gpu: None, stored_floats: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bfloat16 was made float16, which in some families does not hold what layers compute."""
    folder, stored = stored_floats
    files = loading.check_model_folder(folder)
    assert files.sizes.float_type == stored
    cache = files.sizes.kv_values_per_token * (getattr(mx, stored).size) * files.sizes.context_length
    room_of(files.sizes.stored_bytes + cache, files.sizes.stored_bytes + cache, monkeypatch)
    model = load_model(folder)
    assert (model.info.dtype, model.info.weights_bytes) == (stored, files.sizes.stored_bytes)
    own = {name: str(array.dtype).removeprefix("mlx.core.") for name, array in _arrays(model.network)}
    assert own.pop("model.norm.weight") == "float32"
    assert set(own.values()) == {stored}


@pytest.mark.parametrize("dtype", share(["4bit", "8bit"], 2))
def test_what_a_gpu_quantises_it_computes_with_in_16_bits_that_hold_what_is_stored(
    on_a_gpu: None, stored_floats: tuple[Path, str], dtype: str
) -> None:
    folder, stored = stored_floats
    network = load_model(folder, dtype).network
    expected = "float16" if stored == "float16" else "bfloat16"
    assert str(network.model.layers[0].self_attn.q_proj.scales.dtype) == f"mlx.core.{expected}"
    assert str(network.model.norm.weight.dtype) == f"mlx.core.{expected}"


@pytest.mark.parametrize("own_bits", [None, 4])
def test_a_cpu_computes_with_quantised_weights_in_float32(
    small_model: Path, tmp_path: Path, own_bits: int | None
) -> None:
    """The float16 kernels took 3.4 s a token for 135M parameters, thirty times as long."""
    folder = small_model if own_bits is None else quantized_model(tmp_path / "model", small_model, bits=own_bits)
    model = load_model(folder, "4bit")
    assert model.info.dtype == "4bit"
    assert model.network(TOKENS).dtype == mx.float32


@pytest.fixture
def expert_model(small_model: Path, tmp_path: Path) -> Path:
    """A small mixture of experts whose architecture has wishes for its router's bias and its gate."""
    options = {**MOE, "num_hidden_layers": 1, "attention_bias": False, "n_shared_experts": 1}
    options["moe_intermediate_size"] = 64  # numbers that are quantised together
    network = network_of("Klear", options)
    config = {**COMMON, **options, "model_type": "Klear"}
    return save_model(tmp_path / "experts", small_model, network, config)


@pytest.mark.parametrize("dtype", ["float16", "4bit"])
def test_weights_that_must_keep_their_precision_do(on_a_gpu: None, expert_model: Path, dtype: str) -> None:
    arrays = dict(_arrays(load_model(expert_model, dtype).network))
    kept = {name for name, array in arrays.items() if array.dtype == mx.float32}
    assert kept == {"model.layers.0.mlp.expert_bias"}


def test_layers_that_the_model_wants_quantised_otherwise_are(expert_model: Path) -> None:
    layer = load_model(expert_model, "4bit").network.model.layers[0]
    assert (layer.mlp.gate.bits, layer.self_attn.q_proj.bits, layer.mlp.experts.gate_proj.bits) == (8, 4, 4)


@pytest.mark.skipif(sys.platform != "linux", reason="glibc alone says what is in use")
def test_a_model_that_is_loaded_often_leaves_nothing(small_model: Path) -> None:
    """MLX kept the keys of weights that were never computed: some kilobytes a layer, for ever."""
    seen = []
    for _ in range(3):
        for _ in range(5):
            load_model(small_model, "float32")
        gc.collect()
        seen.append(bytes_in_use())
    assert min(after - before for before, after in pairwise(seen)) < 10_000, seen


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Capability]:
    """The trials that were made; but for the first, of all tests, their result is known."""
    made: list[Capability] = []

    def check(*arguments: Any) -> Capability:
        made.append(check_once(*arguments))
        return made[-1]

    monkeypatch.setattr(loading, "check_capability", check)
    return made


def test_it_is_tried_once(folder: Path, tried: list[Capability]) -> None:
    first = load_model(folder)
    assert tried == [], "nobody asked yet"
    found = first.capability
    again = load_model(folder)
    assert again.capability == found == tried[0]
    assert again.capability.errors == found.errors != {}
    assert again.capability.inputs == found.inputs == 3
    assert len(tried) == 1
    assert again.hooks.states.recorded == first.hooks.states.recorded


@pytest.mark.parametrize("change", share(["file", "precision", "mlx", "mlx-lm", "rdchat", "device", "code"], 2))
def test_a_change_tries_it_again(
    change: str, folder: Path, tried: list[Capability], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert load_model(folder).capability
    match change:
        case "file":
            os.utime(folder / "model.safetensors", ns=(1, 2))
        case "mlx":
            monkeypatch.setattr(loading, "version", lambda _name: "other")
        case "mlx-lm" | "rdchat":
            monkeypatch.setattr(stored_facts, "_versions", lambda: "other")
        case "device":
            monkeypatch.setattr(loading, "device_name", lambda: "Apple M9")
        case "code":
            monkeypatch.setattr(loading, "__file__", str(tmp_path / "models" / "loading.py"))
    dtype = "float16" if change == "precision" else "auto"
    assert load_model(folder, dtype).capability
    assert len(tried) == 2
    assert load_model(folder, dtype).capability
    assert len(tried) == 2


def test_a_file_that_changes_while_it_loads_is_tried_again(
    folder: Path, tried: list[Capability], monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = load_model(folder)
    os.utime(folder / "model.safetensors", ns=(1, 2))
    assert loaded.capability
    assert load_model(folder).capability
    assert len(tried) == 2


@pytest.mark.parametrize("damage", share(["", "{", "[]", "null", "kind", "inputs", "errors"]))
def test_a_damaged_result_is_tried_again(folder: Path, tried: list[Capability], damage: str) -> None:
    found = load_model(folder).capability
    (file,) = (paths.cache_dir() / "facts").glob("verification-*.json")
    text = file.read_text()
    file.write_text(text.replace(f'"{damage}"', '"other"') if damage.isalpha() and damage != "null" else damage)
    assert load_model(folder).capability == found
    assert len(tried) == 2


@pytest.mark.parametrize("kind", [DraftKind.TREE, DraftKind.FED_AGAIN])
def test_a_kept_result_leaves_the_hooks_as_the_trial_does(kind: DraftKind) -> None:
    network = tiny_llama().network
    hooks = ModelHooks(network)
    found = check_capability(network, hooks, len(ALPHABET))
    other = tiny_llama().network
    kept = ModelHooks(other)
    use_capability(other, kept, len(ALPHABET), replace(found, kind=kind))
    assert kept.states.recorded is (kind is DraftKind.TREE)
    for each, seen in ((network, hooks), (other, kept)):
        each(mx.array([[1, 2]]), cache=KVCache(each).layers)
        assert seen.hidden is not None
    assert hooks.hidden is not None
    assert kept.hidden is not None
    assert kept.hidden.shape == hooks.hidden.shape
