"""The Installed page, through its widgets."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtWidgets import QMenu
from pytestqt.qtbot import QtBot

from rdchat.errors import DoesNotFitError
from rdchat.inference.api import Capability, DraftKind, HeadKind, ModelCard, TargetMatch
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.models.model_services import Models
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.list_entries import SortBy, entries_of
from rdchat.ui.models.model_texts import drafter_name, row_line
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.style import SHOW_FOLDER
from rdchat.ui.window.main_window import MainWindow
from tests.grids import share
from tests.hub.hub_server import Fault, HubServer
from tests.services.models.library_samples import MEMORY, library_model
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine
from tests.ui.models.page_steps import all_text, answer, names, pick, pick_new, press, refresh
from tests.ui.shown_widgets import click_on, press_key
from tests.ui.transcript.conftest import button

DIRECT = Qt.FindChildOption.FindDirectChildrenOnly


def test_the_loaded_model_is_shown_first(page: InstalledPage) -> None:
    assert names(page) == ["org/Alpha-8B-4bit", "org/Beta-1B-4bit", "tiny"]
    assert page.details.name.text() == "tiny"
    assert page.details.row.state.text() == "In use now."
    assert page.details.row.main.text() == "Unload"
    assert page.count.text() == "3 models, 5.14 GB"
    assert page.list.hasFocus()


def test_a_search_and_an_order(qtbot: QtBot, page: InstalledPage) -> None:
    page.sort.setCurrentText("Size")
    page.sort.activated.emit(1)
    assert names(page) == ["org/Alpha-8B-4bit", "org/Beta-1B-4bit", "tiny"]
    qtbot.keyClicks(page.search, "beta LLAMA")
    assert names(page) == ["org/Beta-1B-4bit"]
    assert page.details.name.text() == "org/Beta-1B-4bit"
    qtbot.keyClicks(page.search, "x")
    assert page.count.text() == "No model matches your search."
    assert not page.details.row.main.isVisible()
    press_key(page.search, "Esc")
    assert len(names(page)) == 3
    press_key(page.search, "Down")
    assert page.list.hasFocus()


@pytest.mark.parametrize("by", share(["button", "Return", "double click"], 3))
def test_a_model_is_loaded(qtbot: QtBot, chat: Chat, page: InstalledPage, by: str) -> None:
    pick(page, "org/Beta-1B-4bit")
    assert page.details.row.main.text() == "Load"
    if by == "button":
        press(qtbot, page.details.row.main)
    elif by == "Return":
        press_key(page.list, "Return")
    else:
        place = page.list.visualRect(page.list.currentIndex()).center()
        click_on(page.list.viewport(), place)
        qtbot.mouseDClick(page.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == "org/Beta-1B-4bit")
    chat.wait_for(EngineState.IDLE)


@pytest.mark.slow
def test_unloading_gives_memory_back_and_the_chat_says_so(qtbot: QtBot, chat: Chat, app: MainWindow) -> None:
    app.actions_.models.trigger()
    page = app.windows.models.installed
    qtbot.waitUntil(lambda: page.details.row.main.text() == "Unload")
    press(qtbot, page.details.row.main)
    qtbot.waitUntil(lambda: "of memory is free again" in page.result.label.text())
    assert page.details.row.main.text() == "Load"
    assert page.details.row.state.isHidden()
    assert app.header.model.text() == "No model loaded"
    banner = app.conversation.banners.banner("model")
    assert "The model was unloaded" in banner.accessibleName()
    button(banner, "Load It Again").click()
    chat.wait_for(EngineState.IDLE)
    assert app.conversation.banners.banner("model") is None


def test_whether_it_fits_is_said_with_the_figures_behind_it(
    qtbot: QtBot, machine: Machine, page: InstalledPage, models: Models
) -> None:
    pick(page, "org/Alpha-8B-4bit")
    memory = page.details.memory
    assert memory.verdict.text() == "Fits: 4.77 GB of 17.2 GB"
    assert memory.bar.accessibleDescription() == (
        "Weights: 4.50 GB; Chat of 4,096 tokens: 268 MB; Rest of the memory: 12.4 GB"
    )
    assert [memory.context.itemText(n) for n in range(memory.context.count())][-1] == "131,072"
    memory.context.setCurrentIndex(memory.context.count() - 1)
    memory.context.activated.emit(0)
    assert memory.verdict.text() == "Loads, but with 131,072 tokens it needs 1.28 GB more than is available"
    pick(page, "org/Beta-1B-4bit")
    assert memory.context.currentText() == "131,072"
    machine.memory = replace(MEMORY, room=replace(MEMORY.room, limit_bytes=2**29))
    models.memory.ask_again()
    qtbot.waitUntil(lambda: "more than is available" in memory.verdict.text())


def test_before_the_engine_has_begun_memory_is_not_known(qtbot: QtBot, page: InstalledPage, models: Models) -> None:
    models.memory.results = ()
    pick(page, "org/Beta-1B-4bit")
    assert page.details.memory.verdict.text() == "Checking the memory…"
    models.memory.ask_again()
    qtbot.waitUntil(lambda: page.details.memory.verdict.text().startswith("Fits"))


def test_one_that_is_too_large_is_loaded_only_after_a_question(
    qtbot: QtBot, chat: Chat, machine: Machine, page: InstalledPage
) -> None:
    pick_new(qtbot, page, machine, library_model("org/Huge-70B", 70_000_000_000))
    assert page.details.memory.verdict.text() == "Too large: needs 27.8 GB more than is available"
    chat.engine.load_errors["org/Huge-70B"] = DoesNotFitError("It needs 37 GB.", "Choose a smaller one.")
    page.details.row.main.click()
    assert "27.8 GB more memory" in answer(qtbot, page, "Cancel")
    assert chat.engine.loads[-1][0] is None
    page.details.row.main.click()
    answer(qtbot, page, "Load Anyway")
    chat.wait_for(EngineState.IDLE)
    assert chat.engine.loaded_anyway == ["org/Huge-70B"]


def test_what_drafts_is_listed_and_counted(qtbot: QtBot, machine: Machine, page: InstalledPage, models: Models) -> None:
    machine.heads = (
        ModelCard("mine", "/mine", "Your own", kind=HeadKind.RECURRENT, match=TargetMatch(True), weights_bytes=2**30),
        ModelCard(
            "org/dflash",
            "org/dflash",
            "Hugging Face",
            kind=HeadKind.BLOCK,
            match=TargetMatch(False, "Who knows."),
            weights_bytes=7,
        ),
    )
    machine.models[0] = replace(machine.models[0], tried=Capability(DraftKind.CHAIN, "it keeps state"))
    refresh(qtbot, models)
    pick(page, "org/Alpha-8B-4bit")
    page.details.fold.click()
    text = lambda: all_text(page.details.facts)  # noqa: E731
    qtbot.waitUntil(lambda: [*page.drafters.list.rows] == ["/mine", "org/dflash"])
    first, second = (row.facts for row in page.drafters.list.rows.values())
    assert (first.toolTip(), second.toolTip()) == ("Kind: Recurrent", "Kind: Block")
    assert first.text().startswith("built for this model")
    assert second.text().startswith("may fit")
    qtbot.waitUntil(lambda: "tiny\nBeta-1B-4bit" in text())  # the row is new, and is shown in its time
    assert "Supported, one draft per step\nReason: it keeps state." in text()
    memory = page.details.memory
    assert "Drafter: 1.07 GB" in memory.bar.accessibleDescription()  # the automatic mode loads it
    assert memory.verdict.text() == "Fits: 5.84 GB of 17.2 GB"
    pick(page, "org/Beta-1B-4bit")
    qtbot.waitUntil(lambda: "Tested when loaded" in text())


def test_a_model_that_cannot_be_loaded_says_why(chat: Chat, machine: Machine, page: InstalledPage) -> None:
    pick_new(chat.qtbot, page, machine, library_model("org/Broken", sizes=None, problem="Its weights are missing."))
    assert page.details.problem.text().startswith("Its weights are missing.")
    assert not page.details.row.main.isEnabled()
    assert page.details.memory.isHidden()
    loads = len(chat.engine.loads)
    press_key(page.list, "Return")
    assert len(chat.engine.loads) == loads


def test_drafters_are_listed_after_the_models_and_cannot_answer(
    chat: Chat, machine: Machine, page: InstalledPage, models: Models
) -> None:
    machine.models.append(
        library_model(
            "org/A-eagle", family="EAGLE-3", sizes=None, quantization="", disk_bytes=60_000_000, is_drafter=True
        )
    )
    refresh(chat.qtbot, models)
    assert names(page)[-1] == "org/A-eagle"
    assert page.count.text() == "3 models, 1 drafter, 5.20 GB"
    pick(page, "org/A-eagle")
    page.details.fold.click()
    assert row_line(machine.models[-1]) == "60 MB"
    assert "EAGLE-3 drafter" in all_text(page.details.facts), "behind Details"
    assert "Choose it in the details of its model" in page.details.problem.text()
    assert not page.details.row.main.isEnabled()
    press_key(page.list, "Return")
    assert chat.slot.info.name == "tiny"
    assert page.details.row.delete.isEnabled()
    assert page.details.row.verify.isEnabled()


def test_a_row_has_a_menu(
    qtbot: QtBot,
    machine: Machine,
    page: InstalledPage,
    opened: list[str],
    tmp_path: Path,
) -> None:
    pick_new(qtbot, page, machine, library_model("folder", path=tmp_path))
    page.list.customContextMenuRequested.emit(QPoint(5, 5))
    assert not page.findChildren(QMenu, options=DIRECT), "a heading has none"
    page.list.customContextMenuRequested.emit(page.list.visualRect(page.list.currentIndex()).center())
    (menu,) = page.findChildren(QMenu, options=DIRECT)
    assert [action.text() for action in menu.actions()] == ["Load", SHOW_FOLDER, "Verify", "Delete…"]
    menu.actions()[1].trigger()
    assert opened == [tmp_path.as_uri()]
    menu.close()


def test_an_empty_machine_says_what_to_do(qtbot: QtBot, machine: Machine, page: InstalledPage, models: Models) -> None:
    machine.models = []
    models.slot.unload_model()
    refresh(qtbot, models)
    assert page.details.currentWidget() is page.details.notice
    assert page.details.notice.action.text() == "Find a Model"
    assert page.count.text() == "No models yet."


def test_a_model_of_another_folder_is_listed_while_it_is_loaded(
    qtbot: QtBot, chat: Chat, page: InstalledPage, models: Models
) -> None:
    """Its drafters and their training are in its details."""
    chat.slot.load_model("/elsewhere/mine")
    qtbot.waitUntil(lambda: "/elsewhere/mine" in names(page))
    pick(page, "/elsewhere/mine")
    qtbot.waitUntil(lambda: page.details.row.main.text() == "Unload")
    assert page.drafters.train.isVisible()
    assert not page.details.row.delete.isEnabled()
    pick(page, "org/Beta-1B-4bit")
    chat.slot.load_model(None)
    qtbot.waitUntil(lambda: names(page) == ["org/Alpha-8B-4bit", "org/Beta-1B-4bit", "tiny"])


def test_a_drafter_with_the_name_of_its_model_is_called_its_drafter() -> None:
    model = ModelCard("org/SmolLM2", "org/SmolLM2", "Hub")
    drafter = ModelCard("me/smollm2", "me/smollm2", "Hub")
    drafter = replace(drafter, is_drafter=True)
    titles = [entry.title for entry in entries_of((drafter, model), "", SortBy.NAME, None)]
    assert titles == ["Models", "SmolLM2", "Drafters", "Drafter for SmolLM2"]
    assert drafter_name(drafter, ["org/Other"]) == "me/smollm2"


def test_a_search_that_failed_is_no_answer(
    qtbot: QtBot, page: InstalledPage, models_window: ModelsWindow, hub: HubServer
) -> None:
    hub.api_faults = [Fault(status=429, headers={"Retry-After": "40"}) for _ in range(20)]
    pick(page, "tiny")
    advice = page.details.advice
    qtbot.waitUntil(lambda: advice.text() == "Hugging Face may have a drafter for it.")
    page.details.follow.click()
    qtbot.waitUntil(lambda: bool(models_window.drafters._hub.problem))
    models_window.show_page(page)
    qtbot.waitUntil(lambda: advice.text() == "Hugging Face may have a drafter for it.")


def test_what_would_make_it_faster_is_a_click_away(
    qtbot: QtBot, page: InstalledPage, models_window: ModelsWindow, hub: HubServer
) -> None:
    pick(page, "org/Alpha-8B-4bit")
    advice = page.details.advice
    qtbot.waitUntil(lambda: "can draft" in advice.text())
    matched: list[str] = []
    models_window.installed._models.library.drafters_listed.connect(lambda model, _heads: matched.append(model.name))
    assert advice.text().endswith("Load the model to use it.")
    assert page.details.follow.isHidden()
    pick(page, "tiny")  # the loaded one
    qtbot.waitUntil(lambda: advice.text() == "Hugging Face may have a drafter for it.")
    assert not hub.requests
    before = len(matched)
    page.details.follow.click()
    qtbot.waitUntil(lambda: bool(hub.requests))
    drafters = models_window.drafters
    qtbot.waitUntil(lambda: "No drafter for" in drafters.hub_text.text())
    models_window.show_page(page)
    qtbot.waitUntil(lambda: "Train one here" in advice.text())
    assert len(matched) == before, "results of a search match the model's drafters again"
    page.details.follow.click()
    assert page.training.isVisible()
    page.training.back.click()
    assert page.details.isVisible()


def test_escape_ends_a_search_and_then_closes_the_window(page: InstalledPage, models_window: ModelsWindow) -> None:
    """It stayed, unlike all other side windows."""
    page.search.setText("words")
    press_key(page.search, "Esc")
    assert page.search.text() == ""
    assert models_window.isVisible()
    press_key(page.search, "Esc")
    assert not models_window.isVisible()
