"""Trees, random weights and files of the golden scripts."""

import json
from pathlib import Path
from typing import Any

import numpy as np

# Tokens, or places among the candidates, and parents. Levels of 2, 3 and 2 nodes.
TREE = ([3, 7, 11, 5, 5, 9, 2], [-1, -1, 0, 0, 1, 2, 4])


def path_to(node: int, parents: list[int]) -> list[int]:
    """Return the nodes from below the root to this one."""
    above = path_to(parents[node], parents) if parents[node] >= 0 else []
    return [*above, node]


def draw(weights: Any, middle: float, generator: Any) -> None:
    """Give a tensor random values around `middle` that 16 bits hold exactly."""
    import torch  # noqa: PLC0415  mlx-vlm's environment has none

    wide = 0.25 if weights.ndim > 1 else 0.15
    weights.copy_((middle + wide * torch.randn(weights.shape, generator=generator)).half().float())


def write_folder(folder: Path, config: dict[str, Any], tensors: dict[str, Any], expected: dict[str, Any]) -> None:
    """Write a model's config.json and its weights in 16 bits, and what a reference computes, if that is given."""
    from safetensors.torch import save_file  # noqa: PLC0415

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    stored = {name: value.half() if value.is_floating_point() else value for name, value in tensors.items()}
    save_file({name: value.contiguous() for name, value in stored.items()}, folder / "model.safetensors")
    if expected:
        np.savez_compressed(folder / "expected.npz", **{name: value.numpy() for name, value in expected.items()})
    print(f"{folder.name}: {sum(path.stat().st_size for path in folder.glob('*.*')) / 1000:.0f} kB")
