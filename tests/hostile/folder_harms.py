"""Damages model folders in their configuration: code to run, architecture, sizes, quantisation, transformers' files.

Each table maps the name of a case to the harm that is done to a copy of the llama sample.
"""

import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.hostile.case import evil_mark
from tests.hostile.harm import Harm, both, change_json, deep_json, with_bytes, with_json, with_text

ODD_NUMBERS: Mapping[str, Any] = {
    "0": 0, "-1": -1, "2**31": 2**31, "2**63": 2**63, "10**400": 10**400, "a fraction": 2.5, "text": "two",
    "null": None, "a list": [2], "an object": {"a": 1}, "true": True, "not a number": float("nan"),
    "infinity": float("inf"),
}  # fmt: skip


def evil_module(folder: Path) -> None:
    """Put Python code beside the model that leaves a mark when it is imported, under the names that are looked for."""
    code = f"open({str(evil_mark(folder.parent))!r}, 'w').close()\nclass Evil: pass\nclass EvilTokenizer: pass\n"
    code += "class Model: pass\nclass ModelArgs: pass\n"
    for name in ("evil", "modeling_evil", "tokenization_evil", "configuration_evil", "model", "setup", "__init__"):
        (folder / f"{name}.py").write_text(code)


def with_code(name: str, **changes: object) -> Harm:
    """Name the code of `evil_module` in a JSON file."""
    return both(evil_module, with_json(name, **changes))


class _Evil:
    def __init__(self, mark: Path) -> None:
        self._mark = mark

    def __reduce__(self) -> tuple[Any, ...]:
        return (open, (str(self._mark), "w"))


def pickled(*names: str, whole: bool = False) -> Harm:
    """Add pickles that leave a mark when they are read; `whole` takes the safetensors away."""

    def harm(folder: Path) -> None:
        for name in names:
            (folder / name).write_bytes(pickle.dumps(_Evil(evil_mark(folder.parent))))
        if whole:
            (folder / "model.safetensors").unlink()

    return harm


_TOKENIZER_AUTO = {"AutoTokenizer": ["evil.EvilTokenizer", "evil.EvilTokenizer"]}
_MODEL_AUTO = {
    "AutoConfig": "configuration_evil.Evil", "AutoModelForCausalLM": "modeling_evil.Evil", "AutoModel": "evil.Evil",
}  # fmt: skip
_REMOTE = {"AutoTokenizer": ["repo--evil.X", "repo--evil.X"]}

