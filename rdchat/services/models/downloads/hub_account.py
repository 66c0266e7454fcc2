"""Who the person is to the hub: the token in use, another one checked and kept, and how to forget it."""

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import Endpoint, find_endpoint
from rdchat.hub.hub_errors import AccessRefusedError
from rdchat.hub.tokens import FoundToken, HubAccess, Token, Tokens, TokenSource
from rdchat.services.background.background_work import BackgroundWork


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """What is known of the token; never the token itself.

    Attributes:
        host: The hub's.
        token_page: Where tokens are made.
        busy: What goes on, such as asking the hub; empty where nothing does.
        source: Where the token in use was found; None where there is none, or nobody has looked yet.
        looked: Whether somebody has looked.
        name: Whom the hub says that it stands for; empty until it was asked.
        problem: What went wrong last.
    """

    host: str = ""
    token_page: str = ""
    busy: str = ""
    source: TokenSource | None = None
    looked: bool = False
    name: str = ""
    problem: str = ""


class HubAccount(QObject):
    """Asks the keychain and the hub on a thread of its own, and tells of it. Lives on the main thread.

    The hub is asked only when the person gives a token, or asks whose it is.

    Attributes:
        status: What is known.
    """

    changed = Signal()
    accepted = Signal()  # the hub knows a token that was given just now

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self._work = BackgroundWork("hub account", self)
        self.status = AccountStatus()

    def look(self) -> None:
        """Find out which token is in use; the keychain may ask the person."""
        endpoint = self._begin("Looking for the token…")
        if endpoint is not None:
            self._work.do(lambda: self._found(endpoint), self._end)

    def check(self) -> None:
        """Ask the hub whose token is in use."""
        endpoint = self._begin("Asking {host}…")
        if endpoint is not None:
            self._work.do(lambda: self._named(endpoint), self._end)

    def give(self, text: str) -> None:
        """Have the hub check a token and keep it; `accepted` follows where it knows the token."""
        endpoint = self._begin("Asking {host}…")
        if endpoint is not None:
            self._work.do(lambda: self._given(endpoint, text), self._end_giving)

    def forget(self) -> None:
        """Forget the token that was given for this hub."""
        endpoint = self._begin("Forgetting the token…")
        if endpoint is not None:
            self._work.do(lambda: self._forgotten(endpoint), self._end)

    def close(self) -> None:
        """Wait for nothing: a keychain may ask the person for long."""
        self._work.close(0.2)

    def _begin(self, busy: str) -> Endpoint | None:
        """Say what goes on; None where something else does, or there is no hub."""
        if self.status.busy:
            return None
        try:
            endpoint = find_endpoint()
        except RdchatError as error:
            self.status = replace(self.status, problem=str(error))
            self.changed.emit()
            return None
        self.status = replace(
            self.status,
            host=endpoint.host,
            token_page=endpoint.token_page,
            busy=busy.format(host=endpoint.host),
            problem="",
        )
        self.changed.emit()
        return endpoint

    def _end(self, told: AccountStatus | RdchatError) -> None:
        if isinstance(told, RdchatError):
            told = replace(self.status, busy="", problem=str(told))
        self.status = told
        self.changed.emit()

    def _end_giving(self, told: AccountStatus | RdchatError) -> None:
        self._end(told)
        if not self.status.problem:
            self.accepted.emit()

    # On the thread

    def _found(self, endpoint: Endpoint) -> AccountStatus:
        before, found, problem = self.status, None, ""
        try:
            found = self._tokens.found(endpoint, again=True)
        except RdchatError as error:
            problem = str(error)
        source = found.source if found else None
        name = before.name if source is before.source else ""
        return replace(before, busy="", looked=True, source=source, name=name, problem=problem)

    def _named(self, endpoint: Endpoint) -> AccountStatus:
        status = self._found(endpoint)
        found = None if status.problem else self._tokens.found(endpoint)
        return self._with_name(status, endpoint, found) if found else status

    def _given(self, endpoint: Endpoint, text: str) -> AccountStatus:
        status = replace(self.status, busy="")
        try:
            token = Token(text.strip())
        except RdchatError as error:
            return replace(status, problem=str(error))
        checked = self._with_name(status, endpoint, FoundToken(token, TokenSource.THIS_RUN))
        if checked.problem:
            return replace(checked, name=status.name)
        self._tokens.remember(token, endpoint)
        found = self._tokens.found(endpoint)
        return replace(checked, source=found.source if found else None)

    def _forgotten(self, endpoint: Endpoint) -> AccountStatus:
        self._tokens.forget(endpoint)
        return self._found(endpoint)

    def _with_name(self, status: AccountStatus, endpoint: Endpoint, found: FoundToken) -> AccountStatus:
        """Ask the hub whose token this is."""
        from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  slow to import

        try:
            return replace(status, name=HubApi(HubAccess(endpoint, found.token)).account(), problem="")
        except AccessRefusedError:
            problem = f"{endpoint.host} does not know this token. Copy it once more, or make a new one."
        except RdchatError as error:
            problem = f"The token could not be checked. {error}"
        return replace(status, name="", problem=problem)
