"""Reads the multi-token-prediction (MTP) layers that a model was published with; mlx-lm drops them.

They lie in the model's own weights, in a file or folder `mtp` beside these, or in a folder that holds nothing else but
the model's `config.json`. Three namings are known:

    mtp.*                   Qwen3-Next, 3.5 and 3.6: `fc`, `pre_fc_norm_*`, `norm` and `layers.0.*`; without `mtp.` in
                            folders whose model type ends in `_mtp`
    model.layers.N.*        DeepSeek-V3 and V3.2, GLM-4.5 and later, after the last of N layers: `eh_proj`, `enorm`,
                            `hnorm`, `shared_head.norm`, and copies of the model's tables
    model.mtp_layers.0.*    MiMo-7B: `input_proj`, which takes the hidden state first, `token_layernorm` and so on

The rest are a decoder layer's tensors, which the model's own `sanitize` brings into mlx-lm's form. Other families are
refused by name. Tested with random weights against transformers' layers: no published ones were at hand.
"""

import inspect
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import CacheList, KVCache, make_prompt_cache

from rdchat.errors import DoesNotFitError, ModelError
from rdchat.files import entries_of, read_errors
from rdchat.inference.device import memory_room
from rdchat.inference.drafting.checkpoints.checkpoint import (
    FLOATS,
    NEWER_HINT,
    OTHER_HINT,
    Checkpoint,
    Layout,
    plain_name,
)
from rdchat.inference.drafting.checkpoints.head_settings import Settings
from rdchat.inference.drafting.heads.head import HeadKind
from rdchat.inference.drafting.heads.mtp_head import READINGS, BoundMtpHead, MtpConfig, MtpNetwork, Weights
from rdchat.inference.models.model_config import (
    DEEPSEEK,
    MIMO,
    PLAIN,
    QWEN,
    first_int,
    is_bare,
    text_config,
    unreadable,
)
from rdchat.inference.models.safetensors_file import StoredTensor, read_header
from rdchat.inference.verification import LoadedModel, TargetEmbeddings
from rdchat.wording import size_text

_SIDE_FOLDER = "mtp"
# Ends of the projection's names in the three namings, and where `_Naming.locate` has it: every MTP layer has one.
_PROJECTIONS = ("eh_proj.weight", "fc.weight", "input_proj.weight")
_FIRST = (0, "eh_proj.weight")
# Parts of `MtpNetwork` besides the decoder layer.
_PARTS = ("eh_proj", "enorm", "hnorm", "norm")
# Where the mean of a norm's weights is lower, they count as stored without the 1 that is added to them.
_RAW_MEAN = 0.5
# Type of DeepSeek's 8-bit floats, the end of the name of their block scales, and the families whose `sanitize` in
# mlx-lm multiplies these scales in.
_FLOAT8 = "F8_E4M3"
_SCALES = "_scale_inv"
_FLOAT8_FAMILIES = {"deepseek_v3", "deepseek_v32", "glm_moe_dsa"}


@dataclass(frozen=True, slots=True)
class _Naming:
    """The tensors' names of a few families.

    Attributes:
        architectures: Model types of mlx-lm.
        pattern: Splits a name without `model.` into `layer`, missing for what all MTP layers share, and `rest`.
        parts: By their published names, the modules of `_PARTS`; empty for copies of the model's tables.
        after_layers: Whether `layer` counts on from the model's layers.
        hidden_first: See `MtpConfig`.
        disputed: Whether sources disagree on the hidden states that are read.
        zero_centred: Whether a norm's weights are stored without the 1 that is added to them.
        shares_parts: Whether all MTP layers share the parts besides their decoder layer.
    """

    architectures: Collection[str]
    pattern: re.Pattern[str]
    parts: Mapping[str, str]
    after_layers: bool = False
    hidden_first: bool = False
    disputed: bool = False
    zero_centred: bool = False
    shares_parts: bool = False

    def locate(self, name: str, depth: int) -> tuple[int, str] | None:
        """Return a tensor's MTP layer and its name in `MtpNetwork`, empty for a copy; None for other tensors.

        The module is looked up in `parts`; one that is not there belongs to the decoder layer, if its name has a layer.
        A part whose name has no layer counts as layer 0's: `mtp.fc.weight` of Qwen is (0, "eh_proj.weight"), and
        `mtp.layers.0.mlp.up_proj.weight` is (0, "block.mlp.up_proj.weight").
        """
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        layer = int(match["layer"] or 0) - (depth if self.after_layers else 0)
        module, _, leaf = match["rest"].rpartition(".")
        if layer < 0:
            return None
        if module in self.parts:
            return layer, f"{self.parts[module]}.{leaf}" if self.parts[module] else ""
        return None if match["layer"] is None else (layer, f"block.{match['rest']}")


