"""Names of models, drafters, files and publishers that are HTML, and name a pipe, in the window of models."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from pytestqt.qtbot import QtBot

from rdchat.hub import HubModel, PublishedKind
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.inference.api import HeadKind, ModelCard, TargetMatch
from rdchat.services.models.fit import Model
from rdchat.services.models.hub_search import ModelDetails
from rdchat.services.models.model_services import Models
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.model_row import ModelRow
from rdchat.ui.models.models_window import ModelsWindow
from rdchat.ui.models.reading_pane import PageLinks
from rdchat.ui.style import Theme
from tests.services.models.library_samples import library_model
from tests.ui.hovering import Pipe, check_tips, rich_labels, shown_tips, watched_pipe
from tests.ui.models.conftest import Machine
from tests.ui.models.page_steps import names, pick, refresh


@pytest.fixture
def pipe(tmp_path: Path) -> Iterator[Pipe]:
    with watched_pipe(tmp_path) as pipe:
        yield pipe


@pytest.mark.slow
def test_the_page_of_installed_models(
    qtbot: QtBot, machine: Machine, page: InstalledPage, models: Models, pipe: Pipe
) -> None:
    named = pipe.named
    known = {"kind": HeadKind.RECURRENT, "match": TargetMatch(True, named("match")), "weights_bytes": 100}
    machine.heads = (ModelCard(named("head"), named("headpath"), named("place"), **known),)
    machine.problems = {named("refused"): named("problem")}
    machine.models = [
        library_model(named("model"), family=named("family"), origin=named("place"), quantization=named("bits")),
        library_model(named("broken"), problem=named("problem")),
    ]
    refresh(qtbot, models)
    for name in names(page):
        pick(page, name)
        check_tips(pipe, shown_tips(page))
        assert rich_labels(page) == []
    assert {"model", "broken"} <= check_tips(pipe, shown_tips(page))
    assert not pipe.reads


def row_of(qtbot: QtBot, models: Models, theme: Theme, model: Model) -> ModelRow:
    row = ModelRow(models, PageLinks(), theme)
    qtbot.addWidget(row)
    row.show_model(model)
    row.resize(300, 200)
    row.show()
    return row


def test_rows_of_drafters(qtbot: QtBot, theme: Theme, models: Models, pipe: Pipe) -> None:
    named = pipe.named
    known = {"kind": HeadKind.RECURRENT, "match": TargetMatch(False, named("match"))}
    card = ModelCard(named("name"), named("path"), named("place"), **known)
    found = HubModel(
        named("repository"), 1, kind=PublishedKind.EAGLE3, licence=named("licence"),
        problem=named("problem"),
    )  # fmt: skip
    here = row_of(qtbot, models, theme, Model(card.model, card, is_installed=True, drafts=True))
    published = row_of(qtbot, models, theme, Model(found.repository, hub=found, drafts=True))
    assert "path" in check_tips(pipe, shown_tips(here))
    assert {"repository", "problem"} & check_tips(pipe, shown_tips(published))
    assert rich_labels(here) + rich_labels(published) == []
    assert not pipe.reads


def test_a_row_of_downloads(qtbot: QtBot, theme: Theme, models: Models, pipe: Pipe) -> None:
    named = pipe.named
    progress = Download(
        named("repository"), named("revision"), state=DownloadState.FAILED,
        files=(DownloadFile(named("file"), 1, 10, named("note")),), notes=(named("note"),),
        problem=named("problem"), hint=named("hint"),
    )  # fmt: skip
    row = row_of(qtbot, models, theme, Model.downloaded(progress))
    row.files.fold.click()
    check_tips(pipe, shown_tips(row))
    assert rich_labels(row) == []
    assert not pipe.reads


@pytest.mark.slow
def test_what_the_hub_tells_of_a_model(models_window: ModelsWindow, pipe: Pipe) -> None:
    named = pipe.named
    facts = HubModel(
        named("repository"), 1, 1, named("changed"), True, named("licence"), named("family"), named("bits"), 10
    )
    page = models_window.discover
    models_window.show_page(page)
    model = ModelDetails(
        f"{named('publisher')}/{named('model')}", "https://a.b", facts, None, named("problem"),
        card=named("card"),
    )  # fmt: skip
    page.details.show_published(model)
    check_tips(pipe, shown_tips(page))
    page.details.show_published(replace(model, card=f"![a]({pipe.path}) {named('card')}"))
    page.grab()
    assert rich_labels(page) == []
    assert not pipe.reads
