"""Small models that see, with what transformers computes, as folders for chats, and at the hub.

`scripts/golden_vision.py` writes the files.
"""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import nullcontext
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
from PIL import ImageOps
from safetensors.numpy import load_file, save_file
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from rdchat.hub import RepositoryFiles, Tokens, find_endpoint
from rdchat.hub.downloads.download_record import begin_drafter
from rdchat.hub.hub_api import HubApi
from rdchat.inference.api import ChatImage, ModelCard, ModelPart
from rdchat.inference.library.original_source import IncompleteModel, plan_part
from rdchat.inference.loading import load_model
from rdchat.inference.models.model_config import text_config
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings
from rdchat.inference.vision.families import image_token, vision_of
from rdchat.inference.vision.image_process import shared_images
from rdchat.inference.vision.image_prompts import with_images
from rdchat.inference.vision.image_rows import ImageRowHooks, ImageRows, SeenPrompt
from rdchat.inference.vision.prepared_images import Layout, Prepared
from scripts.families.drawn_weights import drawn
from tests.hub.hub_server import HubServer
from tests.hub.mtp_samples import run
from tests.inference.model_folders import folder_of
from tests.inference.vision.pictures import photo, stored

HERE = Path(__file__).parent / "golden"
# Numbers of a patch, where images are no tiles.
_PATCHES = {"qwen": 96, "gemma4": 48, "lfm2": 48, "mistral": 48, "ministral": 48, "pixtral": 48}
GOLDEN: dict[str, dict[str, Any]] = json.loads((HERE / "models.json").read_text())
KINDS = sorted(kind for kind in GOLDEN if "moe" not in kind)
ONE_OF_EACH = ("qwen3_vl", "qwen2_5_vl", "smolvlm", "gemma3", "gemma4", "lfm2_vl", "mistral3")
"""One golden model of each tower."""


@cache
def tensors_of(kind: str) -> dict[str, np.ndarray]:
    """Return the tensors of a checkpoint; none may change them."""
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
            if not short.startswith("language_model.model."):
                short = short.replace("language_model.", "language_model.model.", 1)
        short = f"language_model.{short}" if short.startswith("lm_head") else short
        is_kernel = ("patch_embed" in name or "patch_conv" in name) and array.ndim > 3
        changed[short] = np.ascontiguousarray(np.moveaxis(array, 1, -1)) if is_kernel else array
    return changed


