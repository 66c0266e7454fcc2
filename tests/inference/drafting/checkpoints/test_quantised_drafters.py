"""Published drafters that somebody quantised with MLX."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import numpy as np
import pytest
from mlx.utils import tree_flatten

from rdchat.inference.api import BeamShape
from rdchat.inference.drafting.checkpoints import mtp_layout
from rdchat.inference.drafting.checkpoints.drafter_folder import check_drafter, inspect_drafter, load_drafter
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.block_head import BoundBlockHead
from rdchat.inference.drafting.heads.block_network import Markov
from rdchat.inference.drafting.heads.head import BoundNetwork, HeadKind
from rdchat.inference.verification.target import TargetEmbeddings
from tests.grids import share
from tests.inference.drafting.checkpoints.drafter_folders import (
    apple_checkpoint,
    change,
    change_tensors,
    refused,
    saved_random_drafter,
)
from tests.inference.drafting.heads.assistant_targets import assistant_folder, shared_gemma, stored
from tests.inference.drafting.heads.block_drafters import KINDS, HeadPair, written_block
from tests.inference.drafting.heads.eagle3_drafters import eagle3_folder
from tests.inference.drafting.heads.mtp_targets import CASES, bound_mtp, golden_config, golden_folder, golden_target
from tests.inference.fakes import ALPHABET, ask, shared_family, shared_llama
from tests.inference.plain_replies import drafted_by_beams

pytestmark = pytest.mark.across_rows

GROUP = 32
OWN: dict[str, Any] = {"markov": Markov.GATED, "own_embeddings": True, "own_output": True}


def quantise(folder: Path, bits: int) -> dict[str, mx.array]:
    """Quantise a drafter's matrices as mlx-lm's and mlx-vlm's converters do; return the floats that they stand for."""
    path = str(folder / "model.safetensors")
    floats = dict[str, mx.array]()
    tensors = dict[str, mx.array]()
    for name, tensor in mx.load(path).items():
        module = name.removesuffix(".weight")
        floats[name] = tensors[name] = mx.array(np.array(tensor))
        if tensor.ndim == 2 and tensor.shape[1] % GROUP == 0 and "weight_" not in name:
            parts = mx.quantize(tensors.pop(name), GROUP, bits)
            tensors |= {f"{module}.{part}": at for part, at in zip(("weight", "scales", "biases"), parts, strict=True)}
            floats[name] = mx.dequantize(*parts, GROUP, bits)
    assert any(name.endswith(".scales") for name in tensors)
    mx.eval(floats, tensors)
    mx.save_safetensors(path, tensors)
    change(folder, quantization={"group_size": GROUP, "bits": bits}, quantization_config={"bits": bits})
    return floats


BLOCKS = [
    OWN,
    KINDS[4],
    {**KINDS[5], "selector_rank": GROUP},
    {**KINDS[7], "refiner_rank": GROUP, "refiner_inner": GROUP},
    *(pytest.param(kind, marks=pytest.mark.slow) for kind in KINDS[:4]),
]


@pytest.mark.parametrize("bits", share([4, 8], 2))
@pytest.mark.parametrize(
    "kind", BLOCKS, ids=["dspark", "domino", "dflash 2", "xpress", "dflash", "vanilla", "gated", "rnn"]
)
def test_a_quantised_block_drafter_is_read(kind: dict[str, Any], bits: int, tmp_path: Path) -> None:
    model = shared_llama()
    folder = written_block(tmp_path / "drafter", model, **kind)
    floats = quantise(folder, bits)
    own = {name.removesuffix(".scales"): {"group_size": GROUP} for name in mx.load(str(folder / "model.safetensors"))}
    change(folder, quantization={"group_size": 64, "bits": bits} | own)
    assert inspect_drafter(folder) is HeadKind.BLOCK
    head = load_drafter(folder, model)
    assert isinstance(head, BoundBlockHead)
    bare = {name: name.removesuffix(".weight") for name in dict(tree_flatten(head.network.parameters()))}
    for name, tensor in tree_flatten(head.network.parameters()):
        np.testing.assert_array_equal(np.array(tensor), np.array(floats.get(name, floats.get(bare[name]))))
    request = ask(temperature=0.9, max_tokens=8)
    HeadPair(model, head).reply(request, BeamShape(3, 4))


