"""Loads mlx-lm's tokenizer in this process, after the child process has tried it."""

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import re
from pathlib import Path
from typing import Any

from mlx_lm import utils as mlx_lm_utils
from tokenizers import decoders, pre_tokenizers

from rdchat.errors import ModelError, reason_of
from rdchat.files.foreign_files import read_object
from rdchat.inference.prompts.model_prompts import usual_variables
from rdchat.inference.prompts.tokenizer_files import MODEL_HINT, NO_CODE, tokenizer_view
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, Waiting

# Which letters a tokenizer has is up to its authors; blanks and line ends are what conversions lose.
_SAMPLE = "a b\nc"
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
        raise ModelError(f"The tokenizer of {folder.name} cannot be read: {reason_of(error)}.", MODEL_HINT) from error
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
    added = tokenizer.added_tokens_decoder.values()
    template = str(tokenizer.chat_template)
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


def check_round_trip(tokenizer: Any, name: str) -> str:
    """Return a warning if a text does not come back from a tokenizer as it was; empty if it does.

    transformers 5.3 to 5.8 saved some byte-level tokenizers with SentencePiece's rules, and copies for MLX have them.
    A decoder alone is mended. SentencePiece itself may turn line ends into blanks, as in training.

    Raises:
        ModelError: If a byte-level vocabulary has no such rule for texts: its pattern is lost.
    """
    read = _round_trip(tokenizer)
    if read != _SAMPLE and _is_byte_level(tokenizer):
        backend = tokenizer.backend_tokenizer
        rules = (bytes(each.__getstate__()) for each in (backend.normalizer, backend.pre_tokenizer) if each is not None)
        if not any(b'"ByteLevel"' in each for each in rules):
            raise ModelError(
                f"A conversion damaged the tokenizer of {name}: it loses the blanks of each text.",
                "Download another copy of the model, or the tokenizer.json of the original.",
            )
        backend.decoder = decoders.ByteLevel()
        read = _round_trip(tokenizer)
    # A vocabulary that has none of the letters tells nothing of blanks.
    if read == _SAMPLE or not any(letter in read for letter in "abc"):
        return ""
    return (
        f"The tokenizer of {name} turns {_SAMPLE!r} into {read[:40]!r}. If that of the original model does not, "
        "this copy is damaged: download another one."
    )


def _round_trip(tokenizer: Any) -> str:
    """Return what a tokenizer makes of a text, without the blank that some add before it."""
    ids = tokenizer.encode(_SAMPLE, add_special_tokens=False, verbose=False)
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False)).removeprefix(" ")


def _is_byte_level(tokenizer: Any) -> bool:
    """Return whether a vocabulary spells bytes as ByteLevel does, and no blanks as SentencePiece does."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None:
        return False
    spelled = backend.get_vocab(with_added_tokens=False)
    return spelled.keys() >= set(pre_tokenizers.ByteLevel.alphabet()) and not any("\u2581" in each for each in spelled)
