"""The Installed page offers the vision that a copy lacks, and lists what was fetched."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import find_part, library_models
from rdchat.inference.api import NO_VISION, ModelCard
from rdchat.inference.vision.families import vision_of
from rdchat.services.models.service_base import ModelSources
from rdchat.services.models.window_services import Models
from rdchat.ui.models import entries
from rdchat.ui.models.drafters_page import PartSheet
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.page_parts import PageLinks
from rdchat.ui.style import Theme
from tests.hub.hub_server import HubServer
from tests.inference.vision.seeing_models import ORIGINAL, put_original, seeing_folder, without_tower
from tests.ui.conftest import Chat
from tests.ui.models.page_steps import WAIT_MS, until


@pytest.fixture
def copy(hub: HubServer, tmp_path: Path) -> Path:
    put_original(hub, tmp_path / "original", "qwen3_vl")
    folder = without_tower(seeing_folder(paths.models_dir() / "Tiny-Sees-4bit", "qwen3_vl"))
    (folder / "README.md").write_text(f"---\nbase_model: {ORIGINAL}\nbase_model_relation: quantized\n---\n")
    return folder


@pytest.fixture
def models(copy: Path, chat: Chat) -> Iterator[Models]:
    models = Models(chat.controller, ModelSources(models=library_models, original_parts=find_part))
    yield models
    models.end_services()
    models.deleteLater()


@pytest.fixture
def page(qtbot: QtBot, models: Models, theme: Theme) -> InstalledPage:
    page = InstalledPage(models, PageLinks(), theme)
    qtbot.addWidget(page)
    page.resize(900, 560)
    page.show()
    until(qtbot, lambda: bool(models.library.models))
    return page


def card(models: Models, name: str) -> ModelCard:
    return next(each for each in models.library.models if each.name == name)


@pytest.mark.slow
def test_a_copy_gets_the_vision_of_its_original(
    qtbot: QtBot, hub: HubServer, models: Models, page: InstalledPage, copy: Path
) -> None:
    details = page.details
    assert (details.problem.text(), details.vision.isVisible()) == (NO_VISION, True)
    assert entries.row_line(card(models, copy.name)).count("sees images") == 0
    assert hub.requests == [], "nothing is asked before a click"
    details.vision.click()
    sheet = page.findChildren(PartSheet)[-1]
    until(qtbot, lambda: models.parts.plan is not None)
    assert sheet.label.text() == (
        f"Its original has: 545 KB from {ORIGINAL}: whole files, of which only that part is kept. "
        "The model's own files stay."
    )
    with qtbot.waitSignals([models.parts.started, models.downloads.finished], timeout=WAIT_MS):
        sheet.go.click()
    (download,) = models.downloads.all()
    assert entries.download_title(download) == f"{ORIGINAL}  ·  vision"
    assert vision_of(copy).family is not None
    until(qtbot, lambda: len(models.library.models) == 2)
    seeing = card(models, copy.name)
    tower = card(models, Path(download.folder).name)
    assert "sees images" in entries.row_line(seeing)
    assert entries.row_line(tower) == entries.joined(entries.size(tower.disk_bytes), "Vision of a model")
    assert page.count.text().startswith("1 model, ")
    page.list.setCurrentRow(0)
    assert page.current == seeing
    assert (details.problem.isVisible(), details.vision.isVisible()) == (False, False)
    page.list.setCurrentRow(1)
    assert details.problem.text().startswith("This is the vision of a model")
    assert not details.row.main.isEnabled()


def test_an_original_that_nobody_names_is_typed(qtbot: QtBot, page: InstalledPage, copy: Path) -> None:
    (copy / "README.md").unlink()
    page.details.vision.click()
    sheet = page.findChildren(PartSheet)[-1]
    until(qtbot, lambda: "says which model it was quantised from" in sheet.label.text())
    sheet.field.setText(ORIGINAL)
    sheet.go.click()
    until(qtbot, lambda: sheet.go.text() == "Get 545 KB")
