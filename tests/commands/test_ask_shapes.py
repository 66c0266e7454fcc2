"""`rdchat ask` with a shape for the answer: what it takes, refuses and says of an answer that was cut off."""

import json
from pathlib import Path

import pytest

from tests.commands.running import Console

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "big": {"type": "boolean"}},
    "required": ["name", "big"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("options", "words", "status"),
    [
        (("--json-object", "--regex", "a"), "Give only one of --json-object, --schema and --regex.", 2),
        (("--schema", "missing.json"), "The schema file missing.json cannot be read", 1),
        (
            ("--json-object", "--thinking", "on"),
            "Thinking is off for an answer with a format. Leave --thinking out.",
            2,
        ),
    ],
)
def test_wrong_options_are_refused(console: Console, options: tuple[str, ...], words: str, status: int) -> None:
    console.refuses(["ask", "hi", *options], words, status)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "The JSON schema is not JSON yet. Expecting property name"),
        ("[]", "The JSON schema is not a JSON object"),
        ("", "is empty"),
    ],
)
def test_a_file_that_is_no_schema_is_refused(console: Console, tmp_path: Path, text: str, words: str) -> None:
    (tmp_path / "schema.json").write_text(text)
    console.refuses(["ask", "hi", "--schema", tmp_path / "schema.json"], words, 2)


@pytest.mark.slow
def test_an_answer_fits_the_schema_and_one_that_is_cut_off_is_named(
    default_model: Path, console: Console, tmp_path: Path
) -> None:
    (tmp_path / "schema.json").write_text(json.dumps(SCHEMA))
    asked = ("ask", "Describe Lisbon.", "--schema", tmp_path / "schema.json", "--temperature", "0")
    report = console.json(*asked, "--max-tokens", "48")
    assert report["finish_reason"] == "eos"
    assert json.loads(report["text"]).keys() == {"name", "big"}
    assert (
        "The answer was cut off, so it does not have the requested format."
        in console.runs(*asked, "--max-tokens", "4").err
    )


@pytest.mark.slow
def test_an_expression_that_is_none_is_refused(default_model: Path, console: Console) -> None:
    shown = console.runs("ask", "hi", "--regex", "(", status=1)
    assert shown.out.strip() == ""
    assert "The regular expression cannot be used" in shown.err
