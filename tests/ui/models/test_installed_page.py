"""The Installed page, through its widgets."""

from dataclasses import replace
from pathlib import Path

import pytest
from PySide6.QtCore import QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDesktopServices, QDragEnterEvent, QDropEvent
from PySide6.QtWidgets import QApplication, QMenu, QMessageBox, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.errors import DoesNotFitError
from rdchat.hub.verifying import Verdict
from rdchat.inference.api.drafter_facts import HeadKind, InstalledDrafter, TargetMatch
from rdchat.inference.api.library_model import FittingDrafter, TriedOut, Verifies
from rdchat.services.engine.engine_events import EngineState
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.theme import Theme
from rdchat.ui.models.installed.page import InstalledPage
from rdchat.ui.models.installed.words import verdict_words
from rdchat.ui.window.main_window import MainWindow
from tests.hub.downloading import NAME, cached, download, small_files
from tests.hub.hub_server import HubServer
from tests.services.models.library_samples import MEMORY, library_model
from tests.ui.conftest import Chat
from tests.ui.models.conftest import Machine


def names(page: InstalledPage) -> list[str]:
    return [str(row.name) for row in page.pane.list.rows.shown]


def pick(page: InstalledPage, name: str) -> None:
    rows = page.pane.list.rows
    page.pane.list.setCurrentIndex(rows.index(names(page).index(name)))


def refresh(qtbot: QtBot, desk: ModelsDesk) -> None:
    desk.library.look()
    qtbot.waitUntil(lambda: not desk.library.looking)


def answer(parent: QWidget, button: str) -> str:
    """Press a button of the question that stands; return what it says."""
    (box,) = [box for box in parent.findChildren(QMessageBox) if box.isVisible()]
    words = f"{box.text()} {box.informativeText()}"
    next(each for each in box.findChildren(QPushButton) if each.text() == button).click()
    return words


def all_text(widget: QWidget) -> str:
    return "\n".join(
        label.text() for label in widget.findChildren(QWidget) if hasattr(label, "text") and label.isVisible()
    )


def test_the_loaded_model_is_shown_first(page: InstalledPage) -> None:
    assert names(page) == ["org/Alpha-8B-4bit", "org/Beta-1B-4bit", "tiny"]
    assert page.details.name.text() == "tiny"
    assert page.details.state.text() == "Loaded"
    assert page.bar.load.text() == "Unload"
    assert page.pane.words.text() == "3 models, 5.1 GB"
    assert page.pane.list.hasFocus()


def test_a_search_and_an_order(qtbot: QtBot, page: InstalledPage) -> None:
    page.pane.sort.setCurrentText("Size")
    page.pane.sort.activated.emit(1)
    assert names(page) == ["org/Alpha-8B-4bit", "org/Beta-1B-4bit", "tiny"]
    qtbot.keyClicks(page.pane.search, "beta LLAMA")
    assert names(page) == ["org/Beta-1B-4bit"]
    assert page.details.name.text() == "org/Beta-1B-4bit"
    qtbot.keyClicks(page.pane.search, "x")
    assert page.pane.words.text() == "No model has these words."
    assert not page.bar.load.isEnabled()
    qtbot.keyClick(page.pane.search, Qt.Key.Key_Escape)
    assert len(names(page)) == 3
    qtbot.keyClick(page.pane.search, Qt.Key.Key_Down)
    assert page.pane.list.hasFocus()


@pytest.mark.parametrize("by", ["button", "Return", "double click"])
def test_a_model_is_loaded(qtbot: QtBot, chat: Chat, page: InstalledPage, by: str) -> None:
    pick(page, "org/Beta-1B-4bit")
    assert page.bar.load.text() == "Load"
    if by == "button":
        qtbot.mouseClick(page.bar.load, Qt.MouseButton.LeftButton)
    elif by == "Return":
        qtbot.keyClick(page.pane.list, Qt.Key.Key_Return)
    else:
        place = page.pane.list.visualRect(page.pane.list.currentIndex()).center()
        qtbot.mouseClick(page.pane.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
        qtbot.mouseDClick(page.pane.list.viewport(), Qt.MouseButton.LeftButton, pos=place)
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == "org/Beta-1B-4bit")
    chat.wait_for(EngineState.IDLE)


