"""The Downloads page with real downloads from a hub on this machine, and downloads beside a chat and over a quit."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import pytest
from PySide6.QtCore import QUrl
from PySide6.QtWidgets import QApplication, QMessageBox
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_record import has_unfinished
from rdchat.inference.api import ModelCard
from rdchat.services.models.fit import Model
from rdchat.services.models.model_services import Models
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.models.model_row import ModelRow
from rdchat.ui.models.models_window import ModelsWindow, TokenSheet
from rdchat.ui.window.header import DownloadButton
from tests.hub.downloads.downloading import (
    NAME,
    cached,
    check_nothing_installed,
    check_whole,
    largest_part,
    small_files,
)
from tests.hub.hub_server import HubServer
from tests.inference.drafting.suggested_pairs import suggest
from tests.services.fakes import ScriptedEngine
from tests.services.models.library_samples import library_model
from tests.ui.conftest import Chat
from tests.ui.models.page_steps import answer, is_free, press
from tests.ui.shown_widgets import press_key
from tests.ui.transcript.conftest import button


@pytest.fixture
def models_window(hub: HubServer, models_window: ModelsWindow) -> ModelsWindow:
    """The window with its downloads in front."""
    chosen = False

    def show() -> None:
        """Show them once there is one: before, they are not listed."""
        nonlocal chosen
        if not chosen and models_window.installed.list.row_of("downloads") >= 0:
            chosen = True
            models_window.show_page(models_window.downloads)

    models_window.downloads._downloads.changed.connect(show)
    return models_window


def begin(qtbot: QtBot, models_window: ModelsWindow, name: str = NAME) -> ModelRow:
    """Start a download; return its row."""
    models_window.downloads._downloads.start_download(Download(name))
    qtbot.waitUntil(lambda: bool(models_window.downloads.list.rows))
    (row,) = models_window.downloads.list.rows.values()
    return row


@pytest.fixture
def finished(qtbot: QtBot, hub: HubServer, models_window: ModelsWindow) -> ModelRow:
    """The row of a download that has ended."""
    hub.add(NAME, small_files())
    row = begin(qtbot, models_window)
    say(qtbot, row, "complete and checked")
    return row


@pytest.fixture
def held(qtbot: QtBot, hub: HubServer, models_window: ModelsWindow) -> ModelRow:
    """The row of a download whose weights have begun; the hub holds the rest back."""
    hub.add(NAME, small_files())
    hub.holds_at = 100_000
    row = begin(qtbot, models_window)
    qtbot.waitUntil(lambda: row.bar.value() > 100)  # of 1,000
    return row


def say(qtbot: QtBot, row: ModelRow, words: str) -> None:
    qtbot.waitUntil(lambda: words in row.state.text())


def question(qtbot: QtBot, row: ModelRow) -> QMessageBox:
    """Return the question that comes."""
    qtbot.waitUntil(lambda: row.findChild(QMessageBox) is not None)
    return row.findChild(QMessageBox)


def test_it_is_paused_resumed_loaded_shown_and_cleared(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, chat: Chat, opened: list[str], held: ModelRow
) -> None:
    page = models_window.downloads
    assert held.isVisible()
    qtbot.waitUntil(lambda: "MB" in held.state.text() or "KB" in held.state.text())
    qtbot.waitUntil(lambda: models_window.installed.list.entries[0].facts.startswith("1 download  ·  "))
    assert "free on the disk" in page.disk.text()
    press(qtbot, held.main)
    say(qtbot, held, "Paused")
    assert models_window.installed.list.entries[0].facts == "1 download"
    names = [part.accessibleName() for part in (held.main, held.other, held.files.fold)]
    assert names == [f"Resume: {NAME}", f"Remove: {NAME}", f"Show 4 files: {NAME}"]
    press(qtbot, held.files.fold)
    assert held.files.isVisible()
    assert "model.safetensors: " in held.files.text()
    hub.holds_at = None
    press(qtbot, held.main)
    say(qtbot, held, "complete and checked")
    press(qtbot, held.main)
    qtbot.waitUntil(lambda: held.main.text() == "Unload")
    assert chat.engine.loads[-1][0] == NAME
    press(qtbot, held.other)
    assert opened[0].startswith("file://")
    check_whole(Path(QUrl(opened[0]).toLocalFile()), small_files())
    press(qtbot, held.clear)
    assert page.list.rows == {}
    assert models_window.installed.details.isVisible()


@pytest.mark.slow
def test_cancelling_stops_at_once_and_asks_about_what_is_here(
    qtbot: QtBot, held: ModelRow, models_window: ModelsWindow, models: Models
) -> None:
    held.other.setFocus()
    press_key(held.other, "Space")
    box = question(qtbot, held)
    assert models.downloads.all()[0].state is DownloadState.PAUSED
    assert box.text().endswith("so you can resume later?")
    assert box.defaultButton().text() == "Keep", "what loses nothing comes first"
    press_key(box, "Esc")
    qtbot.waitUntil(lambda: held.findChild(QMessageBox) is None)
    assert models_window.isVisible(), "Escape answered the question and no more"
    assert list(cached().work.glob("*.part"))
    qtbot.waitUntil(partial(is_free, cached()))
    with cached().locked():
        press(qtbot, held.other)
        answer(qtbot, held, "Remove ")
        qtbot.waitUntil(held.problem.isVisible)
        assert "is downloading" in held.problem.text(), "another program has it now"
    press(qtbot, held.other)
    answer(qtbot, held, "Remove ")
    qtbot.waitUntil(lambda: not models_window.downloads.list.rows)
    assert not cached().folder.exists()


@pytest.mark.slow
def test_a_gated_model_leads_to_its_page_and_to_the_token(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models, opened: list[str]
) -> None:
    hub.add(NAME, small_files(), gated=True)
    row = begin(qtbot, models_window)
    say(qtbot, row, "Stopped")
    assert "is gated" in row.problem.text()
    assert "“Agree and access repository”" in row.hint.text()
    press(qtbot, row.page)
    assert opened == [f"{hub.url}/{NAME}"]
    press(qtbot, row.token)
    (dialog,) = models_window.findChildren(TokenSheet)
    qtbot.waitUntil(lambda: dialog.isVisible() and not models.account.busy)
    assert dialog.status.text().startswith("No token is set.")
    assert not dialog.use.isEnabled()
    qtbot.keyClicks(dialog.field, "hf_wrong")
    assert "hf_wrong" not in dialog.field.displayText()
    press_key(dialog.field, "Return")
    qtbot.waitUntil(dialog.problem.isVisible)
    assert "does not know this token" in dialog.problem.text()
    dialog.field.clear()
    qtbot.keyClicks(dialog.field, hub.token)
    press_key(dialog.field, "Return")
    qtbot.waitUntil(lambda: dialog.status.text() == "The token of mia is in use.")
    assert dialog.where.text().startswith("There is no keychain")
    assert dialog.field.text() == ""
    with qtbot.waitSignal(dialog.destroyed):
        press_key(dialog, "Esc")
    assert models_window.isVisible()
    say(qtbot, row, "complete and checked")


def delete(qtbot: QtBot, models_window: ModelsWindow, models: Models, model: ModelCard) -> object:
    with qtbot.waitSignal(models.removal.removed) as told:
        models.removal.ask_about(model, lambda question: models.removal.delete_model(question, pytest.fail))
    return told.args[1]


@pytest.mark.slow
def test_a_finished_download_that_another_program_deleted_is_not_installed(finished: ModelRow, models: Models) -> None:
    assert models.with_download(Model(NAME)).is_installed
    shutil.rmtree(cached().folder)
    assert models.with_download(Model(NAME)) == Model(NAME)


@pytest.mark.slow
def test_the_row_of_a_deleted_unfinished_download_goes(
    qtbot: QtBot, held: ModelRow, models_window: ModelsWindow, models: Models
) -> None:
    models.downloads.pause(models.downloads.all()[0].id)
    say(qtbot, held, "Paused")
    unfinished = library_model(NAME, path=cached().folder, download_bytes=400_000)
    assert delete(qtbot, models_window, models, unfinished) is None
    assert (models.downloads.all(), models_window.downloads.list.rows) == ((), {})
    assert not cached().folder.exists()


@pytest.mark.slow
def test_the_list_says_how_much_is_here_while_something_goes_on(
    qtbot: QtBot, hub: HubServer, models_window: ModelsWindow, models: Models
) -> None:
    page = models_window.installed
    assert page.list.row_of("downloads") == -1
    hub.add(NAME, small_files())
    hub.holds_at = 100_000
    models.downloads.start_download(Download(NAME, is_model=False))
    share = re.compile(r"[1-9]\d*\W?%")
    qtbot.waitUntil(lambda: bool((marks := page.list.entries[0].marks) and share.fullmatch(marks[0][0])))
    hub.holds_at = None
    qtbot.waitUntil(lambda: page.list.entries[0].marks == () and page.list.entries[0].title == "Downloads")
    models_window.show_page(models_window.downloads)
    (row,) = models_window.downloads.list.rows.values()
    assert "complete and checked" in row.state.text()
    assert not row.main.isVisible(), "it drafts, and does not answer"
    press(qtbot, models_window.downloads.clear)
    assert models_window.downloads.list.rows == {}


@contextmanager
def running(qapp: QApplication, qtbot: QtBot) -> Iterator[tuple[App, ScriptedEngine]]:
    """Run the app with the scripted engine, and quit it as a person does."""
    engine = ScriptedEngine()
    store = ConversationStore(paths.database_path())
    app = App(qapp, store, SettingsStore(paths.settings_path()), lambda: engine)
    with qtbot.waitExposed(app.window):
        app.open_window()
    try:
        yield app, engine
    finally:
        app.window.close()
        assert app.end_app()
        app.window.deleteLater()


def sign_of(app: App) -> DownloadButton:
    return app.window.header.findChild(DownloadButton)


def banners(app: App) -> dict[str, Banner]:
    """Return the banners that stand, by what they say."""
    found = app.window.conversation.banners.findChildren(Banner)
    return {banner.accessibleName(): banner for banner in found if banner.isVisible()}


@pytest.mark.slow
def test_a_quit_in_the_middle_asks_nothing_and_the_next_start_goes_on(
    qapp: QApplication, qtbot: QtBot, hub: HubServer
) -> None:
    files = small_files()
    hub.add(NAME, files)
    hub.holds_at = 100_000
    with running(qapp, qtbot) as (app, _):
        sign = sign_of(app)
        assert not sign.isVisible()
        models = app.window.windows.model_services
        models.downloads.start_download(Download(NAME))
        qtbot.waitUntil(lambda: sum(each.done_bytes for each in models.downloads.going()) > 50_000)
        qtbot.waitUntil(lambda: "of 403 KB" in sign.toolTip())
        assert sign.isVisible()
        press(qtbot, sign)
        assert app.window.windows.models.downloads.list.isVisible()
        app.window.windows.models.close()
    check_nothing_installed()
    assert has_unfinished()
    part = largest_part()
    here = part.stat().st_size
    with running(qapp, qtbot) as (app, engine):
        qtbot.waitUntil(lambda: any(words.startswith("Resuming a download") for words in banners(app)))
        hub.holds_at = None
        done = f"{NAME} has been downloaded"
        qtbot.waitUntil(lambda: done in banners(app))
        assert "models" not in app.window.windows.__dict__, "the window is not needed for it"
        press(qtbot, button(banners(app)[done], "Load"))
        qtbot.waitUntil(lambda: engine.loads[-1][0] == NAME)
        (ended,) = app.window.windows.model_services.downloads.all()
        assert ended.state is DownloadState.FINISHED
        check_whole(Path(ended.folder), files)
        qtbot.waitUntil(lambda: not sign_of(app).isVisible())
    assert hub.starts(files["model.safetensors"]) == [0, here]
    assert not has_unfinished()


@pytest.mark.slow
@pytest.mark.parametrize("asked_for", ["some-org/nothing", NAME], ids=["a model", "its drafter"])
def test_what_fails_behind_the_window_is_told_until_it_is_seen(
    qapp: QApplication, qtbot: QtBot, hub: HubServer, monkeypatch: pytest.MonkeyPatch, asked_for: str
) -> None:
    suggest(monkeypatch, "DFlash", NAME, "some-org/nothing")
    hub.add(NAME, small_files())
    with running(qapp, qtbot) as (app, _):
        sign = sign_of(app)
        app.window.windows.model_services.downloads.start_download(Download(asked_for))
        qtbot.waitUntil(lambda: sign.toolTip() == "A download stopped.")
        (words,) = [words for words in banners(app) if words.startswith("The download of some-org/nothing stopped")]
        press(qtbot, button(banners(app)[words], "Show"))
        assert app.window.windows.models.downloads.isVisible()
        qtbot.waitUntil(lambda: not sign.isVisible())


def test_a_start_with_nothing_to_go_on_with_begins_nothing(qapp: QApplication, qtbot: QtBot, hub: HubServer) -> None:
    # The card of a larger model shows its download's row, and that builds them.
    SettingsStore(paths.settings_path()).save_settings(Settings(larger_model_declined=True))
    with running(qapp, qtbot) as (app, _):
        qtbot.waitUntil(lambda: app.controller.model_slot.info is not None)
        assert "model_services" not in app.window.windows.__dict__
    assert hub.requests == []


def test_the_settings_say_how_many_go_on_and_lead_to_the_token(
    qapp: QApplication, qtbot: QtBot, hub: HubServer
) -> None:
    with running(qapp, qtbot) as (app, _):
        settings = app.window.settings_window
        settings.show()
        settings.downloads_at_once.setValue(4)
        assert app.controller.settings.values.downloads_at_once == 4
        settings.token.click()
        (dialog,) = [each for each in qapp.topLevelWidgets() if each.windowTitle() == "Hugging Face Token"]
        assert dialog.isVisible()
        press_key(dialog, "Esc")
        assert settings.isVisible()
