"""JSON-Schema-Test-Suite through `response_format`: nothing invalid is accepted, and no answer violates its schema."""

import hashlib
import json
import lzma
import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

import llguidance
import numpy as np
import pytest
import regex
from jsonschema import Draft202012Validator, _keywords, _utils, validators
from referencing import Registry

from rdchat.errors import ModelError, ShapeRefusedError
from rdchat.inference.api import AnswerShape
from rdchat.inference.prompts.shape_grammar import check_grammar, grammar_of
from rdchat.json_schema import limits, reject_unfit
from rdchat.server.interfaces.client_tools import read_shape
from rdchat.server.interfaces.fields import ApiError, Fields

# Their valid instances are refused: a `format` is followed and not only noted, two numbers differ in the 54th bit, and
# a metaschema of its own switches validation off.
STRICTER = {
    "const: float and integers are equal up to 64-bit representation limits",
    "vocabulary: schema that uses custom metaschema with with no validation vocabulary",
    *(
        f"format: {kind} format"
        for kind in ("email", "ipv4", "ipv6", "hostname", "date", "date-time", "time", "uri", "uuid", "duration")
    ),
}


def test_a_sixth_of_the_suite_finds_nothing_that_is_wrong() -> None:
    report = judge(suite()[::6])
    assert report.wrong == []
    assert report.counts["invalid instances"] > 60


@pytest.mark.slow
@pytest.mark.parametrize(("strict", "refused"), [(False, 31), (True, 197)])
def test_the_suite_finds_nothing_that_is_wrong(strict: bool, refused: int) -> None:
    cases = suite()
    assert len(cases) == 383
    report = judge(cases, strict=strict, samples=20)
    assert report.wrong == []
    assert report.counts["invalid instances"] >= 250
    assert report.counts["invalid instances given up"] == 0
    assert report.counts["refused"] <= refused, report.refusals
    assert set(report.stricter) <= STRICTER


@pytest.mark.slow
@pytest.mark.skipif("MASKBENCH" not in os.environ, reason="MASKBENCH is not the folder of its schemas")
@pytest.mark.parametrize("strict", [False, True])
def test_maskbench_finds_nothing_that_is_wrong(strict: bool) -> None:
    report = judge(sample_of_maskbench(Path(os.environ["MASKBENCH"])), strict=strict, samples=3)
    assert report.counts["schemas"] == 1000
    assert report.wrong == []


_DATA = Path(__file__).parent / "data"
_TOKENIZER = llguidance.LLTokenizer("byte")
# An instance is read in the schema's order of properties, where the grammar lets any of them stand, and in orders that
# depart from it so often in an object; at most so many properties are tried.
_DEPARTURES = 2
_MAX_TRIES = 3000
# Bytes of a sampled answer: beyond the first the walk takes what ends soonest, beyond the second it is given up.
_LONG = 120
_LONGEST = 3000


@dataclass(frozen=True, slots=True)
class Case:
    """A schema, and instances with whether each is valid; None where only a `format` says so."""

    name: str
    schema: Any
    instances: Sequence[tuple[Any, bool | None]] = ()


@dataclass(slots=True)
class Report:
    """What became of some schemas.

    Attributes:
        counts: By their name in `docs/conformance.md`.
        refusals: Their messages, without what is particular to a schema.
        wrong: Lines about faults: any fails the gate.
        stricter: Names of the schemas that refuse a valid instance.
    """

    counts: Counter[str] = field(default_factory=Counter)
    refusals: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    stricter: list[str] = field(default_factory=list)


def shape_of(schema: Any, *, strict: bool) -> AnswerShape:
    """Return a schema as the server compiles it.

    Raises:
        ApiError, ShapeRefusedError: If it is refused.
    """
    wanted = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema, "strict": strict}}
    shape = read_shape(Fields(wanted, "response_format"))
    assert shape is not None
    check_grammar(shape)
    return shape


