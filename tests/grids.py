"""Parameter grids: some combinations run each time, the rest are marked slow, or left out."""

from collections.abc import Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest


def grid(*axes: Sequence[Any], one_in: int | None = None) -> list[Any]:
    """Return every combination of the values, one of each axis; all but a share are marked `slow`.

    The share that runs each time is one in `one_in`, by default one in as many as the last axis has values, evenly
    spread: then each combination of values of the other axes is in it once, and each value of the last axis beside
    each value of the first where that has as many.

    >>> [parameter.values for parameter in grid("ab", "xy") if not parameter.marks]
    [('a', 'x'), ('b', 'y')]
    """
    parameters = []
    for places in product(*(range(len(axis)) for axis in axes)):
        often = sum(places) % (one_in or len(axes[-1])) == 0
        values = [axis[place] for axis, place in zip(axes, places, strict=True)]
        parameters.append(pytest.param(*values, marks=() if often else pytest.mark.slow))
    return parameters


def share(values: Iterable[Any], one_in: int = 3) -> list[Any]:
    """Return parameters, of which one in so many runs each time; the others are marked `slow`.

    >>> [parameter.values for parameter in share("abcd", 2) if not parameter.marks]
    [('a',), ('c',)]
    """
    return [
        pytest.param(*(each if isinstance(each, tuple) else (each,)), marks=pytest.mark.slow if place % one_in else ())
        for place, each in enumerate(values)
    ]


def pairs(*axes: Iterable[Any]) -> list[tuple[Any, ...]]:
    """Return combinations of values, one of each axis, in which any two values of two axes meet.

    They are about as many as the two longest axes have together: for what goes wrong in one value or between two.

    >>> pairs("ab", "xy", "12")
    [('a', 'x', '1'), ('a', 'y', '2'), ('b', 'x', '2'), ('b', 'y', '1')]
    """
    columns = [list(axis) for axis in axes]
    meetings = {
        places: {*combinations(enumerate(places), 2)} for places in product(*(range(len(each)) for each in columns))
    }
    missing = set().union(*meetings.values())
    chosen = []
    while missing:
        chosen.append(max(meetings, key=lambda places: len(meetings[places] & missing)))
        missing -= meetings[chosen[-1]]
    return [tuple(column[place] for column, place in zip(columns, places, strict=True)) for places in chosen]
