"""A hash of a model's weights and tokenizer, by which a drafter identifies its model."""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rdchat.errors import ModelError
from rdchat.files.foreign_files import check_file, read_bytes
from rdchat.inference.api.events import ModelInfo
from rdchat.inference.models.safetensors_file import MOST_HEADER_BYTES

BINDING = "rdchat"  # key in a published layout's configuration for the target it is bound to
_SAMPLES, _SAMPLE_BYTES = 256, 4096  # hashed samples of each weight file: 1 MB, spread evenly


@dataclass(frozen=True, slots=True)
class TargetBinding:
    """The model that a drafter was trained for: its name for people, mlx-lm's model type, and `target_hash`."""

    name: str
    architecture: str
    hash: str

    @classmethod
    def of(cls, info: ModelInfo) -> "TargetBinding":
        """Return the binding to a loaded model."""
        return cls(info.name, info.architecture, target_hash(info.path))


def target_hash(model_folder: Path) -> str:
    """Return a hash of a model's stored weights and tokenizer, whatever precision they are loaded in.

    It covers names, types, shapes and offsets of all tensors, 1 MB of each weight file, and the whole `tokenizer.json`.
    It takes milliseconds, and distinguishes a fine-tuned model from its base.

    Raises:
        ModelError: If a file cannot be read.
    """
    digest = hashlib.sha256()
    try:
        for path in sorted(model_folder.glob("model*.safetensors")):  # the files that mlx-lm reads
            check_file(path)
            for block in _samples(path):
                digest.update(block)
        tokenizer = model_folder / "tokenizer.json"
        digest.update(read_bytes(tokenizer) if tokenizer.exists() else b"")
    except OSError as error:
        raise ModelError(f"{error.filename} cannot be read: {error.strerror}.", "Check the model's folder.") from error
    return digest.hexdigest()


def _samples(path: Path) -> Iterator[bytes]:
    size = path.stat().st_size
    with path.open("rb") as file:
        length = file.read(8)
        # In a damaged file this may be any number.
        header = min(int.from_bytes(length, "little"), size, MOST_HEADER_BYTES)
        yield length + file.read(header)
        for sample in range(_SAMPLES):
            file.seek(max(size - _SAMPLE_BYTES, 0) * sample // (_SAMPLES - 1))
            yield file.read(_SAMPLE_BYTES)
