"""JSON from outside: what is shown of it is what is sent."""

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import ToolCall, parsed_json

NUMBERS = st.floats(allow_nan=True, allow_infinity=True) | st.integers()
VALUES = st.recursive(NUMBERS | st.text(max_size=3), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


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
