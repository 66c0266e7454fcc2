"""EAGLE-3 checkpoints on disk: `config.json` and `model.safetensors`, checked against a target before they are read.

Nothing of what a checkpoint brings along is run: neither the modules that `auto_map` names nor pickles.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.files.foreign_files import check_file, read_json
from rdchat.inference.drafting.folders.eagle3_config import HINT, is_eagle3, read_eagle3_config
from rdchat.inference.drafting.heads.eagle3_head import BoundEagle3Head
from rdchat.inference.drafting.heads.eagle3_network import Eagle3Config, Eagle3Network
from rdchat.inference.drafting.heads.head import StoredHead
from rdchat.inference.models.safetensors_file import StoredTensor, read_header
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.target import LoadedModel

_CONFIG, _WEIGHTS, _PICKLE = "config.json", "model.safetensors", "pytorch_model.bin"
_MOST_CONFIG_BYTES = 2**20
_FLOATS, _IDS, _MARKS = {"F16", "BF16", "F32"}, {"I32", "I64"}, {"BOOL", "U8", "I32", "I64"}
_OFFSETS, _CHOSEN = "d2t", "t2d"  # of each candidate, its id less its place; of each token, whether it is a candidate
# Copies of the target's tables that only training needs, and what is computed from the configuration.
_LEFT_OUT = ("verifier_norm.weight", "verifier_lm_head.weight", "rotary_emb.inv_freq")


@dataclass(frozen=True, slots=True)
class StoredEagle3(StoredHead):
    """An EAGLE-3 drafter in memory.

    Attributes:
        network: Its weights.
        vocabulary: (candidates,) int32 ids of the tokens that it can draft, ascending.
    """

    network: Eagle3Network
    vocabulary: mx.array

    def bind(self, model: LoadedModel, bits: int | None = None) -> BoundEagle3Head:
        """See `StoredHead`.

        Args:
            model: The target.
            bits: 4 or 8 for a quantised copy of the weights; None for floats.
        """
        embeddings = TargetEmbeddings(model.network, model.info.vocabulary_size)
        return BoundEagle3Head(self.network, self.vocabulary, embeddings, bits)


def matches(config: Mapping[str, Any], names: Collection[str]) -> bool:
    """Tell whether a configuration and the names of tensors are an EAGLE-3 drafter's, whatever it is called."""
    return is_eagle3(config, names)


def check(folder: Path, model: LoadedModel) -> Eagle3Config:
    """Check a drafter's configuration and the header of its weights against the target; the weights are not read.

    Raises:
        ModelError: If a file is missing or damaged, or if something does not fit; the message says what.
    """
    return _check(folder, model)[0]


def load(folder: Path, model: LoadedModel) -> StoredEagle3:
    """Read a drafter and check it against the target.

    Raises:
        ModelError: As `check` does, or if its weights are not finite or its tokens none of the target's.
    """
    config, names = _check(folder, model)
    stored = cast("dict[str, mx.array]", mx.load(str(folder / _WEIGHTS)))
    tensors = {name: stored[stored_name] for name, stored_name in names.items()}
    ids = _candidates(folder, config, tensors.pop(_OFFSETS, None), tensors.pop(_CHOSEN, None))
    for name, tensor in tensors.items():
        if not mx.all(mx.isfinite(tensor)).item():
            raise ModelError(f"{name} of the drafter {folder.name} holds numbers that are not finite.", HINT)
    order = np.argsort(ids)
    if (np.diff(order) != 1).any():  # a search takes candidates in ascending order
        for name in ("lm_head.weight", "lm_head.bias"):
            if name in tensors:
                tensors[name] = tensors[name][mx.array(order)]
    network = Eagle3Network(config)
    network.load_weights(list(tensors.items()))
    return StoredEagle3(network, mx.array(ids[order], mx.int32))