def test_unloading_gives_memory_back_and_the_chat_says_so(qtbot: QtBot, chat: Chat, app: MainWindow) -> None:
    app.actions_.models.trigger()
    page = app.windows.models.installed
    qtbot.waitUntil(lambda: page.bar.load.text() == "Unload")
    qtbot.mouseClick(page.bar.load, Qt.MouseButton.LeftButton)
    qtbot.waitUntil(lambda: "of memory given back" in page.bar.status.text())
    assert page.bar.load.text() == "Load"
    assert page.details.state.isHidden()
    assert app.header.model.text() == "No model"
    banner = app.conversation.banners.banner("unloaded")
    assert banner is not None
    assert "No model is loaded" in banner.accessibleName()
    next(button for button in banner.findChildren(QPushButton) if button.text() == "Load it again").click()
    chat.wait_for(EngineState.IDLE)
    assert app.conversation.banners.banner("unloaded") is None


def test_whether_it_fits_is_said_with_the_figures_behind_it(
    qtbot: QtBot, machine: Machine, page: InstalledPage, desk: ModelsDesk
) -> None:
    pick(page, "org/Alpha-8B-4bit")
    memory = page.details.memory
    assert memory.verdict.text() == "Fits: 4.4 GB of 16 GB"
    assert memory.bar.accessibleDescription() == (
        "Weights: 4.2 GB; Chat of 4,096 tokens: 256 MB; Left for others: 11.6 GB"
    )
    assert [memory.context.itemText(n) for n in range(memory.context.count())][-1] == "131,072"
    memory.context.setCurrentIndex(memory.context.count() - 1)
    memory.context.activated.emit(0)
    assert memory.verdict.text() == "Loads, but with 131,072 tokens it needs 1.2 GB more than this machine gives"
    pick(page, "org/Beta-1B-4bit")
    assert memory.context.currentText() == "131,072"
    machine.memory = replace(MEMORY, room=replace(MEMORY.room, limit_bytes=2**29))
    desk.library.ask_memory()
    qtbot.waitUntil(lambda: "more than this machine gives" in memory.verdict.text())


def test_before_the_engine_has_begun_memory_is_not_known(
    qtbot: QtBot, machine: Machine, page: InstalledPage, desk: ModelsDesk
) -> None:
    desk.library.memory = None
    pick(page, "org/Beta-1B-4bit")
    assert page.details.memory.verdict.text() == "Asking the device for its memory…"
    desk.library.ask_memory()
    qtbot.waitUntil(lambda: page.details.memory.verdict.text().startswith("Fits"))


def test_one_that_is_too_large_is_loaded_only_after_a_question(
    qtbot: QtBot, chat: Chat, machine: Machine, page: InstalledPage, desk: ModelsDesk
) -> None:
    machine.models.append(library_model("org/Huge-70B", 70_000_000_000))
    refresh(qtbot, desk)
    pick(page, "org/Huge-70B")
    assert page.details.memory.verdict.text() == "Needs 25.9 GB more than this machine gives"
    chat.engine.load_errors["org/Huge-70B"] = DoesNotFitError("It needs 37 GB.", "Choose a smaller one.")
    page.bar.load.click()
    assert "25.9 GB more memory" in answer(page, "Cancel")
    assert chat.engine.loads[-1][0] is None
    page.bar.load.click()
    answer(page, "Load anyway")
    chat.wait_for(EngineState.IDLE)
    assert chat.engine.loaded_anyway == ["org/Huge-70B"]


def test_what_drafts_is_listed_and_counted(
    qtbot: QtBot, machine: Machine, page: InstalledPage, desk: ModelsDesk
) -> None:
    machine.heads = (
        FittingDrafter(InstalledDrafter("mine", "/mine", "Your own", HeadKind.RECURRENT), TargetMatch(True), 2**30),
        FittingDrafter(
            InstalledDrafter("org/dflash", "org/dflash", "Hugging Face", HeadKind.BLOCK),
            TargetMatch(False, "Who knows."),
            7,
        ),
    )
    machine.models[0] = replace(machine.models[0], tried=TriedOut(Verifies.CHAINS, "it keeps state"))
    refresh(qtbot, desk)
    pick(page, "org/Alpha-8B-4bit")
    text = lambda: all_text(page.details.drafts)  # noqa: E731
    qtbot.waitUntil(lambda: "mine (Recurrent)\norg/dflash (Block), its sizes fit" in text())
    qtbot.waitUntil(lambda: "tiny\nBeta-1B-4bit" in text())  # the row is new, and is shown in its time
    assert "Chains\nNo trees: it keeps state." in text()
    memory = page.details.memory
    assert memory.drafter.currentText() == "mine"  # the automatic mode loads it
    assert memory.verdict.text() == "Fits: 5.4 GB of 16 GB"
    memory.drafter.setCurrentText("Beta-1B-4bit")
    memory.drafter.activated.emit(0)
    assert "Drafter: 792 MB" in memory.bar.accessibleDescription()
    pick(page, "org/Beta-1B-4bit")
    qtbot.waitUntil(lambda: "Not tried yet" in text())


