"""Converts the vocabulary in a GGUF file to the tokenizer files of an MLX model folder.

It supports byte-level BPE (`gpt2` in GGUF) with known pre-tokenizers: `gpt-2` splits with GPT-2's regular expression,
`smollm` splits off every digit first. Nothing is guessed: a wrong split gives text that looks right, but ids that the
model never saw.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError

# llama.cpp's token types.
_CONTROL = 3
_USER_DEFINED = 4
_BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
_PRE_TOKENIZERS: Mapping[str, Mapping[str, Any]] = {
    "gpt-2": _BYTE_LEVEL,
    "smollm": {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, _BYTE_LEVEL]},
}
# Names of control tokens that end a turn, whatever end token the metadata names (as in llama.cpp).
_END_NAMES = ("<|im_end|>", "<|endoftext|>", "<|eot_id|>", "<|end|>")
CONVERT_HINT = "Use the model's safetensors version, converted with `mlx_lm.convert`."


def write_tokenizer(metadata: Mapping[str, Any], context_length: int, folder: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json.

    Args:
        metadata: The GGUF file's key-value pairs.
        context_length: The model's context, in tokens.
        folder: Folder of the files.

    Raises:
        ModelError: If the tokenizer cannot be converted exactly, or its data is damaged.
    """
    _refuse_unknown_kinds(metadata)
    tokens = metadata["tokenizer.ggml.tokens"]
    _refuse_damaged(metadata)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "add_prefix_space": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": context_length,
        **_special_names(metadata, tokens),
    }
    if "tokenizer.chat_template" in metadata:
        config["chat_template"] = metadata["tokenizer.chat_template"]
    write_json(folder / "tokenizer.json", _tokenizer(metadata, tokens))
    write_json(folder / "tokenizer_config.json", config)


def end_token_ids(metadata: Mapping[str, Any]) -> list[int]:
    """Return the ids that end a reply: the metadata's own first, then control tokens named as an end."""
    own = metadata.get("tokenizer.ggml.eos_token_id")
    ends = [] if own is None else [int(own)]
    types = metadata["tokenizer.ggml.token_type"]
    for token_id, (token, kind) in enumerate(zip(metadata["tokenizer.ggml.tokens"], types, strict=True)):
        if kind == _CONTROL and token in _END_NAMES and token_id not in ends:
            ends.append(token_id)
    return ends


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, ensure_ascii=False, indent=2) + "\n", encoding="utf-8", newline="\n")


def _refuse_unknown_kinds(metadata: Mapping[str, Any]) -> None:
    model = metadata.get("tokenizer.ggml.model")
    if model != "gpt2":
        raise ModelError(f"Its tokenizer has the type '{model}'; only 'gpt2' can be imported.", CONVERT_HINT)
    splitting = metadata.get("tokenizer.ggml.pre")
    if splitting not in _PRE_TOKENIZERS:
        known = " and ".join(f"'{name}'" for name in _PRE_TOKENIZERS)
        raise ModelError(f"Its pre-tokenizer is '{splitting}'; only {known} can be imported.", CONVERT_HINT)
    for key in ("add_bos_token", "add_eos_token"):
        if metadata.get(f"tokenizer.ggml.{key}"):
            raise ModelError(f"Its tokenizer sets '{key}', which cannot be imported.", CONVERT_HINT)


def _refuse_damaged(metadata: Mapping[str, Any]) -> None:
    """Refuse a vocabulary whose parts have wrong types or lengths, and ids outside it."""
    tokens = _list(metadata, "tokens")
    texts = (*tokens, *_list(metadata, "merges"), metadata.get("tokenizer.chat_template", ""))
    if len(tokens) != len(_list(metadata, "token_type")) or not all(isinstance(text, str) for text in texts):
        raise ModelError("Its vocabulary is damaged.", CONVERT_HINT)
    for role in ("bos", "eos", "unknown", "padding"):
        token_id = metadata.get(f"tokenizer.ggml.{role}_token_id")
        if token_id is not None and not (type(token_id) is int and 0 <= token_id < len(tokens)):
            raise ModelError(
                f"Its '{role}_token_id' is {str(token_id)[:40]}, which is not one of its tokens.", CONVERT_HINT
            )


def _list(metadata: Mapping[str, Any], part: str) -> list[Any]:
    values = metadata.get(f"tokenizer.ggml.{part}")
    if not isinstance(values, list):
        raise ModelError(f"Its vocabulary is damaged: it has no {part}.", CONVERT_HINT)
    return values


def _special_names(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, str]:
    ids = {
        "bos_token": metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_token": metadata.get("tokenizer.ggml.eos_token_id"),
        "unk_token": metadata.get("tokenizer.ggml.unknown_token_id"),
        "pad_token": metadata.get("tokenizer.ggml.padding_token_id"),
    }
    return {name: tokens[token_id] for name, token_id in ids.items() if token_id is not None}


def _tokenizer(metadata: Mapping[str, Any], tokens: list[str]) -> dict[str, Any]:
    types = metadata["tokenizer.ggml.token_type"]
    vocabulary = {token: token_id for token_id, token in enumerate(tokens)}
    merges = [merge.split(" ", 1) for merge in metadata["tokenizer.ggml.merges"]]
    if len(vocabulary) != len(tokens) or not all(
        len(pair) == 2 and pair[0] in vocabulary and pair[1] in vocabulary and "".join(pair) in vocabulary
        for pair in merges
    ):
        raise ModelError(
            "Its vocabulary is damaged: it has duplicate tokens, or merges of unknown tokens.", CONVERT_HINT
        )
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {
                "id": token_id,
                "content": token,
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": kind == _CONTROL,
            }
            for token_id, (token, kind) in enumerate(zip(tokens, types, strict=True))
            if kind in {_CONTROL, _USER_DEFINED}
        ],
        "normalizer": None,
        "pre_tokenizer": _PRE_TOKENIZERS[metadata["tokenizer.ggml.pre"]],
        "post_processor": None,
        "decoder": _BYTE_LEVEL,
        "model": {
            "type": "BPE",
            "dropout": None,
            # As in llama.cpp, the few bytes that the vocabulary lacks are dropped.
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": vocabulary,
            "merges": merges,
        },
    }