def _check(folder: Path, model: LoadedModel) -> tuple[Eagle3Config, dict[str, str]]:
    """Return what is described, and the tensors' names in the file by those of `Eagle3Network`."""
    found = read_json(folder / _CONFIG, HINT, _MOST_CONFIG_BYTES)
    if not isinstance(found, dict):
        raise ModelError(f"{folder / _CONFIG} is damaged: it describes no drafter.", HINT)
    if not (folder / _WEIGHTS).exists() and (folder / _PICKLE).exists():
        raise ModelError(
            f"The weights of the drafter {folder.name} are a pickle, {_PICKLE}, which could run any program.",
            f"Convert them to {_WEIGHTS}, or get a drafter that comes with it.",
        )
    check_file(folder / _WEIGHTS, HINT)
    header = read_header(folder / _WEIGHTS)
    names = {_own_name(name): name for name in header if not name.endswith(_LEFT_OUT)}
    tensors = {name: header[stored] for name, stored in names.items()}
    depth = len(getattr(model.network, "layers", ()))
    config = read_eagle3_config(folder.name, found, tensors, depth)
    _check_target(folder, config, model)
    _check_tensors(folder, config, tensors)
    return config, names


def _own_name(name: str) -> str:
    return name.replace("midlayer.", "layers.0.", 1) if name.startswith("midlayer.") else name


def _check_target(folder: Path, config: Eagle3Config, model: LoadedModel) -> None:
    """Check sizes against the target's."""
    own = model.info
    width = TargetEmbeddings(model.network, own.vocabulary_size).width
    sizes = [
        ("reads hidden states of width", config.target_width, "has those of width", width),
        ("is for a vocabulary of", config.vocabulary_size, "has one of", own.vocabulary_size),
    ]
    if config.shares_tables:
        sizes.append(("takes embeddings and output rows of width", config.hidden_size, "has those of width", width))
    for wanted, size, has, found in sizes:
        if size != found:
            raise ModelError(f"The drafter {folder.name} {wanted} {size:,}, and {own.name} {has} {found:,}.", HINT)
    if config.candidates > config.vocabulary_size:
        raise ModelError(f"The drafter {folder.name} drafts tokens that {own.name} does not have.", HINT)


def _check_tensors(folder: Path, config: Eagle3Config, tensors: Mapping[str, StoredTensor]) -> None:
    """Check that the tensors are those of the architecture, by name, shape and type."""
    needed = config.shapes()
    if config.candidates < config.vocabulary_size:
        needed |= {_OFFSETS: (config.candidates,), "lm_head.weight": (config.candidates, config.hidden_size)}
    allowed = needed | {_OFFSETS: (config.candidates,), _CHOSEN: (config.vocabulary_size,)}
    for name in sorted(needed.keys() | tensors.keys()):
        tensor = tensors.get(name)
        if tensor is None:
            raise ModelError(f"The drafter {folder.name} is incomplete: {name} is missing.", HINT)
        if name not in allowed:
            what = f"The drafter {folder.name} holds {name[:100]}, which its architecture does not have."
            raise ModelError(what, HINT)
        if tensor.shape != allowed[name]:
            what = f"{name} of the drafter {folder.name} has the shape {tensor.shape} instead of {allowed[name]}."
            raise ModelError(what, HINT)
        if tensor.dtype not in {_OFFSETS: _IDS, _CHOSEN: _MARKS}.get(name, _FLOATS):
            raise ModelError(f"{name} of the drafter {folder.name} is stored as {tensor.dtype[:20]}.", HINT)


def _candidates(
    folder: Path, config: Eagle3Config, offsets: mx.array | None, chosen: mx.array | None
) -> npt.NDArray[np.int64]:
    """Return (candidates,) ids of the tokens that are drafted, in the order of the output rows."""
    places = np.arange(config.candidates)
    ids = places if offsets is None else places + np.array(offsets).astype(np.int64)
    if ids.min() < 0 or ids.max() >= config.vocabulary_size or len(np.unique(ids)) != len(ids):
        raise ModelError(f"d2t of the drafter {folder.name} names tokens twice, or such as do not exist.", HINT)
    reduced = len(ids) < config.vocabulary_size
    if reduced and chosen is not None and not np.array_equal(np.flatnonzero(np.array(chosen)), np.sort(ids)):
        raise ModelError(f"d2t and t2d of the drafter {folder.name} do not name the same tokens.", HINT)
    return ids
