"""Makes the folder of a model that sees: the installed default model with the tower of `assets/seeing`.

PYTHONPATH=. python -m scripts.seeing.make_folder OUT
rdchat ask --model OUT --image drawing.png "Describe the picture in one sentence."
"""

import argparse
import json
import shutil
from pathlib import Path
from typing import Any, cast

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx

from rdchat.paths import default_model_dir

TOWER = Path(__file__).parents[2] / "assets" / "seeing" / "tower.safetensors"
TOKENS = {14: "<global-img>", 15: "<fake_token_around_image>", 16: "<image>"}
"""Tokens that the default model does not use, and what they are called here."""
_TOWER_SHAPE: dict[str, Any] = {"model_type": "smolvlm_vision", "image_size": 64, "patch_size": 8, "hidden_size": 128}
_TOWER_SHAPE |= {"intermediate_size": 256, "num_attention_heads": 4, "num_hidden_layers": 4}
_EDGE = {"longest_edge": 64}
_IMAGES = {"do_image_splitting": False, "size": _EDGE, "max_image_size": _EDGE}
_CONTENT = "message['content']"
_PARTS = (
    "{% if message['content'] is string %}{{ message['content'] }}{% else %}{% for part in message['content'] %}"
    "{{ '<image>' if part['type'] == 'image' else part['text'] }}{% endfor %}{% endif %}"
)


def make_folder(out: Path, model: Path | None = None) -> None:
    """Write the folder.

    Args:
        out: The folder; it must not exist.
        model: The folder of the default model; None for where it is installed.
    """
    model = model or default_model_dir()
    out.mkdir(parents=True)
    for name in ("LICENSE", "generation_config.json"):
        shutil.copyfile(model / name, out / name)
    text = _tensors(model / "model.safetensors")
    tensors = {name.replace("model.", "model.text_model.", 1): tensor for name, tensor in text.items()}
    mx.save_safetensors(str(out / "model.safetensors"), tensors | _tensors(TOWER), {"format": "mlx"})
    _write(out / "config.json", _config(_read(model / "config.json")))
    _write(out / "preprocessor_config.json", _IMAGES)
    own = _read(model / "tokenizer_config.json")
    before, after = own["chat_template"].split(f" + {_CONTENT} + ")
    own["chat_template"] = f"{before} }}}}{_PARTS}{{{{ {after}"
    _write(out / "tokenizer_config.json", own)
    _write(out / "tokenizer.json", _with_tokens(_read(model / "tokenizer.json")))


def _config(text: dict[str, Any]) -> dict[str, Any]:
    seeing = {"architectures": ["SmolVLMForConditionalGeneration"], "model_type": "smolvlm", "image_token_id": 16}
    seeing |= {"scale_factor": 1, "vision_config": _TOWER_SHAPE, "tie_word_embeddings": True}
    return seeing | {"quantization": text.pop("quantization"), "text_config": text}


def _with_tokens(tokenizer: dict[str, Any]) -> dict[str, Any]:
    """Return a tokenizer in which three tokens have other names."""
    vocabulary = tokenizer["model"]["vocab"]
    for token in tokenizer["added_tokens"]:
        if name := TOKENS.get(token["id"]):
            vocabulary[name] = vocabulary.pop(token["content"])
            token["content"] = name
    return tokenizer


def _tensors(path: Path) -> dict[str, mx.array]:
    return cast(dict[str, mx.array], mx.load(str(path)))


def _read(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def _write(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    make_folder(parser.parse_args().out)
