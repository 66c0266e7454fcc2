"""The offer of a larger model on the page of a new chat: at the first starts, until one was loaded or it was closed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import ModelError
from rdchat.inference.api import ModelCard
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.models.service_base import ModelSources
from rdchat.ui.conversation.model_offers import ModelOffer
from rdchat.ui.models.model_row import ModelRow
from rdchat.ui.style.formatting import MACHINE
from rdchat.ui.window.main_window import MainWindow
from tests.hub.downloads.downloading import small_files
from tests.hub.hub_server import HubServer
from tests.inference.drafting.suggested_pairs import MODEL, suggest
from tests.services.fakes import Reply
from tests.services.models.library_samples import library_model
from tests.services.models.macs import MAC_16, mac
from tests.ui.conftest import Chat
from tests.ui.shown_widgets import click_on
from tests.ui.transcript.conftest import button

WAIT_MS = 60_000
LARGE = library_model("lmstudio-community/Qwen3.5-4B-MLX-4bit", 4 * 10**9, origin="LM Studio", has_template=True)
SMALLER = library_model("mlx-community/Qwen3-1.7B-4bit", 17 * 10**8, has_template=True)


@pytest.fixture
def cards() -> list[ModelCard]:
    """The models on this machine, to be changed by a test."""
    return []


@pytest.fixture
def sources(cards: list[ModelCard]) -> ModelSources:
    return ModelSources(models=lambda _chosen: tuple(cards), memory=lambda: MAC_16.memory)


@pytest.fixture
def offer(window: MainWindow) -> Iterator[ModelOffer]:
    (offer,) = window.conversation.welcome.findChildren(ModelOffer)
    yield offer
    window.windows.end_background_work()


def download_row(qtbot: QtBot, offer: ModelOffer) -> ModelRow:
    qtbot.waitUntil(offer.isVisible)
    assert isinstance(offer.row, ModelRow)
    return offer.row


def begin_download(
    qtbot: QtBot, chat: Chat, offer: ModelOffer, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> ModelRow:
    """Begin to download the model that is offered from the start on; the hub holds it in the middle."""
    suggestion = suggest(monkeypatch, "DFlash")
    monkeypatch.setattr("rdchat.services.models.larger_model.suggestions", lambda: (suggestion,))
    hub.add(MODEL, small_files())
    hub.add(suggestion.drafter.repository, small_files())
    hub.holds_at = 100_000
    chat.start()
    row = download_row(qtbot, offer)
    click_on(row.main)
    qtbot.waitUntil(lambda: " of " in row.state.text(), timeout=WAIT_MS)
    return row


def test_what_is_on_the_disk_comes_first_and_one_click_uses_it(
    qtbot: QtBot, chat: Chat, offer: ModelOffer, cards: list[ModelCard]
) -> None:
    cards += [SMALLER, LARGE]
    assert not offer.isVisible()
    chat.start()
    qtbot.waitUntil(offer.isVisible)
    assert offer.title.text() == "Qwen3.5-4B-MLX-4bit is here already, from LM Studio"
    assert offer.detail.text() == f"It fits {MACHINE}. It is larger than the model that answers now."
    click_on(button(offer, "Use It"))
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == LARGE.model)
    chat.wait_for(EngineState.IDLE)
    assert not offer.isVisible()
    chat.controller.model_slot.load_model(None)
    chat.wait_for(EngineState.IDLE)
    assert not offer.isVisible(), "it was found once"


def test_a_default_model_that_cannot_be_fetched_does_not_hide_what_is_here(
    qtbot: QtBot, chat: Chat, offer: ModelOffer, cards: list[ModelCard]
) -> None:
    cards.append(LARGE)
    chat.engine.load_errors[None] = ModelError("The default model cannot be downloaded.")
    chat.controller.open_last_chat()
    qtbot.waitUntil(offer.isVisible)
    assert offer.use.isVisible()


def test_without_a_model_here_a_download_is_offered_with_its_size_and_the_room(
    qtbot: QtBot, chat: Chat, offer: ModelOffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.ui.conversation.model_offers.free_bytes", lambda: 42 * 10**9)
    chat.start()
    row = download_row(qtbot, offer)
    assert offer.title.text() == "Get Gemma 4 12B"
    assert "The disk has 42.0 GB free. The small model answers until it is here." in offer.detail.text()
    assert row.main.text() == "Download 7.59 GB"
    assert not offer.use.isVisible()


def test_a_download_in_place_ends_with_the_model_chosen_in_the_open_chat(
    qtbot: QtBot, chat: Chat, window: MainWindow, offer: ModelOffer, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reply that is being written is not ended by it."""
    row = begin_download(qtbot, chat, offer, hub, monkeypatch)
    assert row.bar.isVisible()
    assert offer.isVisible()
    chat.engine.gate.shut()
    chat.engine.replies = [Reply(("A ", "small ", "answer."))]
    chat.controller.send("Hello")
    qtbot.waitUntil(lambda: chat.client.writing)
    window.conversation.composer.set_text("And then?")
    hub.holds_at = None
    downloads = window.windows.model_services.downloads
    qtbot.waitUntil(lambda: (own := downloads.find_download(MODEL)) is not None and bool(own.folder), timeout=WAIT_MS)
    assert [model for model, _ in chat.engine.loads] == [None]
    chat.engine.gate.open()
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == MODEL, timeout=WAIT_MS)
    chat.wait_for(EngineState.IDLE)
    assert chat.path[-1].text == "A small answer."
    assert window.conversation.composer.text == "And then?"
    assert window.header.model.text().startswith(MODEL)
    window.actions_.new_chat.trigger()
    assert not offer.isVisible()


