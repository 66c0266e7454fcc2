"""The Downloads page: a row for each download, the free space of the disk, and the dialog for the hub's token."""

from PySide6.QtGui import QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QLineEdit, QStackedWidget, QWidget

from rdchat.hub.downloads.download import DownloadState
from rdchat.hub.endpoint import TokenSource, find_endpoint, hub_token_file
from rdchat.services.models.downloads import HubAccount
from rdchat.services.models.listed_model import Model
from rdchat.services.models.window_services import Models
from rdchat.ui.models.model_row import ModelRow, RowList
from rdchat.ui.models.page_parts import NoticeView, PageLinks
from rdchat.ui.models.texts import totals_text
from rdchat.ui.style.buttons import push_button
from rdchat.ui.style.formatting import file_size
from rdchat.ui.style.labels import Ground, Separator, ThemedLabel
from rdchat.ui.style.layouts import column, row, scrolled
from rdchat.ui.style.opening import open_page
from rdchat.ui.style.sheet import Sheet, nothing
from rdchat.ui.style.theme import LARGE, MEDIUM, TIGHT, Theme

_EMPTY = "Your downloads appear here. They continue while you chat and after a restart."
_QUITTING = "Downloads continue while you chat, even with this window closed. Quitting pauses them."


class DownloadsPage(QWidget):
    """Shows the downloads, their total, and the free space of their disk.

    Args:
        models: The window's services.
        links: Lead to other pages.
        theme: The appearance to follow.
    """

    def __init__(self, models: Models, links: PageLinks, theme: Theme) -> None:
        super().__init__()
        self._downloads = downloads = models.downloads
        self.empty = NoticeView(links, theme, None, links.discover_requested.emit)
        self.empty.show_text("No downloads", _EMPTY, "Find a Model")
        self.list = RowList(lambda: ModelRow(models, links, theme, LARGE))
        ground = Ground(theme, "surface")
        column(self.list, None, within=ground, spacing=0)
        self.pages = QStackedWidget()
        self.pages.addWidget(self.empty)
        self.pages.addWidget(scrolled(ground))
        self.totals = ThemedLabel(theme, "", tabular=True)
        self.disk = ThemedLabel(theme, "", "muted", -1, tabular=True, wraps=True)
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
        if not self.isVisible():
            return
        downloads = self._downloads
        self.list.show_models([Model.downloaded(download) for download in downloads.all()])
        self.pages.setCurrentIndex(1 if downloads.all() else 0)
        sums = totals_text(downloads.going())
        (free, lacking) = downloads.disk_room()
        self.totals.show_text(sums)
        disk = f"{file_size(free)} free on the disk for models." if free is not None else ""
        if lacking:
            disk = f"{disk} The downloads need {file_size(lacking)} more."
        elif sums:
            disk = f"{disk} {_QUITTING}".strip()
        self.disk.setText(disk)
        self.disk.set_color("danger" if lacking else "muted")
        self.clear.setVisible(any(download.state is DownloadState.FINISHED for download in downloads.all()))


_NONE = "No token is set. Only gated and private models need one."
_SOURCES = {
    None: "",
    TokenSource.ENVIRONMENT: "It comes from the environment variable HF_TOKEN. Change it there.",
    TokenSource.HUB_FILE: "It comes from {file}, where Hugging Face's own tools keep it. Change it with them.",
    TokenSource.KEYCHAIN: "It is kept in the system's keychain and sent only to Hugging Face.",
    TokenSource.THIS_RUN: "There is no keychain, so rdchat forgets it when it quits. It is sent only to Hugging Face.",
}
_GIVEN = {TokenSource.KEYCHAIN, TokenSource.THIS_RUN}


class TokenSheet(Sheet):
    """Shows dots for the typed token.

    Args:
        account: Checks and keeps the token.
        theme: The appearance to follow.
        parent: The window that it stands in front of.
    """

    def __init__(self, account: HubAccount, theme: Theme, parent: QWidget) -> None:
        self._account = account
        self.status = ThemedLabel(theme, _NONE, wraps=True, selectable=True)
        self.where = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.problem = ThemedLabel(theme, "", "danger", -1, wraps=True, selectable=True)
        self.field = QLineEdit(echoMode=QLineEdit.EchoMode.Password, placeholderText="Paste a token (hf_…)")
        self.field.setAccessibleName("New token")
        self.make = push_button("Create Token…", "Opens the web page for tokens. Read access is enough.")
        self.make.clicked.connect(lambda: open_page(find_endpoint().token_page))
        self.check = push_button("Show Its Owner", "Asks Hugging Face whose token it is", account.check)
        self.forget = push_button("Forget Token", "", account.forget)
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
        account.look()
        self.field.setFocus()

    def _show(self) -> None:
        account = self._account
        source = self._account.source
        self.title.setText(f"Token for {account.host}")
        known = f"The token of {account.name} is in use." if account.name else "A token is in use."
        self.status.setText(account.busy or (_NONE if source is None else known))
        self.where.show_text("" if account.busy else _SOURCES[source].format(file=hub_token_file()))
        self.problem.show_text(account.problem)
        idle = not account.busy
        others = source in {TokenSource.ENVIRONMENT, TokenSource.HUB_FILE}
        self.check.setVisible(source is not None and not account.name)
        self.check.setEnabled(idle)
        self.forget.setVisible(source in _GIVEN)
        self.forget.setEnabled(idle)
        self.field.setEnabled(not others)
        self.use.setEnabled(idle and not others and bool(self.field.text().strip()))
        self.fit()
