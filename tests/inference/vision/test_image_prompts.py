"""Ids and positions of the tokens of images; numbers of a model's folder decide no memory."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from hypothesis import given, settings, strategies as some
from safetensors.numpy import load_file, save_file

from rdchat.errors import ModelError, PromptTooLongError, RdchatError
from rdchat.inference.api import ChatImage, ImageCap, ImageSpan, shift_before
from rdchat.inference.loading import load_model
from rdchat.inference.vision.families import FAMILIES, Family, Vision, vision_of
from rdchat.inference.vision.image_prompts import ImagePrompts, image_ids, positions_by_axis, with_images
from rdchat.inference.vision.image_rows import ImageRows
from rdchat.inference.vision.prepared_images import Layout
from rdchat.inference.vision.processors import PROCESSORS
from tests.grids import share
from tests.inference.vision.pictures import drawn
from tests.inference.vision.seeing_models import ONE_OF_EACH, prepared, seeing_folder

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


@settings(max_examples=40)
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


@settings(max_examples=40)
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


NUMBERS = (0, 2**28, 2**39, 2**63)
# Settings of processors that the small folders leave to their usual values.
ALSO = {
    "qwen3_vl": ("temporal_patch_size", "min_pixels", "max_pixels", "resample"),
    "qwen2_5_vl": ("temporal_patch_size", "resample"),
    "smolvlm": ("resample", "rescale_factor"),
    "gemma3": ("resample", "rescale_factor"),
    "gemma4": ("resample", "rescale_factor"),
    "mistral3": ("resample", "rescale_factor"),
    "lfm2_vl": ("downsample_factor", "min_tiles", "max_pixels_tolerance", "resample"),
}
SETTINGS = ("config.json", "preprocessor_config.json")
CONTEXT = 4096
MOST_BYTES = 32 << 20
SQUARE = (640, 480)
LONG = (4000, 40)


def numbers_in(data: dict[str, Any], above: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the path of each number of a file's settings."""
    for key, value in data.items():
        if isinstance(value, dict):
            yield from numbers_in(value, (*above, key))
        elif type(value) in {int, float}:
            yield (*above, key)


def with_number(data: dict[str, Any], path: tuple[str, ...], number: float) -> dict[str, Any]:
    changed: dict[str, Any] = json.loads(json.dumps(data))
    inner = changed
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = number
    return changed


def harmed(folder: Path, kind: str, names: tuple[str, ...]) -> Iterator[str]:
    """Yield after each change of one number of the folder's files."""
    for name in names:
        file = folder / name
        data = json.loads(file.read_text())
        own = [(each,) for each in ALSO[kind]] if name.startswith("pre") else []
        # The text model has sizes of its own.
        seeing = {key: value for key, value in data.items() if key != "text_config"}
        for path in [*numbers_in(seeing), *own]:
            for number in NUMBERS:
                file.write_text(json.dumps(with_number(data, path, number)))
                yield f"{kind} {name} {'.'.join(path)} = {number}"
        file.write_text(json.dumps(data))


def fault_of(change: str, work: Callable[[], object], limit: int, also: Callable[[], int] = int) -> list[str]:
    """Return what is wrong with work after a change: an error that is no refusal, or more bytes than a limit."""
    try:
        peak = max(peak_of(work), also())
    except Exception as error:
        return [f"{change}: {error!r}"]
    return [f"{change}: {peak / 2**20:,.0f} MB"] if peak > limit else []


def peak_of(work: Callable[[], object]) -> int:
    """Return the most bytes that work takes at a time, also if it is refused."""
    tracemalloc.start()
    try:
        work()
    except RdchatError:
        pass
    finally:
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    return peak


def seeing_changes(folder: Path, kind: str, names: tuple[str, ...]) -> Iterator[tuple[str, Vision, Family]]:
    """Yield what is harmed of a folder that sees all the same, and how it does."""
    for change in harmed(folder, kind, names):
        vision = vision_of(folder)
        if vision.family is not None:
            yield change, vision, vision.family


def expand(folder: Path, family: Family, size: tuple[int, int]) -> None:
    ImagePrompts(folder, family).expanded([ChatImage(folder, "", *size)], ImageCap.FULL, CONTEXT)


@pytest.mark.parametrize("kind", share(ONE_OF_EACH, 7))
def test_no_number_of_a_folder_decides_the_text_of_an_image(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    wrong = list[str]()
    for change, _, family in seeing_changes(folder, kind, SETTINGS):
        for size in (SQUARE, LONG):
            wrong += fault_of(change, partial(expand, folder, family, size), MOST_BYTES)
    assert wrong == []


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_no_number_of_a_folder_decides_the_memory_of_pixels(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    pixels = drawn(64, 48)
    wrong = list[str]()
    for change, _, family in seeing_changes(folder, kind, SETTINGS):
        try:
            settings = family.image_settings(folder)
            processor = PROCESSORS[family.processor]
            layout = processor.layout(64, 48, settings, 1024)
        except ModelError:
            continue
        assert np.prod(layout.size) <= 2**26, change
        if np.prod(layout.size) <= 2**22:
            wrong += fault_of(change, partial(processor.prepare, pixels, settings, 1024), 400 << 20)
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_no_number_of_a_folder_decides_the_memory_of_a_tower(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    image = prepared(kind)[0]
    wrong = list[str]()
    for change, vision, _ in seeing_changes(folder, kind, SETTINGS[:1]):
        # Other tests of this process may keep a model.
        before = mx.get_active_memory()
        mx.reset_peak_memory()
        see = partial(ImageRows(folder, vision).see, "key", image)
        wrong += fault_of(change, see, MOST_BYTES, lambda before=before: mx.get_peak_memory() - before)
    assert wrong == []


def test_images_of_more_tokens_than_the_context_are_refused(tmp_path: Path) -> None:
    folder = seeing_folder(tmp_path / "model", "gemma3")
    family = vision_of(folder).family
    assert family is not None
    prompts = ImagePrompts(folder, family)
    image = ChatImage(tmp_path, "", 64, 48)
    own = prompts.tokens(image, ImageCap.FULL)
    assert len(prompts.expanded([image] * 2, ImageCap.FULL, 2 * own)) == 2
    with pytest.raises(PromptTooLongError, match=f"The images have {2 * own} tokens"):
        prompts.expanded([image] * 2, ImageCap.FULL, 2 * own - 1)


@pytest.mark.parametrize("kind", ["qwen3_5", "qwen2_5_vl", "smolvlm", "gemma3", "mistral3", "lfm2_vl"])
def test_a_projector_of_another_width_is_refused_as_the_model_is_loaded(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    vision = vision_of(folder)
    assert vision.family is not None
    name = vision.tensors[vision.family.needs[0]]
    high, broad = tensors[name].shape
    tensors[name] = np.ones((high, 96) if kind == "gemma3" else (96, broad), np.float32)
    if (bias := name.replace("weight", "bias")) in tensors:
        tensors[bias] = np.ones(96, np.float32)
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ModelError, match="gives rows of 96 numbers; its text model takes"):
        load_model(folder, "float32")
