"""The composition root: builds the window and all its services, and runs them until the window closes.

The functions on top find models, drafters and figures; services call them on threads. They import their module at the
first call. One that needs MLX returns None, or an estimate, until the engine thread has imported MLX: two threads that
import mlx-lm at the same time may block each other for ever.
"""

import logging
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from PySide6.QtCore import QEvent, Qt, QTimer, QUrl, Signal
from PySide6.QtGui import QFileOpenEvent
from PySide6.QtWidgets import QApplication, QMessageBox

from rdchat import __version__, host, mac_desktop, machine, paths
from rdchat.chat.settings import Settings, SettingsStore, stored_settings
from rdchat.chat.store import ConversationStore
from rdchat.chat.transfer.backups import finish as finish_restore
from rdchat.errors import RdchatError, StorageError, StorageLockedError
from rdchat.hub.updates import updates_address
from rdchat.inference.api import Engines, MachineMemory, MemoryRoom, ModelCard, ModelPart
from rdchat.log import errors_logged
from rdchat.services.app.event_loop import GarbageCollector, QuitSignals, UnexpectedErrors
from rdchat.services.app.single_instance import SingleInstance
from rdchat.services.app.start_request import JUST_SHOW, StartRequest
from rdchat.services.app.update_check import UpdateCheck
from rdchat.services.background_work import FolderSearch
from rdchat.services.engine.engine_client import SWITCH_INTERVAL_S, EngineClient
from rdchat.services.models.model_sources import ModelSources
from rdchat.services.window.chat_controller import ChatController
from rdchat.services.window.transfers import Transfers
from rdchat.ui.style import Theme, app_icon, message_box
from rdchat.ui.transcript.view import TranscriptView
from rdchat.ui.window.header import DownloadButton
from rdchat.ui.window.import_export import ImportExport
from rdchat.ui.window.main_window import MainWindow

if TYPE_CHECKING:
    from rdchat.hub import RepositoryFiles
    from rdchat.hub.hub_api import HubApi

_LOG = logging.getLogger(__name__)
# Work that can wait begins this long after the window is shown.
_SETTLED_MS = 1000


def installed_models() -> tuple[ModelCard, ...]:
    """Find the models on this machine."""
    from rdchat.inference.library.model_library import installed_models as find  # noqa: PLC0415  not before the window

    return find()


def library_models(chosen: str) -> Iterator[ModelCard]:
    """Find the models on this machine, also in a chosen folder, with the facts from their headers."""
    from rdchat.inference.library.model_library import library_models as find  # noqa: PLC0415  not before the window

    return find(chosen)


def problem_of_model(path: str) -> str:
    """Return why a folder or file cannot be loaded; empty if it can be."""
    from rdchat.inference.library.model_library import problem_of as find  # noqa: PLC0415  not before the window

    return find(path)


def find_part(hub: "HubApi", model: ModelCard, original: str, part: ModelPart) -> "RepositoryFiles | None":
    """Find the missing parts of a model at the hub; None if its original is unknown."""
    from rdchat.inference.library.model_library import find_part as find  # noqa: PLC0415  not before the window

    return find(hub, model, original, part)


def machine_memory() -> MachineMemory:
    """Return the device's memory; before MLX is imported, about what it will say."""
    if not _has_mlx():
        total = machine.total_bytes()
        limit = int(total * (machine.METAL_SHARE if host.MACOS else machine.CPU_SHARE))
        return MachineMemory(host.MACOS, total, MemoryRoom(limit, machine.available_bytes()), 0, limit)
    from rdchat.inference.device import machine_memory as device_memory  # noqa: PLC0415  MLX

    return device_memory()


def installed_drafters(folder: Path | None) -> tuple[ModelCard, ...] | None:
    """Find the drafters on this machine."""
    if not _has_mlx():
        return None
    from rdchat.inference.library.model_library import installed_drafters as find  # noqa: PLC0415  MLX

    return find(folder)


def fitting_drafters(folder: Path) -> tuple[ModelCard, ...] | None:
    """Find the drafter heads that fit a model."""
    if not _has_mlx():
        return None
    from rdchat.inference.library.model_library import fitting_drafters as find  # noqa: PLC0415  MLX

    return find(folder)


def measured_calls(folder: Path) -> Mapping[int, float] | None:
    """Return the measured time of a model's calls by rows, in plain steps."""
    if not _has_mlx():
        return None
    from rdchat.inference.library.model_library import measured_calls as find  # noqa: PLC0415  MLX

    return find(folder)


