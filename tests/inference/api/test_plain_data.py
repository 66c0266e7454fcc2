"""Plain data of the engine: drafters, memory, JSON from outside, and files of prompts."""

import json
import math
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api import (
    DRAFTERS,
    DraftSettings,
    Dtype,
    Fit,
    MemoryNeed,
    MemoryRoom,
    Mode,
    ModelSizes,
    Prompt,
    ToolCall,
    first_of_each_group,
    parsed_json,
    read_prompts,
    read_replies,
)

OF_ALL_MODES = {"mode", "profile", "trace"}


def test_every_mode_that_drafts_by_itself_has_facts() -> None:
    assert set(DRAFTERS) == set(Mode) - {Mode.AUTO, Mode.OFF}


@pytest.mark.parametrize("mode", Mode)
def test_a_mode_uses_settings_that_there_are(mode: Mode) -> None:
    names = {field.name for field in fields(DraftSettings)}
    used = {name for name in names if mode.uses(name)}
    assert used.isdisjoint(OF_ALL_MODES)
    assert set(DraftSettings(mode).sizes) <= used
    if mode in DRAFTERS:
        facts = DRAFTERS[mode]
        assert {*facts.sizes, *facts.more, *filter(None, [facts.option])} == used


def test_every_setting_is_used_and_auto_takes_every_drafter_that_is_named() -> None:
    names = {field.name for field in fields(DraftSettings)} - OF_ALL_MODES
    assert all(any(mode.uses(name) for mode in Mode) for name in names)
    assert {name for name in names if Mode.AUTO.uses(name)} == {"draft_model", "drafter"}
    settings = DraftSettings(draft_model="small", drafter="head")
    assert {mode: settings.named(mode) for mode in Mode if settings.named(mode)} == {
        Mode.SPECULATIVE: "small",
        Mode.DRAFTER: "head",
    }


SIZES = ModelSizes(1000, 600, 4, Dtype.BFLOAT16, 8, 8192)
FLOATS = ModelSizes(1000, 2000, None, Dtype.BFLOAT16, 8, 8192)


@pytest.mark.parametrize(
    ("sizes", "dtype", "on_gpu", "weights", "cache", "precision"),
    [
        (SIZES, Dtype.AUTO, True, 600, 8 * 2 * 4096, "4bit"),
        (SIZES, Dtype.AUTO, False, 4000, 8 * 4 * 4096, "float32"),
        (SIZES, Dtype.FOUR_BIT, False, 600, 8 * 4 * 4096, "4bit"),
        (SIZES, Dtype.FLOAT16, True, 2000, 8 * 2 * 4096, "float16"),
        (FLOATS, Dtype.FOUR_BIT, True, 562, 8 * 2 * 4096, "4bit"),
        (FLOATS, Dtype.EIGHT_BIT, False, 1125, 8 * 4 * 4096, "8bit"),
    ],
)
def test_weights_and_cache_by_precision_and_device(
    sizes: ModelSizes, dtype: Dtype, on_gpu: bool, weights: int, cache: int, precision: str
) -> None:
    need = MemoryNeed.for_sizes(sizes, dtype, on_gpu)
    assert (need.weights_bytes, need.cache_bytes, need.precision) == (weights, cache, precision)


def test_no_cache_is_larger_than_the_context() -> None:
    assert MemoryNeed.for_sizes(SIZES, Dtype.AUTO, True, 100_000).tokens == 8192


@pytest.mark.parametrize(
    ("limit", "free", "fit"),
    [(1000, 1000, Fit.TIGHT), (1112, 1001, Fit.FITS), (999, 10**9, Fit.TOO_LARGE), (10**9, 999, Fit.TIGHT)],
)
def test_what_is_refused_and_what_is_warned_of(limit: int, free: int, fit: Fit) -> None:
    need = MemoryNeed.for_sizes(ModelSizes(500, 1000, None, Dtype.BFLOAT16, 0, 1), Dtype.AUTO, on_gpu=True)
    assert need.total_bytes == 1000
    assert need.fit(MemoryRoom(limit, free)) is fit


NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers()
NAMES = st.text(max_size=3)
VALUES = st.recursive(
    NUMBERS | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)


def finite(value: object) -> bool:
    match value:
        case list():
            return all(map(finite, value))
        case dict():
            return all(map(finite, value.values()))
    return not isinstance(value, float) or math.isfinite(value)


@given(VALUES)
def test_a_value_is_taken_where_all_its_numbers_are_finite(value: object) -> None:
    assert parsed_json(json.dumps(value)) == (value if finite(value) else None)


@pytest.mark.parametrize("number", ["1e999", "-1e999", "NaN", "Infinity", "-Infinity"])
def test_a_number_that_no_json_can_say_again_is_refused(number: str) -> None:
    assert parsed_json(f'{{"a": {number}}}') is None
    with pytest.raises(InvalidSettingError, match="not a JSON object"):
        ToolCall("f", f'{{"a": [{number}]}}')
    assert ToolCall("f", f'{{"a": "{number}", "b": 1.5e308}}')


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


@pytest.mark.parametrize(
    ("text", "message"),
    [
        *((f"fine\n{line}\n", r"Line 2 of .*prompts\.txt")
          for line in ('{"prompt": ', '{"turns": []}', '{"prompt": 3}', '{"prompt": " "}', '{"text": "x"}')),
        *((f"fine\n{line}\n", r"Line 2 of .*prompts\.txt has half a character")
          for line in ('{"prompt": "\\ud83d"}', '{"prompt": "x", "category": "\\ud83d"}')),
        ("", "has no prompts"), ("\n \n", "has no prompts"),
    ],
)  # fmt: skip
def test_prompts_that_cannot_be_read_are_refused(text: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(RdchatError, match=message):
        read_prompts(written(tmp_path, text))