def test_another_model_that_was_chosen_meanwhile_stays(
    qtbot: QtBot, chat: Chat, window: MainWindow, offer: ModelOffer, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin_download(qtbot, chat, offer, hub, monkeypatch)
    chat.controller.model_slot.load_model("better")
    assert not offer.isVisible()
    hub.holds_at = None
    with qtbot.waitSignal(window.windows.model_services.downloads.finished, timeout=WAIT_MS):
        pass
    chat.wait_for(EngineState.IDLE)
    assert [model for model, _ in chat.engine.loads] == [None, "better"]


def test_others_are_shown_in_discover(qtbot: QtBot, chat: Chat, window: MainWindow, offer: ModelOffer) -> None:
    chat.start()
    download_row(qtbot, offer)
    click_on(button(offer, "Other Models…"))
    qtbot.waitUntil(window.windows.models.discover.isVisible)
    assert offer.isVisible(), "nothing was downloaded yet"


def test_closed_it_stays_away(qtbot: QtBot, chat: Chat, offer: ModelOffer) -> None:
    chat.start()
    download_row(qtbot, offer)
    click_on(button(offer, "Close this offer"))
    assert not offer.isVisible()
    assert chat.controller.settings.values.larger_model_declined
    chat.controller.model_slot.load_model(None)
    chat.wait_for(EngineState.IDLE)
    qtbot.wait(20)
    assert not offer.isVisible()


class TestOnASmallMachine:
    @pytest.fixture
    def sources(self) -> ModelSources:
        too_large = replace(LARGE, path=Path("/models/large"))
        return ModelSources(models=lambda _chosen: (too_large,), memory=lambda: mac(2).memory)

    def test_nothing_is_offered_that_it_does_not_hold(
        self, qtbot: QtBot, chat: Chat, window: MainWindow, offer: ModelOffer
    ) -> None:
        chat.start()
        qtbot.waitUntil(lambda: bool(window.windows.larger_model._search.looked))
        qtbot.waitUntil(lambda: window.windows.memory.now is not None)
        assert not offer.isVisible()
