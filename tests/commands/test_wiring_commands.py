"""Commands wire no memory unless a person asks for it."""

from pathlib import Path

import pytest

from rdchat.cli import main
from tests.inference.wired_limits import Limits, limits

__all__ = ["limits"]


def test_a_question_wires_nothing(small_model: Path, limits: Limits) -> None:
    words = ["ask", "--model", str(small_model), "--mode", "off", "--max-tokens", "4", "Hello"]
    limits.check_wired(lambda: main(words), small_model, 0)


@pytest.mark.slow
def test_a_benchmark_wires_the_weights_for_stock_mlx_lm(small_model: Path, limits: Limits) -> None:
    words = ["bench", "--model", str(small_model), "--modes", "off", "--limit", "1", "--max-tokens", "4"]
    limits.check_wired(lambda: main(words), small_model, 1)


@pytest.mark.slow
@pytest.mark.usefixtures("qapp")
def test_a_report_wires_nothing_unless_a_person_asks(small_model: Path, tmp_path: Path, limits: Limits) -> None:
    out = tmp_path / "a.zip"
    assert main(["report", "--out", str(out), "--minutes", "0.1", "--models", str(small_model)]) == 0
    assert limits == []