def test_a_model_that_cannot_be_loaded_says_why(
    qtbot: QtBot, machine: Machine, page: InstalledPage, desk: ModelsDesk
) -> None:
    machine.models.append(library_model("org/Broken", sizes=None, problem="Its weights are missing."))
    refresh(qtbot, desk)
    pick(page, "org/Broken")
    assert page.details.problem.text().startswith("Its weights are missing.")
    assert not page.bar.load.isEnabled()
    assert page.details.memory.isHidden()
    qtbot.keyClick(page.pane.list, Qt.Key.Key_Return)
    assert page.details.state.isHidden()


def test_a_models_folder_is_shown(
    qtbot: QtBot,
    machine: Machine,
    page: InstalledPage,
    desk: ModelsDesk,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    opened: list[str] = []
    monkeypatch.setattr(QDesktopServices, "openUrl", lambda url: opened.append(url.toLocalFile()))
    (tmp_path / "file.gguf").touch()
    machine.models.append(library_model("file", path=tmp_path / "file.gguf"))
    machine.models.append(library_model("folder", path=tmp_path))
    refresh(qtbot, desk)
    for name in ("file", "folder"):
        pick(page, name)
        page.bar.reveal.click()
    assert opened == [str(tmp_path)] * 2


@pytest.fixture
def downloaded(qtbot: QtBot, hub: HubServer, machine: Machine, page: InstalledPage, desk: ModelsDesk) -> Path:
    """A model of the hub's cache, picked."""
    hub.add(NAME, small_files())
    folder = download()[0]
    machine.models.append(library_model(NAME, path=folder, disk_bytes=sum(map(len, small_files().values()))))
    refresh(qtbot, desk)
    pick(page, NAME)
    return folder


def test_a_model_is_deleted_after_a_question_and_comes_back(
    qtbot: QtBot, machine: Machine, page: InstalledPage, desk: ModelsDesk, downloaded: Path
) -> None:
    model = machine.models.pop()
    with qtbot.waitSignal(desk.removal.asked):
        qtbot.keyClick(page.pane.list, Qt.Key.Key_Delete)
    words = answer(page, "Delete")
    assert "Delete small-4bit? It takes 403 KB of the disk. It lies in the Hugging Face cache" in words
    qtbot.waitUntil(lambda: page.bar.action.text() == "Undo" and not cached().folder.exists())
    qtbot.waitUntil(lambda: names(page)[-1] == NAME)  # among those that were deleted
    machine.models.append(model)
    page.bar.action.click()
    qtbot.waitUntil(lambda: page.bar.status.text() == "small-4bit is back.")
    qtbot.waitUntil(lambda: not desk.removal.trash and NAME in names(page))
    assert downloaded.is_dir()


def test_a_question_that_is_cancelled_deletes_nothing(
    qtbot: QtBot, page: InstalledPage, desk: ModelsDesk, downloaded: Path
) -> None:
    with qtbot.waitSignal(desk.removal.asked):
        page.bar.delete.click()
    answer(page, "Cancel")
    assert downloaded.is_dir()
    assert not desk.removal.trash


def test_the_loaded_model_is_unloaded_before_it_is_deleted(
    qtbot: QtBot, chat: Chat, machine: Machine, page: InstalledPage, desk: ModelsDesk, downloaded: Path
) -> None:
    chat.controller.load_model(str(downloaded))
    chat.wait_for(EngineState.IDLE)
    machine.models[-1] = replace(machine.models[-1], model=str(downloaded))
    refresh(qtbot, desk)
    with qtbot.waitSignal(desk.removal.asked):
        page.bar.delete.click()
    assert "It is loaded now, and is unloaded first." in answer(page, "Unload and delete")
    qtbot.waitUntil(lambda: not cached().folder.exists())
    assert chat.engine.loaded is None


def test_what_was_deleted_is_put_back_or_deleted_for_good(qtbot: QtBot, page: InstalledPage, desk: ModelsDesk) -> None:
    folder = paths.models_dir() / "converted"
    for _ in range(2):
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        model = library_model("converted", path=folder, place="rdchat", repository="", model=str(folder))
        with qtbot.waitSignal(desk.removal.asked) as told:
            desk.removal.ask(model)
        for box in page.findChildren(QMessageBox):
            box.reject()
        with qtbot.waitSignal(desk.removal.trash_changed):
            desk.removal.remove(told.args[0])
        qtbot.waitUntil(lambda: names(page)[-1] == "converted")
        pick(page, "converted")
        assert page.bar.load.text() == "Put back"
        if not page.bar.verify.isHidden():
            pytest.fail("what was deleted cannot be verified")
        page.bar.load.click()
        qtbot.waitUntil(folder.is_dir)
        qtbot.waitUntil(lambda: not desk.removal.trash)
        for path in folder.iterdir():
            path.unlink()
        folder.rmdir()
    folder.mkdir()
    with qtbot.waitSignal(desk.removal.asked) as told:
        desk.removal.ask(library_model("converted", path=folder, place="rdchat", repository="", model=str(folder)))
    for box in page.findChildren(QMessageBox):
        box.reject()
    with qtbot.waitSignal(desk.removal.trash_changed):
        desk.removal.remove(told.args[0])
    pick(page, "converted")
    page.bar.delete.click()
    assert "It cannot be undone." in answer(page, "Delete for good")
    qtbot.waitUntil(lambda: not desk.removal.trash)
    assert "converted" not in names(page)


def test_other_programs_models_cannot_be_deleted_here(
    qtbot: QtBot, machine: Machine, page: InstalledPage, desk: ModelsDesk
) -> None:
    machine.models.append(library_model("theirs/model", place="LM Studio", repository=""))
    refresh(qtbot, desk)
    pick(page, "theirs/model")
    assert not page.bar.delete.isEnabled()
    assert "delete it there" in page.bar.delete.toolTip()
    qtbot.keyClick(page.pane.list, Qt.Key.Key_Delete)
    assert not page.findChildren(QMessageBox)


def test_a_model_is_verified_and_mended(qtbot: QtBot, page: InstalledPage, desk: ModelsDesk, downloaded: Path) -> None:
    page.bar.verify.click()
    qtbot.waitUntil(lambda: page.bar.status.text() == "Verified: 4 files have their checksums.")
    (downloaded / "model.safetensors").write_bytes(b"x" * 400_000)
    page.bar.verify.click()
    qtbot.waitUntil(lambda: "Damaged: model.safetensors." in page.bar.status.text())
    assert page.bar.action.text() == "Repair"
    with qtbot.waitSignal(desk.downloads.finished, timeout=60_000):
        page.bar.action.click()
    page.bar.verify.click()
    qtbot.waitUntil(lambda: page.bar.status.text() == "Verified: 4 files have their checksums.")


def test_a_verification_can_be_stopped_and_is_seen_on_its_own_model_only(
    qtbot: QtBot, page: InstalledPage, desk: ModelsDesk, downloaded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("rdchat.hub.checksums._CHUNK", 20)
    page.bar.verify.click()
    qtbot.waitUntil(lambda: page.bar.progress.value() > 0)
    assert page.bar.stop.isVisible()
    pick(page, "org/Beta-1B-4bit")
    assert page.bar.progress.isHidden()
    pick(page, NAME)
    assert page.bar.progress.isVisible()
    page.bar.stop.click()
    assert page.bar.progress.isHidden()
    assert page.bar.status.isHidden()


def test_verdicts_in_words() -> None:
    verdict = Verdict("org/model", "c", missing=("a", "b", "c", "d"), intact=("x",), hub_problem="No network.")
    assert verdict_words(verdict)[0] == (
        "Not as the hub has it. Missing: a, b, c and 1 more. No network. So only what is here was checked."
    )
    assert verdict_words(Verdict("org/model", "c", unknown=("x",)))[1] == "danger"
    assert verdict_words(Verdict("org/model", "c", intact=("x",)))[0] == "Verified: 1 file has its checksum."


def test_an_unfinished_download_goes_on(
    qtbot: QtBot, hub: HubServer, machine: Machine, page: InstalledPage, desk: ModelsDesk
) -> None:
    hub.add(NAME, small_files())
    machine.models.append(
        library_model(NAME, model=None, sizes=None, path=cached().folder, download_bytes=2_000_000_000)
    )
    refresh(qtbot, desk)
    pick(page, NAME)
    assert page.bar.load.text() == "Resume"
    assert not page.bar.verify.isEnabled()
    with qtbot.waitSignal(desk.downloads.finished, timeout=60_000):
        page.bar.load.click()
    assert "see the Downloads page" in page.bar.status.text()


def drop(window: QWidget, *paths_: Path) -> bool:
    """Drag files over a window and let go; return whether it takes them."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(path)) for path in paths_])
    actions, buttons, keys = Qt.DropAction.CopyAction, Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(QPointF(9, 9), actions, data, buttons, keys)
    QApplication.sendEvent(window, enter)
    if not enter.isAccepted():
        return False
    QApplication.sendEvent(window, QDropEvent(QPointF(9, 9), actions, data, buttons, keys))
    return True


@pytest.mark.parametrize("on", ["main", "models"])
def test_a_dropped_model_is_loaded(
    qtbot: QtBot, chat: Chat, request: pytest.FixtureRequest, tmp_path: Path, on: str
) -> None:
    window = request.getfixturevalue("app" if on == "main" else "models_window")
    assert drop(window, tmp_path)
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == str(tmp_path))
    chat.wait_for(EngineState.IDLE)


def test_what_is_no_model_is_refused_and_the_model_stays(
    qtbot: QtBot, chat: Chat, app: MainWindow, machine: Machine, tmp_path: Path
) -> None:
    machine.problems[str(tmp_path)] = "That folder is empty. Choose another."
    page = app.windows.models.installed
    drop(app.windows.models, tmp_path)
    qtbot.waitUntil(lambda: page.bar.status.text() == "That folder is empty. Choose another.")
    drop(app, tmp_path)
    qtbot.waitUntil(lambda: app.conversation.banners.banner("dropped model") is not None)
    drop(app.windows.models, tmp_path, tmp_path)
    assert page.bar.status.text().startswith("2 things were dropped.")
    assert chat.controller.state is EngineState.IDLE
    assert [model for model, _ in chat.engine.loads] == [None]


def test_dropped_text_is_none_of_the_windows_business(app: MainWindow) -> None:
    data = QMimeData()
    data.setText("hello")
    keys = Qt.KeyboardModifier.NoModifier
    enter = QDragEnterEvent(QPointF(9, 9), Qt.DropAction.CopyAction, data, Qt.MouseButton.LeftButton, keys)
    QApplication.sendEvent(app, enter)
    assert not enter.isAccepted()


def test_files_over_the_message_field_are_left_to_the_window(
    qtbot: QtBot, chat: Chat, app: MainWindow, tmp_path: Path
) -> None:
    assert drop(app.conversation.composer.field.viewport(), tmp_path)
    qtbot.waitUntil(lambda: chat.engine.loads[-1][0] == str(tmp_path))
    chat.wait_for(EngineState.IDLE)
    assert app.conversation.composer.text == ""


def test_everything_is_reached_by_keyboard_and_has_a_name(qtbot: QtBot, page: InstalledPage) -> None:
    pick(page, "org/Alpha-8B-4bit")
    page.pane.search.setFocus()
    reached = []
    for _ in range(40):
        widget = QApplication.focusWidget()
        assert widget is not None
        if widget in reached:
            break
        reached.append(widget)
        qtbot.keyClick(widget, Qt.Key.Key_Tab)
    wanted = {page.pane.sort, page.pane.list, page.details.memory.context, page.bar.load, page.bar.delete}
    assert wanted <= set(reached)
    assert all(widget.accessibleName() or getattr(widget, "text", str)() for widget in reached)


def test_a_row_has_a_menu(qtbot: QtBot, page: InstalledPage) -> None:
    pick(page, "org/Beta-1B-4bit")
    page.pane.list.menu_requested.emit(QPoint(5, 5))
    menu = next(menu for menu in page.findChildren(QMenu))
    assert [action.text() for action in menu.actions()] == ["Load", "Reveal", "Verify", "Delete…"]
    menu.close()


def test_an_empty_machine_says_what_to_do(
    qtbot: QtBot, machine: Machine, page: InstalledPage, desk: ModelsDesk
) -> None:
    machine.models = []
    refresh(qtbot, desk)
    assert page.stack.currentWidget() is not page.details
    assert "Discover" in page._empty.text()
    assert page.pane.words.text() == "No models yet."


@pytest.mark.parametrize("scheme", [Qt.ColorScheme.Dark, Qt.ColorScheme.Light])
def test_it_follows_the_appearance(page: InstalledPage, theme: Theme, scheme: Qt.ColorScheme) -> None:
    theme.set_scheme(scheme)
    assert page.pane.grab().toImage().pixelColor(2, 300) == theme.colors.window
    page.details.grab()
