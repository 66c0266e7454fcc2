"""The Models window with its pages as tabs, the Downloads page, and the sheet of the Hugging Face token."""

from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QLineEdit, QStackedWidget, QTabWidget, QWidget

from rdchat import host
from rdchat.hub import TokenSource, find_endpoint, hub_token_file
from rdchat.hub.downloads.download import DownloadState
from rdchat.inference.api import ModelCard
from rdchat.services.models.downloads import HubAccount
from rdchat.services.models.draft_advice import DraftAction
from rdchat.services.models.fit import Model
from rdchat.services.models.window_services import Models
from rdchat.ui.files.file_drops import FileDrops
from rdchat.ui.models.computer_pages import MacsPage, RemotePage
from rdchat.ui.models.discover_page import DiscoverPage
from rdchat.ui.models.drafters_page import DraftersPage
from rdchat.ui.models.entries import share, totals_text
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.model_row import RowList
from rdchat.ui.models.page_parts import NoticeView, PageLinks
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
    TIGHT,
    Ground,
    Separator,
    Sheet,
    SideWindow,
    TabBar,
    Theme,
    ThemedLabel,
    column,
    nothing,
    open_page,
    percent,
    push_button,
    row,
    scrolled,
    show_in_front,
    small_text,
    tip_text,
)
from rdchat.wording import size_text

# Downloads
_EMPTY = "Your downloads appear here. They continue while you chat and after a restart."
_QUITTING = "Downloads continue while you chat, even with this window closed. Quitting pauses them."
# The tabs; on a Mac all, elsewhere without the last, whose page is then a tab of Remote.
_TITLES = ("Installed", "Discover", "Downloads", "Drafters", "Remote", "Macs")

# The token
_NONE = "No token is set. Only gated and private models need one."

_SOURCES = {
    None: "",
    TokenSource.ENVIRONMENT: "It comes from the environment variable HF_TOKEN. Change it there.",
    TokenSource.HUB_FILE: "It comes from {file}, where Hugging Face's own tools keep it. Change it with them.",
    TokenSource.KEYCHAIN: "It is kept in the system's keychain and sent only to {host}.",
    TokenSource.THIS_RUN: "There is no keychain, so rdchat forgets it when it quits. It is sent only to {host}.",
}

# Sources of a token that was given to rdchat, which can forget it.
_GIVEN = {TokenSource.KEYCHAIN, TokenSource.THIS_RUN}


