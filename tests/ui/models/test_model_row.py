"""A row of the models window shows one model after another, in each state."""

from dataclasses import replace

import pytest
from PySide6.QtWidgets import QMessageBox
from pytestqt.qtbot import QtBot

from rdchat.hub import HubModel
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState, with_drafter
from rdchat.inference.api import ModelCard
from rdchat.services.models.fit import Model
from rdchat.services.models.model_services import Models
from rdchat.ui.models.model_row import ModelRow
from rdchat.ui.models.reading_pane import PageLinks
from rdchat.ui.style import Theme
from tests.ui.shown_widgets import answer_question


@pytest.fixture
def row(qtbot: QtBot, theme: Theme, models: Models) -> ModelRow:
    row = ModelRow(models, PageLinks(), theme, in_details=True)
    qtbot.addWidget(row)
    row.show()
    return row


@pytest.fixture
def discarded(models: Models, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The downloads that are discarded; none is paused or removed."""
    discarded: list[str] = []
    monkeypatch.setattr(models.downloads, "pause", lambda _download: None)
    monkeypatch.setattr(models.downloads, "discard", discarded.append)
    return discarded


CARD = ModelCard("org/one", "org/one", "Hugging Face", repository="org/one")
DOWNLOADING = Model("org/one", card=CARD, download=Download("org/one", state=DownloadState.DOWNLOADING))


@pytest.mark.parametrize(
    "shown",
    [
        Model("org/two", download=Download("org/two", state=DownloadState.PAUSED)),
        Model("org/one", card=replace(CARD, revision="older")),
    ],
    ids=["model", "revision"],
)
def test_a_cancelled_download_is_not_that_of_what_is_shown_next(
    row: ModelRow, discarded: list[str], shown: Model
) -> None:
    row.show_model(DOWNLOADING)
    row.other.click()
    row.show_model(shown)
    assert not discarded


def test_the_files_are_removed_that_the_question_was_about(row: ModelRow, discarded: list[str]) -> None:
    """The details' row shows another download when the selected one leaves the list."""
    first, second = (
        Download(name, state=DownloadState.PAUSED, files=(DownloadFile("a", 1, 2),)) for name in ("org/a", "org/b")
    )
    row.show_model(Model(first.id, download=first))
    row.other.click()
    row.show_model(Model(second.id, download=second))
    answer_question(row, "Remove")
    assert discarded == [first.id]


def test_a_drafter_of_another_model_is_not_said_to_be_refused(
    row: ModelRow, models: Models, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(models.library, "problem_of", lambda _model: "It needs a model with 36 layers.")
    drafter = Model("org/drafter", is_installed=True, is_model=False)
    row.show_model(drafter)
    assert not row.problem.text()
    row.show_model(replace(drafter, drafts=True))
    assert "36 layers" in row.problem.text()


def test_the_text_and_the_button_say_alike_whether_the_model_is_loaded(row: ModelRow, models: Models) -> None:
    slot = models.slot
    slot.chosen = "org/one"
    slot.loading = False
    row.show_model(Model("org/one", is_installed=True, load_name="org/one"))
    assert (row.state.text(), row.main.text()) == ("In use now.", "Unload")
    slot.chosen = "org/other"
    slot.load_started.emit()
    assert (row.state.text(), row.main.text()) == ("Installed.", "Load")


def test_a_download_starts_once_the_files_are_known(row: ModelRow, models: Models) -> None:
    model = Model("org/one", hub=HubModel("org/one"), can_start=False)
    row.show_model(model)
    models.slot.load_started.emit()
    assert not row.main.isEnabled()
    row.show_model(replace(model, can_start=True))
    assert row.main.isEnabled()


def test_nothing_is_asked_about_a_drafter_without_a_byte(row: ModelRow, discarded: list[str]) -> None:
    files = (DownloadFile("model.safetensors", 9, 9),)
    model = Download("org/one", state=DownloadState.FINISHED, files=files, folder="/snapshot")
    for state in (DownloadState.DOWNLOADING, DownloadState.PAUSED):
        drafter = Download("org/drafter", state=state, files=(DownloadFile("model.safetensors", 0, 5),))
        row.show_model(Model("org/one", download=with_drafter(model, drafter)))
        if state is DownloadState.DOWNLOADING:
            row.other.click()
    assert discarded == [model.id]
    assert not row.findChildren(QMessageBox)


def test_what_downloads_is_not_deleted(row: ModelRow) -> None:
    row.show_model(DOWNLOADING)
    assert not row.delete.isEnabled()
    assert "Pause the download first" in row.delete.toolTip()
