"""The drafters of a model that is not loaded are looked for again once the engine can tell."""

from pytestqt.qtbot import QtBot

from rdchat.inference.api.drafter_facts import InstalledDrafter
from rdchat.inference.api.installed_model import InstalledModel
from rdchat.services.background.folder_search import FolderSearch
from rdchat.services.models.drafters.drafter_shelf import DrafterShelf
from tests.services.window import Window

HEAD = InstalledDrafter("head", "/head", "Your own")
OTHER = InstalledModel("org/other", "org/other", "Hugging Face")


def test_what_nobody_could_tell_at_first_is_asked_again(qtbot: QtBot, window: Window) -> None:
    controller, asked = window.controller, list[str]()
    begun = [False]

    def made_for(model: str) -> tuple[InstalledDrafter, ...] | None:
        asked.append(model)
        return (HEAD,) if begun[0] else None

    shelf = DrafterShelf(controller.model_slot, controller.drafting, controller.preferences)
    models = FolderSearch(lambda: (OTHER,))
    shelf.offer(models, made_for)
    shelf.choose(OTHER)
    qtbot.waitUntil(lambda: bool(asked))
    assert shelf.entries == ()
    begun[0] = True
    controller.model_slot.load("/models/another")
    qtbot.waitUntil(lambda: [each.found for each in shelf.entries] == [HEAD])
    assert set(asked) == {"org/other"}
    shelf.close()
    models.close()