@pytest.mark.parametrize("bits", [4, 8])
def test_a_quantised_eagle_3_drafter_is_read_and_keeps_its_bits_on_a_gpu(
    bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shared_family("llama")
    folder = eagle3_folder(tmp_path / "drafter", model)
    floats = quantise(folder, bits)
    head = load_drafter(folder, model)
    assert isinstance(head, BoundNetwork)
    np.testing.assert_array_equal(np.array(head.network.fc.weight), np.array(floats["fc.weight"]))
    monkeypatch.setattr("rdchat.inference.drafting.checkpoints.head_settings.on_gpu", lambda: True)
    head = load_drafter(folder, model)
    assert isinstance(head, BoundNetwork)
    packed = tree_flatten(head.network.leaf_modules(), is_leaf=nn.Module.is_module)
    assert {module.bits for _, module in packed if hasattr(module, "bits")} == {bits}


@pytest.mark.parametrize(("case", "bits"), share(product(CASES, [4, 8]), 18))
def test_quantised_mtp_layers_of_each_family_are_read(case: str, bits: int, tmp_path: Path) -> None:
    """In the form of mlx-lm's converter, which stacks experts and leaves routers as they are."""
    model = golden_target(case)
    config = golden_config(case)
    naming = next(each for each in mtp_layout._NAMINGS if config["model_type"] in each.architectures)
    shared = "mtp." if naming.shares_parts else "model.mtp_layers.0." if case == "mimo" else "model.layers.4."
    layer = "mtp.layers.0." if naming.shares_parts else shared
    published = {ours: shared + theirs for theirs, ours in naming.parts.items() if ours}
    network = bound_mtp(golden_folder(case), model).networks[0]

    def converts(name: str, module: nn.Module) -> bool:
        return hasattr(module, "to_quantized") and module.weight.shape[-1] % GROUP == 0 and not name.endswith("gate")

    nn.quantize(network, GROUP, bits, class_predicate=converts)
    weights = dict(tree_flatten(network.parameters()))
    names = {name: name.partition(".") for name in weights}
    tensors = {
        layer + rest if part == "block" else f"{published[part]}.{rest}": weights[name]
        for name, (part, _, rest) in names.items()
    }
    (tmp_path / "config.json").write_text(json.dumps(config | {"quantization": {"group_size": GROUP, "bits": bits}}))
    mx.save_safetensors(str(tmp_path / "model.safetensors"), tensors)
    head = bound_mtp(tmp_path, model)
    for name, tensor in tree_flatten(head.networks[0].parameters()):
        np.testing.assert_array_equal(np.array(tensor), np.array(weights[name]), err_msg=name)
    request = ask(temperature=0.9, max_tokens=8)
    drafted_by_beams(HeadModel(model, head), model, request, BeamShape(3, 4))


@pytest.mark.parametrize("apples", share([True, False], 2))
def test_a_quantised_recurrent_drafter_is_read(apples: bool, tmp_path: Path) -> None:
    model = shared_llama()
    folder = tmp_path / "drafter"
    width = TargetEmbeddings(model.network, len(ALPHABET)).width
    if apples:
        apple_checkpoint(folder, width, 2 * width, 2, True, len(ALPHABET))
    else:
        saved_random_drafter(model, folder, width)
    quantise(folder, 4)
    assert inspect_drafter(folder) is HeadKind.RECURRENT
    request = ask(temperature=0.9, max_tokens=8)
    drafted_by_beams(HeadModel(model, load_drafter(folder, model)), model, request, BeamShape(3, 4))


@pytest.mark.parametrize(("clusters", "bits"), share(product([0, 31], [4, 8]), 4))
def test_a_quantised_assistant_of_gemma_4_is_read_and_keeps_its_bits_on_a_gpu(
    clusters: int, bits: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = shared_gemma()
    folder = assistant_folder(tmp_path / "drafter", clusters=clusters, width=64)
    floats = {name.removeprefix("model."): at for name, at in quantise(folder, bits).items()}
    assert inspect_drafter(folder) is HeadKind.ASSISTANT
    head = stored(folder, model)
    renamed = {"lm_head.weight": "embed_tokens.weight", "centroids.weight": "masked_embedding.centroids.weight"}
    for name, tensor in tree_flatten(head.network.parameters()):
        np.testing.assert_array_equal(np.array(tensor), np.array(floats[renamed.get(name, name)]), err_msg=name)
    monkeypatch.setattr("rdchat.inference.drafting.checkpoints.head_settings.on_gpu", lambda: True)
    packed = stored(folder, model)
    modules = tree_flatten(packed.network.leaf_modules(), is_leaf=nn.Module.is_module)
    assert {module.bits for _, module in modules if hasattr(module, "bits")} == {bits}
    for each in (head, packed):
        request = ask(temperature=0.9, max_tokens=6)
        drafted_by_beams(HeadModel(model, each), model, request, BeamShape(3, 4))


@pytest.mark.parametrize(
    ("settings", "changes", "words"),
    [
        ({"mode": "mxfp4"}, {}, "does not know how its .* is quantised"),
        ({"group_size": 48}, {}, "does not know how its .* is quantised"),
        ({"group_size": [32]}, {}, "does not know how its .* is quantised"),
        ({"fc": {"group_size": 64}}, {}, "its tensor fc.weight has the shape"),
        ({}, {"fc__biases": None}, "does not know how its fc is quantised"),
        ({}, {"fc__biases": mx.zeros((1, 2))}, "fc.weight does not fit its scales"),
        ({}, {"fc__scales": mx.array(1.0)}, "fc.weight does not fit its scales"),
        ({}, {"fc__weight": mx.zeros((32, 64))}, "fc.weight does not fit its scales"),
        ({}, {"fc__scales": mx.full((32, 2), mx.inf)}, "fc.weight has values that"),
    ],
)
def test_what_is_quantised_in_other_ways_is_refused_by_name(
    settings: dict[str, Any], changes: dict[str, mx.array | None], words: str, tmp_path: Path
) -> None:
    folder = written_block(tmp_path / "drafter", shared_llama(), **OWN)
    quantise(folder, 4)
    change(folder, quantization={"group_size": GROUP, "bits": 4} | settings)
    change_tensors(folder, **changes)
    refused(folder, shared_llama(), words)


def test_settings_of_a_quantisation_without_quantised_tensors_are_refused(tmp_path: Path) -> None:
    folder = written_block(tmp_path / "drafter", shared_llama(), {"quantization": {"group_size": 64, "bits": 4}})
    refused(folder, shared_llama(), "its setting quantization is", check_drafter)
