"""The hub's token: finds the one in use, checks and keeps another one, and forgets it."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import Endpoint, Token, Tokens, TokenSource, find_endpoint
from rdchat.hub.hub_errors import AccessRefusedError
from rdchat.services.models.model_service import ModelService


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """Facts about the token; never the token itself.

    Attributes:
        host: The hub's host.
        token_page: Where tokens are made.
        busy: The running work, for people; empty for none.
        source: Where the token was found; None without one.
        name: The account that the hub names for the token; empty until the hub was asked.
        problem: The last error.
    """

    host: str = ""
    token_page: str = ""
    busy: str = ""
    source: TokenSource | None = None
    name: str = ""
    problem: str = ""


class HubAccount(ModelService):
    """Asks the keychain; asks the hub only when the person gives a token, or asks whose it is.

    Attributes:
        status: Facts about the token in use.
        accepted: Emitted when the hub knows the token that was just given.
    """

    accepted = Signal()
    close_s = 0.2  # a keychain may ask the person for long

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self.status = AccountStatus()

    def look(self) -> None:
        """Find out which token is in use; the keychain may ask the person."""
        self._do("Reading the token…", self._read_status)

    def check(self) -> None:
        """Ask the hub whose token is in use."""
        self._do("Asking {host}…", self._named)

    def give(self, text: str) -> None:
        """Have the hub check a token, and keep it; emits `accepted` if the hub knows the token."""
        self._do("Asking {host}…", lambda endpoint: self._given(endpoint, text), gives=True)

    def forget(self) -> None:
        """Forget the token that was given for this hub."""
        self._do("Forgetting the token…", self._forgotten)

    def _do(self, busy: str, work: Callable[[Endpoint], AccountStatus], *, gives: bool = False) -> None:
        """Run work on the thread, unless other work runs or `HF_ENDPOINT` is no address."""
        if self.status.busy:
            return
        try:
            endpoint = find_endpoint()
        except RdchatError as error:
            self._set(replace(self.status, problem=str(error)))
            return
        host, activity = endpoint.host, busy.format(host=endpoint.host)
        self._set(replace(self.status, host=host, token_page=endpoint.token_page, busy=activity, problem=""))
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

    def _read_status(self, endpoint: Endpoint) -> AccountStatus:
        token_in_use = self._tokens.find(endpoint, again=True)
        source = token_in_use.source if token_in_use else None
        return replace(
            self.status, busy="", source=source, name=self.status.name if source is self.status.source else ""
        )

    def _named(self, endpoint: Endpoint) -> AccountStatus:
        status, token_in_use = self._read_status(endpoint), self._tokens.find(endpoint)
        return replace(status, name=_account_of(endpoint, token_in_use)) if token_in_use else status

    def _given(self, endpoint: Endpoint, text: str) -> AccountStatus:
        token = Token(text.strip())
        name = _account_of(endpoint, token)
        self._tokens.remember(token, endpoint)
        return replace(self._read_status(endpoint), name=name)

    def _forgotten(self, endpoint: Endpoint) -> AccountStatus:
        self._tokens.forget(endpoint)
        return self._read_status(endpoint)


def _account_of(endpoint: Endpoint, token: Token) -> str:
    """Ask the hub whose token this is."""
    from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  slow to import

    try:
        return HubApi(replace(endpoint, token=token)).account()
    except AccessRefusedError as error:
        hint = "Copy it again, or create a new one."
        raise RdchatError(f"{endpoint.host} does not know this token.", hint) from error
    except RdchatError as error:
        raise RdchatError(f"The token could not be checked. {error}") from error
