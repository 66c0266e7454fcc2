from pathlib import Path

import pytest

from rdchat.errors import RdchatError
from rdchat.inference.api import Prompt, first_of_each_group, read_prompts, read_replies


def written(folder: Path, text: str) -> Path:
    path = folder / "prompts.txt"
    path.write_text(text, encoding="utf-8")
    return path


def test_the_three_kinds_of_line(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        'Why is the sky blue?\n\n{"prompt": "Zähle bis 3.", "category": "maths"}\n{"prompt": "Hi"}\n'
        '{"question_id": 81, "category": "stem", "turns": ["one", "two"]}\n{"category": "rag", "turns": ["three"]}\n',
    )
    assert read_prompts(path) == [
        Prompt("Why is the sky blue?"),
        Prompt("Zähle bis 3.", "maths"),
        Prompt("Hi"),
        Prompt("one", "mt_bench"),
        Prompt("three", "rag"),
    ]


def test_a_byte_order_mark_and_borders_of_lines_inside_a_text_change_nothing(tmp_path: Path) -> None:
    path = written(tmp_path, '\ufeff{"prompt": "one\u2028two\x85", "category": null}\r\nthree\x0cfour\n')
    assert read_prompts(path) == [Prompt("one\u2028two\x85"), Prompt("three\x0cfour")]


@pytest.mark.parametrize("line", ['{"prompt": "\\ud83d"}', '{"prompt": "x", "category": "\\ud83d"}'])
def test_half_a_character_is_refused_before_a_tokenizer_meets_it(line: str, tmp_path: Path) -> None:
    with pytest.raises(RdchatError, match=r"Line 2 of .*prompts\.txt has half a character"):
        read_prompts(written(tmp_path, f"fine\n{line}\n"))


@pytest.mark.parametrize("line", ['{"prompt": ', '{"turns": []}', '{"prompt": 3}', '{"prompt": " "}', '{"text": "x"}'])
def test_a_broken_line_is_named(line: str, tmp_path: Path) -> None:
    with pytest.raises(RdchatError, match=r"Line 2 of .*prompts\.txt"):
        read_prompts(written(tmp_path, f"fine\n{line}\n"))


@pytest.mark.parametrize("text", ["", "\n \n"])
def test_a_file_without_prompts_is_refused(text: str, tmp_path: Path) -> None:
    with pytest.raises(RdchatError, match="has no prompts"):
        read_prompts(written(tmp_path, text))


def test_unreadable_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(RdchatError, match="cannot be read"):
        read_prompts(tmp_path / "missing.txt")
    (tmp_path / "latin.txt").write_bytes(b"caf\xe9\n")
    with pytest.raises(RdchatError, match="not UTF-8"):
        read_prompts(tmp_path / "latin.txt")


def test_some_of_each_group() -> None:
    prompts = [Prompt(f"{group}{number}", group) for group in "ab" for number in range(6)]
    assert [prompt.text for prompt in first_of_each_group(prompts, 2)] == ["a0", "a1", "b0", "b1"]


def test_replies_are_lines_of_json(tmp_path: Path) -> None:
    assert read_replies(written(tmp_path, '{"reply": "one\\ntwo", "prompt": "x"}\n\n{"reply": "three"}\n')) == [
        "one\ntwo",
        "three",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "has no replies"),
        ("Plain text\n", "Line 1 of .* is damaged: it is not JSON"),
        ('{"reply": "x"}\n{"prompt": "x"}\n', "Line 2 of .* has no reply"),
        ('{"reply": " "}\n', "Line 1 of .* has no reply"),
        ("[]\n", "Line 1 of .* has no reply"),
        ('{"reply": "\\ud83d"}\n', "Line 1 of .* has half a character"),
    ],
)
def test_replies_that_cannot_be_read_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RdchatError, match=message):
        read_replies(written(tmp_path, text))
