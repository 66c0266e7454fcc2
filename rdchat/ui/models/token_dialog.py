"""The dialog for the hub's token: shows the one in use, takes another one, or forgets it."""

from PySide6.QtGui import QHideEvent, QKeySequence, QShortcut, QShowEvent
from PySide6.QtWidgets import QDialog, QLineEdit, QWidget

from rdchat.hub.tokens import TokenSource, hub_token_file
from rdchat.services.models.downloads.hub_account import AccountStatus, HubAccount
from rdchat.ui.look.buttons import push_button
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import open_page
from rdchat.ui.look.theme import LARGE, MEDIUM, Theme

_WIDTH = 480
_NONE = "No token is in use. Most models need none; gated and private ones do."
_GIVEN = {TokenSource.KEYCHAIN, TokenSource.THIS_RUN}


class TokenDialog(QDialog):
    """Shows dots for the typed token, and forgets it when the dialog closes.

    Args:
        account: Checks and keeps the token.
        theme: The appearance to follow.
        parent: The window that it stands in front of.
    """

    def __init__(self, account: HubAccount, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._account = account
        self.setWindowTitle("Hugging Face token")
        self.setFixedWidth(_WIDTH)
        self.heading = ThemedLabel(theme, "", points_more=2, bold=True)
        self.status = ThemedLabel(theme, _NONE, wraps=True, selectable=True)
        self.where = ThemedLabel(theme, "", "muted", -1, wraps=True, selectable=True)
        self.problem = ThemedLabel(theme, "", "danger", -1, wraps=True, selectable=True)
        self.field = QLineEdit()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setAccessibleName("New token")
        self.field.setPlaceholderText("Paste a token, such as hf_…")
        self.field.textChanged.connect(self._show)
        self.make = push_button("Make a token…", "Opens the hub's page for tokens; one that may read is enough")
        self.make.clicked.connect(lambda: open_page(account.status.token_page))
        self.check = push_button("Whose is it?", "Asks the hub for the name behind the token", account.check)
        self.forget = push_button("Forget it", "", account.forget)
        self.cancel = push_button("Close", "", self.reject)
        self.use = push_button("Check and keep", "", lambda: account.give(self.field.text()))
        self.use.setDefault(True)
        about, ends = row(self.check, self.forget, None), row(self.make, None, self.cancel, self.use)
        parts = (self.heading, self.status, self.where, about, MEDIUM, self.field, self.problem, MEDIUM, ends)
        self._column = column(*parts, within=self, margins=LARGE)
        account.changed.connect(self._show)
        account.accepted.connect(self.field.clear)
        QShortcut(QKeySequence.StandardKey.Close, self, self.reject)
        self._show()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self._account.look()
        self.field.setFocus()

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self.field.clear()

    def _show(self) -> None:
        status = self._account.status
        self.heading.setText(f"Token for {status.host}" if status.host else "Token")
        self.status.setText(status.busy or status_words(status))
        self.where.say("" if status.busy else where_words(status))
        self.problem.say(status.problem)
        idle = not status.busy
        others = status.source in {TokenSource.ENVIRONMENT, TokenSource.HUB_FILE}
        self.check.setVisible(status.source is not None and not status.name)
        self.check.setEnabled(idle)
        self.forget.setVisible(status.source in _GIVEN)
        self.forget.setEnabled(idle)
        self.field.setEnabled(not others)
        self.make.setEnabled(bool(status.token_page))
        self.use.setEnabled(idle and not others and bool(self.field.text().strip()))
        self._column.activate()
        self.setFixedHeight(self._column.totalHeightForWidth(_WIDTH))  # a dialog by itself would only grow


def status_words(status: AccountStatus) -> str:
    """Return whose token is in use."""
    if status.source is None:
        return _NONE
    return f"The token of {status.name} is in use." if status.name else "A token is in use."


def where_words(status: AccountStatus) -> str:
    """Return where the token in use comes from, and what that means for another one."""
    match status.source:
        case TokenSource.ENVIRONMENT:
            return "It comes from the environment variable HF_TOKEN. To use another one, change it there."
        case TokenSource.HUB_FILE:
            return f"The hub's own tools keep it in {hub_token_file()}. To use another one, change it with them."
        case TokenSource.KEYCHAIN:
            return "The system's keychain keeps it. It is sent to the hub alone."
        case TokenSource.THIS_RUN:
            return "This machine has no keychain, so it is kept until rdchat quits. It is sent to the hub alone."
    return ""
