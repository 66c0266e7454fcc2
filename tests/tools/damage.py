"""Damage for parts of lists, for tests of the law that it takes no other part away."""

from typing import Any

ODD: list[Any] = [
    None,
    True,
    0,
    7,
    -1.5,
    "",
    "odd",
    [],
    ["odd"],
    [None],
    {},
    {"odd": 1},
    {"a": None},
    [[]],
    {"type": 7},
]
"""Values of many kinds in place of a part, or of a field of one."""
