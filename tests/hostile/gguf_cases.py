"""Cases of GGUF files: each field of the file said otherwise, bytes changed, and odd things in the file's place."""

import struct
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tests.hostile.case import Call, Case, Kind, ask
from tests.hostile.harm import ODD_FILES, Harm, with_cut, with_flips
from tests.hostile.samples import copy_of, samples

_U32, _I32, _F32, _STRING, _ARRAY, _U64 = 4, 5, 6, 8, 9, 10  # GGUF's types of values
Rewrite = Callable[[bytes], bytes]


def _key(name: str) -> bytes:
    return struct.pack("<Q", len(name)) + name.encode()


def _field(name: str, value_format: str, value: object) -> Rewrite:
    """Write another value of the same width behind a key (its type stays)."""

    def rewrite(data: bytes) -> bytes:
        place = data.index(_key(name)) + len(_key(name)) + 4
        return data[:place] + struct.pack(value_format, value) + data[place + struct.calcsize(value_format) :]

    return rewrite


def _type(name: str, value_type: int) -> Rewrite:
    """Say that the value behind a key is of another type."""

    def rewrite(data: bytes) -> bytes:
        place = data.index(_key(name)) + len(_key(name))
        return data[:place] + struct.pack("<I", value_type) + data[place + 4 :]

    return rewrite


def _array_length(name: str, length: int) -> Rewrite:
    def rewrite(data: bytes) -> bytes:
        place = data.index(_key(name)) + len(_key(name)) + 8
        return data[:place] + struct.pack("<Q", length) + data[place + 8 :]

    return rewrite


def _renamed(name: str, other: str) -> Rewrite:
    """Write another key of the same length."""
    return lambda data: data.replace(_key(name), _key(other))


def _text(old: bytes, new: bytes) -> Rewrite:
    return lambda data: data.replace(old, new)


def _at(place: int, content: bytes) -> Rewrite:
    return lambda data: data[:place] + content + data[place + len(content) :]


def _tensor(name: str, at: int, content: bytes) -> Rewrite:
    """Write into a tensor's description: dimensions at 0 (count) and 4, then type and offset."""

    def rewrite(data: bytes) -> bytes:
        place = data.index(_key(name), data.index(b"tokenizer.chat_template")) + len(_key(name)) + at
        return data[:place] + content + data[place + len(content) :]

    return rewrite


