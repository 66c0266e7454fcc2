"""Models as a library lists them, without files behind them."""

from pathlib import Path

from rdchat.inference.api import Dtype, MachineMemory, MemoryRoom, ModelCard, ModelSizes

GB = 2**30
MEMORY = MachineMemory(True, 16 * GB, MemoryRoom(11 * GB, 10 * GB), GB)


def library_model(name: str, parameters: int = 1_000_000_000, **changed: object) -> ModelCard:
    """Return a 4-bit model of the hub's cache."""
    stored = parameters * 9 // 16
    fields: dict[str, object] = {
        "model": name,
        "origin": "Hugging Face",
        "path": Path("/models") / name,
        "family": "llama",
        "sizes": ModelSizes(parameters, stored, 4, Dtype.BFLOAT16, 32768, 131072),
        "quantization": "4-bit",
        "disk_bytes": stored,
        "repository": name,
        "tokens": "same",
    }
    return ModelCard(name, **{**fields, **changed})  # type: ignore[arg-type]
