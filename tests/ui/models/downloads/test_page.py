"""The downloads' page, with real downloads from a hub on this machine, by mouse and keyboard."""

import re
import shutil
from pathlib import Path

import pytest
from PySide6.QtCore import QObject, Qt, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QAbstractButton, QMessageBox, QWidget
from pytestqt.qtbot import QtBot

from rdchat.errors import StorageLockedError
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.fit import Model
from rdchat.services.models.window_services import Models
from rdchat.ui.models.model_row import ModelRow
from rdchat.ui.models.models_window import ModelsWindow, TokenSheet
from tests.hub.downloads.downloading import NAME, cached, check_whole, small_files
from tests.hub.hub_server import HubServer
from tests.services.models.library_samples import library_model
from tests.ui.conftest import Chat

LEFT = Qt.MouseButton.LeftButton
WAIT_MS = 60_000


class Opened(QObject):
    """Notes what would be opened in a browser or the file manager."""

    def __init__(self) -> None:
        super().__init__()
        self.urls: list[str] = []

    @Slot(QUrl)
    def open(self, url: QUrl) -> None:
        self.urls.append(url.toString())


@pytest.fixture
def opened() -> Opened:
    opened = Opened()
    for scheme in ("http", "file"):
        QDesktopServices.setUrlHandler(scheme, opened, "open")
    yield opened
    for scheme in ("http", "file"):
        QDesktopServices.unsetUrlHandler(scheme)


def begin(qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models, holds_at: int | None) -> ModelRow:
    """Start a download; return its row once bytes have come."""
    hub.add(NAME, small_files())
    hub.holds_at = holds_at
    models.downloads.start_download(Download(NAME))
    qtbot.waitUntil(lambda: bool(models_window.downloads.list.rows), timeout=WAIT_MS)
    (row,) = models_window.downloads.list.rows.values()
    if holds_at:
        qtbot.waitUntil(lambda: row.bar.value() > 100, timeout=WAIT_MS)  # of 1,000; the weights have begun
    return row


def say(qtbot: QtBot, row: ModelRow, words: str) -> None:
    qtbot.waitUntil(lambda: words in row.state.text(), timeout=WAIT_MS)


def question(qtbot: QtBot, row: ModelRow) -> QMessageBox:
    """Return the question that comes."""
    qtbot.waitUntil(lambda: row.findChild(QMessageBox) is not None, timeout=WAIT_MS)
    box = row.findChild(QMessageBox)
    assert box is not None
    return box


def remove(qtbot: QtBot, row: ModelRow) -> None:
    """Answer the question that comes: remove what is here."""
    box = question(qtbot, row)
    next(button for button in box.buttons() if button.text().startswith("Remove ")).click()


def test_it_is_paused_resumed_loaded_shown_and_cleared(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models, chat: Chat, opened: Opened
) -> None:
    page = models_window.downloads
    assert page.empty.isVisible()
    row = begin(qtbot, hub, models_window, models, 100_000)
    assert row.isVisible()
    qtbot.waitUntil(lambda: "MB" in row.state.text() or "KB" in row.state.text(), timeout=WAIT_MS)
    qtbot.waitUntil(lambda: page.totals.text().startswith("1 download  ·  "), timeout=WAIT_MS)
    assert "free on the disk" in page.disk.text()
    qtbot.mouseClick(row.main, LEFT)
    say(qtbot, row, "Paused")
    assert (row.main.text(), row.other.text(), page.totals.isVisible()) == ("Resume", "Remove", False)
    qtbot.mouseClick(row.files.fold, LEFT)
    assert row.files.isVisible()
    assert "model.safetensors: " in row.files.text()
    hub.holds_at = None
    qtbot.mouseClick(row.main, LEFT)
    say(qtbot, row, "complete and checked")
    qtbot.mouseClick(row.main, LEFT)
    qtbot.waitUntil(lambda: row.main.text() == "Unload", timeout=WAIT_MS)
    assert chat.engine.loads[-1][0] == NAME
    qtbot.mouseClick(row.other, LEFT)
    assert opened.urls[0].startswith("file://")
    check_whole(Path(QUrl(opened.urls[0]).toLocalFile()), small_files())
    qtbot.mouseClick(row.clear, LEFT)
    assert (page.list.rows, page.empty.isVisible()) == ({}, True)
    qtbot.mouseClick(page.empty.action, LEFT)
    assert models_window.discover.isVisible()