class DownloadsPage(QWidget):
    """Shows the downloads, their total, and the free space of their disk.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        downloads = models.downloads
        self._downloads = downloads
        self.empty = NoticeView(links, theme, None, links.discover_requested.emit)
        self.empty.show_text("No downloads", _EMPTY, "Find a Model")
        self.list = RowList(models, links, theme, LARGE)
        ground = Ground(theme, "surface")
        column(self.list, None, within=ground, spacing=0)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.empty)
        self.pages.addWidget(scrolled(ground))
        self.totals = ThemedLabel(theme, "", tabular=True)
        self.disk = small_text(theme, tabular=True)
        tip = "Remove finished downloads from this list. The models stay."
        self.clear = push_button("Clear Finished", tip, downloads.clear_finished)
        tip = "Your Hugging Face token, for gated and private models"
        self.token = push_button("Hugging Face Token…", tip, links.token_requested.emit)
        sums = column(self.totals, self.disk, spacing=TIGHT)
        footer = row((sums, 1), self.clear, self.token, margins=(LARGE, MEDIUM, LARGE, MEDIUM))
        column((self.pages, 1), Separator(theme), footer, within=self, spacing=0)
        downloads.changed.connect(self._refresh)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def _refresh(self) -> None:
        """Show the downloads, their sum, and how much room the disk has for them."""
        if not self.isVisible():
            return
        downloads = self._downloads
        listed = downloads.all()
        self.list.show_models([Model.downloaded(download) for download in listed])
        self.pages.setCurrentIndex(1 if listed else 0)
        sums = totals_text(downloads.going())
        free, lacking = downloads.disk_room()
        self.totals.show_text(sums)
        disk = f"{size_text(free)} free on the disk for models." if free is not None else ""
        if lacking:
            disk = f"{disk} The downloads need {size_text(lacking)} more."
        elif sums:
            disk = f"{disk} {_QUITTING}".strip()
        self.disk.show_text(disk, "danger" if lacking else "muted")
        self.clear.setVisible(any(download.state is DownloadState.FINISHED for download in listed))


class TokenSheet(Sheet):
    """The sheet that says where the hub's token comes from, and takes a new one, shown as dots.

    Args:
        account: Checks and keeps the token.
        theme: The appearance to follow.
        parent: The window that it stands in front of.
    """

    def __init__(self, account: HubAccount, theme: Theme, parent: QWidget) -> None:
        self._account = account
        self.status = ThemedLabel(theme, _NONE, wraps=True, selectable=True)
        self.where = small_text(theme, selectable=True)
        self.problem = small_text(theme, "", "danger", selectable=True)
        self.field = QLineEdit(echoMode=QLineEdit.EchoMode.Password, placeholderText="Paste a token (hf_…)")
        self.field.setAccessibleName("New token")
        self.make = push_button("Create Token…", "Opens the web page for tokens. Read access is enough.")
        self.make.clicked.connect(lambda: open_page(find_endpoint().token_page))
        self.check = push_button("Show Its Owner", "Asks Hugging Face whose token it is", account.ask_account)
        self.forget = push_button("Forget Token", "", account.forget_token)
        token_buttons = row(self.make, self.check, self.forget, None)
        parts = (self.status, self.where, token_buttons, MEDIUM, self.field, self.problem)
        answers = ("Close", nothing), ("Check and Save", lambda: account.give(self.field.text()))
        super().__init__(parent, theme, "Hugging Face Token", "", answers, parts=parts, stays=True)
        self.use = self.buttons[-1]
        self.field.textChanged.connect(self._show)
        account.changed.connect(self._show)
        account.accepted.connect(self.field.clear)
        QShortcut(QKeySequence.StandardKey.Close, self, self.reject)
        self._show()
        account.look_up_token()
        self.field.setFocus()

    def _show(self) -> None:
        """Show whose token is in use and where it is kept, and enable what can be done about it."""
        account = self._account
        source = account.source
        self.title.setText(f"Token for {account.host}")
        known = f"The token of {account.name} is in use." if account.name else "A token is in use."
        self.status.setText(account.busy or (_NONE if source is None else known))
        self.where.show_text("" if account.busy else _SOURCES[source].format(file=hub_token_file(), host=account.host))
        self.problem.show_text(account.problem)
        idle = not account.busy
        # A token of the environment or of the hub's own tools comes first, so another one would have no effect.
        can_give = source is None or source in _GIVEN
        self.check.setVisible(source is not None and not account.name)
        self.check.setEnabled(idle)
        self.forget.setVisible(source in _GIVEN)
        self.forget.setEnabled(idle)
        self.field.setEnabled(can_give)
        self.use.setEnabled(idle and can_give and bool(self.field.text().strip()))
        self.fit()


class ModelsWindow(SideWindow):
    """The Models window; its pages are attributes.

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
        self._drops = FileDrops(models.problem, models.slot.load_model, self, theme)
        self._drops.refused.connect(self._show_refused)
        self.tabs = TabBar(documentMode=True, drawBase=False, expanding=False)
        self.tabs.setAccessibleName("Pages")
        self._pages = QStackedWidget()
        self._remote_tabs = QTabWidget(documentMode=True)
        pages: list[QWidget] = [self.installed, self.discover, self.downloads, self.drafters, self.remote, self.macs]
        if not host.MACOS:
            # Only a Mac can run a model together with others; elsewhere Macs are one kind of remote computer.
            pages[4:] = [self._remote_tabs]
            self._remote_tabs.addTab(self.remote, "Computers")
            self._remote_tabs.addTab(self.macs, "Macs")
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
        """Stay open on Escape, with which people leave a field of a page."""

    def show_page(self, page: QWidget) -> None:
        """Bring the window to the front with a page."""
        if self._remote_tabs.indexOf(page) >= 0:
            self._remote_tabs.setCurrentWidget(page)
            page = self._remote_tabs
        self.tabs.setCurrentIndex(self._pages.indexOf(page))
        show_in_front(self)

    def _follow_advice(self, model: ModelCard, action: DraftAction) -> None:
        """Show a model's drafters, and search the hub for others or for its MTP layers, or show the training."""
        page = self.drafters
        page.choose_model(model)
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
