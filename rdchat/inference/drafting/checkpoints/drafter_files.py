"""Writes a drafter's folder: `config.json`, `model.safetensors` and `card.md`, the configuration last."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import mlx.core as mx

from rdchat.files.atomic_file import atomic_file, make_folder
from rdchat.inference.models.model_files import BINDING, TargetBinding

CONFIG, WEIGHTS, CARD = "config.json", "model.safetensors", "card.md"


@dataclass(frozen=True, slots=True)
class PublishedDrafter:
    """A drafter in a published layout, ready to write.

    Attributes:
        config: Content of `config.json`.
        tensors: Its weights, in the precision to store, and its lists of tokens.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, mx.array]

    def bound_to(self, target: TargetBinding) -> "PublishedDrafter":
        """Return it with the target it was trained for in its configuration."""
        return PublishedDrafter({**self.config, BINDING: {"target": asdict(target)}}, self.tensors)

    def in_half_precision(self) -> "PublishedDrafter":
        """Return it with float16 weights."""
        floats = {name for name, tensor in self.tensors.items() if mx.issubdtype(tensor.dtype, mx.floating)}
        halved = {name: self.tensors[name].astype(mx.float16) for name in floats}
        return PublishedDrafter(self.config, {**self.tensors, **halved})


def write_drafter(folder: Path, drafter: PublishedDrafter, card: str) -> None:
    """Write a drafter. Its configuration is written last, so that only complete drafters are found.

    Args:
        folder: Created if it does not exist.
        drafter: The drafter.
        card: Markdown, as `training.run.card` makes it.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be written.
    """
    make_folder(folder)
    # The temporary files replace the real ones from the last to the first.
    with (
        atomic_file(folder / CONFIG) as config,
        atomic_file(folder / CARD) as text,
        atomic_file(folder / WEIGHTS) as weights,
    ):
        config.write_text(json.dumps(drafter.config, indent=2) + "\n", encoding="utf-8")
        text.write_text(card, encoding="utf-8")
        mx.save_safetensors(str(weights), dict(drafter.tensors), {"format": "mlx"})
        # An older configuration does not describe the new weights.
        (folder / CONFIG).unlink(missing_ok=True)


def read_own_drafter(folder: Path) -> PublishedDrafter:
    """Return a drafter that `write_drafter` has just written; `drafter_folder` reads other people's files."""
    tensors = mx.load(str(folder / WEIGHTS))
    assert isinstance(tensors, dict)
    return PublishedDrafter(json.loads((folder / CONFIG).read_bytes()), tensors)
