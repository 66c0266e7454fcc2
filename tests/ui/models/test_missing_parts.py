"""The sheets for MTP layers and vision show their size before a download, and ask for an original that nobody names."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import find_part, library_models
from rdchat.hub.downloads.download import DownloadState
from rdchat.inference.api import NO_VISION, ModelCard
from rdchat.inference.vision.families import vision_of
from rdchat.services.models.model_services import Models
from rdchat.services.models.model_sources import ModelSources
from rdchat.ui.models import model_texts
from rdchat.ui.models.computer_pages import MacsPage, RemotePage
from rdchat.ui.models.drafters_section import DraftersSection, MissingPartSheet
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.models.reading_pane import PageLinks
from rdchat.ui.style import Theme
from tests.hub.hub_server import HubServer
from tests.hub.mtp_samples import ORIGINAL, TARGET, Original, check_layers, drafter_folder, make_target, place
from tests.inference.vision.seeing_models import ORIGINAL as SEEING, put_original, seeing_folder, without_tower
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine
from tests.ui.models.page_steps import is_free, pick, press


@pytest.fixture
def model(tmp_path: Path) -> ModelCard:
    return ModelCard(TARGET, TARGET, "Hugging Face", make_target(tmp_path / "target"), repository=TARGET)


@pytest.fixture
def machine(model: ModelCard) -> Machine:
    return Machine([model])


@pytest.fixture
def page(hub: HubServer, models_window: ModelsWindow, model: ModelCard) -> DraftersSection:
    models_window.show_page(models_window.drafters)
    models_window.drafters.choose_model(model)
    return models_window.drafters


@pytest.fixture
def original(hub: HubServer) -> Original:
    """The original on the hub, which the model's card there names."""
    original = Original()
    original.put(hub)
    hub.add(TARGET, {"config.json": b"{}"}, tags=[f"base_model:quantized:{ORIGINAL}"])
    return original


def opened(qtbot: QtBot, page: DraftersSection) -> MissingPartSheet:
    """Open the sheet, and wait for the hub's answer."""
    page.get_mtp()
    sheet = page.findChildren(MissingPartSheet)[-1]
    qtbot.waitUntil(lambda: not sheet._search.searching)
    return sheet


@pytest.mark.slow
def test_the_size_is_shown_and_a_click_fetches_the_layers(
    qtbot: QtBot, hub: HubServer, original: Original, models: Models, page: DraftersSection
) -> None:
    assert hub.requests == [], "nothing is asked before a click"
    sheet = opened(qtbot, page)
    assert sheet.label.text().startswith(f"1 MB from {ORIGINAL}: whole files, of which only that part is kept. ")
    assert (sheet.go.text(), sheet.field.isVisible()) == ("Get 1 MB", False)
    with qtbot.waitSignals([models.parts.started, models.downloads.finished]):
        press(qtbot, sheet.go)
    qtbot.waitUntil(lambda: not page.findChildren(MissingPartSheet))
    check_layers(drafter_folder(), original)
    (download,) = models.downloads.all()
    assert (download.state, download.is_model) == (DownloadState.FINISHED, False)
    assert model_texts.download_title(download) == f"{ORIGINAL}  ·  MTP layers"
    assert model_texts.state_text(download) == "1 MB  ·  complete"
    assert "There is nothing to get" in opened(qtbot, page).problem.text()


def test_an_original_that_nobody_names_is_typed(qtbot: QtBot, hub: HubServer, page: DraftersSection) -> None:
    Original().put(hub)
    hub.add(TARGET, {"config.json": b"{}"})
    sheet = opened(qtbot, page)
    assert sheet.label.text().endswith(
        "does not say that it was published with MTP layers. If it was, name its original:"
    )
    assert not sheet.go.isEnabled()
    qtbot.keyClicks(sheet.field, "no/body")  # type: ignore[no-untyped-call]
    press(qtbot, sheet.go)
    qtbot.waitUntil(lambda: "no longer on Hugging Face" in sheet.problem.text())
    assert sheet.token.isVisible()
    sheet.field.setText(ORIGINAL)
    press(qtbot, sheet.go)
    qtbot.waitUntil(lambda: sheet.go.text() == "Get 1 MB")
    assert sheet.problem.isHidden()


def test_only_a_model_that_says_it_has_layers_is_asked_for_its_original_without_a_doubt(
    qtbot: QtBot, hub: HubServer, page: DraftersSection, model: ModelCard
) -> None:
    hub.add(TARGET, {"config.json": b"{}"})
    page.choose_model(replace(model, states_mtp=True))
    label = opened(qtbot, page).label
    qtbot.waitUntil(lambda: "says which model it was quantised from. Name that model:" in label.text())


@pytest.mark.parametrize("says", [False, True])
def test_layers_are_offered_where_the_model_speaks_of_them(page: DraftersSection, model: ModelCard, says: bool) -> None:
    page.choose_model(replace(model, states_mtp=says))
    assert page.mtp.isVisible() is says


def test_after_a_problem_the_same_is_tried_again(qtbot: QtBot, hub: HubServer, page: DraftersSection) -> None:
    hub.add(TARGET, {"config.json": b"{}"}, tags=[f"base_model:quantized:{ORIGINAL}"])
    sheet = opened(qtbot, page)
    assert "no longer on Hugging Face" in sheet.problem.text()
    assert sheet.go.text() == "Try Again"
    sheet.field.setText("no")
    assert (sheet.go.text(), sheet.go.isEnabled()) == ("Look There", False)
    sheet.field.clear()
    Original().put(hub)
    press(qtbot, sheet.go)
    qtbot.waitUntil(lambda: sheet.go.text() == "Get 1 MB")


