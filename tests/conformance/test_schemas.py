"""JSON-Schema-Test-Suite through `response_format`: nothing invalid is accepted, and no answer violates its schema."""

import os
from pathlib import Path

import pytest

from tests.conformance.schemas import judge, sample_of_maskbench, suite

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


def test_a_third_of_the_suite_finds_nothing_that_is_wrong() -> None:
    report = judge(suite()[::3])
    assert report.wrong == []
    assert report.counts["invalid instances"] > 150


@pytest.mark.slow
@pytest.mark.parametrize(("strict", "refused"), [(False, 31), (True, 183)])
def test_the_suite_finds_nothing_that_is_wrong(strict: bool, refused: int) -> None:
    cases = suite()
    assert len(cases) == 383
    report = judge(cases, strict=strict, samples=20)
    assert report.wrong == []
    assert report.counts["invalid instances"] > 250
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
