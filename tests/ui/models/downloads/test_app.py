"""Downloads as the whole app has them: beside a chat, over a quit and a new start."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from PySide6.QtCore import Qt
from PySide6.QtWidgets import QApplication, QPushButton
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.chat.store import ConversationStore
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_record import has_unfinished
from rdchat.ui.conversation.notices import Banner
from rdchat.ui.window.header import DownloadButton
from tests.hub.downloads.downloading import NAME, check_nothing_installed, check_whole, largest_part, small_files
from tests.hub.hub_server import HubServer
from tests.inference.drafting.suggested_pairs import suggest
from tests.services.fakes import ScriptedEngine
from tests.ui.models.page_steps import press, until


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
    sign = app.window.header.findChild(DownloadButton)
    assert sign is not None
    return sign


def banners(app: App) -> dict[str, Banner]:
    """Return the banners that stand, by what they say."""
    found = app.window.conversation.banners.findChildren(Banner)
    return {banner.accessibleName(): banner for banner in found if banner.isVisible()}


def answer_banner(qtbot: QtBot, banner: Banner, text: str) -> None:
    (button,) = [button for button in banner.findChildren(QPushButton) if button.text() == text]
    press(qtbot, button)


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
        until(qtbot, lambda: sum(each.done_bytes for each in models.downloads.going()) > 50_000)
        until(qtbot, lambda: "of 403 KB" in sign.toolTip())
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
        until(qtbot, lambda: done in banners(app))
        assert "models" not in app.window.windows.__dict__, "the window is not needed for it"
        answer_banner(qtbot, banners(app)[done], "Load")
        until(qtbot, lambda: engine.loads[-1][0] == NAME)
        (ended,) = app.window.windows.model_services.downloads.all()
        assert ended.state is DownloadState.FINISHED
        check_whole(Path(ended.folder), files)
        until(qtbot, lambda: not sign_of(app).isVisible())
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
        until(qtbot, lambda: sign.toolTip() == "A download stopped.")
        (words,) = [words for words in banners(app) if words.startswith("The download of some-org/nothing stopped")]
        answer_banner(qtbot, banners(app)[words], "Show")
        assert app.window.windows.models.downloads.isVisible()
        until(qtbot, lambda: not sign.isVisible())


def test_a_start_with_nothing_to_go_on_with_begins_nothing(
    qapp: QApplication, qtbot: QtBot, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The card of a larger model shows its download's row, and that builds them.
    SettingsStore(paths.settings_path()).save_settings(Settings(larger_model_declined=True))
    with running(qapp, qtbot) as (app, _):
        until(qtbot, lambda: app.controller.model_slot.info is not None)
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
        qtbot.keyClick(dialog, Qt.Key.Key_Escape)
        assert settings.isVisible()
