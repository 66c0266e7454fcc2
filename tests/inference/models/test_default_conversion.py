"""A GGUF file as the default model's becomes an MLX folder that computes the same."""

import hashlib
import json
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as GgmlType
from mlx.utils import tree_flatten
from mlx_lm import utils as mlx_lm_utils
from tokenizers import Tokenizer

from rdchat.inference.api import LoadProgress
from rdchat.inference.models.default_conversion import convert
from rdchat.inference.models.model_files import check_model_folder
from tests.inference import gguf_samples
from tests.inference.gguf_samples import HEADS, KV_HEADS, mlx_name, permute, write_gguf

KINDS = [GgmlType.Q4_1, GgmlType.Q8_0]


def converted(source: Path) -> Path:
    folder = source.with_suffix(".mlx")
    folder.mkdir()
    convert(source, folder, lambda _progress: None)
    return folder


def logits(folder: Path, **config: object) -> np.ndarray:
    model, _ = mlx_lm_utils.load_model(folder, model_config=config)
    model = mlx_lm_utils.dequantize_model(model)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([[5, 99, 7, 42, 200, 13]])))


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


@pytest.mark.across_rows
def test_reordered_heads_with_plain_rope_equal_interleaved_ones_with_traditional_rope(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", GgmlType.Q8_0)
    folder = converted(source)
    ours = logits(folder)
    interleaved = mx.load(str(source))
    weights = {f"{mlx_name(name)}.{name.rpartition('.')[2]}": array for name, array in interleaved.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), weights)
    theirs = logits(folder, rope_traditional=True)
    np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert np.abs(ours - logits(folder)).max() > 0.01  # the rows do matter


def test_config_says_what_the_metadata_says(tmp_path: Path) -> None:
    folder = converted(write_gguf(tmp_path / "model.gguf", kinds={"token_embd.weight": GgmlType.Q8_0}))
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "llama"
    assert (config["num_attention_heads"], config["num_key_value_heads"], config["head_dim"]) == (4, 2, 64)
    assert (config["rms_norm_eps"], config["rope_theta"], config["max_position_embeddings"]) == (1e-5, 1e4, 512)
    assert config["tie_word_embeddings"] is True
    assert config["torch_dtype"] == "float16"
    assert config["quantization"] == {
        "group_size": 32,
        "bits": 4,
        "mode": "affine",
        "model.embed_tokens": {"group_size": 32, "bits": 8, "mode": "affine"},
    }
    assert json.loads((folder / "generation_config.json").read_text()) == {"eos_token_id": [2, 0]}
    check_model_folder(folder)
    logits(folder)  # mlx-lm takes the mixture


def test_conversion_is_deterministic_and_reports_progress(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf")
    digests = []
    seen = list[LoadProgress]()
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        convert(source, folder, seen.append)
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()})
    assert digests[0] == digests[1]
    fractions = [progress.fraction for progress in seen[: len(seen) // 2]]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)


def test_the_tokenizer_splits_off_each_digit(tmp_path: Path) -> None:
    ids = gguf_samples.tokens().index
    folder = converted(write_gguf(tmp_path / "model.gguf"))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert tokenizer.encode("12").ids == [ids("1"), ids("2")]
    assert tokenizer.encode("hello<|im_end|>").ids == [ids("hello"), ids("<|im_end|>")]
