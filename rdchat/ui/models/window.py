"""The models window: its pages and the tabs over them."""

from PySide6.QtWidgets import QLineEdit, QStackedWidget, QTabBar, QTabWidget, QWidget

from rdchat import host
from rdchat.inference.api.model_facts import ModelCard
from rdchat.services.models.draft_advice import DraftAction
from rdchat.services.models.window_services import Models
from rdchat.ui.files.file_drops import FileDrops
from rdchat.ui.models.discover_page import DiscoverPage
from rdchat.ui.models.downloads_page import DownloadsPage, TokenSheet
from rdchat.ui.models.drafters_page import DraftersPage
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.macs_page import MacsPage
from rdchat.ui.models.page_parts import PageLinks
from rdchat.ui.models.remote_page import RemotePage
from rdchat.ui.models.texts import share, totals_text
from rdchat.ui.style.formatting import percent
from rdchat.ui.style.labels import Separator, tip_text
from rdchat.ui.style.layouts import column, row
from rdchat.ui.style.opening import SideWindow, show_in_front
from rdchat.ui.style.theme import MEDIUM, SMALL, Theme

_TITLES = ("Installed", "Discover", "Downloads", "Drafters", "Remote", "Macs")


class ModelsWindow(SideWindow):
    """Attributes are the pages.

    Args:
        models: The services of the pages.
        theme: The appearance to follow.
        parent: The window stays above it.
    """

    def __init__(self, models: Models, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Models", (1000, 680), (720, 460), parent)
        self._downloads = models.downloads
        links = PageLinks(self)
        self.installed = InstalledPage(models, links, theme)
        self.discover = DiscoverPage(models, links, theme)
        self.downloads = DownloadsPage(models, links, theme)
        self.drafters = DraftersPage(models, links, theme)
        self.remote = RemotePage(models, links, theme)
        self.macs = MacsPage(models, links, theme)
        models.parts.started.connect(lambda: self.show_page(self.downloads))
        links.discover_requested.connect(lambda: self.show_page(self.discover))
        links.advice_followed.connect(self._follow_advice)
        links.token_requested.connect(lambda: TokenSheet(models.account, theme, self).open())
        self._drops = FileDrops(models.problem, models.slot.load, self, theme)
        self._drops.refused.connect(self._show_refused)
        self.tabs = QTabBar(documentMode=True, drawBase=False, expanding=False)
        self.tabs.setAccessibleName("Pages")
        self._pages = QStackedWidget()
        self._places = QTabWidget(documentMode=True)
        pages: list[QWidget] = [self.installed, self.discover, self.downloads, self.drafters, self.remote, self.macs]
        if not host.MACOS:
            # Only a Mac can be one of several: elsewhere they are one kind of other computers.
            pages[4:] = [self._places]
            self._places.addTab(self.remote, "Computers")
            self._places.addTab(self.macs, "Macs")
        for name, page in zip(_TITLES, pages, strict=False):
            self.tabs.addTab(name)
            self._pages.addWidget(page)
        self.tabs.currentChanged.connect(self._pages.setCurrentIndex)
        bar = row(None, self.tabs, None, spacing=-1, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column(bar, Separator(theme), (self._pages, 1), within=self, spacing=0)
        models.downloads.changed.connect(self._show_totals)
        self._show_totals()

    @property
    def search(self) -> QLineEdit | None:  # type: ignore[override]  # of the page that is shown
        searches: dict[QWidget | None, QLineEdit] = {
            self.installed: self.installed.search,
            self.discover: self.discover.bar.field,
        }
        return searches.get(self._pages.currentWidget())

    def reject(self) -> None:
        """Stay open on Escape, which ends typing in a field of a page."""

    def show_page(self, page: QWidget) -> None:
        """Bring the window to the front with a page."""
        if self._places.indexOf(page) >= 0:
            self._places.setCurrentWidget(page)
            page = self._places
        self.tabs.setCurrentIndex(self._pages.indexOf(page))
        show_in_front(self)

    def _follow_advice(self, model: ModelCard, action: DraftAction) -> None:
        """Show a model's drafters, and search the hub for others or for its MTP layers, or show the training."""
        page = self.drafters
        page.choose(model)
        page.show_drafters()
        self.show_page(page)
        follow = {DraftAction.SEARCH: page.search_once, DraftAction.LAYERS: page.get_mtp}
        follow.get(action, page.show_training)()

    def _show_totals(self) -> None:
        """Show on the tab how much of all downloads is here."""
        going = self._downloads.going()
        index = self._pages.indexOf(self.downloads)
        self.tabs.setTabText(index, f"Downloads  ·  {percent(share(*going) or 0.0)}" if going else "Downloads")
        self.tabs.setTabToolTip(index, tip_text(totals_text(going)))

    def _show_refused(self, text: str) -> None:
        self.tabs.setCurrentIndex(self._pages.indexOf(self.installed))
        self.installed.result.show_text(text, "danger")
