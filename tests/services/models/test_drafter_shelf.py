"""The drafters of a model that is not loaded are looked for again once the engine can tell."""

from dataclasses import replace
from pathlib import Path

from pytestqt.qtbot import QtBot

from rdchat.inference.api import ModelCard, TargetMatch
from rdchat.services.models.library import Library
from rdchat.services.models.service_base import ModelSources
from tests.services.window import Window

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
    qtbot.waitUntil(lambda: [each.model for each in library.fitting] == [HEAD.model])
    assert set(asked) == {OTHER.path}
    library.drop_requests()