_COPIES = {"embed_tokens": "", "lm_head": "", "shared_head.head": ""}
_NAMINGS = (
    _Naming(
        QWEN,
        re.compile(r"(?:.*\.)?mtp\.(?:layers\.(?P<layer>\d{1,3})\.)?(?P<rest>.+)"),
        {"fc": "eh_proj", "pre_fc_norm_embedding": "enorm", "pre_fc_norm_hidden": "hnorm", "norm": "norm"} | _COPIES,
        zero_centred=True,
        shares_parts=True,
    ),
    _Naming(
        (*DEEPSEEK, *PLAIN),
        re.compile(r"layers\.(?P<layer>\d{1,5})\.(?P<rest>.+)"),
        {"eh_proj": "eh_proj", "enorm": "enorm", "hnorm": "hnorm", "shared_head.norm": "norm"} | _COPIES,
        after_layers=True,
        disputed=True,
    ),
    _Naming(
        MIMO,
        re.compile(r"mtp_layers\.(?P<layer>\d{1,3})\.(?P<rest>.+)"),
        {"input_proj": "eh_proj", "token_layernorm": "enorm", "hidden_layernorm": "hnorm", "final_layernorm": "norm"},
        hidden_first=True,
    ),
)
# In folders that hold nothing but MTP layers.
_BARE_NAMING = replace(_NAMINGS[0], pattern=re.compile(r"(?:layers\.(?P<layer>\d{1,3})\.)?(?P<rest>.+)"))


def open_mtp(folder: Path, config: Mapping[str, Any]) -> Checkpoint | None:
    """Open a folder's MTP layers, in its weights or beside them; return None where it has none.

    Raises:
        ModelError: If a file is damaged, or the folder cannot be read.
    """
    with read_errors(folder):
        stamp = tuple((path, path.stat().st_mtime_ns) for path in _weight_files(folder))
    files, tensors = _find(stamp, _depth(config), is_bare(config))
    return Checkpoint(folder, config, files, dict(tensors)) if files else None


@lru_cache(maxsize=8)
def _find(
    stamp: tuple[tuple[Path, int], ...], depth: int, bare: bool
) -> tuple[tuple[Path, ...], Mapping[str, StoredTensor]]:
    """Return the MTP tensors among some files, and the files that have some; a large model has 100,000 tensors.

    The times in `stamp` are only for the cache: a changed file is read again.
    """
    headers = {path: {plain_name(name): at for name, at in read_header(path).items()} for path, _ in stamp}
    naming = _naming_of((name for header in headers.values() for name in header), depth, bare)
    if naming is None:
        return (), {}
    tensors: dict[str, StoredTensor] = {}
    files = []
    for path, header in headers.items():
        if own := {name: at for name, at in header.items() if naming.locate(name, depth)}:
            files.append(path)
            tensors |= own
    return tuple(files), tensors


def _weight_files(folder: Path) -> Iterator[Path]:
    """Yield the safetensors files of a folder, then those of the folder `mtp` in it."""
    for part in (folder, folder / _SIDE_FOLDER):
        if part.is_dir():
            yield from (path for path in entries_of(part) if path.match("*.safetensors") and path.is_file())


def _naming_of(names: Iterable[str], depth: int, bare: bool) -> _Naming | None:
    """Return how the MTP layers among some tensors are named; None where there are none."""
    namings = (*_NAMINGS, _BARE_NAMING) if bare else _NAMINGS
    listed = [name for name in names if name.endswith(_PROJECTIONS)]
    return next((each for each in namings if any(each.locate(name, depth) == _FIRST for name in listed)), None)


def _naming(checkpoint: Checkpoint) -> _Naming:
    """Return how the MTP layers in an opened checkpoint are named."""
    naming = _naming_of(checkpoint.tensors, _depth(checkpoint.config), is_bare(checkpoint.config))
    assert naming is not None, "`open_mtp` has found it"
    return naming


def _depth(config: Mapping[str, Any]) -> int:
    """Return the number of the model's layers; 0 where that is not given."""
    return first_int(text_config(config), "num_hidden_layers")