@pytest.mark.slow
def test_a_download_that_cannot_begin_keeps_its_plan(
    qtbot: QtBot, original: Original, models: Models, page: DraftersSection
) -> None:
    sheet = opened(qtbot, page)
    place().folder.parent.mkdir(parents=True, exist_ok=True)
    place().folder.write_text("no folder")
    press(qtbot, sheet.go)
    qtbot.waitUntil(lambda: bool(sheet.problem.text()))
    place().folder.unlink()
    assert (sheet.go.text(), sheet.go.isEnabled()) == ("Get 1 MB", True)
    with qtbot.waitSignal(models.downloads.finished):
        press(qtbot, sheet.go)


@pytest.fixture
def held_download(qtbot: QtBot, hub: HubServer, original: Original, models: Models, page: DraftersSection) -> str:
    """The id of a download of layers that has begun; the hub holds the rest back."""
    sheet = opened(qtbot, page)
    hub.holds_at = 100_000
    press(qtbot, sheet.go)
    qtbot.waitUntil(lambda: any(each.done_bytes for each in models.downloads.all()))
    return models.downloads.all()[0].id


@pytest.mark.slow
def test_an_unfinished_download_is_resumed(
    qtbot: QtBot, hub: HubServer, original: Original, models: Models, page: DraftersSection, held_download: str
) -> None:
    models.downloads.pause(held_download)
    qtbot.waitUntil(lambda: models.downloads.all()[0].state is DownloadState.PAUSED)
    qtbot.waitUntil(partial(is_free, place()))
    hub.holds_at = None
    asked = len(hub.requests)
    sheet = opened(qtbot, page)
    assert (sheet.go.text(), len(hub.requests)) == ("Get 1 MB", asked)
    with qtbot.waitSignal(models.downloads.finished):
        press(qtbot, sheet.go)
    check_layers(drafter_folder(), original)


@pytest.mark.slow
def test_what_was_fetched_is_removed_with_the_download(qtbot: QtBot, models: Models, held_download: str) -> None:
    assert place().folder.exists()
    with qtbot.waitSignal(models.downloads.removed):
        models.downloads.discard(held_download)
    assert not place().folder.exists()
    assert not paths.drafters_dir().exists()


def test_a_closed_sheet_asks_no_more(qtbot: QtBot, original: Original, page: DraftersSection) -> None:
    sheet = opened(qtbot, page)
    search = sheet._search
    with qtbot.waitSignal(sheet.destroyed):
        press(qtbot, sheet.cancel)
    assert search.plan is None


def card(models: Models, name: str) -> ModelCard:
    return next(each for each in models.library.models if each.name == name)


@pytest.mark.slow
def test_a_copy_gets_the_vision_of_its_original(
    qtbot: QtBot, hub: HubServer, chat: Chat, theme: Theme, tmp_path: Path
) -> None:
    put_original(hub, tmp_path / "original", "qwen3_vl")
    copy = without_tower(seeing_folder(paths.models_dir() / "Tiny-Sees-4bit", "qwen3_vl"))
    models = Models(chat.controller, ModelSources(models=library_models, original_parts=find_part))
    page = InstalledPage(
        models,
        PageLinks(),
        theme,
        QWidget(),
        (RemotePage(models, PageLinks(), theme), MacsPage(models, PageLinks(), theme)),
    )
    qtbot.addWidget(page)
    page.resize(900, 560)
    page.show()
    qtbot.waitUntil(lambda: bool(models.library.models))
    details = page.details
    assert (details.problem.text(), details.vision.isVisible()) == (NO_VISION, True)
    assert model_texts.row_line(card(models, copy.name)).count("sees images") == 0
    assert hub.requests == [], "nothing is asked before a click"
    (copy / "README.md").write_text(f"---\nbase_model: {SEEING}\nbase_model_relation: quantized\n---\n")
    details.vision.click()
    sheet = page.findChildren(MissingPartSheet)[-1]
    qtbot.waitUntil(lambda: models.parts.plan is not None)
    assert sheet.label.text() == (
        f"Its original has: 545 KB from {SEEING}: whole files, of which only that part is kept. "
        "The model's own files stay."
    )
    with qtbot.waitSignals([models.parts.started, models.downloads.finished]):
        sheet.go.click()
    (download,) = models.downloads.all()
    assert model_texts.download_title(download) == f"{SEEING}  ·  vision"
    assert vision_of(copy).family is not None
    qtbot.waitUntil(lambda: len(models.library.models) == 2)
    seeing = card(models, copy.name)
    tower = card(models, Path(download.folder).name)
    assert "sees images" in model_texts.row_line(seeing)
    assert model_texts.row_line(tower) == model_texts.joined(model_texts.size(tower.disk_bytes), "Vision of a model")
    assert page.count.text().startswith("1 model, ")
    pick(page, seeing.name)
    assert page.current == seeing
    assert (details.problem.isVisible(), details.vision.isVisible()) == (False, False)
    pick(page, tower.name)
    assert details.problem.text().startswith("This is the vision of a model")
    assert not details.row.main.isEnabled()
    models.end_services()
