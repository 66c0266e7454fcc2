"""A drafter's files: `config.json`, read and written, its safetensors files, and `card.md`.

`open_checkpoint` reads the headers of a folder as a `Checkpoint`, whose methods check and read its tensors. A `Layout`,
one for each module `*_layout`, knows how a kind of drafter is published: which network a checkpoint describes, and how
it is bound to the target. `drafter_folder` chooses the layout.
"""

import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.files import atomic_file, entries_of, make_folder, read_errors
from rdchat.inference.drafting.heads.head import Head, HeadKind
from rdchat.inference.models.model_config import QUANTIZED_BITS
from rdchat.inference.models.model_files import folder_label
from rdchat.inference.models.safetensors_file import StoredTensor, read_headers, weight_files
from rdchat.inference.verification import LoadedModel

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
CARD = "card.md"

HINT = "Download the drafter again, train one with `rdchat train-drafter`, or choose another one."
OTHER_HINT = "Use a drafter that was made for this model."
NEWER_HINT = "Choose another drafter, or try a newer version of rdchat."
# Beginnings of names and what most tools write for them, in this order. Some tools add `model.`, SpecForge had
# `logit_head.`, SafeAILab has `midlayer.`, Meta's drafter for Muse Glimmer `encoder.`, and XPress as vLLM reads it
# `xpress_head.` (vllm-project/vllm 54448) for speculators' `refiner_head.`.
_BEGINNINGS = {
    "model.": "",
    "logit_head.": "",
    "midlayer.": "layers.0.",
    "encoder.fc.": "fc.",
    "encoder.output_norm_enc.": "hidden_norm.",
    "xpress_head.w1.": "refiner_head.token_embed.",
    "xpress_head.w2.": "refiner_head.readout.",
    "xpress_head.mix.L": "refiner_head.mix_l",
    "xpress_head.mlp.gate_proj.": "refiner_head.mlp_gate.",
    "xpress_head.mlp.up_proj.": "refiner_head.mlp_up.",
    "xpress_head.mlp.down_proj.": "refiner_head.mlp_down.",
    "xpress_head.": "refiner_head.",
}
# Ends of the names of matrices that torch does not keep in modules of their own, so that `.weight` is missing.
_BARE = ("_codebook", ".weight_ih_l0", ".weight_hh_l0")
_QUANTIZATION = ("quantization", "quantization_config")
# Numbers of weights that share a scale, in MLX's affine quantisation.
_GROUPS = (32, 64, 128)
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
# Tensors that list tokens, the types that they may have, and the types of all other tensors.
_LISTS = ("draft_vocabulary", "d2t", "masked_embedding.token_ordering")
_INTEGERS = {"I32", "I64", "U32"}
FLOATS = {"F16", "BF16", "F32"}

Shapes = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class PublishedDrafter:
    """A drafter in a published layout, ready to write.

    Attributes:
        config: Content of `config.json`.
        tensors: Its weights, in the precision to store, and its lists of tokens.
    """

    config: Mapping[str, Any]
    tensors: Mapping[str, mx.array]