CODE: Mapping[str, Harm] = {
    "auto_map of the tokenizer": with_code(
        "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map=_TOKENIZER_AUTO
    ),
    "auto_map of the tokenizer as one name": with_code(
        "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map={"AutoTokenizer": "evil.EvilTokenizer"}
    ),
    "auto_map of a fast tokenizer only": with_code(
        "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map={"AutoTokenizer": [None, "evil.Evil"]}
    ),
    "auto_map as a list": with_code(
        "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map=["evil.Evil", "evil.Evil"]
    ),
    "auto_map beside a class that is known": with_code("tokenizer_config.json", auto_map=_TOKENIZER_AUTO),
    "auto_map into another repository": with_code(
        "tokenizer_config.json", tokenizer_class="EvilTokenizer", auto_map=_REMOTE
    ),
    "auto_map of the config": with_code("config.json", auto_map=_MODEL_AUTO),
    "auto_map of the config into another repository": with_code(
        "config.json", auto_map={"AutoConfig": "repo--evil.X", "AutoTokenizer": "repo--evil.X"}
    ),
    "auto_map of a tokenizer in the config": both(
        with_code("config.json", auto_map=_TOKENIZER_AUTO),
        with_json("tokenizer_config.json", tokenizer_class="EvilTokenizer"),
    ),
    "auto_map with an unknown model type": with_code("config.json", model_type="evil", auto_map=_MODEL_AUTO),
    "auto_map everywhere, trusted by the folder": both(
        with_code("config.json", auto_map=_MODEL_AUTO, trust_remote_code=True),
        with_json("tokenizer_config.json", auto_map=_TOKENIZER_AUTO, tokenizer_class="Evil", trust_remote_code=True),
    ),
    "auto_map of odd types": with_code("tokenizer_config.json", tokenizer_class="Evil", auto_map={"AutoTokenizer": 5}),
    "auto_map with a path": with_code(
        "tokenizer_config.json", tokenizer_class="Evil", auto_map={"AutoTokenizer": ["../case/model/evil.Evil", None]}
    ),
    "model_file": with_code("config.json", model_file="evil.py"),
    "model_file upwards": with_code("config.json", model_file="../evil.py"),
    "model_file of an odd type": with_code("config.json", model_file=["evil.py"]),
    "custom_generate": both(
        evil_module, lambda folder: (folder / "custom_generate").mkdir(), with_json("config.json", custom_generate="x")
    ),
    "the model type is a path": with_json("config.json", model_type="../../evil"),
    "the model type is a module": with_json("config.json", model_type="os.path"),
    "the model type is private": with_json("config.json", model_type="__init__"),
    "the model type is no model's module": with_json("config.json", model_type="cache"),
    "the model type is long": with_json("config.json", model_type="x" * 100_000),
    "the model type has a zero byte": with_json("config.json", model_type="ll\0ama"),
    "the model type has a line break": with_json("config.json", model_type="ll\nama\x1b[31m"),
    "a tokenizer class nobody knows": with_json("tokenizer_config.json", tokenizer_class="EvilTokenizer"),
    "a tokenizer class that is a path": with_json("tokenizer_config.json", tokenizer_class="os.system"),
    "a tokenizer class of an odd type": with_json("tokenizer_config.json", tokenizer_class=["LlamaTokenizer"]),
    "a slow tokenizer class": with_json("tokenizer_config.json", tokenizer_class="GPT2Tokenizer"),
    "a tokenizer class without its files": with_json("tokenizer_config.json", tokenizer_class="T5Tokenizer"),
    "a tokenizer parser nobody knows": with_code("tokenizer_config.json", tool_parser_type="evil"),
    "a tokenizer parser that is a path": with_code("tokenizer_config.json", tool_parser_type="../../evil"),
    "a tokenizer parser that is a module": with_code("tokenizer_config.json", tool_parser_type="..evil"),
    "a tokenizer parser of an odd type": with_json("tokenizer_config.json", tool_parser_type=5),
    "a template type nobody knows": with_code("tokenizer_config.json", chat_template_type="evil"),
    "a template type that is a path": with_code("tokenizer_config.json", chat_template_type="../../os"),
    "a template type that is a module": with_code("tokenizer_config.json", chat_template_type="..utils"),
    "a template type of an odd type": with_json("tokenizer_config.json", chat_template_type={"a": 1}),
    "a pickle beside the weights": pickled("pytorch_model.bin", "model.pt", "adapters.npz", "optimizer.pkl"),
    "a pickle as the weights": pickled("pytorch_model.bin", whole=True),
    "a pickle named as the weights": pickled("model.safetensors"),
    "a pickle of another framework": pickled("model.pth", "tf_model.h5", "flax_model.msgpack", whole=True),
    "a pickle as a numpy archive": pickled("weights.npz", "model.npy", whole=True),
    "a pickle as the tokenizer": pickled("tokenizer.model", "tokenizer.pkl"),
}  # fmt: skip

_SIZES = (
    "num_hidden_layers", "num_attention_heads", "num_key_value_heads", "hidden_size", "intermediate_size", "head_dim",
    "vocab_size", "max_position_embeddings",
)  # fmt: skip
SIZES: Mapping[str, Harm] = {
    f"{key} is {said}": with_json("config.json", **{key: value})
    for key in _SIZES
    for said, value in ODD_NUMBERS.items()
    # an exact half of the grid, so that the whole stays quick; each key and each value is there
    if (list(_SIZES).index(key) + list(ODD_NUMBERS).index(said)) % 2 == 0
} | {
    "10**8 layers without kinds": with_json(
        "config.json", num_hidden_layers=10**8, layer_types=[], max_position_embeddings=1
    ),
    "a million layers with a context of 1": with_json(
        "config.json", num_hidden_layers=10**6, max_position_embeddings=1
    ),
    "layer kinds that are no list": with_json("config.json", layer_types="full_attention"),
    "layer kinds that nobody knows": with_json("config.json", layer_types=["evil", "evil"]),
    "a million layer kinds": with_json("config.json", layer_types=["full_attention"] * 10**6),
    "a window of 2**62": with_json(
        "config.json", sliding_window=2**62, layer_types=["sliding_attention", "full_attention"]
    ),
    "no sizes": with_bytes("config.json", '{"model_type": "llama"}'),
    "an epsilon that is text": with_json("config.json", rms_norm_eps="tiny"),
    "a rope of 0": with_json("config.json", rope_theta=0),
    "a rope scaling nobody knows": with_json("config.json", rope_scaling={"rope_type": "evil", "factor": -1}),
    "a rope scaling of odd types": with_json("config.json", rope_scaling=[1, 2]),
    "a rope scaling by nothing": with_json("config.json", rope_scaling={"rope_type": "linear", "factor": 0}),
    "a text config that is the config": with_json("config.json", text_config={"text_config": {}}),
    "a text config that is a list": with_json("config.json", text_config=[]),
}  # fmt: skip

