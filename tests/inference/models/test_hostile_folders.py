"""Model folders made to hang or fill the memory: each gives a message at once."""

import json
import os
import resource
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
import pytest

from rdchat import host
from rdchat.errors import ModelError
from rdchat.files import foreign_files
from rdchat.inference.models.model_config import check_sizes
from rdchat.inference.models.model_files import check_model_folder, resolve_model
from rdchat.inference.models.safetensors_file import StoredTensor
from tests.grids import grid, share
from tests.inference.families import CHAINS, COMMON, TREES, network_of
from tests.inference.model_folders import change_config, refusal, rewrite_header, save_model
from tests.time_limits import at_most

OPENED = [
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "tokenizer.model",
    "merges.txt",
    "chat_template.jinja",
    "hf_quant_config.json",
    "model.safetensors",
    "model.safetensors.index.json",
    "model-2.safetensors",
    "strange.tiktoken",
    "some_other.json",
]


def listen(place: Path) -> None:
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(place.name)


KINDS: dict[str, tuple[Callable[[Path], object], str]] = {
    "pipe": (os.mkfifo, "is a named pipe, not a file."),
    "link to a device": (lambda place: place.symlink_to("/dev/zero"), "is a device, not a file."),
    "link to the kernel's files": (lambda place: place.symlink_to("/proc/kmsg"), "is a system file."),
    "socket": (listen, "is a socket, not a file."),
    "link to nowhere": (lambda place: place.symlink_to("gone"), "it is a broken link."),
    "link to itself": (lambda place: place.symlink_to(place.name), "Too many levels of symbolic links."),
}