def write_drafter(folder: Path, drafter: PublishedDrafter, card: str) -> None:
    """Write a drafter. Its configuration is written last, so that only complete drafters are found.

    Args:
        folder: Created if it does not exist.
        drafter: The drafter.
        card: Markdown, as `training.training_run` makes it.

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


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A folder with a drafter; weights are read only when needed.

    Attributes:
        folder: The folder.
        config: Content of its `config.json`.
        files: Its safetensors files.
        tensors: Tensors from the headers, by `plain_name`; quantised matrices as the floats that are read from them.
        packed: Group size and bits of the quantised matrices, by module.
    """

    folder: Path
    config: Mapping[str, Any]
    files: tuple[Path, ...]
    tensors: Mapping[str, StoredTensor]
    packed: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    @property
    def listed_tokens(self) -> int:
        """Length of its list `d2t`; 0 without one."""
        tensor = self.tensors.get("d2t")
        return tensor.shape[0] if tensor is not None and tensor.shape else 0

    @property
    def is_gemma(self) -> bool:
        """Whether its layers are Gemma 4's; the configuration's type may be the target's."""
        return "layers.0.pre_feedforward_layernorm.weight" in self.tensors

    @property
    def name(self) -> str:
        """The folder's name, for people."""
        return folder_label(self.folder)

    def error(self, reason: str, hint: str = HINT) -> ModelError:
        """Return the error for a drafter that cannot be used, with the reason."""
        return ModelError(f"The drafter {self.name} cannot be used: {reason}.", hint)

    def unpacked(self) -> "Checkpoint":
        """Return this checkpoint as if it were not quantised; `lazy` computes the floats of the matrices in `packed`.

        Raises:
            ModelError: If they are quantised in another way.
        """
        tensors = dict(self.tensors)
        packed = dict[str, tuple[int, int]]()
        # Settings of all matrices, and under the name of a module its own.
        settings = dict[str, Any]()
        stated = self.config.get("quantization")
        if isinstance(stated, dict):
            settings = {plain_name(str(key)).removesuffix(".weight"): value for key, value in stated.items()}
        for name in [name.removesuffix(".scales") for name in tensors if name.endswith(".scales")]:
            own = settings.get(name)
            sizes = {"mode": "affine", **settings, **(own if isinstance(own, dict) else {})}
            weight, scales, biases = (tensors.pop(f"{name}.{part}", None) for part in ("weight", "scales", "biases"))
            group = sizes.get("group_size")
            if (
                sizes["mode"] != "affine"
                or type(group) is not int
                or group not in _GROUPS
                or not (weight and scales and biases)
            ):
                raise self.error(f"rdchat does not know how its {name[:100]} is quantised", NEWER_HINT)
            # The matrix is (rows, width); a scale is for `group` of its numbers, and a word of 32 bits packs some.
            rows = scales.shape[0] if scales.shape else 0
            width = group * scales.shape[-1] if scales.shape else 0
            fits = scales.shape == biases.shape == (rows, width // group) and weight.shape[:-1] == (rows,)
            # 0 where the shapes do not fit together.
            bits = 32 * weight.shape[-1] // width if fits and width else 0
            if bits not in QUANTIZED_BITS or weight.dtype != "U32" or 32 * weight.shape[-1] != bits * width:
                raise self.error(f"its tensor {name[:100]}.weight does not fit its scales and biases")
            packed[name] = group, bits
            tensors[f"{name}.weight"] = replace(scales, shape=(rows, width))
        config = {key: value for key, value in self.config.items() if not packed or key not in _QUANTIZATION}
        return replace(self, config=config, tensors=tensors, packed=packed)

    def check_tensors(self, expected: Shapes, ignored: Collection[str] = ()) -> None:
        """Check that it has exactly these tensors, each with its shape and a type it can have.

        Raises:
            ModelError: If it does not.
        """
        for name in sorted(expected.keys() | self.tensors.keys()):
            if name in ignored:
                continue
            if name not in self.tensors:
                raise self.error(f"the tensor {name} is missing")
            stored = self.tensors[name]
            if name not in expected:
                raise self.error(f"it has an unknown tensor {name[:100]}", NEWER_HINT)
            if stored.shape != expected[name]:
                raise self.error(f"its tensor {name} has the shape {stored.shape} instead of {expected[name]}")
            if stored.dtype not in (_INTEGERS if name in _LISTS else FLOATS):
                raise self.error(f"its tensor {name} is stored as {stored.dtype[:20]}", NEWER_HINT)

    def read_tensors(self, names: Collection[str]) -> dict[str, mx.array]:
        """Return tensors, lazy: each is read where it is used, so that they need not all be in memory at once.

        Raises:
            ModelError: If one holds numbers that are not finite.
        """
        checked = self.lazy(names)
        # Each tensor is in memory only while it is checked.
        while checked:
            name, tensor = checked.popitem()
            if mx.issubdtype(tensor.dtype, mx.floating) and not mx.all(mx.isfinite(tensor)).item():
                raise self.error(f"its tensor {name} has values that are not finite")
        return self.lazy(names)

    def lazy(self, names: Collection[str]) -> dict[str, mx.array]:
        """Return tensors as `read_tensors` does, without the check; `read_tensors` must have checked them."""
        modules = {name: sizes for name, sizes in self.packed.items() if f"{name}.weight" in names}
        needed = {*names, *(f"{name}.{part}" for name in modules for part in ("scales", "biases"))}
        tensors: dict[str, mx.array] = {}
        for path in self.files:
            stored = mx.load(str(path))
            assert isinstance(stored, dict)
            tensors |= {plain_name(name): tensor for name, tensor in stored.items() if plain_name(name) in needed}
        for name, (group, bits) in modules.items():
            weight, scales, biases = (tensors.pop(f"{name}.{part}") for part in ("weight", "scales", "biases"))
            tensors[f"{name}.weight"] = mx.dequantize(weight, scales, biases, group_size=group, bits=bits)
        return tensors

    def drafted_tokens(self, name: str, ids: npt.NDArray[np.integer], vocabulary_size: int) -> mx.array:
        """Check the ids of the tokens that can be drafted, and return them, (n,) int32; `name` is the list's name.

        Raises:
            ModelError: If an id is not a token of the target, or the ids do not ascend.
        """
        if not ids.size or ids.min() < 0 or ids.max() >= vocabulary_size:
            raise self.error(f"its list {name} has tokens that the model does not have")
        if (np.diff(ids) <= 0).any():
            raise self.error(f"the tokens of its list {name} are not in ascending order")
        return mx.array(ids.astype(np.int32))


@dataclass(frozen=True, slots=True)
class Layout:
    """A file layout of drafters; its functions raise ModelError.

    Attributes:
        kind: Kind of the drafters.
        matches: Returns whether a checkpoint has this layout, by its configuration and the names of its tensors.
        config: Returns the sizes and settings of the network, such as a `BlockConfig`, and checks them against the
            headers; takes the number of target layers, if known.
        load: Reads the drafter, given the result of `config`, and binds it to the target.
    """

    kind: HeadKind
    matches: Callable[[Mapping[str, Any], Collection[str]], bool]
    config: Callable[[Checkpoint, int | None], Any]
    load: Callable[[Checkpoint, Any, LoadedModel], Head]


def plain_name(name: str) -> str:
    """Return a tensor's name as most tools write it."""
    for beginning, plain in _BEGINNINGS.items():
        if name.startswith(beginning):
            name = plain + name.removeprefix(beginning)
    return f"{name}.weight" if name.endswith(_BARE) else name


def not_a_drafter(folder: Path) -> ModelError:
    """Return the error for a configuration that does not describe a drafter."""
    return ModelError(f"{folder / CONFIG} does not describe a drafter that this version of rdchat can read.", HINT)


def open_checkpoint(folder: Path, config: Mapping[str, Any]) -> Checkpoint | None:
    """Open a drafter's folder, given its configuration; return None where it has no weights.

    Raises:
        ModelError: If its weights are incomplete or damaged, or are pickles. Pickles can run code and are never read.
    """
    with read_errors(folder):
        entries = entries_of(folder)
    if not any(path.match("model*.safetensors*") for path in entries):
        pickles = [path.name for pattern in _PICKLES for path in entries if path.match(pattern)]
        if pickles:
            raise ModelError(
                f"The weights of the drafter {folder_label(folder)} are in {pickles[0][:100]}, which can run code.",
                "Convert it to safetensors, for example with the Space `safetensors/convert` on huggingface.co.",
            )
        return None
    files = weight_files(folder, entries)
    tensors: dict[str, StoredTensor] = {}
    for name, tensor in read_headers(folder, files).items():
        if plain_name(name) in tensors:
            raise ModelError(f"The drafter {folder_label(folder)} has the tensor {plain_name(name)[:100]} twice.", HINT)
        tensors[plain_name(name)] = tensor
    return Checkpoint(folder, config, files, tensors).unpacked()
