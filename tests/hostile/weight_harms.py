"""Model folders, harmed in their weights: headers of safetensors files, indexes, names of shards, numbers."""

import json
import struct
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tests.hostile.harm import (
    Harm,
    both,
    deep_json,
    read_safetensors,
    with_bytes,
    with_each_tensor,
    with_header,
    with_json,
    write_safetensors,
)

_FIRST = "model.embed_tokens.weight"


def _tensor(**facts: Any) -> Harm:
    """Set facts of one tensor in the header."""
    return with_header(lambda header: header[_FIRST].update(facts))


def _length(length: int) -> Harm:
    """Have the file claim another length of its header."""

    def harm(folder: Path) -> None:
        path = folder / "model.safetensors"
        path.write_bytes(struct.pack("<Q", length) + path.read_bytes()[8:])

    return harm


def _header(text: str | Callable[[], str]) -> Harm:
    """Put another header before the weights; a long one is made when it is wanted."""

    def harm(folder: Path) -> None:
        _, body = read_safetensors(folder / "model.safetensors")
        write_safetensors(folder / "model.safetensors", text() if callable(text) else text, body)

    return harm


def _named(name: str) -> Harm:
    """Give the weights another name."""
    return lambda folder: (folder / "model.safetensors").rename(folder / name)


def _index(content: object) -> Harm:
    """Write an index; a long one is made when it is wanted."""

    def harm(folder: Path) -> None:
        made = content() if callable(content) else content
        (folder / "model.safetensors.index.json").write_text(json.dumps(made))

    return harm


def _body(byte: bytes) -> Harm:
    """Fill all weights with one byte."""

    def harm(folder: Path) -> None:
        header, body = read_safetensors(folder / "model.safetensors")
        write_safetensors(folder / "model.safetensors", header, byte * len(body))

    return harm


def _shards(count: int, said: int) -> Harm:
    """Add empty files that call themselves shards."""

    def harm(folder: Path) -> None:
        for number in range(count):
            (folder / f"model-{number:05}-of-{said:05}.safetensors").touch()

    return harm


WEIGHTS: Mapping[str, Harm] = {
    **{f"a header of {length:,} bytes": _length(length) for length in (0, 1, 10**6, 2**31, 2**62, 2**63, 2**64 - 1)},
    "a header nested too deeply": _header(deep_json()),
    "a header that is a list": _header("[]"),
    "a header that is null": _header("null"),
    "an empty header": _header("{}"),
    "a header that is no JSON": _header("{" * 100),
    "a header of a million tensors": _header(
        lambda: json.dumps({f"a{n}": {"dtype": "F32", "shape": [0], "data_offsets": [0, 0]} for n in range(10**6)})
    ),
    "a tensor that is a list": with_header(lambda header: header.update({_FIRST: []})),
    "a tensor without facts": with_header(lambda header: header.update({_FIRST: {}})),
    "a tensor that the model does not have": with_header(lambda header: header.update({"evil": header[_FIRST]})),
    "a tensor of layer 99999999": with_header(
        lambda header: header.update({"model.layers.99999999.mlp.up_proj.weight": header[_FIRST]})
    ),
    "a tensor that is missing": with_header(lambda header: header.pop(_FIRST)),
    "all tensors on one place": with_each_tensor(data_offsets=[0, 4]),
    "a tensor that ends before it begins": _tensor(data_offsets=[100, 0]),
    "a tensor before the file": _tensor(data_offsets=[-100, 100]),
    "a tensor behind the file": _tensor(data_offsets=[2**62, 2**62 + 100]),
    "a tensor at fractions": _tensor(data_offsets=[0.5, 1.5]),
    "a tensor at text": _tensor(data_offsets=["0", "4"]),
    "a tensor with one offset": _tensor(data_offsets=[0]),
    "a tensor of negative shape": _tensor(shape=[-265, -32]),
    "a tensor of huge shape": _tensor(shape=[2**40, 2**40]),
    "a tensor whose size wraps around": _tensor(shape=[2**32, 2**32, 2]),
    "a tensor of no elements": _tensor(shape=[0, 32]),
    "a tensor without dimensions": _tensor(shape=[]),
    "a tensor of 10,000 dimensions": _tensor(shape=[1] * 10_000),
    "a tensor of a shape of fractions": _tensor(shape=[2.5, 32]),
    "a tensor of a shape of text": _tensor(shape="265x32"),
    "a tensor of another shape": _tensor(shape=[32, 265]),
    "a tensor of a type nobody knows": _tensor(dtype="EVIL"),
    "a tensor of a type of an odd kind": _tensor(dtype=5),
    "packed weights labelled F32": _tensor(dtype="F32"),
    "packed weights labelled I32": _tensor(dtype="I32"),
    "weights labelled as 8-bit floats": with_each_tensor(dtype="F8_E4M3"),
    "metadata that is a list": with_header(lambda header: header.update(__metadata__=[1])),
    "metadata of odd types": with_header(lambda header: header.update(__metadata__={"format": {"a": 1}})),
    "metadata of another framework": with_header(lambda header: header.update(__metadata__={"format": "pt"})),
    "weights that are not finite": _body(b"\xff"),
    "weights that are all zero": _body(b"\0"),
    "weights cut off behind the header": lambda folder: write_safetensors(
        folder / "model.safetensors", read_safetensors(folder / "model.safetensors")[0], b""
    ),
    "a shard of 999999999999999": _named("model-1-of-999999999999999.safetensors"),
    "a shard of 10**30": _named(f"model-00001-of-{10**30}.safetensors"),
    "a shard of 0": _named("model-00001-of-00000.safetensors"),
    "shard 10**18 of 1": _named(f"model-{10**18}-of-00001.safetensors"),
    "shard 0 of 1 with 200 digits": _named(f"model-{0:0200}-of-1.safetensors"),
    "1,000 empty shards of 100,000": _shards(1000, 100_000),
    "a shard in other digits": _named("model-\u0661-of-\u0669\u0669\u0669\u0669\u0669\u0669\u0669.safetensors"),
    "an index into other folders": _index({"weight_map": {_FIRST: "../../../etc/passwd"}}),
    "an index to an absolute path": _index({"weight_map": {_FIRST: "/dev/zero"}}),
    "an index to a million files": _index(
        lambda: {"weight_map": {f"a{n}": f"model-{n}.safetensors" for n in range(10**6)}}
    ),
    "an index that is a list": _index([]),
    "an index of numbers": _index({"weight_map": {_FIRST: 5}}),
    "an index of lists": _index({"weight_map": {_FIRST: ["model.safetensors"]}}),
    "an index without a map": _index({"metadata": {}}),
    "an index to a zero byte": _index({"weight_map": {_FIRST: "mod\0el.safetensors"}}),
    "an index nested too deeply": with_bytes("model.safetensors.index.json", deep_json()),
    "rows fewer than the vocabulary": both(
        with_header(lambda header: [header[f"model.embed_tokens.{part}"]["shape"].__setitem__(0, 3)
                                    for part in ("weight", "scales", "biases")]),
        with_json("config.json", vocab_size=3),
    ),
}  # fmt: skip
