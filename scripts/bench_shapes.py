"""Measures the host time that an answer's shape adds to a round: masks for a tree of 16 nodes, 150,000 tokens.

    python scripts/bench_shapes.py [--nodes 16] [--vocabulary 150000] [--json]

The tokens and the answers are made up. Each round drafts what comes next in an answer, and beside each of its tokens
others that the shape may forbid, as beams do.
"""

import argparse
import json
import statistics
import sys
import time
from types import SimpleNamespace
from typing import Any, cast

import numpy as np

from rdchat.inference.api.answer_shape import AnswerShape, ShapeKind
from rdchat.inference.decoding.draft import Draft
from rdchat.inference.decoding.shape_matcher import ShapeVocabulary
from rdchat.inference.target.prefix_tree import PrefixTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import PackedTree

LIMIT_MS = 1.0
DEPTH = 5  # tokens of the answer in each draft, the root not counted
LETTERS = "etaoinshrdlucmfwypvbgkjqxz"
SCHEMA = {
    "type": "object",
    "properties": {
        "title": {"type": "string"},
        "year": {"type": "integer"},
        "kind": {"enum": ["novel", "play", "poem", "essay"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 40}},
        "author": {"type": "object", "properties": {"name": {"type": "string"}, "living": {"type": "boolean"}},
                   "required": ["name", "living"], "additionalProperties": False},
    },
    "required": ["title", "year", "kind", "tags", "author"],
    "additionalProperties": False,
}  # fmt: skip
SHAPES = {
    "schema": AnswerShape(ShapeKind.SCHEMA, json.dumps(SCHEMA)),
    "any JSON object": AnswerShape(ShapeKind.JSON),
    "expression": AnswerShape(ShapeKind.REGEX, r"\{.*\}"),
}


def vocabulary(size: int, rng: np.random.Generator) -> ShapeVocabulary:
    """Return all bytes, signs of JSON, and words, half of them after a space."""
    tokens = [b"", *(bytes([byte]) for byte in range(256)), b'{"', b'":', b'": ', b'", "', b'"}', b"true", b"false"]
    letters, shares = np.array(list(LETTERS)), 1 / np.arange(1, 27)
    words = set[bytes]()
    while len(tokens) + len(words) < size:
        word = "".join(rng.choice(letters, rng.integers(2, 9), p=shares / shares.sum()))
        words.add((" " * int(rng.integers(2)) + word).encode())
    tokens += sorted(words)
    model = SimpleNamespace(
        info=SimpleNamespace(vocabulary_size=size),
        prompts=SimpleNamespace(control={0: "<|end|>"}),
        end_tokens={0},
        tokenizer=tokens,
        token_data=tokens.__getitem__,
    )
    return ShapeVocabulary(cast(LoadedModel, model))


def answer(rng: np.random.Generator) -> bytes:
    """Return an answer that fits `SCHEMA`."""

    def text(count: int) -> str:
        return " ".join("".join(rng.choice(list(LETTERS), rng.integers(2, 9))) for _ in range(count))

    data = {
        "title": text(12),
        "year": int(rng.integers(1500, 2000)),
        "kind": "novel",
        "tags": [text(1) for _ in range(4)],
        "author": {"name": text(2), "living": False},
    }
    return json.dumps(data).encode()


def draft(root: int, following: list[int], nodes: int, rng: np.random.Generator, size: int) -> Draft:
    """Return a draft of so many nodes: what follows, and other tokens beside it."""
    tokens, parents, depths = [root], [-1], [0]
    for depth, token in enumerate(following[:DEPTH], 1):
        parents.append(depth - 1)
        tokens.append(token)
        depths.append(depth)
    while len(tokens) < nodes:
        parent = int(rng.integers(min(len(following), DEPTH) + 1))
        tokens.append(int(rng.integers(1, size)))
        parents.append(parent)
        depths.append(parent + 1)
    tree = PrefixTree(*(np.array(column, np.int32) for column in (tokens, parents, depths)))
    return Draft(PackedTree.of(tree))


def rounds_ms(words: ShapeVocabulary, shape: AnswerShape, nodes: int, rng: np.random.Generator) -> list[float]:
    """Return the milliseconds of each round of a reply."""
    matcher, spent = words.matcher(shape), list[float]()
    ids, size = words(answer(rng)), len(words.tokens)
    for place, token in enumerate(ids):
        following = ids[place + 1 :]
        began = time.perf_counter()
        matcher.take(token)
        spent_taking = time.perf_counter() - began
        if not following:
            break
        drafted = draft(token, following, nodes, rng, size)
        began = time.perf_counter()
        matcher.within(drafted, nodes, trees=True)
        spent.append((time.perf_counter() - began + spent_taking) * 1e3)
    return spent


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=16)
    parser.add_argument("--vocabulary", type=int, default=150_000)
    parser.add_argument("--replies", type=int, default=10, help="for each shape")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    began = time.perf_counter()
    words = vocabulary(args.vocabulary, rng)
    data: dict[str, Any] = {"vocabulary_s": time.perf_counter() - began, "shapes": {}}
    for name, shape in SHAPES.items():
        spent = [ms for _ in range(args.replies) for ms in rounds_ms(words, shape, args.nodes, rng)]
        data["shapes"][name] = {
            "rounds": len(spent),
            "median_ms": statistics.median(spent),
            "p95_ms": float(np.percentile(spent, 95)),
        }
    if args.json:
        print(json.dumps(data, indent=1))
    else:
        for name, each in data["shapes"].items():
            print(f"{name}: {each['median_ms']:.2f} ms a round (limit {LIMIT_MS}), 95 % below {each['p95_ms']:.2f} ms")
    sys.exit(any(each["median_ms"] > LIMIT_MS for each in data["shapes"].values()))


if __name__ == "__main__":
    main()
