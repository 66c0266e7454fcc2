"""A model of the hub has the same facts before the download as afterwards."""

import json
import struct
from collections import Counter
from pathlib import Path

import pytest

from rdchat.hub.hub_model import parse_model
from rdchat.hub.known_files import HubFile, RepositoryFiles
from rdchat.inference.api import Dtype, MachineMemory, MemoryRoom, ModelSizes
from rdchat.inference.library.model_library import read_facts
from rdchat.services.models.fit import Machine, sizes_of_files, sizes_read

GB = 2**30
LAYERS = 36  # Qwen3 8B
HIDDEN = 4096
INNER = 12288
KV = 1024
VOCABULARY = 151936
CONFIG = {
    "model_type": "llama",
    "hidden_size": HIDDEN,
    "num_hidden_layers": LAYERS,
    "intermediate_size": INNER,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 40960,
}
PARTS = {
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KV, HIDDEN),
    "self_attn.v_proj": (KV, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (INNER, HIDDEN),
    "mlp.up_proj": (INNER, HIDDEN),
    "mlp.down_proj": (HIDDEN, INNER),
}
MATRICES = {"model.embed_tokens": (VOCABULARY, HIDDEN), "lm_head": (VOCABULARY, HIDDEN)} | {
    f"model.layers.{layer}.{name}": shape for layer in range(LAYERS) for name, shape in PARTS.items()
}
WIDTHS = {"F32": 4, "BF16": 2, "F16": 2, "U32": 4}


def write_folder(folder: Path, bits: int | None, floats: str) -> tuple[Path, dict[str, int]]:
    """Write a model's headers with nothing behind them but a hole, and return how many numbers of each type it has."""
    shapes: dict[str, tuple[str, list[int]]] = {}
    for name, (rows, columns) in MATRICES.items():
        if bits is None:
            shapes[f"{name}.weight"] = floats, [rows, columns]
        else:
            shapes[f"{name}.weight"] = "U32", [rows, columns * bits // 32]
            shapes |= {f"{name}.{part}": (floats, [rows, columns // 64]) for part in ("scales", "biases")}
    header: dict[str, object] = {}
    counts = Counter[str]()
    end = 0
    for name, (kind, (rows, columns)) in shapes.items():
        size = rows * columns * WIDTHS[kind]
        header[name] = {"dtype": kind, "shape": [rows, columns], "data_offsets": [end, end + size]}
        counts[kind] += rows * columns
        end += size
    folder.mkdir()
    written = json.dumps(header).encode()
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(written)) + written)
        file.truncate(8 + len(written) + end)
    quantized = {} if bits is None else {"quantization": {"group_size": 64, "bits": bits}}
    (folder / "config.json").write_text(json.dumps(CONFIG | quantized))
    (folder / "tokenizer.json").write_text("{}")
    return folder / "model.safetensors", dict(counts)


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
    weights, counts = write_folder(tmp_path / "model", bits, floats)
    told = {
        "id": f"org/model-{bits}bit" if bits else "org/model",
        "config": {"model_type": "llama"},
        "safetensors": {"parameters": counts},
    }
    found = parse_model(told["id"], told)
    here = read_facts(tmp_path / "model")
    assert not here.problem
    agree(sizes_read(found), here.sizes)
    files = (HubFile("model.safetensors", weights.stat().st_size, "a" * 64), HubFile("config.json", 400, "b" * 40))
    agree(sizes_of_files(found, RepositoryFiles("org/model", "main", "c" * 40, files, ())), here.sizes)
