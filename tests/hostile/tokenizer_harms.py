"""Model folders, harmed in their tokenizer: ids beyond the model's rows, growth and expressions without end."""

import base64
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from tests.hostile.harm import Harm, Json, both, edited, with_bytes, with_json, without

_ROWS = 265  # of the sample's embedding
_IDS: Mapping[str, int] = {
    "the first beyond the rows": _ROWS, "300": 300, "1,000,000": 10**6, "2**31 - 1": 2**31 - 1, "2**31": 2**31,
    "2**32 - 1": 2**32 - 1, "2**32 + 1": 2**32 + 1, "2**63": 2**63, "-1": -1,
}  # fmt: skip


def _tokenizer(edit: Callable[[Json], object]) -> Harm:
    return edited("tokenizer.json", edit)


def _added(token_id: int, text: str = "Hello", special: bool = False) -> Harm:
    """Add a token of a text that is asked."""
    token = {
        "id": token_id, "content": text, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
        "special": special,
    }  # fmt: skip
    return _tokenizer(lambda content: content["added_tokens"].append(token))


def _part(name: str, value: object) -> Harm:
    """Replace a part; what is large is given as a function, and made when a case is."""
    return _tokenizer(lambda content: content.update({name: value() if callable(value) else value}))


def _model(**changes: object) -> Harm:
    return _tokenizer(lambda content: content["model"].update(changes))


def _word(token_id: object) -> Harm:
    """Give the letter that the prompt begins with another id in the vocabulary."""
    return _tokenizer(lambda content: content["model"]["vocab"].update({"H": token_id}))


def _growing(times: int, by: int = 9, pattern: object = None) -> Json:
    """Return a normaliser that makes each letter `by` letters, `times` over."""
    step = {"type": "Replace", "pattern": pattern or {"Regex": "."}, "content": "e" * by}
    return {"type": "Sequence", "normalizers": [step] * times}


def _split(expression: str) -> Json:
    return {"type": "Split", "pattern": {"Regex": expression}, "behavior": "Isolated", "invert": False}


def _special(kind: str, value: object) -> Harm:
    return both(
        with_json("config.json", **{f"{kind}_token_id": value}),
        with_json("generation_config.json", **{f"{kind}_token_id": value}),
    )


_SLOW_PATTERNS = ("(a|aa)+$", "(.*)*x", r"(\w+\s?)*$", "(?=(a+)+b)", "^(([a-z])+.)+[A-Z]([a-z])+$", "(x+x+)+y")
_NORMALISERS: Mapping[str, Any] = {
    "growing ninefold nine times over": _growing(9),
    "growing ninefold four times over": _growing(4),
    "growing a hundredfold three times over": _growing(3, 100),
    "growing by 100 MB at once": lambda: _growing(1, 10**8),
    "growing from nothing": _growing(3, 1000, {"Regex": ""}),
    "prepending 50 MB": lambda: {"type": "Prepend", "prepend": "e" * 50_000_000},
    "of a kind nobody knows": {"type": "Evil"},
    "of an odd type": [1],
    "nested a thousand times": None,
    "with a charsmap of noise": {
        "type": "Precompiled", "precompiled_charsmap": base64.b64encode(bytes(range(256)) * 8).decode(),
    },
    "with a charsmap of a huge length": {
        "type": "Precompiled", "precompiled_charsmap": base64.b64encode(b"\xff\xff\xff\xff" + b"\0" * 64).decode(),
    },
    "with an empty charsmap": {"type": "Precompiled", "precompiled_charsmap": ""},
    "with a charsmap that is no base64": {"type": "Precompiled", "precompiled_charsmap": "!"},
    "that takes all away": {"type": "Replace", "pattern": {"Regex": "(?s)."}, "content": ""},
}  # fmt: skip


def _nested(depth: int) -> Json:
    value: Json = {"type": "Lowercase"}
    for _ in range(depth):
        value = {"type": "Sequence", "normalizers": [value]}
    return value


_PLACES: Mapping[str, Callable[[int], Harm]] = {
    "an added token": _added, "a special token": partial(_added, text="<|evil|>", special=True), "a word": _word,
}  # fmt: skip
BEYOND_THE_ROWS: Mapping[str, Harm] = {
    f"{what} with the id {said}": harm(value) for what, harm in _PLACES.items() for said, value in _IDS.items()
}
"""Each must be refused: these ids are read out of bounds."""

