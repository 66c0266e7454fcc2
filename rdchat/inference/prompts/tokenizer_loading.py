"""Loads mlx-lm's tokenizer in this process, after the child process has tried it."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import re
from pathlib import Path
from typing import Any

from mlx_lm import utils as mlx_lm_utils

from rdchat.errors import ModelError
from rdchat.files.foreign_files import read_object
from rdchat.inference.prompts.model_prompts import usual_variables
from rdchat.inference.prompts.tokenizer_files import MODEL_HINT, NO_CODE, tokenizer_view
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, Waiting

PADDING = re.compile(r"\[PAD\d+\]")
"""How converted GGUF files name ids that only pad the logits."""


def read_tokenizer(folder: Path, process: TokenizerProcess, waiting: Waiting = lambda: None) -> Any:
    """Read the tokenizer of a model folder, without its weights.

    Args:
        folder: Already checked by `check_model_folder`.
        process: Tests it first.
        waiting: See `ModelPrompts.encode`.

    Raises:
        ModelError: If it cannot be read, or is harmful.
    """
    process.read(folder, waiting, reread=True)
    try:
        with tokenizer_view(folder) as view:
            tokenizer = mlx_lm_utils.load_tokenizer(view, dict(NO_CODE), eos_token_ids=_end_tokens(folder))
    except ModelError:
        raise
    except Exception as error:
        # Its files are foreign data: anything can be wrong in them.
        reason = " ".join(str(error).split())[:300].rstrip(".")
        raise ModelError(
            f"The tokenizer of {folder.name} cannot be read: {reason}.",
            MODEL_HINT,
        ) from error
    end = process.thinking(folder, usual_variables(tokenizer), waiting).end
    if end is not None:
        tokenizer.add_eos_token(str(end))
    return tokenizer


def _end_tokens(folder: Path) -> list[int] | None:
    """Return the ids that end a reply by the model's configuration; None uses the tokenizer's."""
    config = read_object(folder / "config.json")
    path = folder / "generation_config.json"
    written = read_object(path) if path.exists() else {}
    nested = config.get("text_config")
    ids = _token_ids(written.get("eos_token_id")) or _token_ids(config.get("eos_token_id"))
    ids += _token_ids(nested.get("eos_token_id")) if isinstance(nested, dict) else []
    return ids or None


def _token_ids(setting: object) -> list[int]:
    """Return the token ids in a setting, which is one or a list of them; what else is in it is left out."""
    listed = setting if isinstance(setting, list) else [setting]
    return [token for token in listed if type(token) is int]


def check_token_ids(tokenizer: Any, rows: int, name: str) -> None:
    """Refuse a tokenizer with tokens without an embedding: looking one up would be out of bounds.

    Padding tokens may be beyond, since no text becomes one, and special tokens that the chat template does not write:
    in a message they are plain text. The model may have more rows than there are tokens.

    Raises:
        ModelError: Names the token.
    """
    added, template = tokenizer.added_tokens_decoder.values(), str(tokenizer.chat_template)
    unused = {each.content for each in added if each.special and each.content not in template}
    unused.add(getattr(tokenizer, "pad_token", None))
    beyond = [
        (token_id, token)
        for token, token_id in tokenizer.get_vocab().items()
        if not 0 <= token_id < rows and token not in unused and not PADDING.fullmatch(token)
    ]
    if beyond:
        token_id, token = min(beyond)
        raise ModelError(
            f"The tokenizer of {name} has a token {token_id:,} ({token[:40]!r}), but the model has {rows:,} rows.",
            "Its tokenizer belongs to another model. Download the model again, or choose another one.",
        )
