"""The hub's token: finds the one in use, checks and keeps another one, and forgets it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import Endpoint, find_endpoint
from rdchat.hub.hub_errors import AccessRefusedError
from rdchat.hub.tokens import FoundToken, HubAccess, Token, Tokens, TokenSource
from rdchat.services.background.background_work import BackgroundWork


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """Facts about the token; never the token itself."""

    host: str = ""  # the hub's
    token_page: str = ""  # where tokens are made
    busy: str = ""  # the running work in words; empty for none
    source: TokenSource | None = None  # where the token was found; None without one
    name: str = ""  # the account that the hub names for the token; empty until the hub was asked
    problem: str = ""  # the last error


class HubAccount(QObject):
    """Asks the keychain and the hub on a thread. Lives on the main thread.

    The hub is asked only when the person gives a token, or asks whose it is.

    Attributes:
        status: Facts about the token in use.
    """

    changed = Signal()
    accepted = Signal()  # the hub knows the token that was just given

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self._work = BackgroundWork("hub account", self)
        self.status = AccountStatus()

    def look(self) -> None:
        """Find out which token is in use; the keychain may ask the person."""
        self._do("Looking for the token…", self._found)

    def check(self) -> None:
        """Ask the hub whose token is in use."""
        self._do("Asking {host}…", self._named)

    def give(self, text: str) -> None:
        """Have the hub check a token, and keep it; emits `accepted` if the hub knows the token."""
        self._do("Asking {host}…", lambda endpoint: self._given(endpoint, text), gives=True)

    def forget(self) -> None:
        """Forget the token that was given for this hub."""
        self._do("Forgetting the token…", self._forgotten)

    def close(self) -> None:
        """Wait for nothing: a keychain may ask the person for long."""
        self._work.close(0.2)

    def _do(self, busy: str, work: Callable[[Endpoint], AccountStatus], *, gives: bool = False) -> None:
        """Run work on the thread, unless other work runs or `HF_ENDPOINT` is no address."""
        if self.status.busy:
            return
        try:
            endpoint = find_endpoint()
        except RdchatError as error:
            self._set(replace(self.status, problem=str(error)))
            return
        host, words = endpoint.host, busy.format(host=endpoint.host)
        self._set(replace(self.status, host=host, token_page=endpoint.token_page, busy=words, problem=""))
        self._work.do(lambda: work(endpoint), lambda outcome: self._end(outcome, gives))

    def _end(self, outcome: AccountStatus | RdchatError, gives: bool) -> None:
        if isinstance(outcome, RdchatError):
            outcome = replace(self.status, busy="", problem=str(outcome))
        self._set(outcome)
        if gives and not self.status.problem:
            self.accepted.emit()

    def _set(self, status: AccountStatus) -> None:
        self.status = status
        self.changed.emit()

    # On the thread

    def _found(self, endpoint: Endpoint) -> AccountStatus:
        before, found, problem = self.status, None, ""
        try:
            found = self._tokens.found(endpoint, again=True)
        except RdchatError as error:
            problem = str(error)
        source = found.source if found else None
        name = before.name if source is before.source else ""
        return replace(before, busy="", source=source, name=name, problem=problem)

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
