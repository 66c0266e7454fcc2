"""A GGUF file becomes an MLX folder that computes the same, or is refused with the reason."""

import hashlib
import json
import os
from pathlib import Path

import gguf
import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType as GgmlType
from mlx.utils import tree_flatten
from mlx_lm import utils as mlx_lm_utils

from rdchat import host
from rdchat.errors import ModelError
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.models.gguf_import import convert_gguf
from rdchat.inference.models.model_config import stated_layers
from rdchat.inference.models.model_files import check_model_folder, resolve_model
from tests.grids import share
from tests.inference import gguf_samples
from tests.inference.gguf_samples import HEADS, KV_HEADS, float_weights, mlx_name, permute, write_gguf

KEPT = [GgmlType.Q4_0, GgmlType.Q4_1, GgmlType.Q8_0]


def converted(source: Path) -> Path:
    folder = source.with_suffix(".mlx")
    folder.mkdir()
    convert_gguf(source, folder, lambda _progress: None)
    return folder


def logits(folder: Path, **config: object) -> np.ndarray:
    model, _ = mlx_lm_utils.load_model(folder, model_config=config)
    model = mlx_lm_utils.dequantize_model(model)
    model.set_dtype(mx.float32)
    return np.array(model(mx.array([[5, 99, 7, 42, 200, 13]])))


@pytest.mark.parametrize(
    "kind", share([*KEPT, GgmlType.F16, GgmlType.F32, GgmlType.Q6_K], 4), ids=lambda kind: kind.name
)
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


@pytest.mark.parametrize("kind", KEPT, ids=lambda kind: kind.name)
def test_packing_equals_that_of_mlx_itself(tmp_path: Path, kind: GgmlType) -> None:
    source = write_gguf(tmp_path / "model.gguf", kind)
    ours = mx.load(str(converted(source) / "model.safetensors"))
    theirs = mx.load(str(source))
    for name in ("token_embd", "blk.1.attn_v", "blk.0.ffn_down"):
        for part in ("weight", "scales", "biases"):
            assert mx.array_equal(ours[f"{mlx_name(name)}.{part}"], theirs[f"{name}.{part}"]), (name, part)


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


def test_logits_are_near_those_of_the_weights_before_quantisation(tmp_path: Path) -> None:
    exact = logits(converted(write_gguf(tmp_path / "exact.gguf", GgmlType.F32)))
    rounded = logits(converted(write_gguf(tmp_path / "rounded.gguf", GgmlType.Q8_0)))
    assert np.corrcoef(exact.ravel(), rounded.ravel())[0, 1] > 0.999