QUANTISATIONS: Mapping[str, Harm] = {
    f"quantised by {said}": with_json("config.json", quantization=value)
    for said, value in {
        "nothing": {}, "text": "4 bits", "a list": [4, 32], "7 bits": {"bits": 7, "group_size": 32},
        "0 bits": {"bits": 0, "group_size": 32}, "-4 bits": {"bits": -4, "group_size": 32},
        "2**40 bits": {"bits": 2**40, "group_size": 32}, "groups of 0": {"bits": 4, "group_size": 0},
        "groups of 2**62": {"bits": 4, "group_size": 2**62}, "groups of 1": {"bits": 4, "group_size": 1},
        "a fraction": {"bits": 4.5, "group_size": 32}, "true": {"bits": True, "group_size": True},
        "a mode nobody knows": {"bits": 4, "group_size": 32, "mode": "evil"},
        "a mode of an odd type": {"bits": 4, "group_size": 32, "mode": ["affine"]},
        "other bits than stored": {"bits": 8, "group_size": 32},
        "other groups than stored": {"bits": 4, "group_size": 64},
        "odd facts of one layer": {"bits": 4, "group_size": 32, "model.embed_tokens": {"bits": 10**9, "group_size": 0}},
        "an odd layer": {"bits": 4, "group_size": 32, "model.embed_tokens": "evil"},
        "a mode that is not stored": {"bits": 4, "group_size": 32, "mode": "mxfp4"},
    }.items()
} | {
    f"quantised elsewhere by {said}": with_json("config.json", quantization=None, quantization_config=value)
    for said, value in {
        "an unknown method": {"quant_method": "evil"}, "awq": {"quant_method": "awq", "bits": 4, "group_size": 128},
        "gptq of -1 bits": {"quant_method": "gptq", "bits": -1}, "fp8": {"quant_method": "fp8"},
        "mxfp4": {"quant_method": "mxfp4"}, "a list": ["awq"], "bitnet": {"quant_method": "bitnet"},
        "compressed tensors": {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": []}}},
        "a method of an odd type": {"quant_method": {"a": 1}},
    }.items()
}  # fmt: skip


def _repeated(folder: Path) -> None:
    text = (folder / "config.json").read_text().rstrip().removesuffix("}")
    (folder / "config.json").write_text(text + ', "model_type": "banana", "model_type": "llama", "hidden_size": 0}')


_CONTENTS: Mapping[str, bytes | str] = {
    "nested too deeply": deep_json(), "with lists nested too deeply": "[" * 100_000,
    "that is a list": "[]", "that is null": "null", "with a huge number": '{"model_type": ' + "9" * 10_000 + "}",
    "in UTF-16": '{"model_type": "llama"}'.encode("utf-16"), "that is no text": bytes(range(256)),
}  # fmt: skip
SYNTAX: Mapping[str, Harm] = {
    **{
        f"{name} {said}": with_bytes(name, content)
        for name in ("config.json", "tokenizer_config.json", "tokenizer.json", "generation_config.json")
        for said, content in _CONTENTS.items()
    },
    "config.json with a byte order mark": with_text("config.json", lambda text: "\ufeff" + text),
    "config.json with keys twice": _repeated,
    "config.json with half a surrogate": with_text("config.json", lambda text: text.replace("llama", "ll\\ud800ama")),
    "config.json of 70 MB": lambda folder: change_json(folder / "config.json", padding="x" * 70_000_000),
    "tokenizer_config.json of 70 MB": lambda folder: change_json(
        folder / "tokenizer_config.json", padding="x" * 70_000_000
    ),
}  # fmt: skip