class Grammar:
    """The grammar of a shape, as the engine uses it.

    Attributes:
        tries: How many properties were tried for the last value.
    """

    def __init__(self, shape: AnswerShape) -> None:
        self.shape = shape
        self._matcher = llguidance.LLMatcher(_TOKENIZER, grammar_of(shape), log_level=0, limits=limits())
        self._orders = list(_orders(json.loads(shape.source)))
        self.tries = 0

    @property
    def gave_up(self) -> bool:
        """Whether the last value had too many orders of properties."""
        return self.tries > _MAX_TRIES

    def accepts(self, value: Any) -> bool:
        """Tell whether the grammar takes a value in an order of its properties, and the check passes it."""
        self._matcher.reset()
        self.tries = 0
        return self._read(value) > 0 and self._matcher.is_accepting() and self.passes_check(value)

    def passes_check(self, value: Any) -> bool:
        """Tell whether a finished answer passes the check of what the grammar does not enforce."""
        if not self.shape.unenforced:
            return True
        try:
            reject_unfit(json.dumps(value), self.shape.unenforced)
        except ModelError:
            return False
        return True

    def _sorted(self, names: Iterable[str]) -> tuple[list[str], list[str]]:
        """Return those of an object's names that the schema has, sorted as there, and the others."""
        known = list[str]()
        others = list(names)
        while others:
            order = max(self._orders, key=lambda order: len(order.keys() & others))
            if not order.keys() & others:
                break
            known += sorted(order.keys() & others, key=lambda name: order[name])
            others = [name for name in others if name not in order]
        return known, others

    def _take(self, text: str) -> int:
        """Read a text; return its bytes, or 0 with the grammar as before."""
        data = list(text.encode())
        taken = self._matcher.try_consume_tokens(data)
        if taken == len(data):
            return taken
        self._back(taken)
        return 0

    def _back(self, count: int) -> None:
        if count:
            self._matcher.rollback(count)

    def _read(self, value: Any) -> int:
        """Read a value; return its bytes, or 0 with the grammar as before."""
        match value:
            case dict():
                return self._read_members(value, *self._sorted(value))
            case list():
                return self._read_items(value)
            case float() if value.is_integer() and abs(value) < 1e15:
                return self._take(json.dumps(value)) or self._take(str(int(value)))
        return self._take(json.dumps(value, ensure_ascii=False)) or self._take(json.dumps(value))

    def _read_items(self, items: Sequence[Any]) -> int:
        count = 0
        for text, item in [("[" if at == 0 else ", ", item) for at, item in enumerate(items)]:
            begun = self._take(text)
            read = self._read(item) if begun else 0
            count += begun + read
            if not read:
                self._back(count)
                return 0
        end = self._take("]" if items else "[]")
        if not end:
            self._back(count)
        return count + end if end else 0

    def _read_members(
        self, value: Any, known: Sequence[str], others: Sequence[str], sign: str = "{", spare: int = _DEPARTURES
    ) -> int:
        """Read the rest of an object, whose names are those that the schema orders, and others."""
        if not known and not others:
            return self._take("}" if sign == ", " else "{}")
        for name in (*known, *others[:1]):
            begun = self._take(f"{sign}{json.dumps(name, ensure_ascii=False)}: ")
            if not begun:
                continue
            self.tries += 1
            read = self._read(value[name])
            left = [each for each in known if each != name], others[name in others :]
            rest = self._read_members(value, *left, ", ", spare) if read else 0
            if rest:
                return begun + read + rest
            self._back(begun + read)
            if spare == 0 or self.gave_up:
                break
            spare -= 1
        return 0

    def sample(self, seed: str) -> str | None:
        """Return an answer that the grammar allows, from a random walk over its bytes; None where it does not end."""
        rng = random.Random(seed)
        written = bytearray()
        self._matcher.reset()
        while len(written) < _LONGEST:
            mask = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            allowed = np.flatnonzero(np.unpackbits(mask, bitorder="little")[:256]).tolist()
            hurried = len(written) > _LONG
            if self._matcher.is_accepting() and (not allowed or hurried or rng.random() < 0.3):
                return written.decode()
            if not allowed:
                return None
            written.append(_chosen(allowed, rng, hurried=hurried))
            self._matcher.consume_token(written[-1])
        return None


def _orders(schema: Any) -> Iterator[dict[str, int]]:
    """Yield the place of each name in each object of a schema: `properties`, and values that are given."""
    parts = [schema]
    while parts:
        part = parts.pop()
        if isinstance(part, dict):
            yield {name: place for place, name in enumerate(part)}
        if isinstance(part, dict | list):
            parts += part.values() if isinstance(part, dict) else part


_IN_TEXT = {*b'"]}'}
_PLAIN = b"0123456789abcdefghijklmnopqrstuvwxyz -."


def _chosen(allowed: Sequence[int], rng: random.Random, *, hurried: bool) -> int:
    """Return one of the bytes: a letter or digit more often than others, or one that ends soon."""
    known = set(allowed)
    closing = [byte for byte in (b'"' if known >= _IN_TEXT else b'}]"') if byte in known]
    if closing and (hurried or rng.random() < 0.25):
        return closing[0]
    plain = [byte for byte in _PLAIN if byte in known]
    return rng.choice(plain if plain and rng.random() < 0.8 else allowed)