def mtp_config(checkpoint: Checkpoint, _depth_of_target: int | None) -> MtpConfig:
    """Return the settings of an MTP layer from its files, and check the tensors that do not depend on the target.

    Raises:
        ModelError: If a setting or a tensor is missing, or a tensor is of another shape or type.
    """
    settings = Settings(checkpoint, text_config(checkpoint.config))
    depth = _depth(checkpoint.config)
    width = settings.size("hidden_size")
    naming = _naming(checkpoint)
    layers = 1 + max(location[0] for name in checkpoint.tensors if (location := naming.locate(name, depth)))
    for number, placed in enumerate(_placed(checkpoint, naming, layers), 1):
        _check_layer(checkpoint, placed, width, f"MTP layer {number}" if layers > 1 else "MTP layer")
    return MtpConfig(
        target_width=width,
        target_depth=0 if is_bare(checkpoint.config) else depth,
        vocabulary_size=settings.size("vocab_size"),
        norm_epsilon=settings.number("rms_norm_eps", 1e-6),
        hidden_first=naming.hidden_first,
        readings=READINGS if naming.disputed else READINGS[:1],
        layers=layers,
    )


def _check_layer(checkpoint: Checkpoint, placed: Mapping[str, tuple[str, StoredTensor]], width: int, what: str) -> None:
    """Check the tensors of an MTP layer, as of `_placed`; `what` names the layer in errors."""
    for part, shape in {"eh_proj": (width, 2 * width), **dict.fromkeys(_PARTS[1:], (width,))}.items():
        tensor = placed.get(f"{part}.weight")
        if tensor is None:
            raise checkpoint.error(f"its {what} has no {part}")
        if f"{part}.scales" not in placed and tensor[1].shape != shape:
            raise checkpoint.error(f"its tensor {tensor[0][:100]} has the shape {tensor[1].shape} instead of {shape}")
    if not any(name.startswith("block.") for name in placed):
        raise checkpoint.error(f"its {what} has no decoder layer")
    for name, stored in placed.values():
        # Such scales belong to 4-bit floats.
        packed = stored.dtype == "U8" and name.endswith(".scales")
        scaled = stored.dtype == _FLOAT8 and name + _SCALES in checkpoint.tensors
        if stored.dtype not in {*FLOATS, "U32"} and not packed and not scaled:
            raise checkpoint.error(f"its tensor {name[:100]} is stored as {stored.dtype[:20]}", NEWER_HINT)


def _placed(checkpoint: Checkpoint, naming: _Naming, layers: int) -> list[dict[str, tuple[str, StoredTensor]]]:
    """Return each MTP layer's tensors with their stored names, by their names in `MtpNetwork`."""
    depth = _depth(checkpoint.config)
    placed: list[dict[str, tuple[str, StoredTensor]]] = [{} for _ in range(layers)]
    for stored, tensor in checkpoint.tensors.items():
        location = naming.locate(stored, depth)
        if location is not None and location[1]:
            layer, name = location
            placed[layer][name] = stored, tensor
    if naming.shares_parts:
        shared = {name: part for name, part in placed[0].items() if not name.startswith("block.")}
        placed = [own | shared for own in placed]
    return placed


def load(checkpoint: Checkpoint, config: MtpConfig, model: LoadedModel) -> BoundMtpHead:
    """Read MTP layers; see `Layout`.

    Raises:
        ModelError: If the target is of a family that these layers do not belong to, or they hold damaged numbers.
        DoesNotFitError: If they need more memory than there is.
    """
    naming = _naming(checkpoint)
    architecture = model.info.architecture
    if architecture not in naming.architectures:
        reason = unreadable(architecture) or "its MTP layers have other names"
        raise checkpoint.error(f"it is not for a model of the type {architecture}: {reason}", OTHER_HINT)
    placed = _placed(checkpoint, naming, config.layers)
    stored = {name: tensor for layer in placed for name, tensor in layer.values()}
    if architecture not in _FLOAT8_FAMILIES and any(tensor.dtype == _FLOAT8 for tensor in stored.values()):
        raise checkpoint.error("its weights are 8-bit floats, which mlx-lm does not read for this family", OTHER_HINT)
    number, caches = _attention_layer(model)
    _check_memory(checkpoint, stored.values(), model)
    # Only to check that all numbers are finite; `_weights` reads them again when a network is filled.
    checkpoint.read_tensors(stored)
    networks = [MtpNetwork(config, _fresh_layer(model.network, number), caches) for _ in placed]
    weights = [partial(_weights, checkpoint, naming, layer, model.network, number) for layer in placed]
    return BoundMtpHead(config, networks, weights, model)


# `open_mtp` recognises it.
MTP = Layout(HeadKind.MTP, lambda _config, _tensors: False, mtp_config, load)


