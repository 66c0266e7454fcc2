"""The toolbar of the main window, and its button for downloads, which also shows their banners."""

from functools import cache, partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QSize, Qt
from PySide6.QtGui import QAction, QPalette
from PySide6.QtWidgets import QSizePolicy, QToolBar, QWidget

from rdchat import paths
from rdchat.errors import RdchatError
from rdchat.hub.downloads.download_record import has_unfinished
from rdchat.services.background_work import BackgroundWork
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.conversation.notices import UNDO_MS, Action, Notices
from rdchat.ui.settings.chat_options import ChatOptions
from rdchat.ui.style import IconButton, Theme, ThemedLabel, Throttle, show_icon
from rdchat.ui.window.menus import WindowActions
from rdchat.ui.window.model_button import ModelButton
from rdchat.ui.window.side_windows import SideWindows

if TYPE_CHECKING:
    from rdchat.hub.downloads.download import Download
    from rdchat.services.models.model_services import Models


class Header(QToolBar):
    """The toolbar.

    Args:
        model: The button of the model.
        controller: The open chat, whose options a button opens.
        theme: The appearance to follow.
        actions: The window's actions.

    Attributes:
        dot: A sign at the button of the chat's options, for a chat that has options of its own; the window shows it.
    """

    def __init__(self, model: ModelButton, controller: ChatController, theme: Theme, actions: WindowActions) -> None:
        super().__init__("Toolbar", movable=False, floatable=False)
        self.setObjectName("header")
        self.setContextMenuPolicy(Qt.ContextMenuPolicy.PreventContextMenu)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonIconOnly)
        self.setIconSize(QSize(18, 18))
        self.model = model
        buttons = [actions.sidebar, actions.new_chat, actions.new_temporary, actions.options, actions.panel]
        self.addActions(buttons[:3])
        for widget in (_spring(), model, _spring()):
            self.addWidget(widget)
        self.addActions(buttons[3:])
        for action, icon in zip(buttons, ("sidebar", "new", "temporary", "options", "panel"), strict=True):
            show_icon(action, icon, theme, "text")
            button = self.widgetForAction(action)
            button.setAccessibleName(action.text().rstrip("…"))
            # A toolbar keeps its buttons out of the order of Tab.
            button.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        show_icon(model, "model", theme)
        self.dot = ThemedLabel(theme, "●", "accent", -3)
        button = self.widgetForAction(actions.options)
        # Built when they are first opened.
        options = cache(partial(ChatOptions, controller, theme, button))
        actions.options.triggered.connect(lambda: options().open_below())
        self.dot.setParent(button)
        # In a button, a child would have the colour of buttons.
        self.dot.setForegroundRole(QPalette.ColorRole.WindowText)
        self.dot.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.dot.move(button.sizeHint().width() - self.dot.sizeHint().width(), 0)
        self.dot.hide()


def _spring() -> QWidget:
    spring = QWidget()
    spring.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Preferred)
    return spring


class DownloadButton(IconButton):
    """Shows how far the downloads are, or a warning after a failure; hidden otherwise.

    Banners report downloads that ended.

    Args:
        windows: The side windows, among them the models window.
        bar: The toolbar.
        before: The action of the toolbar that comes after it.
        notices: Shows the banners.
        theme: The appearance to follow.
    """

    # The services of the models window; `_follow` sets it once they are built, before anything here reads it.
    _models: "Models"

    def __init__(self, windows: SideWindows, bar: QToolBar, before: QAction, notices: Notices, theme: Theme) -> None:
        super().__init__("download", "Downloads", theme, act=self._show_page)
        self._windows = windows
        self._notices = notices
        # Ids of downloads that failed while the downloads were not visible.
        self._unseen_failures: set[str] = set()
        self.setMaximumWidth(80)
        self.setToolButtonStyle(Qt.ToolButtonStyle.ToolButtonTextBesideIcon)
        self.action = bar.insertWidget(before, self)
        self.action.setVisible(False)
        self._throttle = Throttle(self, self._show_totals)
        windows.on_model_services.append(self._follow)

    def resume_downloads(self) -> None:
        """Resume the downloads of the last run, and show its training, if there was either.

        The disk is read on a thread; building the services of the models window then resumes and shows them.
        """
        work = BackgroundWork("unfinished downloads", self)

        def resume(found: bool | RdchatError) -> None:
            work.finish_work(0.0)
            if found is True:
                # Reading them builds them, unless something has already.
                self._models = self._windows.model_services

        work.do(lambda: (paths.data_dir() / "training").exists() or has_unfinished(), resume)

    def _follow(self, models: "Models") -> None:
        self._models = models
        models.downloads.changed.connect(self._throttle.note)
        models.downloads.went_on.connect(self._on_resumed)
        models.downloads.finished.connect(self._on_ended)
        models.downloads.failed.connect(self._on_ended)

    def _show_totals(self) -> None:
        """Show the share of all downloads, a warning after a failure that was not seen, or nothing."""
        from rdchat.ui.models.model_texts import share, totals_text  # noqa: PLC0415  once something is downloaded

        going = self._models.downloads.going()
        # One that is tried again has no problem any more.
        self._unseen_failures &= {each.id for each in self._models.downloads.all() if each.problem}
        if self._windows.shows_downloads:
            self._unseen_failures.clear()
        text = totals_text(going) or ("A download stopped." if self._unseen_failures else "")
        self.show_as("download" if going else "warning", text)
        self.setAccessibleName("Downloads")
        self.setAccessibleDescription(text)
        self.setText(f"{share(*going) or 0.0:.0%}" if going else "")
        self.action.setVisible(bool(text))

    def _show_page(self) -> None:
        self._windows.models.show_page(self._windows.models.downloads)
        self._throttle.note()

    def _on_resumed(self, downloads: "tuple[Download, ...]") -> None:
        names = ", ".join(download.repository for download in downloads)
        what = "a download" if len(downloads) == 1 else f"{len(downloads)} downloads"
        text = f"{names} was not finished when rdchat quit."
        show = ("Show", self._show_page)
        self._notices.show_banner(
            "downloads went on", f"Resuming {what}", text, "download", actions=[show], lasts_ms=UNDO_MS
        )

    def _on_ended(self, download: "Download") -> None:
        """Show that a download is finished or failed, unless its row is visible."""
        models = self._models
        failed = download.state == "failed"
        # The drafter of a pair is not listed: the end of its model's download is shown instead.
        listed = {each.id: each for each in models.downloads.all()}
        if self._windows.shows_downloads or not (failed or download.id in listed):
            return
        action: Action = ("Show", self._show_page)
        if failed:
            self._unseen_failures.update((download.id, *models.downloads.models_of(download.id)))
            self._throttle.note()
            notice = f"The download of {download.repository} stopped", download.problem, "warning", "danger"
        else:
            follows = "Its drafter follows." if listed[download.id].companion else ""
            notice = f"{download.repository} has been downloaded", follows, "check", "success"
            if download.is_model and models.slot.chosen != download.model_name:
                action = ("Load", lambda: models.slot.load_model(download.model_name))
        self._notices.show_banner(f"download {download.id}", *notice, actions=[action])