TOKENIZERS: Mapping[str, Harm] = {
    **{
        f"{kind} is {said}": _special(kind, value)
        for kind in ("eos", "bos", "pad")
        for said, value in {
            "1,000,000": 10**6, "-1": -1, "2**63": 2**63, "text": "evil", "a list of all": [2, 10**6, "x", None],
            "an object": {"a": 1}, "a fraction": 1.5,
        }.items()
    },
    "no end token anywhere": both(
        without("config.json", "eos_token_id"), without("tokenizer_config.json", "eos_token"),
        with_bytes("generation_config.json", "{}"),
    ),
    "an end token nobody knows": with_json("tokenizer_config.json", eos_token="<|evil|>"),
    "an end token of an odd type": with_json("tokenizer_config.json", eos_token={"content": 5}),
    "added tokens in tokenizer_config.json": with_json(
        "tokenizer_config.json",
        added_tokens_decoder={str(10**6): {"content": "Hello", "special": True, "lstrip": False, "rstrip": False}},
    ),
    "added tokens of odd types": with_json("tokenizer_config.json", added_tokens_decoder={"x": 5}),
    "more special tokens": with_json("tokenizer_config.json", additional_special_tokens=["Hello"] * 100),
    "extra special tokens of an odd type": with_json("tokenizer_config.json", extra_special_tokens=[1, {"a": 2}]),
    "added_tokens.json beyond the rows": with_bytes("added_tokens.json", '{"Hello": 1000000}'),
    "special_tokens_map.json beyond the rows": with_bytes(
        "special_tokens_map.json", '{"additional_special_tokens": ["Hello", "Helloo"], "eos_token": "Hellooo"}'
    ),
    **{f"a normaliser {said}": _part("normalizer", value or _nested(1000)) for said, value in _NORMALISERS.items()},
    **{f"splitting by {expression}": _part("pre_tokenizer", _split(expression)) for expression in _SLOW_PATTERNS},
    "splitting by an expression that is none": _part("pre_tokenizer", _split("(")),
    "splitting by an expression of 100,000 groups": _part(
        "pre_tokenizer", _split("(a|" * 100_000 + "b" + ")" * 100_000)
    ),
    "splitting in a way nobody knows": _part("pre_tokenizer", {"type": "Evil"}),
    "no splitting": _part("pre_tokenizer", None),
    "a decoder that grows": _part("decoder", {"type": "Sequence", "decoders": [
        {"type": "Replace", "pattern": {"Regex": "."}, "content": "e" * 9}] * 9}),
    "a decoder of 100 MB": _part(
        "decoder", lambda: {"type": "Replace", "pattern": {"Regex": "."}, "content": "e" * 10**8}
    ),
    "a decoder nobody knows": _part("decoder", {"type": "Evil"}),
    "a decoder by an expression without end": _part(
        "decoder", {"type": "Replace", "pattern": {"Regex": "(.*)*x"}, "content": ""}
    ),
    "a processor with an id beyond the rows": _part("post_processor", {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": "evil", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"evil": {"id": "evil", "ids": [10**6], "tokens": ["evil"]}},
    }),
    "a processor that repeats a token a million times": _part("post_processor", {
        "type": "TemplateProcessing",
        "single": [{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "evil", "type_id": 0}}],
        "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
        "special_tokens": {"evil": {"id": "evil", "ids": [1] * 10**6, "tokens": ["e"] * 10**6}},
    }),
    "padding to 10**9": _part("padding", {
        "strategy": {"Fixed": 10**9}, "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0, "pad_type_id": 0,
        "pad_token": "<|im_end|>",
    }),
    "truncation to 0": _part("truncation", {
        "max_length": 0, "strategy": "LongestFirst", "stride": 0, "direction": "Right",
    }),
    "a model nobody knows": _model(type="Evil"),
    "a vocabulary of nothing": _model(vocab={}, merges=[]),
    "a vocabulary that is a list": _model(vocab=[["a", 0.0]]),
    "a vocabulary with ids twice": _tokenizer(
        lambda content: content["model"].update(vocab=dict.fromkeys(content["model"]["vocab"], 5))
    ),
    "merges of what is unknown": _model(merges=[["evil", "evil"]]),
    "merges that are text": _model(merges="h e"),
    "dropout of 1": _model(dropout=1.0),
    "dropout of -5": _model(dropout=-5.0),
    "an unknown token that is unknown": _model(unk_token="<|evil|>"),
    "byte fallback without bytes": _model(byte_fallback=True, unk_token="<|evil|>"),
    "a unigram without scores": _part("model", {"type": "Unigram", "vocab": [], "unk_id": 10**6}),
    "a unigram with scores that are not finite": _part(
        "model", {"type": "Unigram", "vocab": [["H", -1e308], ["e", -1e308], ["x", 0]], "unk_id": 2}
    ),
    "a word level of one word": _part("model", {"type": "WordLevel", "vocab": {"Hello": 10**6}, "unk_token": "Hello"}),
    "a word piece with 10**9 letters": _part("model", {
        "type": "WordPiece", "vocab": {"H": 10**6, "u": 5}, "unk_token": "u", "continuing_subword_prefix": "",
        "max_input_chars_per_word": 10**9,
    }),
    "a sentencepiece model of noise": both(
        lambda folder: (folder / "tokenizer.json").unlink(), with_bytes("tokenizer.model", bytes(range(256)) * 16)
    ),
    "a length of 10**400": with_json("tokenizer_config.json", model_max_length=10**400),
    "a length of text": with_json("tokenizer_config.json", model_max_length="long"),
    "odd settings": with_json(
        "tokenizer_config.json", padding_side="up", truncation_side=5, clean_up_tokenization_spaces="x", name_or_path={}
    ),
    "arguments that are the tokenizer's own": with_json(
        "tokenizer_config.json", vocab_file="/dev/zero", tokenizer_file="/dev/zero", tokenizer_object=5
    ),
    "files elsewhere": with_json("tokenizer_config.json", tokenizer_file="../../../etc/passwd", fast_tokenizer_files=[
        "/dev/zero", "tokenizer.99999.json"]),
}  # fmt: skip
