"""A model's needs as they are told before its download are those of the files that come."""

import json
from collections import Counter
from pathlib import Path

import pytest

from rdchat.hub import HubFile, RepositoryFiles
from rdchat.hub.hub_model import parse_model
from rdchat.inference.api import Dtype, MachineMemory, MemoryRoom, ModelSizes
from rdchat.inference.library.folder_facts import read_facts
from rdchat.services.models.fit import Machine, sizes_of_files, sizes_read
from tests.inference.model_folders import save_header

GB = 2**30
LAYERS = 36  # Qwen3 8B
HIDDEN = 4096
CONFIG = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "intermediate_size": 12288,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "vocab_size": 151936,
    "max_position_embeddings": 40960,
}
LAYER = {f"model.layers.{layer}.mlp.up_proj": 47104 for layer in range(LAYERS)}  # its matrices in one
ROWS = {"model.embed_tokens": 151936, "lm_head": 151936} | LAYER


def write_folder(folder: Path, bits: int | None, floats: str) -> Counter[str]:
    """Write a model's headers with nothing behind them but a hole, and return how many numbers of each type it has."""
    shapes: dict[str, tuple[str, tuple[int, int]]] = {}
    for name, rows in ROWS.items():
        if bits is None:
            shapes[f"{name}.weight"] = floats, (rows, HIDDEN)
        else:
            shapes[f"{name}.weight"] = "U32", (rows, HIDDEN * bits // 32)
            shapes |= {f"{name}.{part}": (floats, (rows, HIDDEN // 64)) for part in ("scales", "biases")}
    counts = Counter[str]()
    for kind, (rows, columns) in shapes.values():
        counts[kind] += rows * columns
    folder.mkdir()
    save_header(folder / "model.safetensors", shapes)
    quantized = {} if bits is None else {"quantization": {"group_size": 64, "bits": bits}}
    (folder / "config.json").write_text(json.dumps(CONFIG | quantized))
    (folder / "tokenizer.json").write_text("{}")
    return counts


def agree(before: ModelSizes | None, here: ModelSizes | None) -> None:
    """The needs differ by little in every precision, on both devices; so do Macs' verdicts not at all."""
    assert before is not None
    assert here is not None
    for on_gpu in (True, False):
        for dtype in (Dtype.AUTO, Dtype.FLOAT16, Dtype.EIGHT_BIT, Dtype.FOUR_BIT):
            for memory in (8, 16, 24, 36, 64, 128):
                room = MemoryRoom(int(memory * GB * 0.7), memory * GB // 2)
                machine = Machine(MachineMemory(on_gpu, memory * GB, room, 0), dtype)
                told = machine.need(before)
                needed = machine.need(here)
                assert told.total_bytes == pytest.approx(needed.total_bytes, rel=0.03), (on_gpu, dtype)
                assert machine.fit(before) is machine.fit(here), (on_gpu, dtype, memory)


@pytest.mark.parametrize(("bits", "floats"), [(None, "BF16"), (None, "F32"), (4, "BF16"), (8, "F16")])
def test_safetensors(tmp_path: Path, bits: int | None, floats: str) -> None:
    counts = write_folder(tmp_path / "model", bits, floats)
    name = f"org/model-{bits}bit" if bits else "org/model"
    found = parse_model(name, {"config": {"model_type": "llama"}, "safetensors": {"parameters": counts}})
    here = read_facts(tmp_path / "model")
    assert not here.problem
    agree(sizes_read(found), here.sizes)
    size = (tmp_path / "model" / "model.safetensors").stat().st_size
    files = (HubFile("model.safetensors", size, "a" * 64), HubFile("config.json", 400, "b" * 40))
    agree(sizes_of_files(found, RepositoryFiles("org/model", "main", "c" * 40, files, ())), here.sizes)
