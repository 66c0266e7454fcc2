"""Small inputs after public bug reports of chat apps and model servers; README.md says what each one guards."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from tests.cases.outcomes import INPUTS, OUTCOMES, Tokenizers

_CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases.json").read_text())
_BY_HAND = {
    "H1": "tests/chat/attachments/test_documents.py",
}
"""Cases that need weights, a running server or another machine, and the file that tests them."""


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory, default_model_folder: Path) -> Tokenizers:
    return Tokenizers(default_model_folder, tmp_path_factory.mktemp("tokenizers"))


@pytest.mark.parametrize("case", [each for each in _CASES if each["how"] in OUTCOMES], ids=lambda case: case["id"])
def test_the_input_has_the_wanted_outcome(case: dict[str, Any], tokenizers: Tokenizers, qapp: QApplication) -> None:
    outcome = OUTCOMES[case["how"]](case, tokenizers)

    assert re.search(case["want"], outcome, re.DOTALL), f"{case['expected']}: {outcome}"
    assert not re.search(case.get("avoid", "(?!)"), outcome, re.DOTALL), f"{case['expected']}: {outcome}"


def test_every_input_belongs_to_a_case() -> None:
    named = {each["file"] for each in _CASES} | {each["template"] for each in _CASES if "template" in each}
    files = {str(path.relative_to(INPUTS)) for path in INPUTS.rglob("*") if path.is_file()}

    unnamed = {name for name in files if name not in named and name.split("/")[0] not in named}

    assert not unnamed - {"templates/plain-chatml.jinja"}