def _has_mlx() -> bool:
    from rdchat.inference.engines import has_mlx  # noqa: PLC0415  not before the window

    return has_mlx()


class App:
    """A running window with all its services.

    Args:
        qt: The Qt application.
        store: The store of chats.
        settings: The settings.
        engine_factory: Makes the engines, on the engine thread.
    """

    def __init__(
        self, qt: QApplication, store: ConversationStore, settings: SettingsStore, engine_factory: Callable[[], Engines]
    ) -> None:
        self._store = store
        theme = Theme(qt, settings.settings.text_size)
        self._garbage = GarbageCollector()
        engine = EngineClient(engine_factory, machine.keep_awake)
        try:
            self.controller = ChatController(store, settings, engine)
            # Collecting all of MLX, which is imported by then, would stall the window.
            self.controller.model_slot.loaded.connect(self._garbage.spare_modules)
            transcript = TranscriptView(theme, unsent=self.controller.chat.unsent)
            sources = ModelSources(
                library_models, machine_memory, fitting_drafters, measured_calls, problem_of_model, find_part
            )
            self.window = MainWindow(self.controller, theme, transcript, sources)
            windows = self.window.windows
            header = self.window.header
            sight = self.window.conversation.sight
            notices = self.window.conversation.notices
            self._installed = FolderSearch(installed_models)
            self.transfer = Transfers(self.controller, store, settings.path)
            self._import_export = ImportExport(self.window, self.controller, self.transfer, theme)
            header.model.offer_models(self._installed)
            sight.offer_models(self._installed, windows.memory)
            # Called with the services of the models window when they are built.
            windows.on_model_services.append(
                lambda each: each.library.changed.connect(lambda: sight.offer_models_window(each.library.models))
            )
            self._drafters = FolderSearch(installed_drafters)
            self.controller.drafting.offer_drafters(self._drafters)
            self.controller.server.offer_models(installed_models)
            self._updates = UpdateCheck(self.controller.settings, updates_address())
            self._updates.update_found.connect(notices.show_update)
            self._downloads = DownloadButton(windows, header, self.window.actions_.options, notices, theme)
        except BaseException:
            engine.shutdown()  # Qt aborts the process if a running thread is destroyed
            self._garbage.release()
            raise

    def open_window(self) -> None:
        """Show the window, then load the model."""
        self.window.show()
        QTimer.singleShot(0, self.controller.open_last_chat)
        QTimer.singleShot(_SETTLED_MS, self.window, self.window.windows.import_ahead)
        QTimer.singleShot(_SETTLED_MS, self.window, self._downloads.resume_downloads)
        notices = self.window.conversation.notices
        QTimer.singleShot(_SETTLED_MS, notices, partial(notices.look_for_updates, self._updates))

    def end_app(self) -> bool:
        """Stop, save and free everything; return False if the engine thread did not end."""
        with errors_logged("Closing"):
            self.transfer.end_transfers()
        ended = self.controller.shut_down()
        self._updates.cancel_check()
        self._installed.finish_work()
        self._drafters.finish_work()
        try:
            self._store.close()
        except StorageError as error:
            _LOG.error("The chats could not be closed: %s", error)
        if ended:
            self._garbage.release()
        return ended


class Application(QApplication):
    """The process's Qt application; macOS sends it files that are opened or dropped on the Dock's icon, and addresses.

    It is a subclass rather than an event filter, which Qt would call for every event of every widget.
    """

    # A file's path, or an address.
    opened = Signal(str)
    # By the system, or by the Dock's menu.
    quit_requested = Signal()

    def event(self, event: QEvent) -> bool:
        """Emit what the system asks to open."""
        if isinstance(event, QFileOpenEvent):
            if opened := event.file() or event.url().toString(QUrl.ComponentFormattingOption.FullyEncoded):
                self.opened.emit(opened)
            return True
        # By itself Qt would close visible windows only.
        if event.type() is QEvent.Type.Quit:
            self.quit_requested.emit()
        return super().event(event)


