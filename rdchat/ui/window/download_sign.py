"""Downloads as the main window shows them: a small ring in the toolbar, and notices of what began, came or failed."""

from typing import TYPE_CHECKING

from PySide6.QtCore import QObject, QRectF, QSize, Qt
from PySide6.QtGui import QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QToolBar, QToolButton

from rdchat import paths
from rdchat.services.background.background_work import BackgroundWork
from rdchat.ui.conversation.banner import UNDO_MS, Banner, BannerArea
from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.window.side_windows import Windows

if TYPE_CHECKING:
    from PySide6.QtGui import QAction

    from rdchat.hub.downloads.download import Download
    from rdchat.services.models.downloads.downloads import Downloads
    from rdchat.services.models.models_desk import ModelsDesk

_SIDE, _RING, _ARROW = 30, 20, 12  # pixels
_TOP = 90 * 16  # degrees, as Qt counts them


class RingButton(QToolButton):
    """A ring that closes while something is downloaded; a sign of warning where something failed.

    Args:
        theme: The appearance to follow.
    """

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._going, self._fraction = False, 0.0
        self.setAutoRaise(True)
        self.setFixedSize(_SIDE, _SIDE)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        theme.changed.connect(self.update)

    def show_downloads(self, going: bool, fraction: float, said: str) -> None:
        """Show how much is here while something goes on, else the warning; say it in the tooltip."""
        self._going, self._fraction = going, fraction
        set_tip(self, said)
        self.setAccessibleName("Downloads")
        self.setAccessibleDescription(said)
        self.update()

    def sizeHint(self) -> QSize:
        return QSize(_SIDE, _SIDE)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter, colors = QPainter(self), self._theme.colors
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        edge = (_SIDE - _RING) / 2
        if not self._going:
            picture = line_pixmap("warning", colors.danger, 18, self.devicePixelRatioF())
            painter.drawPixmap((_SIDE - 18) // 2, (_SIDE - 18) // 2, picture)
            return
        area = QRectF(edge, edge, _RING, _RING)
        painter.setPen(QPen(colors.border, 2))
        painter.drawEllipse(area)
        painter.setPen(QPen(colors.accent, 2, c=Qt.PenCapStyle.RoundCap))
        painter.drawArc(area, _TOP, -round(self._fraction * 360 * 16))
        arrow = line_pixmap("latest", colors.text, _ARROW, self.devicePixelRatioF())
        painter.drawPixmap((_SIDE - _ARROW) // 2, (_SIDE - _ARROW) // 2, arrow)


class DownloadSign(QObject):
    """Follows the downloads once there are any, and leads to their page.

    Args:
        windows: Have the models window.
        bar: Takes the ring.
        before: The action of the bar that the ring stands before.
        banners: Take the notices.
        theme: The appearance to follow.
    """

    def __init__(self, windows: Windows, bar: QToolBar, before: "QAction", banners: BannerArea, theme: Theme) -> None:
        super().__init__(bar)
        self._windows, self._banners, self._theme = windows, banners, theme
        self._downloads: Downloads | None = None
        self._unseen_failures: set[str] = set()
        self.ring = RingButton(theme)
        self.ring.clicked.connect(self._show_page)
        self.action = bar.insertWidget(before, self.ring)
        self.action.setVisible(False)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self._show)
        windows.on_models_desk = self._follow
        self._work = BackgroundWork("downloads", self)

    def go_on(self) -> None:
        """Go on with what was downloaded when the app ended; where nothing was, nothing is imported or begun."""
        if paths.downloads_path().exists():
            self._work.do(_import_downloads, lambda _: self._begin())

    def _begin(self) -> None:
        assert self._windows.models_desk, "asking for it builds it"

    def _follow(self, desk: "ModelsDesk") -> None:
        downloads = self._downloads = desk.downloads
        self._slot = desk.slot
        downloads.progressed.connect(self._throttle.note)
        downloads.removed.connect(self._throttle.note)
        downloads.went_on.connect(self._tell_went_on)
        downloads.finished.connect(self._tell_finished)
        downloads.failed.connect(self._tell_failed)

    def _show(self) -> None:
        from rdchat.ui.models.downloads.words import totals_words  # noqa: PLC0415  once something is downloaded

        assert self._downloads is not None
        totals = self._downloads.totals()
        states = {progress.id: progress.state for progress in self._downloads.all()}
        self._unseen_failures &= {download for download, state in states.items() if state == "failed"}
        if self._is_seen:
            self._unseen_failures.clear()
        failed = "A download stopped." if self._unseen_failures else ""
        self.ring.show_downloads(totals.going > 0, totals.fraction, totals_words(totals) or failed)
        self.action.setVisible(bool(totals.going or failed))

    @property
    def _is_seen(self) -> bool:
        """Whether the downloads' page is before the person's eyes."""
        return self._windows.has_models and self._windows.models.shows_downloads

    def _show_page(self) -> None:
        self._windows.models.show_page(self._windows.models.downloads)
        self._throttle.note()

    def _tell_went_on(self, downloads: "tuple[Download, ...]") -> None:
        names = ", ".join(progress.repository for progress in downloads)
        what = "a download" if len(downloads) == 1 else f"{len(downloads)} downloads"
        banner = Banner(
            self._theme, f"Going on with {what}", f"{names} had not finished when rdchat ended.", "download"
        )
        banner.add_action("Show", self._show_page)
        self._banners.show_banner(banner, "downloads went on", UNDO_MS)

    def _tell_finished(self, progress: "Download") -> None:

        assert self._downloads is not None
        if self._is_seen:
            return
        name = progress.repository
        banner = Banner(self._theme, f"{name} is downloaded", "", "check", "success")
        if progress.is_model:
            banner.add_action("Load", lambda: self._slot.load(progress.model_name))
        else:
            banner.add_action("Show", self._show_page)
        self._banners.show_banner(banner, f"download {progress.id}")

    def _tell_failed(self, progress: "Download") -> None:
        if self._is_seen:
            return
        self._unseen_failures.add(progress.id)
        self._throttle.note()
        name = progress.repository
        banner = Banner(self._theme, f"The download of {name} stopped", progress.problem, "warning", "danger")
        banner.add_action("Show", self._show_page)
        self._banners.show_banner(banner, f"download {progress.id}")


def _import_downloads() -> None:
    """Import what downloads need, off the main thread: that takes a tenth of a second."""
    import rdchat.services.models.models_desk  # noqa: F401, PLC0415
