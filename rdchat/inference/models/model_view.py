"""A view of a model folder for mlx-lm, which reads every `model*.safetensors` and refuses a byte order mark."""

import json
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rdchat.files.foreign_files import read_object
from rdchat.inference.models.model_files import ModelFiles

_CONFIGURATIONS = ("config.json", "generation_config.json", "hf_quant_config.json")


@contextmanager
def model_view(files: ModelFiles) -> Iterator[Path]:
    """Make a folder with links to the weights that count, and copies of the configurations.

    It lasts as long as the block; lazy arrays keep their files open.
    """
    with tempfile.TemporaryDirectory(prefix="rdchat-model-") as root:
        view = Path(root)
        for path in files.weights:
            (view / path.name).symlink_to(path.resolve())
        for path in (files.folder / name for name in _CONFIGURATIONS):
            if path.exists():
                (view / path.name).write_text(json.dumps(read_object(path)), encoding="utf-8")
        yield view
