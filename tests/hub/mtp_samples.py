"""A model with MTP layers at the hub, in two files of weights, and its quantised version on this machine."""

import asyncio
import json
import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rdchat import paths
from rdchat.hub import CachedRepository, Tokens, find_endpoint, repository_of
from rdchat.hub.downloads.download import Download, RunningDownload
from rdchat.hub.downloads.repository_download import RepositoryDownload
from rdchat.inference.api import ModelCard
from rdchat.inference.library.original_source import IncompleteModel, make_part
from rdchat.inference.models.safetensors_file import read_header
from tests.hub.downloads.downloading import LIMITS
from tests.hub.hub_server import HubServer

ORIGINAL = "authors/Tiny-Next"
TARGET = "some-org/Tiny-Next-4bit"
CONFIG = {"model_type": "qwen3_next", "hidden_size": 8, "vocab_size": 40, "num_hidden_layers": 2}
SHARDS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")
_BYTES = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "U32": 4}
_WIDE = 40_000  # of a tensor that is long enough for kills and cuts

Tensors = Mapping[str, tuple[str, tuple[int, ...]]]
TRUNK: Tensors = {"model.embed_tokens.weight": ("BF16", (40, 8)), "model.layers.1.mlp.up_proj.weight": ("BF16", (9, 8))}
FIRST: Tensors = {
    "model.norm.weight": ("BF16", (8,)),
    "mtp.fc.weight": ("BF16", (8, 16)),
    "mtp.layers.0.mlp.gate.bias": ("F32", (3,)),
    "mtp.layers.0.mlp.up_proj.weight": ("BF16", (_WIDE, 8)),
    "mtp.pre_fc_norm_embedding.weight": ("BF16", (8,)),
    "mtp.pre_fc_norm_hidden.weight": ("BF16", (8,)),
    "mtp.embed_tokens.weight": ("BF16", (40, 8)),
}
SECOND: Tensors = {
    "lm_head.weight": ("BF16", (40, 8)),
    "mtp.layers.0.mlp.down_proj.weight": ("BF16", (8, _WIDE)),
    "model.layers.0.mlp.up_proj.weight": ("BF16", (9, 8)),
    "mtp.norm.weight": ("BF16", (8,)),
}
FETCHED = (
    "fc",
    "layers.0.mlp.gate.bias",
    "layers.0.mlp.up_proj",
    "pre_fc_norm_embedding",
    "pre_fc_norm_hidden",
    "layers.0.mlp.down_proj",
    "norm",
)


def packed(header: Mapping[str, Any] | bytes, data: bytes = b"") -> bytes:
    """Return a safetensors file."""
    raw = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(raw).to_bytes(8, "little") + raw + data


def header_of(tensors: Tensors) -> tuple[dict[str, Any], int]:
    """Return the header for tensors, and the size of their bytes."""
    header = {}
    end = 0
    for name, (dtype, shape) in tensors.items():
        size = _BYTES[dtype]
        for length in shape:
            size *= length
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [end, end + size]}
        end += size
    return header, end


def stored(tensors: Tensors, seed: int = 0) -> bytes:
    """Return a file with random tensors."""
    header, size = header_of(tensors)
    return packed(header, random.Random(seed).randbytes(size))


def tensors_of(file: bytes) -> dict[str, tuple[str, list[int], bytes]]:
    """Return type, shape and bytes of each tensor of a file."""
    start = 8 + int.from_bytes(file[:8], "little")
    header = json.loads(file[8:start])
    header.pop("__metadata__", None)
    return {
        name: (each["dtype"], each["shape"], file[start + each["data_offsets"][0] : start + each["data_offsets"][1]])
        for name, each in header.items()
    }


@dataclass
class Original:
    """The original's files, to be changed before they are put at the hub."""

    config: dict[str, Any] = field(default_factory=lambda: dict(CONFIG))
    shards: dict[str, bytes] = field(
        default_factory=lambda: {
            SHARDS[0]: stored({**TRUNK, **FIRST}, 1),
            SHARDS[1]: stored(SECOND, 2),
        }
    )
    places: dict[str, str] = field(
        default_factory=lambda: dict.fromkeys({**TRUNK, **FIRST}, SHARDS[0]) | dict.fromkeys(SECOND, SHARDS[1])
    )

    @property
    def files(self) -> dict[str, bytes]:
        index = {"metadata": {}, "weight_map": self.places}
        texts = {"config.json": self.config, "model.safetensors.index.json": index}
        return {name: json.dumps(text).encode() for name, text in texts.items()} | self.shards

    @property
    def layers(self) -> dict[str, tuple[str, list[int], bytes]]:
        """The tensors to fetch."""
        found = {name: each for shard in self.shards.values() for name, each in tensors_of(shard).items()}
        return {
            name: each for name, each in found.items() if name.removeprefix("mtp.").removesuffix(".weight") in FETCHED
        }

    def put(self, hub: HubServer, name: str = ORIGINAL, **facts: Any) -> str:
        """Put it at the hub; return the commit."""
        return hub.add(name, self.files, **facts)


def make_target(folder: Path, card: str = "", **config: Any) -> Path:
    """Make the quantised version's folder."""
    folder.mkdir(parents=True)
    settings = {**CONFIG, "quantization": {"bits": 4, "group_size": 32}, **config}
    (folder / "config.json").write_text(json.dumps(settings))
    (folder / "model.safetensors").write_bytes(stored({"model.norm.weight": ("BF16", (8,))}, 3))
    (folder / "tokenizer.json").write_text("{}")
    (folder / "README.md").write_text(card)
    return folder


def target_of(folder: Path, name: str = TARGET) -> IncompleteModel:
    """Read the quantised version, as a loaded model."""
    return IncompleteModel.read_model(ModelCard(name, name, "", folder))


def drafter_folder() -> Path:
    """Return the one folder among rdchat's drafters."""
    (folder,) = paths.drafters_dir().iterdir()
    return folder


def place() -> CachedRepository:
    """Return where the original's files are downloaded to."""
    return repository_of(ORIGINAL)


def check_layers(folder: Path, original: Original) -> None:
    """Check that a folder has the original's layers, and nothing else, and that the downloaded files are gone."""
    assert not place().folder.exists()
    assert {path.name for path in folder.iterdir()} == {"config.json", "model.safetensors", "card.md"}
    read_header(folder / "model.safetensors")
    assert tensors_of((folder / "model.safetensors").read_bytes()) == original.layers


def run(download: Download, **limits: Any) -> Path:
    """Run or resume a download in this process."""
    access = Tokens().access(find_endpoint())
    running = RunningDownload(download)
    repository = repository_of(download.repository)
    all_limits = replace(LIMITS, **limits)
    return asyncio.run(
        RepositoryDownload(repository, download, access, all_limits, running, make_part).fetch_repository()
    )