_COUNTS = {
    "heads": "llama.attention.head_count", "key heads": "llama.attention.head_count_kv",
    "layers": "llama.block_count", "width": "llama.embedding_length", "context": "llama.context_length",
    "inner width": "llama.feed_forward_length", "rope dimensions": "llama.rope.dimension_count",
    "end token": "tokenizer.ggml.eos_token_id", "first token": "tokenizer.ggml.bos_token_id",
}  # fmt: skip
_QUERY, _EMBEDDING, _NORM = "blk.0.attn_q.weight", "token_embd.weight", "output_norm.weight"
REWRITES: Mapping[str, Rewrite] = {
    **{
        f"{said} {value:,}": _field(key, "<I", value)
        for said, key in _COUNTS.items()
        for value in ((0, 2**31, 2**32 - 1) if "token" not in said else (265, 10**6, 2**32 - 1))
    },
    "7 heads": _field(_COUNTS["heads"], "<I", 7),
    "an epsilon that is no number": _field("llama.attention.layer_norm_rms_epsilon", "<f", float("nan")),
    "an infinite rope": _field("llama.rope.freq_base", "<f", float("inf")),
    "heads of the type text": _type(_COUNTS["heads"], _STRING),
    "heads of the type list": _type(_COUNTS["heads"], _ARRAY),
    "heads of the type of fractions": _type(_COUNTS["heads"], _F32),
    "heads of the type of negatives": _field(_COUNTS["heads"], "<i", -4),
    "heads of a type nobody knows": _type(_COUNTS["heads"], 99),
    "no heads": _renamed(_COUNTS["heads"], "llama.attention.head_c0unt"),
    "layers twice": _renamed(_COUNTS["layers"], "llama.block_count"[:-5] + "c0unt"),
    "no tokens": _renamed("tokenizer.ggml.tokens", "tokenizer.ggml.t0kens"),
    "no merges": _renamed("tokenizer.ggml.merges", "tokenizer.ggml.m3rges"),
    "no types of tokens": _renamed("tokenizer.ggml.token_type", "tokenizer.ggml.t0ken_type"),
    **{
        f"{length:,} {said}": _array_length(f"tokenizer.ggml.{said}", length)
        for said in ("tokens", "merges", "token_type")
        for length in (0, 5, 2**40)
    },
    "tokens of 2**62 letters": _text(_key("<|endoftext|>"), struct.pack("<Q", 2**62) + b"<|endoftext|>"),
    "tokens that are no text": _text(b"<|im_start|>", b"\xff\xfe\xff\xfe<|im_st"),
    "another architecture": _text(_key("llama"), _key("evil!")),
    "another tokenizer": _text(_key("gpt2"), _key("evil")),
    "another pre-tokenizer": _text(_key("smollm"), _key("evil!!")),
    "version 0": _at(4, struct.pack("<I", 0)),
    "version 1": _at(4, struct.pack("<I", 1)),
    "version 2**31": _at(4, struct.pack("<I", 2**31)),
    "the other byte order": _at(4, struct.pack(">I", 3)),
    "2**62 tensors": _at(8, struct.pack("<Q", 2**62)),
    "no tensors": _at(8, struct.pack("<Q", 0)),
    "2**62 fields": _at(16, struct.pack("<Q", 2**62)),
    "no fields": _at(16, struct.pack("<Q", 0)),
    "one field more": lambda data: _at(16, struct.pack("<Q", struct.unpack("<Q", data[16:24])[0] + 1))(data),
    "another magic": _at(0, b"EVIL"),
    "no dimensions": _tensor(_QUERY, 0, struct.pack("<I", 0)),
    "a thousand dimensions": _tensor(_QUERY, 0, struct.pack("<I", 1000)),
    "2**32 - 1 dimensions": _tensor(_QUERY, 0, struct.pack("<I", 2**32 - 1)),
    "a dimension of 0": _tensor(_QUERY, 4, struct.pack("<Q", 0)),
    "a dimension of 2**62": _tensor(_QUERY, 4, struct.pack("<Q", 2**62)),
    "dimensions whose product wraps around": _tensor(_QUERY, 4, struct.pack("<QQ", 2**33, 2**33)),
    "an embedding of 2**40 rows": _tensor(_EMBEDDING, 12, struct.pack("<Q", 2**40)),
    "an embedding of 3 rows": _tensor(_EMBEDDING, 12, struct.pack("<Q", 3)),
    "a tensor of a type nobody knows": _tensor(_QUERY, 20, struct.pack("<I", 999)),
    "a tensor of another type": _tensor(_QUERY, 20, struct.pack("<I", 0)),
    "a norm of a packed type": _tensor(_NORM, 12, struct.pack("<I", 3)),
    "a tensor behind the file": _tensor(_QUERY, 24, struct.pack("<Q", 2**62)),
    "a tensor at an odd place": _tensor(_QUERY, 24, struct.pack("<Q", 1)),
    "all tensors on one place": _tensor(_QUERY, 24, struct.pack("<Q", 0)),
    "a tensor twice": _renamed("blk.1.attn_q.weight", _QUERY),
    "a tensor of layer 999999999": _renamed("blk.1.attn_q.weight", "blk.9.attn_q.weight"),
    "a tensor without a place": _renamed("blk.1.attn_q.weight", "blk.x.attn_q.weight"),
    "a tensor that is missing": _renamed(_NORM, "output_evil.weight"),
    "an alignment of 0": _text(_key("llama.rope.freq_base"), _key("general.alignment0xx")),
    "a template that loops": _text(b"{% for m in messages %}", b"{% for m in lipsum(9)%}"),
}  # fmt: skip


def _case(name: str, make: Callable[[Path], Path]) -> Case:
    return Case(Kind.GGUF, name, lambda folder: ask(make(folder)))


def gguf_cases() -> Iterator[Case]:
    """Yield all cases of GGUF files."""
    for name, rewrite in REWRITES.items():

        def make(folder: Path, rewrite: Rewrite = rewrite) -> Path:
            path = folder / "small.gguf"
            path.write_bytes(rewrite((samples() / "small.gguf").read_bytes()))
            return path

        yield _case(name, make)
    for seed in range(10):
        # what comes first describes the rest
        yield _case(f"bytes changed ({seed})", partial(_harmed, with_flips("small.gguf", seed, 6, 14_000)))
        yield _case(f"cut short ({seed})", partial(_harmed, with_cut("small.gguf", seed)))
    for what, put in ODD_FILES.items():
        yield _case(f"{what} as the file", partial(_put, put, "small.gguf"))
    yield _case("weights that are not finite", _not_finite)
    yield Case(Kind.GGUF, "two files in a folder", _two_files)
    yield Case(Kind.GGUF, "a FIFO in a folder", lambda folder: ask(_put(ODD_FILES["a FIFO"], "a.gguf", folder).parent))


def _harmed(harm: Harm, folder: Path) -> Path:
    path = copy_of("small.gguf", folder)
    harm(folder)
    return path


def _put(put: Harm, name: str, folder: Path) -> Path:
    put(folder / name)
    return folder / name


def _not_finite(folder: Path) -> Path:
    from gguf import GGMLQuantizationType as GgmlType

    from tests.inference.gguf_samples import HIDDEN, tokens, write_gguf

    weights: dict[str, Any] = {_EMBEDDING: np.full((len(tokens()), HIDDEN), np.inf, np.float32)}
    return write_gguf(folder / "small.gguf", GgmlType.F32, extra=weights)


def _two_files(folder: Path) -> Call:
    copy_of("small.gguf", folder).rename(folder / "a.gguf")
    copy_of("small.gguf", folder)
    return ask(folder)