def main(request: StartRequest = JUST_SHOW) -> int:
    """Open the window and run until it closes; return the exit status.

    Args:
        request: What to do there; if rdchat runs already, it does that.

    Raises:
        RdchatError: If there is no display.
    """
    if not host.has_display():
        raise RdchatError(
            "There is no display to open a window on.",
            f"Run it on a desktop, or on a virtual display: xvfb-run -a {host.own_command()}",
        )
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    qt = application()
    try:
        instance = SingleInstance(paths.data_dir())
        if not instance.claim(request):
            _LOG.info("rdchat is open already; it has the request")
            return 0
        # A restore that was decided before a crash is finished before anything opens the files. If they are locked, it
        # has to wait: opening the store, which comes next, reports the lock.
        with suppress(StorageLockedError):
            finish_restore(paths.data_dir(), paths.database_path(), paths.settings_path())
        settings = SettingsStore(paths.settings_path())
        if settings.settings.wired_memory:
            # For the engine, and for ranks in processes of their own.
            os.environ.setdefault(host.WIRED, "1")
        app = open_app(qt, settings)
    except StorageError as error:
        _LOG.error("rdchat did not start: %s", error)
        _message(error).exec()
        return 1
    if app is None:
        return 1
    instance.requested.connect(app.window.commands.carry_out)
    qt.opened.connect(app.window.commands.open_file)
    signals = QuitSignals()
    # It is queued, because a signal can arrive between any two instructions, also within painting or a transaction.
    signals.quit_requested.connect(app.window.close_soon, Qt.ConnectionType.QueuedConnection)
    errors = UnexpectedErrors()
    errors.raised.connect(app.controller.notice_raised)
    # Otherwise Qt would quit when the last window is hidden, too. Only `app.window.closed` ends the app.
    qt.setQuitOnLastWindowClosed(False)
    qt.quit_requested.connect(app.window.close)
    # `exit` rather than `quit`: that asks each open window, and a sheet that stays open for its work would refuse.
    app.window.closed.connect(qt.exit, Qt.ConnectionType.QueuedConnection)
    app.open_window()
    # After the last chat is open.
    QTimer.singleShot(0, partial(app.window.commands.carry_out, request))
    status = qt.exec()
    ended = app.end_app()
    errors.release()
    signals.release()
    instance.release_lock()
    # A thread that hangs must not be destroyed: exit without Qt's clean-up.
    if not ended:
        os._exit(status or 1)
    return status


def application() -> Application:
    """Return the process's Qt application, with its name and icon."""
    mac_desktop.name_app("rdchat")
    qt = Application(sys.argv[:1])
    qt.setApplicationName("rdchat")
    qt.setApplicationDisplayName("rdchat")
    qt.setApplicationVersion(__version__)
    qt.setDesktopFileName("rdchat")
    # The bundle has an icon of its own, in the shape that macOS gives it.
    if not host.in_bundle():
        qt.setWindowIcon(app_icon())
    return qt


def make_engine(settings: Callable[[], Settings] = stored_settings) -> Engines:
    """Make the engines; called on the engine thread, where MLX is imported. `settings` returns those of the moment.

    While a larger model may be offered, the machine's speed is measured too, for an estimate of that model's.
    """
    others = machine.OtherPrograms()
    from rdchat.inference.engines import EnginesByAddress, import_mlx  # noqa: PLC0415  not before the window is shown

    import_mlx()
    from rdchat.inference.device import READING  # noqa: PLC0415  MLX

    if not settings().larger_model_declined:
        READING.measure(others)
    return EnginesByAddress(lambda: settings().remote_servers, lambda: settings().hosts)


def open_app(qt: QApplication, settings: SettingsStore) -> App | None:
    """Make the app while another thread opens the store; None if the person gave up.

    If the store cannot be opened, the app that was made is ended, and the person may try again.
    """
    while True:
        app = None
        try:
            store = ConversationStore(paths.database_path(), wait=False)
            # What was just changed is not in the file yet.
            app = App(qt, store, settings, partial(make_engine, lambda: settings.settings))
            store.wait_until_open()
            return app
        except StorageError as error:
            if app is not None:
                app.end_app()
            if not _retry(error):
                return None


def _retry(error: RdchatError) -> bool:
    """Show why the chats cannot be opened; return whether the person wants to try again."""
    _LOG.error("The chats cannot be opened: %s", error)
    box = _message(error)
    box.setStandardButtons(QMessageBox.StandardButton.Retry | QMessageBox.StandardButton.Close)
    return box.exec() == QMessageBox.StandardButton.Retry


def _message(error: RdchatError) -> QMessageBox:
    return message_box(QMessageBox.Icon.Critical, error.message, error.hint)
