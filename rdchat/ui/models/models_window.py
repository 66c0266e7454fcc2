"""The Models window with its two pages, the list of downloads, and the sheet of the Hugging Face token."""

from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QLineEdit, QStackedWidget, QWidget

from rdchat.hub import TokenSource, find_endpoint, hub_token_file
from rdchat.hub.downloads.download import DownloadState
from rdchat.services.models.downloads import HubAccount
from rdchat.services.models.fit import Model
from rdchat.services.models.model_services import Models
from rdchat.ui.files.file_drops import FileDrops
from rdchat.ui.models.computer_pages import MacsPage, RemotePage
from rdchat.ui.models.discover_page import DiscoverPage
from rdchat.ui.models.installed_page import InstalledPage
from rdchat.ui.models.model_row import RowList
from rdchat.ui.models.reading_pane import PageLinks
from rdchat.ui.style import (
    LARGE,
    MEDIUM,
    SMALL,
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
    push_button,
    row,
    scrolled,
    show_in_front,
    small_text,
)
from rdchat.wording import size_text

# Downloads
_QUITTING = "Downloads continue while you chat, even with this window closed. Quitting pauses them."

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
    """Shows the downloads, and the free space of their disk.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        downloads = models.downloads
        self._downloads = downloads
        self.list = RowList(models, links, theme, LARGE)
        ground = Ground(theme, "surface")
        column(self.list, None, within=ground, spacing=0)
        self.disk = small_text(theme, tabular=True)
        tip = "Remove finished downloads from this list. The models stay."
        self.clear = push_button("Clear Finished", tip, downloads.clear_finished)
        footer = row((self.disk, 1), self.clear, margins=(LARGE, MEDIUM, LARGE, MEDIUM))
        column((scrolled(ground), 1), Separator(theme), footer, within=self, spacing=0)
        downloads.changed.connect(self._refresh)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._refresh()

    def _refresh(self) -> None:
        """Show the downloads, and how much room the disk has for them."""
        if not self.isVisible():
            return
        downloads = self._downloads
        listed = downloads.all()
        self.list.show_models([Model.downloaded(download) for download in listed])
        free, lacking = downloads.disk_room()
        disk = f"{size_text(free)} free on the disk for models." if free is not None else ""
        if lacking:
            disk = f"{disk} The downloads need {size_text(lacking)} more."
        elif downloads.going():
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
    """The Models window; its pages and their parts are attributes.

    Args:
        models: The services of the pages.
        theme: The appearance to follow.
        parent: The window stays above it.
    """

    def __init__(self, models: Models, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__("Models", (1000, 680), (720, 460), parent)
        links = PageLinks(self)
        self.downloads = DownloadsPage(models, links, theme)
        self.remote = RemotePage(models, links, theme)
        self.macs = MacsPage(models, links, theme)
        self.installed = InstalledPage(models, links, theme, self.downloads, (self.remote, self.macs))
        self.drafters = self.installed.drafters
        self.discover = DiscoverPage(models, links, theme)
        models.parts.started.connect(lambda: self.show_page(self.downloads))
        links.discover_requested.connect(lambda: self.show_page(self.discover))
        links.token_requested.connect(lambda: TokenSheet(models.account, theme, self).open())
        self._drops = FileDrops(models.problem, models.slot.load_model, self, theme)
        self._drops.refused.connect(self._show_refused)
        self.tabs = TabBar(documentMode=True, drawBase=False, expanding=False)
        self.tabs.setAccessibleName("Pages")
        self._pages = QStackedWidget()
        for name, page in (("On This Computer", self.installed), ("Find", self.discover)):
            self.tabs.addTab(name)
            self._pages.addWidget(page)
        self.tabs.currentChanged.connect(self._pages.setCurrentIndex)
        bar = row(None, self.tabs, None, spacing=-1, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column(bar, Separator(theme), (self._pages, 1), within=self, spacing=0)

    @property
    def search(self) -> QLineEdit:  # type: ignore[override]  # of the page that is shown
        return self.discover.bar.field if self.tabs.currentIndex() else self.installed.search

    def show_page(self, page: QWidget) -> None:
        """Bring the window to the front with a page, or with a part of the first one."""
        self.tabs.setCurrentIndex(1 if page is self.discover else 0)
        self.installed.show_part(page)
        show_in_front(self)

    def _show_refused(self, text: str) -> None:
        self.tabs.setCurrentIndex(0)
        self.installed.result.show_text(text, "danger")
