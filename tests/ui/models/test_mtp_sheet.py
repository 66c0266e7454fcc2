"""The sheet for MTP layers shows their size before it fetches them, and asks for an original that nobody names."""

from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.hub.downloads.download import DownloadState
from rdchat.inference.api import ModelCard
from rdchat.services.models.window_services import Models
from rdchat.ui.models import entries
from rdchat.ui.models.drafters_page import DraftersPage, PartSheet
from rdchat.ui.models.models_window import ModelsWindow
from tests.hub.hub_server import HubServer
from tests.hub.mtp_samples import ORIGINAL, TARGET, Original, check_layers, drafter_folder, make_target, place
from tests.ui.models.conftest import Machine
from tests.ui.models.page_steps import WAIT_MS, press, until


@pytest.fixture
def model(tmp_path: Path) -> ModelCard:
    return ModelCard(TARGET, TARGET, "Hugging Face", make_target(tmp_path / "target"), repository=TARGET)


@pytest.fixture
def machine(model: ModelCard) -> Machine:
    return Machine([model])


@pytest.fixture
def page(hub: HubServer, models_window: ModelsWindow, model: ModelCard) -> DraftersPage:
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


def opened(qtbot: QtBot, page: DraftersPage) -> PartSheet:
    """Open the sheet, and wait for the hub's answer."""
    page.get_mtp()
    sheet = page.findChildren(PartSheet)[-1]
    until(qtbot, lambda: not sheet._search.searching)
    return sheet


@pytest.mark.slow
def test_the_size_is_shown_and_a_click_fetches_the_layers(
    qtbot: QtBot, hub: HubServer, original: Original, models: Models, page: DraftersPage
) -> None:
    assert hub.requests == [], "nothing is asked before a click"
    sheet = opened(qtbot, page)
    assert sheet.label.text().startswith(f"1 MB from {ORIGINAL}: whole files, of which only that part is kept. ")
    assert (sheet.go.text(), sheet.field.isVisible()) == ("Get 1 MB", False)
    with qtbot.waitSignals([models.parts.started, models.downloads.finished], timeout=WAIT_MS):
        press(qtbot, sheet.go)
    qtbot.waitUntil(lambda: not page.findChildren(PartSheet))
    check_layers(drafter_folder(), original)
    (download,) = models.downloads.all()
    assert (download.state, download.is_model) == (DownloadState.FINISHED, False)
    assert entries.download_title(download) == f"{ORIGINAL}  ·  MTP layers"
    assert entries.state_text(download) == "1 MB  ·  complete"
    assert "There is nothing to get" in opened(qtbot, page).problem.text()


def test_an_original_that_nobody_names_is_typed(qtbot: QtBot, hub: HubServer, page: DraftersPage) -> None:
    Original().put(hub)
    hub.add(TARGET, {"config.json": b"{}"})
    sheet = opened(qtbot, page)
    assert sheet.label.text().endswith(
        "does not say that it was published with MTP layers. If it was, name its original:"
    )
    assert not sheet.go.isEnabled()
    qtbot.keyClicks(sheet.field, "no/body")  # type: ignore[no-untyped-call]
    press(qtbot, sheet.go)
    until(qtbot, lambda: "no longer on Hugging Face" in sheet.problem.text())
    assert sheet.token.isVisible()
    sheet.field.setText(ORIGINAL)
    press(qtbot, sheet.go)
    until(qtbot, lambda: sheet.go.text() == "Get 1 MB")
    assert sheet.problem.isHidden()


def test_only_a_model_that_says_it_has_layers_is_asked_for_its_original_without_a_doubt(
    qtbot: QtBot, hub: HubServer, page: DraftersPage, model: ModelCard
) -> None:
    hub.add(TARGET, {"config.json": b"{}"})
    page._library.choose_model(replace(model, states_mtp=True))
    label = opened(qtbot, page).label
    qtbot.waitUntil(lambda: "says which model it was quantised from. Name that model:" in label.text())


@pytest.mark.parametrize("says", [False, True])
def test_layers_are_offered_where_the_model_speaks_of_them(page: DraftersPage, model: ModelCard, says: bool) -> None:
    page._library.choose_model(replace(model, states_mtp=says))
    assert page.mtp.isVisible() is says


def test_after_a_problem_the_same_is_tried_again(qtbot: QtBot, hub: HubServer, page: DraftersPage) -> None:
    hub.add(TARGET, {"config.json": b"{}"}, tags=[f"base_model:quantized:{ORIGINAL}"])
    sheet = opened(qtbot, page)
    assert "no longer on Hugging Face" in sheet.problem.text()
    assert sheet.go.text() == "Try Again"
    sheet.field.setText("no")
    assert (sheet.go.text(), sheet.go.isEnabled()) == ("Look There", False)
    sheet.field.clear()
    Original().put(hub)
    press(qtbot, sheet.go)
    until(qtbot, lambda: sheet.go.text() == "Get 1 MB")


@pytest.mark.slow
def test_a_download_that_cannot_begin_keeps_its_plan(
    qtbot: QtBot, original: Original, models: Models, page: DraftersPage
) -> None:
    sheet = opened(qtbot, page)
    place().folder.parent.mkdir(parents=True, exist_ok=True)
    place().folder.write_text("no folder")
    press(qtbot, sheet.go)
    until(qtbot, lambda: bool(sheet.problem.text()))
    place().folder.unlink()
    assert (sheet.go.text(), sheet.go.isEnabled()) == ("Get 1 MB", True)
    with qtbot.waitSignal(models.downloads.finished, timeout=WAIT_MS):
        press(qtbot, sheet.go)


@pytest.mark.slow
def test_an_unfinished_download_is_resumed(
    qtbot: QtBot, hub: HubServer, original: Original, models: Models, page: DraftersPage
) -> None:
    sheet = opened(qtbot, page)
    hub.bytes_per_second = 200_000
    press(qtbot, sheet.go)
    until(qtbot, lambda: any(each.done_bytes for each in models.downloads.all()))
    (download,) = models.downloads.all()
    models.downloads.pause(download.id)
    until(qtbot, lambda: models.downloads.all()[0].state is DownloadState.PAUSED)
    hub.bytes_per_second = None
    asked = len(hub.requests)
    sheet = opened(qtbot, page)
    assert (sheet.go.text(), len(hub.requests)) == ("Get 1 MB", asked)
    with qtbot.waitSignal(models.downloads.finished, timeout=WAIT_MS):
        press(qtbot, sheet.go)
    check_layers(drafter_folder(), original)


@pytest.mark.slow
def test_what_was_fetched_is_removed_with_the_download(
    qtbot: QtBot, hub: HubServer, original: Original, models: Models, page: DraftersPage
) -> None:
    sheet = opened(qtbot, page)
    hub.bytes_per_second = 200_000
    press(qtbot, sheet.go)
    until(qtbot, lambda: any(each.done_bytes for each in models.downloads.all()))
    assert place().folder.exists()
    with qtbot.waitSignal(models.downloads.removed, timeout=WAIT_MS):
        models.downloads.discard(models.downloads.all()[0].id)
    assert not place().folder.exists()
    assert not paths.drafters_dir().exists()


def test_a_closed_sheet_asks_no_more(qtbot: QtBot, original: Original, page: DraftersPage) -> None:
    sheet = opened(qtbot, page)
    search = sheet._search
    with qtbot.waitSignal(sheet.destroyed):
        press(qtbot, sheet.cancel)
    assert search.plan is None
