"""The library looks beside the window's own work, and tells as it finds."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import ModelError
from rdchat.inference.api import ModelCard, TargetMatch
from rdchat.services.models.draft_advice import draft_models
from rdchat.services.models.library import Library
from rdchat.services.models.model_sources import ModelSources
from tests.services.models.library_samples import MEMORY, library_model
from tests.services.window import Window


class Disk:
    """Models that are found, and the error after them."""

    def __init__(self) -> None:
        self.models: list[ModelCard] = [library_model(f"org/model-{number}") for number in range(4)]
        self.error: Exception | None = None

    def find(self, _chosen: str) -> Iterator[ModelCard]:
        yield from self.models
        if self.error:
            raise self.error


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def library(disk: Disk, window: Window) -> Iterator[Library]:
    heads = (ModelCard("head", "/head", "Your own", match=TargetMatch(True), weights_bytes=7),)
    sources = ModelSources(disk.find, lambda: MEMORY, lambda _folder: heads)
    library = Library(sources, window.controller)
    yield library
    library.drop_requests()


def test_no_models_is_news_the_first_time(qtbot: QtBot, disk: Disk, library: Library) -> None:
    disk.models = []
    with qtbot.waitSignal(library.changed):
        library.search_again()
    assert library.looked


def test_error_of_a_search_is_shown(qtbot: QtBot, disk: Disk, library: Library) -> None:
    disk.error = ModelError("The disk hangs.", "Plug it in.")
    with qtbot.waitSignal(library.changed):
        library.search_again()
    assert library.problem == "The disk hangs. Plug it in."
    disk.error = None
    library.search_again()
    qtbot.waitUntil(lambda: not library.problem)


def test_failed_first_search_for_heads_lists_none(qtbot: QtBot, window: Window) -> None:
    error: list[Exception] = [ModelError("The disk hangs.", "Plug it in.")]

    def find(_model: Path) -> tuple[ModelCard, ...]:
        if error:
            raise error.pop()
        return (HEAD,)

    library = Library(ModelSources(drafters=find), window.controller)
    listed = list[tuple[ModelCard, ...]]()
    library.drafters_listed.connect(lambda _model, heads: listed.append(heads))
    with qtbot.waitSignal(library._heads.changed):
        library.match(OTHER)
    assert not listed
    library.match(OTHER)
    qtbot.waitUntil(lambda: listed == [(HEAD,)])
    library.drop_requests()


def test_draft_models_are_smaller_and_know_the_same_tokens(qtbot: QtBot, disk: Disk, library: Library) -> None:
    target = library_model("org/large", 8_000_000_000)
    small = library_model("org/small", 2_000_000_000)
    tiny = library_model("org/tiny", 500_000_000)
    disk.models = [
        target,
        small,
        library_model("org/nearly", 7_000_000_000),
        library_model("org/others-tokens", tokens="other"),
        library_model("org/broken", problem="It is damaged."),
        tiny,
    ]
    with qtbot.waitSignal(library.changed):
        library.search_again()
    assert draft_models(target, library.models) == [tiny, small]
    assert draft_models(library_model("org/none", tokens=""), library.models) == []


def test_the_loaded_model_is_known_by_its_folder(window: Window, qtbot: QtBot, library: Library) -> None:
    slot = window.slot
    other = library_model("/models/other", path=Path("/models/other"))
    folder = library_model("/models/folder", path=Path("/models/folder"))
    assert not library.is_loaded(other)
    slot.load_model("/models/other")
    assert library.is_loading(other)
    qtbot.waitUntil(lambda: slot.info is not None)
    assert library.is_loaded(other)
    assert not library.is_loaded(folder)
    slot.load_model("/models/folder")
    qtbot.waitUntil(lambda: slot.info is not None)
    assert library.is_loaded(folder)
    assert not library.is_loaded(other)


HEAD = ModelCard("head", "/head", "Your own", Path("/head"), match=TargetMatch(True))
OTHER = ModelCard("org/other", "org/other", "Hugging Face", Path("/other"))


def test_unsure_match_of_a_drafter_is_asked_again(qtbot: QtBot, window: Window) -> None:
    controller = window.controller
    asked = list[Path]()
    begun = [False]

    def find(model: Path) -> tuple[ModelCard, ...] | None:
        asked.append(model)
        unsure = replace(HEAD, model="/unsure", match=TargetMatch(False))
        return (HEAD, unsure) if begun[0] else None

    sources = ModelSources(models=lambda _chosen: (OTHER,), drafters=find)
    library = Library(sources, controller)
    library.choose_model(OTHER)
    qtbot.waitUntil(lambda: bool(asked))
    assert library.fitting == ()
    begun[0] = True
    controller.model_slot.load_model("/models/another")
    qtbot.waitUntil(lambda: [each.model for each in library.fitting] == [HEAD.model, "/unsure"])
    assert set(asked) == {OTHER.path}
    library.drop_requests()