def is_free() -> bool:
    """Return whether the download's process has let go of the model."""
    try:
        with cached().locked():
            return True
    except StorageLockedError:
        return False


@pytest.mark.slow
def test_cancelling_stops_at_once_and_asks_about_what_is_here(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models
) -> None:
    row = begin(qtbot, hub, models_window, models, 100_000)
    row.other.setFocus()
    qtbot.keyClick(row.other, Qt.Key.Key_Space)
    box = question(qtbot, row)
    assert models.downloads.all()[0].state is DownloadState.PAUSED
    assert box.text().endswith("so you can resume later?")
    assert box.defaultButton().text() == "Keep", "what loses nothing comes first"
    qtbot.keyClick(box, Qt.Key.Key_Escape)
    qtbot.waitUntil(lambda: row.findChild(QMessageBox) is None)
    assert models_window.isVisible(), "Escape answered the question and no more"
    assert list(cached().work.glob("*.part"))
    qtbot.waitUntil(is_free, timeout=WAIT_MS)
    with cached().locked():
        qtbot.mouseClick(row.other, LEFT)
        remove(qtbot, row)
        qtbot.waitUntil(row.problem.isVisible, timeout=WAIT_MS)
        assert "is downloading" in row.problem.text(), "another program has it now"
    qtbot.mouseClick(row.other, LEFT)
    remove(qtbot, row)
    qtbot.waitUntil(lambda: not models_window.downloads.list.rows, timeout=WAIT_MS)
    assert not cached().folder.exists()


@pytest.mark.slow
def test_of_what_is_not_here_nobody_asks(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models
) -> None:
    models.downloads.start_download(Download("some-org/nothing"))
    qtbot.waitUntil(lambda: bool(models_window.downloads.list.rows), timeout=WAIT_MS)
    (row,) = models_window.downloads.list.rows.values()
    say(qtbot, row, "Stopped")
    qtbot.mouseClick(row.other, LEFT)
    qtbot.waitUntil(lambda: not models_window.downloads.list.rows, timeout=WAIT_MS)
    assert models_window.downloads.empty.isVisible()


@pytest.mark.slow
def test_a_gated_model_leads_to_its_page_and_to_the_token(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models, opened: Opened
) -> None:
    files = small_files()
    hub.add(NAME, files, gated=True)
    models.downloads.start_download(Download(NAME))
    qtbot.waitUntil(lambda: bool(models_window.downloads.list.rows), timeout=WAIT_MS)
    (row,) = models_window.downloads.list.rows.values()
    say(qtbot, row, "Stopped")
    assert "is gated" in row.problem.text()
    assert "“Agree and access repository”" in row.hint.text()
    qtbot.mouseClick(row.page, LEFT)
    assert opened.urls == [f"{hub.url}/{NAME}"]
    qtbot.mouseClick(row.token, LEFT)
    (dialog,) = models_window.findChildren(TokenSheet)
    qtbot.waitUntil(lambda: dialog.isVisible() and not models.account.busy, timeout=WAIT_MS)
    assert dialog.status.text().startswith("No token is set.")
    assert not dialog.use.isEnabled()
    qtbot.keyClicks(dialog.field, "hf_wrong")
    assert "hf_wrong" not in dialog.field.displayText()
    qtbot.keyClick(dialog.field, Qt.Key.Key_Return)
    qtbot.waitUntil(dialog.problem.isVisible, timeout=WAIT_MS)
    assert "does not know this token" in dialog.problem.text()
    dialog.field.clear()
    qtbot.keyClicks(dialog.field, hub.token)
    qtbot.keyClick(dialog.field, Qt.Key.Key_Return)
    qtbot.waitUntil(lambda: dialog.status.text() == "The token of mia is in use.", timeout=WAIT_MS)
    assert dialog.where.text().startswith("There is no keychain")
    assert dialog.field.text() == ""
    with qtbot.waitSignal(dialog.destroyed):
        qtbot.keyClick(dialog, Qt.Key.Key_Escape)
    assert models_window.isVisible()
    say(qtbot, row, "complete and checked")


