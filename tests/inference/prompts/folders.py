"""Copies of the small model with another tokenizer, template or configuration, and templates without thoughts."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rdchat.inference.api import ChatMessage, Role
from rdchat.inference.prompts.model_prompts import ModelPrompts, read_tokenizer
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, shared_tokenizers


def changed(model: Path, place: Path, file: str, change: Callable[[dict[str, Any]], object]) -> Path:
    """Copy a model folder, with changes to one of its JSON files."""
    if not place.exists():
        shutil.copytree(model, place)
    return edited(place, file, change)


def edited(folder: Path, file: str, change: Callable[[dict[str, Any]], object]) -> Path:
    """Change one of a folder's JSON files."""
    content = json.loads((folder / file).read_text())
    change(content)
    (folder / file).write_text(json.dumps(content))
    return folder


def with_template(model: Path, place: Path, template: str) -> Path:
    """Copy a model folder, with another chat template."""
    return changed(model, place, "tokenizer_config.json", lambda config: config.update(chat_template=template))


def prompts_of(folder: Path, process: TokenizerProcess | None = None) -> ModelPrompts:
    """Return what makes token ids for a folder's model, of which no weights are read; in the process of all tests."""
    process = process or shared_tokenizers()
    return ModelPrompts(process, folder, read_tokenizer(folder, process))


def user(text: str) -> ChatMessage:
    return ChatMessage(Role.USER, text)


def assistant(text: str, own_control: tuple[int, ...] = ()) -> ChatMessage:
    return ChatMessage(Role.ASSISTANT, text, own_control)


LOOP = "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ TEXT }}<|im_end|>\n{% endfor %}"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
QWEN = (
    LOOP.replace("TEXT", "message.content.split('</think>')[-1].lstrip('\\n')")
    + OPEN
    + "{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
)
DEEPSEEK = (
    LOOP.replace("TEXT", "message.content.split('</think>')[-1]")
    + OPEN
    + "{% if thinking %}<think>{% else %}</think>{% endif %}"
)
