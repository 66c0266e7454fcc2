"""Small models that see, with what transformers computes; `scripts/golden_vision.py` writes the files."""

import json
from collections.abc import Sequence
from contextlib import nullcontext
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np

from rdchat.inference.loading import load_model
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from rdchat.inference.vision.families import image_token, vision_of
from rdchat.inference.vision.image_process import Layout, Prepared
from rdchat.inference.vision.image_prompts import with_images
from rdchat.inference.vision.image_rows import ImageRowHooks, ImageRows, SeenPrompt
from scripts.families.drawn_weights import drawn
from tests.inference.model_folders import folder_of

HERE = Path(__file__).parent / "golden"
# Numbers of a patch, where images are no tiles.
_PATCHES = {"qwen": 96, "gemma4": 48, "lfm2": 48, "mistral": 48, "ministral": 48, "pixtral": 48}
GOLDEN: dict[str, dict[str, Any]] = json.loads((HERE / "models.json").read_text())
KINDS = sorted(kind for kind in GOLDEN if "moe" not in kind)
ONE_OF_EACH = ("qwen3_vl", "qwen2_5_vl", "smolvlm", "gemma3", "gemma4", "lfm2_vl", "mistral3")
"""One golden model of each tower."""


def tensors_of(kind: str) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint."""
    return {name: drawn(name, shape) for name, shape in GOLDEN[kind]["shapes"].items()}


def expected(kind: str) -> dict[str, np.ndarray]:
    """Return what transformers computes."""
    with np.load(HERE / f"{kind}.npz") as arrays:
        return dict(arrays)


def prepared(kind: str, images_grids: Sequence[Sequence[Sequence[int]]] = ()) -> list[Prepared]:
    """Return the images of the prompt, or some of other grids."""
    images = []
    for number, grids in enumerate(images_grids or GOLDEN[kind]["grids"]):
        width = next((width for family, width in _PATCHES.items() if kind.startswith(family)), None)
        count = (1 if kind == "pixtral" else 4) * sum(rows * columns for rows, columns in grids)
        shape = [count, width] if width else [len(grids), 3, 32, 32]
        patches = np.random.default_rng(number).uniform(-1, 1, shape).astype(np.float32)
        images.append(Prepared(patches, Layout(tuple((rows, columns) for rows, columns in grids), (32, 32))))
    return images


def golden_folder(place: Path, kind: str) -> Path:
    """Write the folder of a golden model."""
    return folder_of(place, GOLDEN[kind]["config"], tensors_of(kind))


class SeeingModel:
    """A loaded golden model with its prompt.

    Attributes:
        model: The target, with rdchat's hooks and those for images.
        rows: Its tower.
        seen: The images of the prompt.
        ids: The prompt's ids, negative for images.
    """

    def __init__(self, folder: Path, kind: str) -> None:
        self.model: LoadedModel = load_model(folder, "float32")
        self.config = GOLDEN[kind]["config"]
        self.vision = vision_of(folder)
        self.family = self.vision.family
        assert self.family is not None
        self.rows = ImageRows(folder, self.vision)
        self.images = prepared(kind)
        self.seen = [self.rows.see(f"{kind} {number}", image) for number, image in enumerate(self.images)]
        sections = self.family.sections(self.config)
        interleaved = self.family.interleaved
        self.hooks = ImageRowHooks(self.model.network, sections, self.vision.deep, interleaved=interleaved)
        layouts = [(f"{kind} {number}", image.layout) for number, image in enumerate(self.images)]
        self.ids, self.spans = with_images(GOLDEN[kind]["ids"], image_token(self.config), layouts, self.family)
        self.embed = TargetEmbeddings(self.model.network, self.model.info.vocabulary_size).embed
        self.prompt: SeenPrompt = self.rows.prompt(self.ids, self.spans, self.seen)

    def cache(self) -> KVCache:
        """Return an empty cache for the prompt."""
        cache = KVCache(self.model.network)
        cache.images = self.spans
        return cache

    def read(self, cache: KVCache, ends: Sequence[int] = ()) -> np.ndarray:
        """Feed the rest of the prompt in chunks that end there, and at its end; return the logits of all rows."""
        assert self.family is not None
        windows_only = self.family.windows_only
        logits = []
        for start, end in pairwise([len(cache.tokens), *ends, len(self.ids)]):
            rows = self.prompt.rows_for_call(start, end, self.embed)
            ids = mx.maximum(mx.array(self.ids[start:end])[None], 0)
            if rows is None:
                logits.append(self.model.network(ids, cache=cache.layers)[0])
            else:
                alone = nullcontext() if rows.blocks is None else cache.seeing(rows.blocks, windows_only=windows_only)
                with self.hooks.rows_for_call(rows), alone:
                    logits.append(self.model.network(ids, cache=cache.layers, input_embeddings=rows.embeddings)[0])
            cache.evaluate()
            cache.extend(self.ids[start:end])
        return np.array(mx.concatenate(logits))

    def feed(self, cache: KVCache, tokens: Sequence[int]) -> np.ndarray:
        """Feed tokens of text one by one; return the logits behind the last."""
        for token in tokens:
            logits = self.model.network(mx.array([[token]]), cache=cache.layers)[0, -1]
            cache.extend([token])
        return np.array(logits)


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """Return the largest difference, as a part of the span of the second."""
    return float(np.abs(one - other).max() / (other.max() - other.min()))


type Tensors = dict[str, np.ndarray]


def copied(kind: str, tensors: Tensors) -> Tensors:
    """Return a checkpoint as mlx-vlm writes it: other prefixes, kernels with their channels last."""
    changed = {}
    for name, array in tensors.items():
        if kind.startswith("qwen2"):
            short = name.replace("visual.", "vision_tower.").replace("model.", "language_model.model.", 1)
        elif kind in {"mistral3", "ministral3", "pixtral"}:
            short = name.replace("vision_tower.", "vision_tower.vision_model.")
        elif kind == "smolvlm":
            short = name.removeprefix("model.").replace("text_model.", "language_model.", 1)
        else:
            short = name.replace("model.visual.", "vision_tower.").removeprefix("model.")
            short = short.replace("language_model.", "language_model.model.", 1)
        short = f"language_model.{short}" if short.startswith("lm_head") else short
        is_kernel = ("patch_embed" in name or "patch_conv" in name) and array.ndim > 3
        changed[short] = np.ascontiguousarray(np.moveaxis(array, 1, -1)) if is_kernel else array
    return changed
