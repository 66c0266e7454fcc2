"""The timeline of the stand-in for a GPU replaces clocks of the code by their names."""

from pkgutil import resolve_name
from time import perf_counter

import pytest

from tests.project.scripts import ROOT, script


def test_the_clocks_that_it_replaces_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """It named a module that was no more, and so did not run."""
    monkeypatch.syspath_prepend(ROOT / "scripts")
    clocks = script("device_timeline").CLOCKS
    assert clocks
    for name in clocks:
        assert resolve_name(name.replace(".perf_counter", ":perf_counter")) is perf_counter
