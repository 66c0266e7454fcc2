"""Small inputs after public bug reports of chat apps and model servers; README.md says what each one guards."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from PySide6.QtWidgets import QApplication

from tests.cases import INPUTS
from tests.cases.outcomes import OUTCOMES, Tokenizers
from tests.grids import share

_CASES: list[dict[str, Any]] = json.loads((Path(__file__).parent / "cases.json").read_text())
_BY_HAND = {
    "H1": "tests/chat/attachments/test_pdf_texts.py::test_an_aes_pdf_with_an_empty_password_is_read",
    "K1": "tests/inference/decoding/test_sampling.py::test_earlier_replies_do_not_keep_a_reply_from_ending",
    "K2": "tests/server/interfaces/test_other_programs.py::test_a_stream_that_waits_is_not_silent",
    "K3": "tests/server/interfaces/test_other_programs.py::test_a_full_context_is_known_by_its_code_and_words",
}
"""Tests of the cases that need weights, a running server or another machine."""


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory: pytest.TempPathFactory, default_model_folder: Path) -> Tokenizers:
    return Tokenizers(default_model_folder, tmp_path_factory.mktemp("tokenizers"))


@pytest.mark.parametrize("case", share(each for each in _CASES if each["how"] in OUTCOMES), ids=lambda case: case["id"])
def test_the_input_has_the_wanted_outcome(case: dict[str, Any], tokenizers: Tokenizers, qapp: QApplication) -> None:
    outcome = OUTCOMES[case["how"]](case, tokenizers)

    assert re.search(case["want"], outcome, re.DOTALL), f"{case['expected']}: {outcome}"
    assert not re.search(case.get("avoid", "(?!)"), outcome, re.DOTALL), f"{case['expected']}: {outcome}"


def test_every_input_belongs_to_a_case() -> None:
    named = {each[name] for each in _CASES for name in ("file", "template") if name in each}
    files = {str(path.relative_to(INPUTS)) for path in INPUTS.rglob("*") if path.is_file()}

    unnamed = {name for name in files if name not in named and name.split("/")[0] not in named}

    assert not unnamed - {"templates/plain-chatml.jinja"}


@pytest.mark.slow
def test_cases_by_hand_have_tests_of_their_own() -> None:
    assert {case["id"] for case in _CASES if case["how"] not in OUTCOMES} == set(_BY_HAND)
    for test in _BY_HAND.values():
        file, name = test.split("::")
        assert f"def {name}(" in Path(file).read_text()