def delete(qtbot: QtBot, models_window: ModelsWindow, models: Models, model: ModelCard) -> object:
    with qtbot.waitSignal(models.removal.removed, timeout=WAIT_MS) as told:
        models.removal.ask_about(model, lambda question: models.removal.delete_model(question, pytest.fail))
    return told.args[1]


@pytest.mark.slow
def test_the_row_of_a_deleted_model_goes(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models, system_trash: Path
) -> None:
    row = begin(qtbot, hub, models_window, models, None)
    say(qtbot, row, "complete and checked")
    (progress,) = models.downloads.all()
    trashed = delete(qtbot, models_window, models, library_model(NAME, path=Path(progress.folder)))
    assert (models.downloads.all(), models_window.downloads.list.rows) == ((), {})
    assert trashed is not None


@pytest.mark.slow
def test_a_finished_download_that_another_program_deleted_is_not_installed(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models
) -> None:
    row = begin(qtbot, hub, models_window, models, None)
    say(qtbot, row, "complete and checked")
    assert models.with_download(Model(NAME)).is_installed
    shutil.rmtree(cached().folder)
    assert models.with_download(Model(NAME)) == Model(NAME)


@pytest.mark.slow
def test_the_row_of_a_deleted_unfinished_download_goes(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models
) -> None:
    row = begin(qtbot, hub, models_window, models, 100_000)
    models.downloads.pause(models.downloads.all()[0].id)
    say(qtbot, row, "Paused")
    unfinished = library_model(NAME, path=cached().folder, download_bytes=400_000)
    assert delete(qtbot, models_window, models, unfinished) is None
    assert (models.downloads.all(), models_window.downloads.list.rows) == ((), {})
    assert not cached().folder.exists()


@pytest.mark.slow
def test_the_tab_says_how_much_is_here_while_something_goes_on(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models
) -> None:
    assert models_window.tabs.tabText(2) == "Downloads"
    models_window.show_page(models_window.installed)
    hub.add(NAME, small_files())
    hub.holds_at = 100_000
    models.downloads.start_download(Download(NAME, is_model=False))
    share = re.compile(r"Downloads  ·  [1-9]\d*\W?%")
    qtbot.waitUntil(lambda: share.fullmatch(models_window.tabs.tabText(2)) is not None, timeout=WAIT_MS)
    hub.holds_at = None
    qtbot.waitUntil(lambda: models_window.tabs.tabText(2) == "Downloads", timeout=WAIT_MS)
    models_window.show_page(models_window.downloads)
    (row,) = models_window.downloads.list.rows.values()
    assert "complete and checked" in row.state.text()
    assert not row.main.isVisible(), "it drafts, and does not answer"
    qtbot.mouseClick(models_window.downloads.clear, LEFT)
    assert models_window.downloads.list.rows == {}


@pytest.mark.slow
def test_the_keyboard_reaches_everything_by_name(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models
) -> None:
    row = begin(qtbot, hub, models_window, models, 100_000)
    models.downloads.pause(models.downloads.all()[0].id)
    say(qtbot, row, "Paused")
    wanted = {row.main, row.other, row.files.fold, models_window.downloads.token}
    assert {button.accessibleName() or button.text() for button in wanted} == {
        f"Resume: {NAME}", f"Remove: {NAME}", f"Show 4 files: {NAME}", "Hugging Face Token…"
    }  # fmt: skip
    reached: set[QWidget | None] = set()
    models_window.activateWindow()
    row.main.setFocus()
    for _ in range(12):
        reached.add(models_window.focusWidget())
        qtbot.keyClick(models_window.focusWidget(), Qt.Key.Key_Tab)
    assert wanted <= reached
    hidden = [each for each in row.findChildren(QAbstractButton) if each in reached and not each.isVisible()]
    assert hidden == []
