"""From image file to reply: the demonstration of `scripts/seeing` sees drawings that it was not trained on."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rdchat.inference.api import (
    DRAFTERS,
    ChatImage,
    ChatMessage,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    SamplingParams,
)
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.inference.verification.target import LoadedModel
from scripts.seeing.drawings import drawing
from scripts.seeing.make_folder import make_folder
from tests.inference.ready_drafters import ready_session, settings_of

QUESTION = "Describe the picture in one sentence."
# Not one that training draws with.
SEED = 20261


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory, default_model_folder: Path) -> LoadedModel:
    folder = tmp_path_factory.mktemp("seeing") / "model"
    make_folder(folder, default_model_folder)
    return load_model(folder, "float32")


def drawings(place: Path, count: int) -> Iterator[tuple[ChatImage, str]]:
    """Store drawings of several sizes as PNG and JPEG, and return each with its sentence."""
    random = np.random.default_rng(SEED)
    for number in range(count):
        side = (64, 100, 256)[number % 3]
        pixels, caption = drawing(random, side)
        path = place / f"drawing {number}.{('png', 'jpg')[number % 2]}"
        Image.fromarray(pixels).save(path, quality=90)
        yield ChatImage(path, hashlib.sha256(path.read_bytes()).hexdigest(), side, side, path.name), caption


def answer(
    session: ChatSession, image: ChatImage, words: str, mode: Mode = Mode.OFF, temperature: float = 0
) -> ReplyEnd:
    sampling = SamplingParams(temperature=temperature, max_tokens=20)
    message = ChatMessage(Role.USER, words, images=(image,))
    *_, end = session.generate(GenerationRequest((message,), sampling, 7, draft=settings_of(mode)))
    assert isinstance(end, ReplyEnd)
    return end


def test_it_says_what_a_drawing_shows(model: LoadedModel, tmp_path: Path) -> None:
    ((image, caption),) = drawings(tmp_path, 1)
    assert answer(ChatSession(model), image, QUESTION).text == caption


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a drawing takes ten seconds and more
def test_it_is_nearly_always_right(model: LoadedModel, tmp_path: Path) -> None:
    session = ChatSession(model)
    wrong = list[str]()
    count = 40
    for image, caption in drawings(tmp_path, count):
        said = answer(session, image, QUESTION).text
        if said != caption:
            wrong.append(f"{said} | {caption}")
    assert len(wrong) < 0.1 * count, wrong


@pytest.mark.slow
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_no_mode_changes_what_it_says(model: LoadedModel, tmp_path: Path, temperature: float) -> None:
    for image, _ in drawings(tmp_path, 1):
        plain = answer(ChatSession(model), image, QUESTION, temperature=temperature)
        for mode in (*DRAFTERS, Mode.AUTO):
            drafted = answer(ready_session(model, model), image, QUESTION, mode, temperature)
            assert drafted.mode is mode, drafted.mode_reason
            assert drafted.token_ids == plain.token_ids, mode
