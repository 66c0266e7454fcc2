"""A thin line below a tab that fills up while something is downloaded."""

from PySide6.QtCore import QEvent, QObject, Qt
from PySide6.QtWidgets import QTabBar

from rdchat.services.models.downloads.downloads import Downloads
from rdchat.ui.look.plain_text import tip_text
from rdchat.ui.look.theme import SMALL, Theme
from rdchat.ui.look.throttle import Throttle
from rdchat.ui.models.downloads.words import totals_words
from rdchat.ui.models.thin_bar import ThinBar

_HEIGHT = 3


class TabLine(ThinBar):
    """Lies on a tab bar; how much of all downloads is here.

    Args:
        tabs: The bar.
        place: The tab's.
        downloads: What goes on.
        theme: The appearance to follow.
    """

    def __init__(self, tabs: QTabBar, place: int, downloads: Downloads, theme: Theme) -> None:
        super().__init__(theme, tabs)
        self._tabs, self._place, self._downloads = tabs, place, downloads
        self.setObjectName("downloads line")
        self.setAccessibleName("All downloads")
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self._throttle = Throttle(self)
        self._throttle.due.connect(self._show)
        downloads.progressed.connect(self._throttle.note)
        downloads.removed.connect(self._throttle.note)
        tabs.installEventFilter(self)
        self._show()

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if event.type() in (QEvent.Type.Resize, QEvent.Type.LayoutRequest, QEvent.Type.Show):
            self._move()
        return super().eventFilter(watched, event)

    def _show(self) -> None:
        totals = self._downloads.totals()
        self.show_part(totals.fraction)
        self._tabs.setTabToolTip(self._place, tip_text(totals_words(totals)))
        self._move()
        self.setVisible(bool(totals.going))

    def _move(self) -> None:
        tab = self._tabs.tabRect(self._place)
        self.setGeometry(tab.left() + SMALL, tab.bottom() - _HEIGHT + 1, tab.width() - 2 * SMALL, _HEIGHT)
