"""The offer of a larger model on the page of a new chat: from the start, until one was used here or it was closed."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.errors import ModelError
from rdchat.inference.api import ModelCard
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.models.model_sources import ModelSources
from rdchat.ui.conversation.model_offers import ModelOffer, speed_text
from rdchat.ui.models.model_row import ModelRow
from rdchat.ui.style.formatting import MACHINE
from rdchat.ui.window.main_window import MainWindow
from tests.hub.downloads.downloading import small_files
from tests.hub.hub_server import HubServer
from tests.inference.drafting.suggested_pairs import MODEL, suggest
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
    return offer.row


def test_what_is_on_the_disk_comes_first_and_one_click_uses_it(
    qtbot: QtBot, chat: Chat, offer: ModelOffer, cards: list[ModelCard]
) -> None:
    cards += [SMALLER, LARGE]
    assert not offer.isVisible()
    chat.start()
    qtbot.waitUntil(offer.isVisible)
    assert offer.title.text() == "Use a better model: Qwen3.5-4B-MLX-4bit"
    assert offer.detail.text() == f"It is here already, from LM Studio. It fits {MACHINE}."
    chat.engine.parameters = 4 * 10**9
    click_on(button(offer, "Use It"))
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == LARGE.model)
    chat.wait_for(EngineState.IDLE)
    assert not offer.isVisible()
    chat.load(None)
    assert not offer.isVisible(), "it was found once"


def test_it_is_offered_while_the_default_model_is_being_loaded(chat: Chat, offer: ModelOffer) -> None:
    """It came after 40 seconds, when the first answer was asked for."""
    chat.engine.load_gate.shut()
    chat.controller.open_last_chat()
    chat.qtbot.waitUntil(offer.isVisible)
    assert chat.slot.loading
    assert offer.title.text() == "Get a better model: 7.59 GB"
    chat.engine.load_gate.open()
    chat.wait_for(EngineState.IDLE)
    assert offer.isVisible()


@pytest.mark.parametrize(
    ("model", "parameters", "stays"),
    [("remote:studio/qwen", 0, True), ("/models/tiny", 135 * 10**6, True), ("/models/big", 10**9, False)],
)
def test_only_a_larger_model_of_this_machine_ends_the_offer(
    chat: Chat, offer: ModelOffer, model: str, parameters: int, stays: bool
) -> None:
    """It was gone for ever after one use of a remote model."""
    chat.start()
    chat.qtbot.waitUntil(offer.isVisible)
    chat.engine.parameters = parameters
    chat.load(model)
    assert offer.isVisible() is model.endswith("tiny")
    chat.engine.parameters = 135 * 10**6
    chat.load(None)
    assert offer.isVisible() is stays


def test_a_default_model_that_cannot_be_fetched_does_not_hide_what_is_here(
    chat: Chat, offer: ModelOffer, cards: list[ModelCard]
) -> None:
    cards.append(LARGE)
    chat.engine.load_errors[None] = ModelError("The default model cannot be downloaded.")
    chat.controller.open_last_chat()
    chat.qtbot.waitUntil(offer.isVisible)
    assert offer.use.isVisible()


def test_without_a_model_here_a_download_is_offered_with_what_is_known_of_it_and_what_is_not(
    chat: Chat, offer: ModelOffer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.ui.conversation.model_offers.free_bytes", lambda: 42 * 10**9)
    chat.start()
    row = download_row(chat.qtbot, offer)
    assert offer.title.text() == "Get a better model: 7.59 GB"
    assert offer.detail.text() == "Gemma 4 12B. Writing and questions of knowledge, in many languages."
    words = "It needs 8.23 GB of 17.2 GB of memory.{} Licence: apache-2.0. Not tried with rdchat."
    assert offer.check.text() == words.format("")
    assert row.main.text() == "Download 7.59 GB"
    assert not offer.use.isVisible()
    assert not row.bar.isVisible()
    monkeypatch.setattr("rdchat.ui.conversation.model_offers.free_bytes", lambda: 10**9)
    offer._show_offer()
    assert offer.check.text() == words.format(" The disk has only 1.00 GB free.")


class TestOnAMeasuredMachine:
    @pytest.fixture
    def sources(self) -> ModelSources:
        return ModelSources(memory=lambda: replace(MAC_16.memory, bytes_per_second=68e9))

    def test_it_says_how_fast_the_model_writes(self, chat: Chat, offer: ModelOffer) -> None:
        chat.start()
        row = download_row(chat.qtbot, offer)
        # 0.75 words a token, 0.8 of 68 GB a second, 6.74 GB a token
        assert offer.title.text() == "Get a better model: 7.59 GB, about 6 words a second here"
        assert offer.row is row, "its button stays when the speed comes"


def test_a_download_in_place_is_followed_and_then_used_by_a_click(
    qtbot: QtBot,
    chat: Chat,
    window: MainWindow,
    offer: ModelOffer,
    hub: HubServer,
    cards: list[ModelCard],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    suggestion = suggest(monkeypatch, "DFlash")
    monkeypatch.setattr("rdchat.services.models.larger_model.suggestions", lambda: (suggestion,))
    hub.add(MODEL, small_files())
    hub.add(suggestion.drafter.repository, small_files())
    hub.holds_at = 100_000
    chat.start()
    row = download_row(qtbot, offer)
    click_on(row.main)
    qtbot.waitUntil(lambda: " of " in row.state.text(), timeout=WAIT_MS)
    assert row.bar.isVisible()
    assert row.bar.geometry().right() < row.main.x(), "it takes the button's place"
    assert offer.isVisible()
    cards.append(LARGE)
    hub.holds_at = None
    qtbot.waitUntil(offer.use.isVisible, timeout=WAIT_MS)
    assert not row.isVisible()
    assert [model for model, _ in chat.engine.loads] == [None], "it is not changed under the person's hands"
    click_on(offer.use)
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == LARGE.model)


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
    assert chat.settings.values.larger_model_declined
    chat.load(None)
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


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (0.0, ""),
        (0.4, ", about a word a second or less here"),
        (4.6, ", about 5 words a second here"),
        (37.0, ", about 40 words a second here"),
    ],
)
def test_a_speed_is_an_estimate_and_said_as_one(words: float, text: str) -> None:
    assert speed_text(words) == text
