"""The models window: its pages beside one another, and the tabs that choose between them."""

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeySequence, QShortcut
from PySide6.QtWidgets import QDialog, QHBoxLayout, QStackedWidget, QTabBar, QVBoxLayout, QWidget

from rdchat.services.models.installed.dropped_model import DroppedModel
from rdchat.services.models.models_desk import ModelsDesk
from rdchat.ui.look.focus import show_in_front
from rdchat.ui.look.labels import Separator
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme
from rdchat.ui.models.discover.page import DiscoverPage
from rdchat.ui.models.downloads.page import DownloadsPage
from rdchat.ui.models.downloads.tab_line import TabLine
from rdchat.ui.models.drafters.page import DraftersPage
from rdchat.ui.models.installed.page import InstalledPage
from rdchat.ui.window.model_drops import ModelDrops


class ModelsWindow(QDialog):
    """Attributes are the pages.

    Args:
        desk: What the pages work with.
        theme: The appearance to follow.
        drops: Takes the model folders and files that are dropped.
        parent: What the window stays above.
    """

    def __init__(self, desk: ModelsDesk, theme: Theme, drops: DroppedModel, parent: QWidget | None = None) -> None:
        super().__init__(parent, Qt.WindowType.Window)
        self.setWindowTitle("Models")
        self.setMinimumSize(720, 460)
        self.installed = InstalledPage(desk, theme)
        self._drops = ModelDrops(drops, self)
        self._drops.refused.connect(self._show_refused)
        self.discover = DiscoverPage(desk, theme)
        self.downloads = DownloadsPage(desk, theme)
        self.drafters = DraftersPage(desk, theme)
        self._tabs = QTabBar(documentMode=True, drawBase=False, expanding=False)
        self._tabs.setAccessibleName("Pages")
        self._pages = QStackedWidget()
        for name, page in (
            ("Installed", self.installed),
            ("Discover", self.discover),
            ("Downloads", self.downloads),
            ("Drafters", self.drafters),
        ):
            self._tabs.addTab(name)
            self._pages.addWidget(page)
        TabLine(self._tabs, self._pages.indexOf(self.downloads), desk.downloads, theme)
        self.downloads.discover_requested.connect(lambda: self.show_page(self.discover))
        self._tabs.currentChanged.connect(self._pages.setCurrentIndex)
        self.discover.downloads_requested.connect(lambda: self.show_page(self.downloads))
        self.discover.token_requested.connect(self.downloads.ask_for_token)
        bar = QHBoxLayout()
        bar.setContentsMargins(MEDIUM, SMALL, MEDIUM, SMALL)
        bar.addStretch()
        bar.addWidget(self._tabs)
        bar.addStretch()
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addLayout(bar)
        layout.addWidget(Separator(theme))
        layout.addWidget(self._pages, 1)
        QShortcut(QKeySequence.StandardKey.Close, self, self.close)
        self.resize(1000, 680)

    def _show_refused(self, words: str) -> None:
        self._tabs.setCurrentIndex(self._pages.indexOf(self.installed))
        self.installed.show_refused(words)

    def show_page(self, page: QWidget) -> None:
        """Bring the window to the front with a page."""
        self._tabs.setCurrentIndex(self._pages.indexOf(page))
        show_in_front(self)