def _check_memory(checkpoint: Checkpoint, tensors: Iterable[StoredTensor], model: LoadedModel) -> None:
    """Refuse layers that do not fit into memory: those of mixtures of experts take gigabytes."""
    float_bytes = TargetEmbeddings(model.network, model.info.vocabulary_size).dtype.size
    floats = {*FLOATS, _FLOAT8}
    need = sum(each.elements * float_bytes if each.dtype in floats else each.stored_bytes for each in tensors)
    room = memory_room().limit_bytes
    if need > room:
        text = f"The MTP layers in {checkpoint.name} need {size_text(need)}, but only {size_text(room)} of memory is"
        raise DoesNotFitError(f"{text} available.", "Close other apps, or choose another drafting mode.")


def _attention_layer(model: LoadedModel) -> tuple[int, int]:
    """Return the number of the target's last layer that attends to all of the text, and how many caches it takes.

    Raises:
        ModelError: If there is none.
    """
    caches = make_prompt_cache(model.network)
    for number in reversed(range(len(caches))):
        parts = caches[number].caches if isinstance(caches[number], CacheList) else [caches[number]]
        if all(type(part) is KVCache for part in parts):
            return number, len(parts)
    raise ModelError(f"{model.info.name} has no layer that attends to all of the text.", "Choose another drafter.")


def _fresh_layer(network: nn.Module, number: int) -> nn.Module:
    """Return a decoder layer of the class and the sizes of one of the target's."""
    # A layer whose outputs are recorded has a subclass of its own; see `hooks`.
    classes = type(getattr(network, "layers")[number]).__mro__  # noqa: B009  mlx's modules have no such attribute
    plain = next(each for each in classes if each.__module__.startswith("mlx_lm."))
    inner: Any = network
    while "language_model" in inner:
        inner = inner.language_model
    numbered = "layer_idx" in inspect.signature(plain).parameters
    layer: nn.Module = plain(inner.args, number) if numbered else plain(inner.args)
    return layer


def _weights(
    checkpoint: Checkpoint,
    naming: _Naming,
    placed: Mapping[str, tuple[str, StoredTensor]],
    network: nn.Module,
    number: int,
) -> Weights:
    """Return an MTP layer's weights by name in `MtpNetwork`.

    The model's own `sanitize` sees the matrices as those of its layer `number`. It does not see norms and biases, since
    in some families it adds 1 to norms, if it sees signs that are missing here.
    """
    stored_tensors = checkpoint.lazy([name for name, _ in placed.values()])
    tensors = {name: stored_tensors[stored] for name, (stored, _) in placed.items()}
    layer = f"model.layers.{number}."
    matrices = {layer + name.removeprefix("block."): tensor for name, tensor in tensors.items() if tensor.ndim > 1}
    sanitized: dict[str, mx.array] = getattr(network, "sanitize", lambda weights: weights)(matrices)
    weights = {name: tensor for name, tensor in tensors.items() if tensor.ndim <= 1}
    for name, tensor in sanitized.items():
        own = name.partition(f"layers.{number}.")[2]
        weights[own if own.split(".")[0] in _PARTS else f"block.{own}"] = tensor
    if naming.zero_centred:
        raw = _is_raw(checkpoint)
        norms = {name: tensor.astype(mx.float32) for name, tensor in weights.items() if tensor.ndim == 1}
        weights |= {name: norm + 1 for name, norm in norms.items() if _lacks_one(name, norm, raw)}
    return weights


def _is_raw(checkpoint: Checkpoint) -> bool:
    """Return whether all norms are surely as their authors stored them.

    A convolution beside them tells: the last axis of its weights is 1 in mlx-lm's form, and the kernel's size in the
    authors'. Without one, they are if nothing is quantised and the folder has other tensors than MTP layers.
    """
    for path in _weight_files(checkpoint.folder):
        for name, tensor in read_header(path).items():
            if name.endswith("conv1d.weight"):
                return tensor.shape[-1] != 1
    return not any(name.endswith(".scales") for name in checkpoint.tensors) and not is_bare(checkpoint.config)


def _lacks_one(name: str, weights: mx.array, raw: bool) -> bool:
    """Return whether a norm is stored without the 1 that is added to it.

    Converters add it to all norms, to some or to none, so each one is checked if the files do not say so. Most have
    a mean near 1; those before the projection are far smaller, and then their sign decides.
    """
    if not name.endswith("norm.weight"):
        return False
    mean = float(mx.mean(weights))
    return raw or mean < (0 if name in ("enorm.weight", "hnorm.weight") else _RAW_MEAN)