@pytest.mark.skipif(host.MACOS, reason="names of files are text there")
def test_a_file_whose_name_is_no_text(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The converted folder took over its name, and MLX could not read it there."""
    monkeypatch.setenv("RDCHAT_CACHE_DIR", str(tmp_path / "cache"))
    source = write_gguf(tmp_path / "model.gguf").rename(tmp_path / os.fsdecode(b"odd\xff.gguf"))
    folder = resolve_model(str(source))
    assert folder.name.startswith("odd?-")
    check_model_folder(folder)


def test_config_says_what_the_metadata_says(tmp_path: Path) -> None:
    kinds = {"token_embd.weight": GgmlType.Q8_0, "blk.0.ffn_up.weight": GgmlType.F16}
    folder = converted(write_gguf(tmp_path / "model.gguf", kinds=kinds))
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
    logits(folder)  # mlx-lm takes the mixture


def test_an_output_matrix_of_its_own_is_kept(tmp_path: Path) -> None:
    output = float_weights()["token_embd.weight"] * 2
    folder = converted(write_gguf(tmp_path / "model.gguf", GgmlType.F16, extra={"output.weight": output}))
    assert json.loads((folder / "config.json").read_text())["tie_word_embeddings"] is False
    tied = converted(write_gguf(tmp_path / "tied.gguf", GgmlType.F16))
    np.testing.assert_allclose(logits(folder), logits(tied) * 2, rtol=1e-2, atol=1e-3)


def test_conversion_is_deterministic_and_reports_progress(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf")
    digests, seen = [], list[LoadProgress]()
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        convert_gguf(source, folder, seen.append)
        digests.append({path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()})
    assert digests[0] == digests[1]
    fractions = [progress.fraction for progress in seen[: len(seen) // 2]]
    assert fractions == sorted(fractions)
    assert (fractions[0], fractions[-1]) == (0.0, 1.0)


@pytest.mark.parametrize(
    "kind", share([GgmlType.Q4_K, GgmlType.Q5_0, GgmlType.Q5_K, GgmlType.BF16], 2), ids=lambda k: k.name
)
def test_types_not_known_to_come_out_right_are_refused_by_name(tmp_path: Path, kind: GgmlType) -> None:
    source = write_gguf(tmp_path / "model.gguf", kinds={"blk.1.ffn_up.weight": kind})
    with pytest.raises(ModelError) as caught:
        converted(source)
    expected = f"{source} cannot be imported. Its tensor 'blk.1.ffn_up.weight' is of the type {kind.name}."
    assert caught.value.message == expected
    assert "Q4_0, Q4_1, Q8_0 or F16" in caught.value.hint


@pytest.mark.parametrize(
    ("field", "value", "words"),
    share(
        [
            ("architecture", "qwen2", "Its architecture is 'qwen2'; only 'llama' can be imported."),
            ("tokenizer", "llama", "Its tokenizer has the type 'llama'; only 'gpt2' can be imported."),
            ("pre", "llama-bpe", "Its pre-tokenizer is 'llama-bpe'; only 'gpt-2' and 'smollm' can be imported."),
            ("heads", 2, "Its 'llama.rope.dimension_count' is not the size of a head, 128."),
            ("scaling", "yarn", "It scales positions by 'yarn', which cannot be imported."),
            (
                "merges",
                ["h e", "q z"],
                "Its vocabulary is damaged: it has duplicate tokens, or merges of unknown tokens.",
            ),
        ],
        2,
    ),
)
def test_unknown_kinds_are_refused_by_name(tmp_path: Path, field: str, value: object, words: str) -> None:
    source = write_gguf(tmp_path / "model.gguf", **{field: value})
    with pytest.raises(ModelError) as caught:
        converted(source)
    assert caught.value.message == f"{source} cannot be imported. {words}"
    assert caught.value.hint


def test_a_file_with_mtp_layers_is_refused_and_says_where_to_get_them(tmp_path: Path) -> None:
    layers = {"blk.2.nextn.eh_proj.weight": np.zeros((gguf_samples.HIDDEN, 2 * gguf_samples.HIDDEN), np.float32)}
    source = write_gguf(tmp_path / "model.gguf", architecture="glm4moe", extra=layers)
    with pytest.raises(ModelError, match=r"Its architecture is 'glm4moe'; only 'llama' can be imported\.") as caught:
        converted(source)
    assert caught.value.hint.endswith("get its MTP layers, which draft for it, with `rdchat models mtp`.")


def test_mtp_layers_of_a_llama_are_left_out_and_stated(tmp_path: Path) -> None:
    """llama.cpp counts them among the blocks, and numbers them after the others."""
    width = gguf_samples.HIDDEN
    block = {name.replace("blk.1", "blk.2"): at for name, at in float_weights().items() if name.startswith("blk.1.")}
    layers = block | {
        "blk.2.nextn.eh_proj.weight": np.zeros((width, 2 * width), np.float32),
        **{f"blk.2.nextn.{norm}.weight": np.ones(width, np.float32) for norm in ("enorm", "hnorm", "shared_head_norm")},
    }
    folder = converted(write_gguf(tmp_path / "with.gguf", extra=layers, blocks=3))
    plain = converted(write_gguf(tmp_path / "without.gguf"))
    assert (folder / "model.safetensors").read_bytes() == (plain / "model.safetensors").read_bytes()
    stated, config = (json.loads((each / "config.json").read_text()) for each in (folder, plain))
    assert stated == config | {"num_nextn_predict_layers": 1}
    np.testing.assert_array_equal(logits(folder), logits(plain))
    assert stated_layers(stated) == 1, "so rdchat says that this copy lacks them, and where to get them"
    with pytest.raises(ModelError, match="Its metadata says 1 layers, but it has tensors of 2"):
        converted(write_gguf(tmp_path / "wrong.gguf", extra=layers, blocks=2))


def test_what_is_imported_never_has_mtp_layers() -> None:
    """They would be lost in silence: who adds an architecture that has some must import them, too."""
    parts = gguf.MODEL_TENSORS[gguf.MODEL_ARCH.LLAMA]
    assert not [name for name in map(gguf.TENSOR_NAMES.__getitem__, parts) if "nextn" in name]


def test_heads_that_do_not_match_their_rows_are_refused(tmp_path: Path) -> None:
    rows = np.zeros((96, gguf_samples.HIDDEN), np.float32)
    source = write_gguf(tmp_path / "model.gguf", extra={"blk.0.attn_k.weight": rows})
    with pytest.raises(ModelError, match=r"'blk\.0\.attn_k\.weight' does not have the number of rows of its heads"):
        converted(source)


def test_values_that_float16_cannot_hold_are_refused(tmp_path: Path) -> None:
    norm = np.full(gguf_samples.HIDDEN, 1e5, np.float32)
    source = write_gguf(tmp_path / "model.gguf", extra={"output_norm.weight": norm})
    with pytest.raises(ModelError, match=r"cannot be imported\. Its tensor 'output_norm\.weight' has values beyond fl"):
        converted(source)


def test_metadata_that_lacks_something_is_refused(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", context=False)
    with pytest.raises(ModelError, match=r"Its metadata is damaged: .llama.context_length. is missing"):
        converted(source)


def test_a_tensor_without_a_place_is_refused(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf", extra={"rope_freqs.weight": np.ones(32, np.float32)})
    with pytest.raises(ModelError, match=r"Its tensor 'rope_freqs.weight' does not belong to a llama model\."):
        converted(source)


def test_a_version_1_file_is_refused_before_anything_reads_it(tmp_path: Path) -> None:
    source = write_gguf(tmp_path / "model.gguf")
    data = bytearray(source.read_bytes())
    data[4:8] = (1).to_bytes(4, "little")
    source.write_bytes(data)
    with pytest.raises(ModelError, match="GGUF file of version 1; only 2 and 3 can be read"):
        converted(source)


@pytest.mark.parametrize("part", share([0.001, 0.02, 0.3, 0.9, 0.9999], 2))
def test_a_truncated_file_is_refused(tmp_path: Path, part: float) -> None:
    source = write_gguf(tmp_path / "model.gguf")
    data = source.read_bytes()
    source.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(ModelError, match=r"is damaged or cut short: .*\. Download it again\."):
        converted(source)


def test_another_file_is_refused(tmp_path: Path) -> None:
    source = tmp_path / "model.gguf"
    source.write_bytes(b"not a model at all")
    with pytest.raises(ModelError, match="is not a GGUF file"):
        converted(source)


def test_the_tokenizer_splits_digits_only_where_the_file_says_so(tmp_path: Path) -> None:
    from tokenizers import Tokenizer

    ids = gguf_samples.tokens().index
    for pre, expected in (("smollm", [ids("1"), ids("2")]), ("gpt-2", [ids("12")])):
        folder = converted(write_gguf(tmp_path / f"{pre}.gguf", pre=pre))
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        assert tokenizer.encode("12").ids == expected
        assert tokenizer.encode("hello<|im_end|>").ids == [ids("hello"), ids("<|im_end|>")]