_TEMPLATE = """{% for message in messages %}<|im_start|>{{ message['role'] }}
{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}\
{% if part['type'] == 'image' %}PLACE{% else %}{{ part['text'] }}{% endif %}{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
_PLACES = {
    "qwen": "<|vision_start|><|image_pad|><|vision_end|>",
    "smolvlm": "<image>",
    "gemma3": "<start_of_image>",
    "gemma4": "<|image|>",
    "lfm2": "<image>",
    "mistral": "[IMG]",
    "ministral": "[IMG]",
    "pixtral": "[IMG]",
}
_MISTRAL = {"size": {"longest_edge": 40}}
_PIXELS = _PLACES | {"qwen": "<|image_pad|>", "gemma3": "<image_soft_token>"}
_SETTINGS = {
    "qwen": {"patch_size": 4, "merge_size": 2, "size": {"shortest_edge": 64, "longest_edge": 1600}},
    "smolvlm": {"size": {"longest_edge": 64}, "max_image_size": {"longest_edge": 32}},
    "gemma3": {"size": {"height": 32, "width": 32}},
    "gemma4": {"patch_size": 4, "pooling_kernel_size": 2, "max_soft_tokens": 20},
    "lfm2": {"encoder_patch_size": 4, "min_image_tokens": 2, "max_image_tokens": 6, "tile_size": 16, "max_tiles": 4},
    "mistral": _MISTRAL,
    "ministral": _MISTRAL,
    "pixtral": _MISTRAL,
}
_CHARACTERS = "\nabcdefghijklmnopqrstuvwxyz .,?<>_-012345ACHNR"


def seeing_folder(place: Path, kind: str) -> Path:
    """Write the folder of a golden model with a tokenizer of characters, a chat template and settings for images."""
    folder = golden_folder(place, kind)
    config = GOLDEN[kind]["config"]
    name = next(name for name in _PLACES if kind.startswith(name))
    pixels = config.get("image_token_id", config.get("image_token_index"))
    special = {"<|im_start|>": 60, "<|im_end|>": 61, "<|vision_start|>": 91, "<|vision_end|>": 92}
    special |= {"<fake_token_around_image>": 62, "<global-img>": 63, "<start_of_image>": 64, "<end_of_image>": 65}
    tile = "<|img_row_{}_col_{}|>" if name == "lfm2" else "<row_{}_col_{}>"
    special |= {tile.format(row, column): 66 + 4 * row + column for row in range(1, 4) for column in range(1, 4)}
    special |= {"<|image>": 82, "<image|>": 83, _PIXELS[name]: pixels}
    special |= {"[IMG_BREAK]": 87, "[IMG_END]": 88}
    special |= {"<|image_start|>": 84, "<|image_end|>": 85, "<|img_thumbnail|>": 86}
    words = {character: number for number, character in enumerate(_CHARACTERS)} | special
    words |= {
        f"w{number}": number for number in range(text_config(config)["vocab_size"]) if number not in words.values()
    }
    tokenizer = Tokenizer(WordLevel(words, unk_token="."))
    tokenizer.pre_tokenizer = Split("", "isolated")
    tokenizer.decoder = Fuse()
    tokenizer.add_special_tokens([AddedToken(each, normalized=False, special=True) for each in special])
    tokenizer.save(str(folder / "tokenizer.json"))
    own = {"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>"}
    (folder / "tokenizer_config.json").write_text(json.dumps(own))
    (folder / "chat_template.jinja").write_text(_TEMPLATE.replace("PLACE", _PLACES[name]))
    (folder / "preprocessor_config.json").write_text(json.dumps(_SETTINGS[name]))
    return folder


def picture(folder: Path, width: int = 40, height: int = 24, *, mirrored: bool = False) -> ChatImage:
    """Store an image, and return it as a message has it."""
    folder.mkdir(parents=True, exist_ok=True)
    drawn = photo(width, height)
    path = stored(folder, ImageOps.mirror(drawn) if mirrored else drawn)
    facts = shared_images().check_image(path)
    return ChatImage(path, hashlib.sha256(path.read_bytes()).hexdigest(), facts.width, facts.height, path.name)


ORIGINAL = "authors/Tiny-Sees"
COPY = "some-org/Tiny-Sees-4bit"
TOWER = ("visual", "vision", "connector", "multi_modal")
SETTINGS = "preprocessor_config.json"


def is_tower(tensor: str) -> bool:
    return any(word in tensor for word in TOWER)


def without_tower(folder: Path) -> Path:
    """Drop the tower of a folder and its settings, as mlx_lm.convert does, and keep its configuration."""
    file = folder / "model.safetensors"
    save_file({name: each for name, each in load_file(file).items() if not is_tower(name)}, file, {"format": "mlx"})
    (folder / SETTINGS).unlink(missing_ok=True)
    return folder


def put_original(hub: HubServer, place: Path, kind: str, name: str = ORIGINAL) -> Path:
    """Put a model at the hub: its text in one file, its tower in another."""
    folder = seeing_folder(place, kind)
    tensors = load_file(folder / "model.safetensors")
    shards = dict[str, bytes]()
    index = dict[str, str]()
    for number, kept in enumerate((False, True), 1):
        file = folder / f"model-0000{number}-of-00002.safetensors"
        save_file({each: array for each, array in tensors.items() if is_tower(each) is kept}, file, {"format": "pt"})
        shards[file.name] = file.read_bytes()
        index |= {each: file.name for each in tensors if is_tower(each) is kept}
        file.unlink()
    files = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "model.safetensors"}
    hub.add(name, files | shards | {"model.safetensors.index.json": json.dumps({"weight_map": index}).encode()})
    return folder


def card_of(folder: Path) -> ModelCard:
    return ModelCard(COPY, COPY, "", folder)


def planned(folder: Path) -> RepositoryFiles:
    """Return what is fetched for a copy."""
    api = HubApi(Tokens().access(find_endpoint()))
    return plan_part(api, IncompleteModel.read_model(card_of(folder), ModelPart.VISION), ORIGINAL)


def fetched(folder: Path) -> Path:
    """Fetch the tower of a copy."""
    return run(begin_drafter(planned(folder)))


def bytes_of(paths: Iterable[Path]) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in paths}
