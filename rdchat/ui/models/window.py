"""The models window: four pages and the tabs over them."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QDialog, QStackedWidget, QTabBar, QWidget

from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.files.file_drops import FileDrops
from rdchat.ui.look.labels import Separator
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import show_in_front
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme
from rdchat.ui.models.downloads.tab_line import TabLine
from rdchat.ui.models.links import PageLinks

if TYPE_CHECKING:
    from rdchat.ui.models.discover.page import DiscoverPage
    from rdchat.ui.models.downloads.page import DownloadsPage
    from rdchat.ui.models.drafters.page import DraftersPage
    from rdchat.ui.models.installed.page import InstalledPage
    from rdchat.ui.models.token_dialog import TokenDialog

_NAMES = ("installed", "discover", "downloads", "drafters")


class ModelsWindow(QDialog):
    """Attributes are the pages.

    Args:
        desk: What the pages work with.
        theme: The appearance to follow.
        problem: Returns why a dropped model cannot be loaded, empty if it can. Called on a thread.
        parent: What the window stays above.
    """

    def __init__(
        self, desk: ModelsDesk, theme: Theme, problem: Callable[[str], str], parent: QWidget | None = None
    ) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setWindowTitle("Models")
        self.setMinimumSize(720, 460)
        self._desk, self._theme = desk, theme
        self._links = PageLinks(self)
        self._links.downloads_requested.connect(lambda: self.show_page(self.downloads))
        self._links.discover_requested.connect(lambda: self.show_page(self.discover))
        self._links.token_requested.connect(self._ask_for_token)
        self._drops = FileDrops(problem, desk.slot.load, self, theme)
        self._drops.refused.connect(self._show_refused)
        self._tabs = QTabBar(documentMode=True, drawBase=False, expanding=False)
        self._tabs.setAccessibleName("Pages")
        self._pages = QStackedWidget()
        for name in _NAMES:
            self._tabs.addTab(name.capitalize())
            self._pages.addWidget(QWidget())
        TabLine(self._tabs, _NAMES.index("downloads"), desk.downloads, theme)
        self._tabs.currentChanged.connect(self._show_current)
        bar = row(None, self._tabs, None, spacing=-1, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column(bar, Separator(theme), (self._pages, 1), within=self, spacing=0)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)
        self.resize(1000, 680)

    @cached_property
    def installed(self) -> "InstalledPage":
        """The models on this machine."""
        from rdchat.ui.models.installed.page import InstalledPage  # noqa: PLC0415  each when it is first shown

        return self._placed("installed", InstalledPage(self._desk, self._theme))

    @cached_property
    def discover(self) -> "DiscoverPage":
        """The models of the hub."""
        from rdchat.ui.models.discover.page import DiscoverPage  # noqa: PLC0415

        return self._placed("discover", DiscoverPage(self._desk, self._links, self._theme))

    @cached_property
    def downloads(self) -> "DownloadsPage":
        """The list of downloads."""
        from rdchat.ui.models.downloads.page import DownloadsPage  # noqa: PLC0415

        return self._placed("downloads", DownloadsPage(self._desk, self._links, self._theme))

    @cached_property
    def drafters(self) -> "DraftersPage":
        """The drafters of a model."""
        from rdchat.ui.models.drafters.page import DraftersPage  # noqa: PLC0415

        return self._placed("drafters", DraftersPage(self._desk, self._theme))

    def _ask_for_token(self) -> None:
        self.token_dialog.open()

    @property
    def shows_downloads(self) -> bool:
        """Whether the downloads are before the person's eyes; asking does not build their page."""
        return "downloads" in self.__dict__ and self.downloads.isVisible()

    @cached_property
    def token_dialog(self) -> "TokenDialog":
        """Shows the token in use, and takes another one."""
        from rdchat.ui.models.token_dialog import TokenDialog  # noqa: PLC0415

        return TokenDialog(self._desk.account, self._theme, self)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._show_current()

    def _show_current(self) -> None:
        place = self._tabs.currentIndex()
        getattr(self, _NAMES[place])  # builds it
        self._pages.setCurrentIndex(place)

    def _placed[Page: QWidget](self, name: str, page: Page) -> Page:
        place = _NAMES.index(name)
        empty = self._pages.widget(place)
        assert empty is not None
        self._pages.removeWidget(empty)
        empty.deleteLater()
        self._pages.insertWidget(place, page)
        self._pages.setCurrentIndex(self._tabs.currentIndex())
        return page

    def _show_refused(self, words: str) -> None:
        self._tabs.setCurrentIndex(self._pages.indexOf(self.installed))
        self.installed.show_refused(words)

    def show_page(self, page: QWidget) -> None:
        """Bring the window to the front with a page."""
        self._tabs.setCurrentIndex(self._pages.indexOf(page))
        show_in_front(self)
