"""Ids and positions of the tokens of images."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from rdchat.errors import ModelError
from rdchat.inference.api import ImageSpan, shift_before
from rdchat.inference.vision.families import FAMILIES
from rdchat.inference.vision.image_process import Layout
from rdchat.inference.vision.image_prompts import image_ids, positions_by_axis, with_images

QWEN, SMOL, GEMMA, *_ = FAMILIES
TOKEN = 7
GRIDS = some.tuples(some.integers(1, 6), some.integers(1, 6))
# Tokens of text, then a grid.
PARTS = some.lists(some.tuples(some.integers(0, 5), GRIDS), min_size=1, max_size=4)


def spans_of(parts: list[tuple[int, tuple[int, int]]]) -> list[ImageSpan]:
    spans = []
    at = 0
    for text, (rows, columns) in parts:
        spans.append(ImageSpan(at + text, rows * columns, max(rows, columns) - rows * columns, columns=columns))
        at = spans[-1].end
    return spans


def counted(parts: list[tuple[int, tuple[int, int]]], behind: int) -> np.ndarray:
    """Return positions token by token, as Qwen's code describes them."""
    axes = []
    following = 0
    for text, (rows, columns) in parts:
        axes += [[following + i] * 3 for i in range(text)]
        following += text
        axes += [[following, following + row, following + column] for row in range(rows) for column in range(columns)]
        following += max(rows, columns)
    axes += [[following + i] * 3 for i in range(behind)]
    return np.array(axes).T


@given(PARTS, some.integers(0, 5), some.data())
def test_positions_of_any_part_are_those_of_the_whole(
    parts: list[tuple[int, tuple[int, int]]], behind: int, data: some.DataObject
) -> None:
    spans = spans_of(parts)
    wanted = counted(parts, behind)
    length = wanted.shape[1]
    start = data.draw(some.integers(0, length - 1))
    end = data.draw(some.integers(start + 1, length))
    assert np.array_equal(positions_by_axis(spans, start, end), wanted[:, start:end])
    if behind:
        assert shift_before(spans, length - 1) == wanted[0, -1] - (length - 1)


@given(some.lists(some.lists(GRIDS, min_size=1, max_size=3), min_size=1, max_size=3))
def test_tokens_of_images_get_ids_of_their_own(images: list[list[tuple[int, int]]]) -> None:
    layouts = [(f"image {number}", Layout(tuple(grids), (1, 1))) for number, grids in enumerate(images)]
    ids = [1]
    for grids in images:
        for rows, columns in grids:
            ids += [2, *[TOKEN] * (rows * columns), 3]
    changed, spans = with_images(ids, TOKEN, layouts, SMOL)
    assert [token for token in changed if token >= 0] == [token for token in ids if token != TOKEN]
    assert max((token for token in changed if token < 0), default=-2) <= -2
    assert min(changed) >= -(2**31)
    at = [index for span in spans for index in range(span.start, span.end)]
    assert at == [index for index, token in enumerate(ids) if token == TOKEN]
    assert not any(span.shift for span in spans)
    taken = [changed[index] for index in at]
    assert taken == [each for key, layout in layouts for each in image_ids(key, layout.pixel_tokens)]


def test_another_image_has_other_ids() -> None:
    one = image_ids("one", 300)
    other = image_ids("other", 300)
    assert not set(one) & set(other)
    assert len({*one}) == 300
    assert one[:100] == image_ids("one", 100)


@pytest.mark.parametrize("ids", [[1, 2], [1, TOKEN, 2], [TOKEN] * 5, [TOKEN] * 4 + [1, TOKEN]])
def test_other_tokens_than_those_of_the_images_are_refused(ids: list[int]) -> None:
    with pytest.raises(ModelError, match="tokenizer"):
        with_images(ids, TOKEN, [("a", Layout(((2, 2),), (1, 1)))], QWEN)
