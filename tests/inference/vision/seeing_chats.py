"""Folders of small models that see, which chats can use, and their images."""

import hashlib
import json
from pathlib import Path

from PIL import ImageOps
from tokenizers import AddedToken, Tokenizer
from tokenizers.decoders import Fuse
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split

from rdchat.inference.api import ChatImage
from rdchat.inference.models.model_config import text_config
from rdchat.inference.vision.image_process import shared_images
from tests.inference.vision.golden_models import GOLDEN, golden_folder
from tests.inference.vision.pictures import photo, stored

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
