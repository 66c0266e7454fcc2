"""Numbers of a model's folder decide no memory: what is more than any model takes is refused before it is built."""

import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from rdchat.errors import ModelError, PromptTooLongError, RdchatError
from rdchat.inference.api import ChatImage, ImageCap
from rdchat.inference.loading import load_model
from rdchat.inference.vision.families import vision_of
from rdchat.inference.vision.image_prompts import ImagePrompts
from rdchat.inference.vision.image_rows import ImageRows
from rdchat.inference.vision.processors import PROCESSORS
from tests.inference.vision.golden_models import ONE_OF_EACH, prepared
from tests.inference.vision.pictures import drawn
from tests.inference.vision.seeing_chats import seeing_folder

NUMBERS = (0, -1, 2**28, 2**39, 2**63)
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


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_no_number_of_a_folder_decides_the_text_of_an_image(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    wrong = list[str]()
    for change in harmed(folder, kind, ("config.json", "preprocessor_config.json")):
        for size in (SQUARE, LONG):
            image = ChatImage(tmp_path, "", *size)

            def expand(image: ChatImage = image) -> None:
                vision = vision_of(folder)
                if vision.family is not None:
                    ImagePrompts(folder, vision.family).expanded([image], ImageCap.FULL, CONTEXT)

            wrong += fault_of(change, expand, MOST_BYTES)
    assert wrong == []


@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_no_number_of_a_folder_decides_the_memory_of_pixels(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    pixels = drawn(64, 48)
    wrong = list[str]()
    for change in harmed(folder, kind, ("config.json", "preprocessor_config.json")):
        vision = vision_of(folder)
        if vision.family is None:
            continue
        try:
            settings = vision.family.image_settings(folder)
            processor = PROCESSORS[vision.family.processor]
            layout = processor.layout(64, 48, settings, 1024)
        except ModelError:
            continue
        assert np.prod(layout.size) <= 2**26, change
        if np.prod(layout.size) > 2**22:
            continue
        wrong += fault_of(change, partial(processor.prepare, pixels, settings, 1024), 400 << 20)
    assert wrong == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", ONE_OF_EACH)
def test_no_number_of_a_folder_decides_the_memory_of_a_tower(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    image = prepared(kind)[0]
    wrong = list[str]()
    for change in harmed(folder, kind, ("config.json",)):
        vision = vision_of(folder)
        if vision.family is None:
            continue
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


LAST = {
    "qwen3_5": "visual.merger.linear_fc2.weight",
    "qwen2_5_vl": "visual.merger.mlp.2.weight",
    "smolvlm": "modality_projection.proj.weight",
    "gemma3": "mm_input_projection_weight",
    "mistral3": "multi_modal_projector.linear_2.weight",
    "lfm2_vl": "multi_modal_projector.linear_2.weight",
}


@pytest.mark.parametrize("kind", LAST)
def test_a_projector_of_another_width_is_refused_as_the_model_is_loaded(tmp_path: Path, kind: str) -> None:
    folder = seeing_folder(tmp_path / "model", kind)
    file = folder / "model.safetensors"
    tensors = load_file(file)
    (name,) = [each for each in tensors if each.endswith(LAST[kind])]
    high, broad = tensors[name].shape
    tensors[name] = np.ones((high, 96) if kind == "gemma3" else (96, broad), np.float32)
    if (bias := name.replace("weight", "bias")) in tensors:
        tensors[bias] = np.ones(96, np.float32)
    save_file(tensors, file, {"format": "pt"})
    with pytest.raises(ModelError, match="gives rows of 96 numbers; its text model takes"):
        load_model(folder, "float32")