@pytest.mark.parametrize("name", share(OPENED, 3))
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_file_is_never_opened(folder: Path, name: str, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A named pipe hung the window for ever; /dev/zero read 7.5 GB."""
    if kind == "link to the kernel's files" and not Path("/proc/kmsg").exists():
        pytest.skip("there is no /proc")
    monkeypatch.chdir(folder)  # the name of a socket is short
    (folder / name).unlink(missing_ok=True)
    make, words = KINDS[kind]
    make(folder / name)
    with at_most(60):
        assert words in refusal(folder).message
        assert str(folder / name) in refusal(folder).message


def test_a_folder_in_a_files_place(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.json").mkdir()
    assert refusal(folder).message == f"{folder / 'tokenizer.json'} is a folder, not a file."


def test_templates_of_other_names_are_looked_at_too(folder: Path) -> None:
    (folder / "additional_chat_templates").mkdir()
    os.mkfifo(folder / "additional_chat_templates" / "tools.jinja")
    with at_most(60):
        assert "tools.jinja is a named pipe" in refusal(folder).message


def test_the_hub_caches_links_into_its_blobs_are_fine(folder: Path, tmp_path: Path) -> None:
    blobs = tmp_path / "blobs"
    snapshot = tmp_path / "snapshots" / "main"
    folder.rename(blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(f"../../blobs/{path.name}")
    assert check_model_folder(snapshot).architecture == "llama"


def test_names_of_models_that_are_no_files(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "model.gguf")
    os.mkfifo(tmp_path / "config.json")
    with at_most(60):
        with pytest.raises(ModelError, match=r"model\.gguf is a named pipe"):
            resolve_model(str(tmp_path / "model.gguf"))
        assert "config.json is a named pipe" in refusal(resolve_model(str(tmp_path))).message


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja"])
def test_files_above_the_size_of_their_kind_are_not_read(folder: Path, name: str) -> None:
    with (folder / name).open("ab") as file:
        file.truncate(2**40)  # which takes no room
    with at_most(60):
        assert f"{folder / name} is too large: 1,099.5 GB" in refusal(folder).message


def test_a_folder_of_very_many_files(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_files, "MAX_ENTRIES", 100)
    for number in range(101):
        (folder / f"{number}.json").touch()
    assert refusal(folder).message == f"{folder} has more than 100 files, so it is not a model folder."


def test_shards_are_looked_for_and_not_enumerated(folder: Path) -> None:
    """The name alone had a list of 10**15 others made."""
    (folder / "model.safetensors").rename(folder / "model-1-of-999999999999999.safetensors")
    with at_most(60):
        expected = f"{folder} is incomplete: it has 1 of 999,999,999,999,999 files of weights."
        assert refusal(folder).message == expected


@pytest.mark.parametrize("name", ["../../secret.safetensors", "/etc/passwd", "a/b.safetensors", "x.py", "y" * 300])
def test_an_index_that_names_files_elsewhere(folder: Path, name: str) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": name}}))
    assert "has an invalid file name" in refusal(folder).message


@pytest.mark.parametrize("name", ["config.json", "generation_config.json", "model.safetensors.index.json"])
@pytest.mark.parametrize(
    ("text", "words"),
    [
        (b"", "it is empty."),
        (b"\xff\xfe{}", "it is not UTF-8 text."),
        (b"{", "it is not JSON"),
        (b"[" * 100_000, "it is nested too deeply."),
        (b'{"a": ' + b"9" * 5000 + b"}", "it is not JSON"),
    ],
)
def test_json_that_cannot_be_read(folder: Path, name: str, text: bytes, words: str) -> None:
    (folder / name).write_bytes(text)
    message = refusal(folder).message
    assert message.startswith(f"{folder / name} is damaged: ")
    assert words in message


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"num_hidden_layers": 10**6, "max_position_embeddings": 1},
            "num_hidden_layers 1,000,000: the weights have 2",
        ),
        ({"text_config": {"num_hidden_layers": 3}}, "num_hidden_layers 3: the weights have 2 layers"),
        ({"n_layer": 2**40}, "n_layer 1,099,511,627,776"),
        (
            {"num_nextn_predict_layers": 10**9},
            "num_nextn_predict_layers 1,000,000,000: a model has at most 1,000 layers",
        ),
        ({"layer_types": ["full_attention"] * 10**5}, "layer_types 100,000: a model has at most 1,000 layers"),
        ({"hybrid_override_pattern": "M" * 10**6}, "hybrid_override_pattern 1,000,000"),
        ({"num_loops": 10**9}, "num_loops 1,000,000,000"),
        ({"hidden_size": 2**31}, "hidden_size 2,147,483,648: the weights have fewer values"),
        ({"vocab_size": 10**30}, "vocab_size a number of many digits: the weights have fewer values"),
        ({"ffn_config": {"moe_num_experts": 10**6}}, "moe_num_experts 1,000,000: no model has that many"),
        ({"num_key_value_heads": [4, 10**9]}, "num_key_value_heads 1,000,000,000"),
        ({"num_attention_heads": 0}, "num_attention_heads 0: it must be at least 1"),
        ({"hidden_size": -1}, "hidden_size -1: it must be at least 1"),
        ({"partial_rotary_factor": 1e9}, "partial_rotary_factor 1,000,000,000.0: it must be between 0 and 1"),
        ({"rope_parameters": {"partial_rotary_factor": 1e300}}, "partial_rotary_factor a number of many digits"),
        ({"quantization": {"bits": 4, "group_size": 10**12}}, "The model's quantisation is unknown"),
    ],
)
def test_counts_and_sizes_that_the_weights_do_not_account_for(
    folder: Path, changes: dict[str, Any], words: str
) -> None:
    """A million layers with a context of 1 were made in memory before the weights were looked at."""
    change_config(folder, **changes)
    with at_most(60):
        assert words in refusal(folder).message


def test_a_config_nested_less_than_the_parser_minds(folder: Path) -> None:
    deep: dict[str, Any] = {}
    for _ in range(100):
        deep = {"deeper": deep}
    change_config(folder, deep=deep)
    assert refusal(folder).message == "The model's config.json is damaged: it is nested too deeply."


NORM = "model.norm.weight"  # of 256 float16


@pytest.mark.parametrize(
    "entry",
    [
        {"shape": [-256]},
        {"shape": [256.0]},
        {"shape": [True]},
        {"shape": [1] * 1000},
        {"shape": [2**31 - 1] * 30},
        {"shape": None},
        {"data_offsets": [-512, 0]},
        {"data_offsets": [0, 2**63]},
        {"data_offsets": [512, 0]},
        {"data_offsets": [0]},
        {"data_offsets": None},
        {"dtype": 3},
        {"dtype": "F64"},
        None,
    ],
)
def test_tensors_that_cannot_be(folder: Path, entry: Any) -> None:
    def change(header: dict[str, Any]) -> None:
        header[NORM] = header[NORM] | entry if isinstance(entry, dict) else entry

    rewrite_header(folder, change)
    assert f"is damaged: {NORM} has an impossible shape or position." in refusal(folder).message


def test_tensors_that_overlap(folder: Path) -> None:
    rewrite_header(folder, lambda header: header[NORM].update(data_offsets=[0, 512]))
    assert "does not follow the tensor before it." in refusal(folder).message


def test_a_header_of_other_kinds(folder: Path) -> None:
    path = folder / "model.safetensors"
    for text in ("[]", "33", '{"a": {}}', "[" * 100_000, '{"\\ud800": 3}'):
        path.write_bytes(struct.pack("<Q", len(text)) + text.encode())
        assert refusal(folder).message.startswith(f"The header of {path} is damaged: ")


def test_a_header_longer_than_any_models(folder: Path) -> None:
    path = folder / "model.safetensors"
    with path.open("wb") as file:
        file.write(struct.pack("<Q", 2**40))
        file.truncate(2**41)
    with at_most(60):
        assert refusal(folder).message == f"The header of {path} is too long: {2**40:,} bytes."


def test_weights_of_nothing(folder: Path) -> None:
    mx.save_safetensors(str(folder / "model.safetensors"), {f"model.layers.{i}.w": mx.zeros((0, 8)) for i in range(9)})
    assert refusal(folder).message == f"{folder} has no weights: its files are empty."


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({"dtype": "F32"}, "The quantised weights of model.layers.0.mlp.up_proj are stored as F32 instead of U32."),
        ({"shape": [256, 64]}, "The scales of model.layers.0.mlp.up_proj do not fit its quantised weights."),
        ({"shape": [16384]}, "The scales of model.layers.0.mlp.up_proj do not fit its quantised weights."),
    ],
)
def test_packed_weights_that_say_they_are_something_else(folder: Path, entry: dict[str, Any], words: str) -> None:
    rewrite_header(folder, lambda header: header["model.layers.0.mlp.up_proj.weight"].update(entry))
    assert refusal(folder).message == words


@pytest.mark.parametrize(("family", "quantize"), grid([*TREES, *CHAINS], [False, True]))
def test_no_real_model_is_refused(tmp_path: Path, small_model: Path, family: str, quantize: bool) -> None:
    name, options = (TREES | CHAINS)[family]
    if quantize and name == "afm7":
        pytest.skip("mlx-lm cannot quantise it")
    network = network_of(name, options)
    config = {**COMMON, "model_type": name, **options}
    if "text_config" in config:
        config["text_config"] = {**config["text_config"], "vocab_size": config["vocab_size"]}
    if quantize:
        fits = lambda _, module: hasattr(module, "to_quantized") and module.weight.shape[-1] % 32 == 0  # noqa: E731
        nn.quantize(network, 32, 4, class_predicate=fits)
        config["quantization"] = {"group_size": 32, "bits": 4}
    folder = save_model(tmp_path / "model", small_model, network, config)
    assert check_model_folder(folder).sizes.parameters > 0


def test_layers_that_a_search_left_out_have_no_weights() -> None:
    tensors = {"model.layers.0.mlp.up_proj.weight": StoredTensor("F16", (4, 4), 32)}
    blocks = [{"attention": {"no_op": part}, "ffn": {"no_op": part}} for part in (False, True)]
    check_sizes({"num_hidden_layers": 2, "block_configs": blocks}, tensors)
    with pytest.raises(ModelError, match="the weights have 1 layers"):
        check_sizes({"num_hidden_layers": 3, "block_configs": blocks}, tensors)


LOOK = """
import sys
from pathlib import Path
from rdchat.errors import ModelError
from rdchat.inference.models.model_files import check_model_folder
try:
    check_model_folder(Path(sys.argv[1]))
except ModelError as error:
    print(error)
"""


@pytest.mark.slow
@pytest.mark.skipif(host.MACOS, reason="RLIMIT_AS cannot be set below what is mapped there")
def test_the_most_that_a_config_may_hold_takes_little_memory(folder: Path) -> None:
    (folder / "config.json").write_text("[" + "[]," * 2_700_000 + "[]]")  # 8 MB

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (2 * 2**30, 2 * 2**30))

    command = [sys.executable, "-c", LOOK, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, preexec_fn=limit, check=False)
    assert "has no model type" in done.stdout, done.stderr


@pytest.mark.skipif(host.MACOS, reason="names of files are text there")
def test_a_path_that_is_no_text_is_said(folder: Path) -> None:
    """MLX said `std::bad_cast`, of which the model was to be fetched again."""
    odd = folder.rename(folder.parent / os.fsdecode(b"odd\xff"))
    error = refusal(odd)
    assert "its path is not UTF-8 text" in error.message
    assert error.hint == "Rename the file or its folders."
