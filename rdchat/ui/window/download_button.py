"""Downloads in the main window: a progress ring in the toolbar, and banners for what resumed, ended or failed."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QRectF, QSize, Qt
from PySide6.QtGui import QAction, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QToolBar, QToolButton

from rdchat import paths
from rdchat.ui.conversation.banner import UNDO_MS, Banner, BannerArea
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.window.side_windows import SideWindows

if TYPE_CHECKING:
    from rdchat.hub.downloads.download import Download
    from rdchat.services.models.downloads.downloads import Downloads
    from rdchat.services.models.models_desk import ModelsDesk

_SIDE, _RING, _ARROW, _WARNING = 30, 20, 12, 18  # pixels
_TOP = 90 * 16  # degrees, in Qt's sixteenths


class DownloadButton(QToolButton):
    """A ring that closes while something is downloaded, or a warning after a failure; hidden otherwise.

    Args:
        windows: Has the models window.
        bar: The toolbar.
        before: The action of the toolbar to stand before.
        banners: Shows the banners.
        theme: The appearance to follow.
    """

    def __init__(self, windows: SideWindows, bar: QToolBar, before: QAction, banners: BannerArea, theme: Theme) -> None:
        super().__init__()
        self._windows, self._banners, self._theme = windows, banners, theme
        self._downloads: Downloads | None = None
        self._unseen_failures: set[str] = set()
        self._going, self._fraction = False, 0.0
        self.setAutoRaise(True)
        self.setFixedSize(_SIDE, _SIDE)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setAccessibleName("Downloads")
        self.clicked.connect(self._show_page)
        self.action = bar.insertWidget(before, self)
        self.action.setVisible(False)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self._show)
        windows.on_models_desk = self._follow

    def resume_downloads(self) -> None:
        """Resume the downloads of the last run, if there were any."""
        if paths.downloads_path().exists():
            assert self._windows.models_desk, "the desk resumes them when it is built"

    def sizeHint(self) -> QSize:
        return QSize(_SIDE, _SIDE)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, colors = QPainter(self), self._theme.colors
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        icon, color, size = ("latest", colors.text, _ARROW) if self._going else ("warning", colors.danger, _WARNING)
        edge = (_SIDE - size) // 2
        painter.drawPixmap(edge, edge, line_pixmap(icon, color, size, self.devicePixelRatioF()))
        if self._going:
            area = QRectF((_SIDE - _RING) / 2, (_SIDE - _RING) / 2, _RING, _RING)
            painter.setPen(QPen(colors.border, 2))
            painter.drawEllipse(area)
            painter.setPen(QPen(colors.accent, 2, c=Qt.PenCapStyle.RoundCap))
            painter.drawArc(area, _TOP, -round(self._fraction * 360 * 16))

    def _follow(self, desk: "ModelsDesk") -> None:
        downloads = self._downloads = desk.downloads
        self._slot = desk.slot
        downloads.progressed.connect(self._throttle.note)
        downloads.removed.connect(self._throttle.note)
        downloads.went_on.connect(self._on_resumed)
        downloads.finished.connect(self._on_finished)
        downloads.failed.connect(self._on_failed)

    def _show(self) -> None:
        from rdchat.ui.models.downloads.words import totals_words  # noqa: PLC0415  once something is downloaded

        assert self._downloads is not None
        totals = self._downloads.totals()
        self._unseen_failures &= {each.id for each in self._downloads.all() if each.state == "failed"}
        if self._windows.shows_downloads:
            self._unseen_failures.clear()
        failed = "A download stopped." if self._unseen_failures else ""
        self._going, self._fraction = totals.going > 0, totals.fraction
        words = totals_words(totals) or failed
        set_tip(self, words)
        self.setAccessibleDescription(words)
        self.action.setVisible(bool(totals.going or failed))
        self.update()

    def _show_page(self) -> None:
        self._windows.show_downloads()
        self._throttle.note()

    def _on_resumed(self, downloads: "tuple[Download, ...]") -> None:
        names = ", ".join(download.repository for download in downloads)
        what = "a download" if len(downloads) == 1 else f"{len(downloads)} downloads"
        words = f"{names} had not finished when rdchat ended."
        banner = Banner(self._theme, f"Going on with {what}", words, "download")
        banner.add_action("Show", self._show_page)
        self._banners.show_banner(banner, "downloads went on", UNDO_MS)

    def _on_finished(self, download: "Download") -> None:
        if self._windows.shows_downloads:
            return
        banner = Banner(self._theme, f"{download.repository} is downloaded", "", "check", "success")
        if download.is_model:
            banner.add_action("Load", lambda: self._slot.load(download.model_name))
        else:
            banner.add_action("Show", self._show_page)
        self._banners.show_banner(banner, f"download {download.id}")

    def _on_failed(self, download: "Download") -> None:
        if self._windows.shows_downloads:
            return
        self._unseen_failures.add(download.id)
        self._throttle.note()
        title = f"The download of {download.repository} stopped"
        banner = Banner(self._theme, title, download.problem, "warning", "danger")
        banner.add_action("Show", self._show_page)
        self._banners.show_banner(banner, f"download {download.id}")