def judge(cases: Iterable[Case], *, strict: bool = False, samples: int = 0) -> Report:
    """Compile each schema, and compare what its grammar and the check accept with its instances.

    Args:
        cases: The schemas.
        strict: Whether clients ask for `strict`: then what a grammar cannot enforce is refused.
        samples: Answers that are made from each grammar and checked with jsonschema.
    """
    report = Report()
    for case in cases:
        try:
            _judge(case, strict, samples, report)
        except Exception as error:  # any other error is a fault
            report.wrong.append(f"{case.name}: {type(error).__name__}: {error}"[:300])
    return report


def _judge(case: Case, strict: bool, samples: int, report: Report) -> None:
    report.counts["schemas"] += 1
    try:
        shape = shape_of(case.schema, strict=strict)
    except (ApiError, ShapeRefusedError) as error:
        report.counts["refused"] += 1
        message = error.message
        report.refusals[re.sub(r"'.*?'|\".*?\"|\d+", "…", message)] += 1
        if "\n" in message or not 20 < len(message) < 400:
            report.wrong.append(f"{case.name}: its refusal is no plain line: {message[:200]!r}")
        return
    report.counts["compiled"] += 1
    report.counts["compiled, checked afterwards"] += bool(shape.left_out)
    grammar = Grammar(shape)
    stricter = False
    for instance, valid in case.instances:
        kind = {True: "valid", False: "invalid", None: "invalid by a format"}[valid]
        accepted = grammar.accepts(instance)
        report.counts[f"{kind} instances"] += 1
        report.counts[f"{kind} instances accepted"] += accepted
        report.counts[f"{kind} instances given up"] += not accepted and grammar.gave_up
        stricter |= valid is True and not accepted
        if valid is False and accepted:
            report.wrong.append(f"{case.name}: accepts {json.dumps(instance)[:200]}")
    report.counts["compiled, accept all valid instances"] += not stricter
    if stricter:
        report.stricter.append(case.name)
    for seed in range(samples):
        _judge_sample(case, grammar, seed, report)


def _judge_sample(case: Case, grammar: Grammar, seed: int, report: Report) -> None:
    text = grammar.sample(f"{case.name} {seed}")
    if text is None:
        report.counts["unfinished samples"] += 1
        return
    report.counts["samples"] += 1
    value = json.loads(text)
    if not grammar.passes_check(value):
        report.counts["samples refused by the check"] += 1
    elif (problem := violation(case.schema, value)) is not None:
        report.wrong.append(f"{case.name}: answers {text[:200]}: {problem[:200]}")


def violation(schema: Any, value: Any) -> str | None:
    """Return how a value violates a schema, as jsonschema says with the regular expressions of `regex`, or None."""
    kind = validators.validator_for(schema, default=Draft202012Validator)
    with patch.object(_keywords, "re", regex), patch.object(_utils, "re", regex):
        problem = next(kind(schema, registry=Registry()).iter_errors(value), None)
    return None if problem is None else " ".join(problem.message.split())


def _bench_case(name: str, file: dict[str, Any]) -> Case:
    """Return a case of MaskBench, which excludes values by `format`; JSON Schema takes that for a note."""
    schema = file["schema"]
    tests = list[tuple[Any, bool | None]]()
    for test in file["tests"]:
        valid = True if test["valid"] else False if violation(schema, test["data"]) else None
        tests.append((test["data"], valid))
    return Case(name, schema, tests)


def suite() -> list[Case]:
    """Return the cases of JSON-Schema-Test-Suite."""
    with lzma.open(_DATA / "json-schema-draft2020-12.jsonl.xz", "rt", encoding="utf-8") as lines:
        groups = [json.loads(line) for line in lines]
    return [
        Case(
            f"{group['file']}: {group['description']}",
            group["schema"],
            [(test["data"], test["valid"]) for test in group["tests"]],
        )
        for group in groups
    ]


def sample_of_maskbench(folder: Path) -> Iterator[Case]:
    """Yield the cases of the sample of MaskBench, from its folder `maskbench/data`.

    Raises:
        ValueError: If a file is another one.
    """
    with lzma.open(_DATA / "maskbench-sample.txt.xz", "rt", encoding="utf-8") as lines:
        listed = [line.split() for line in lines]
    for digest, name in listed:
        content = (folder / f"{name}.json").read_bytes()
        if hashlib.sha256(content).hexdigest()[:16] != digest:
            raise ValueError(f"{name} is not the file of the sample")
        yield _bench_case(name, json.loads(content))
