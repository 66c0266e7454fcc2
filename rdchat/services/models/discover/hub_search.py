"""Searches the hub on a thread. A pause in typing starts a search; answers to earlier ones are dropped."""

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import Route, find_endpoint, find_route
from rdchat.hub.found_models import FoundModel, SortBy
from rdchat.hub.tokens import Tokens
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.models.discover.hub_trouble import HubTrouble, trouble_of

STEPS = (60, 200, 500)  # results asked for, one number after the other
_TYPING_MS = 300  # a pause in typing asks; not every letter
_SECOND_MS = 1000
_END_S = 0.5  # wait for a running request when the window closes


@dataclass(frozen=True, slots=True)
class HubQuery:
    """A search."""

    words: str = ""  # of models' names; empty for no search
    sort: SortBy = "downloads"  # the order
    gguf: bool = False  # whether it is for GGUF files instead of MLX models


@dataclass(frozen=True, slots=True)
class SearchState:
    """The results of a search so far."""

    query: HubQuery = HubQuery()
    found: tuple[FoundModel, ...] = ()  # in the hub's order
    asking: bool = False  # whether the hub is being asked
    complete: bool = True  # whether no more is asked for
    trouble: HubTrouble | None = None  # why the last request failed
    wait_s: int = 0  # seconds until the hub is asked again by itself; 0 if it is not


class HubSearch(QObject):
    """Runs one search at a time. Lives on the main thread.

    Args:
        tokens: The person's tokens.
        parent: The Qt parent.

    Attributes:
        state: The results so far.
        route: The way to the hub at the last request; None before the first.
    """

    changed = Signal()

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self.state = SearchState()
        self.route: Route | None = None
        self._step = 0
        self._typing = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self._typing.timeout.connect(self._ask)
        self._waiting = QTimer(self, interval=_SECOND_MS)
        self._waiting.timeout.connect(self._count_down)
        self._task = BackgroundWork("search of the hub", self)

    def search(self, query: HubQuery, *, at_once: bool = False) -> None:
        """Start another search; `changed` follows, now and with every result.

        Args:
            query: The search.
            at_once: Whether not to wait for a pause in typing.
        """
        if query == self.state.query and not at_once:
            return
        self._task.forget()
        self._waiting.stop()
        self._step = 0
        empty = not query.words.strip()
        self._set(SearchState(query, asking=not empty, complete=empty))
        self._typing.stop()
        if at_once and not empty:
            self._ask()
        elif not empty:
            self._typing.start()

    def more(self) -> None:
        """Ask for more of the same, if there is more and nothing is in the way."""
        state = self.state
        if not (state.asking or state.complete or state.trouble):
            self._step += 1
            self._set(replace(state, asking=True))
            self._ask()

    def retry(self) -> None:
        """Ask again after a failure."""
        if self.state.trouble is not None:
            self._waiting.stop()
            self._set(replace(self.state, asking=True, trouble=None, wait_s=0))
            self._ask()

    def close(self) -> None:
        """Ask nothing more."""
        self._typing.stop()
        self._waiting.stop()
        self._task.close(_END_S)

    def _ask(self) -> None:
        query, limit = self.state.query, STEPS[self._step]
        self._task.replace(lambda _job: self._found(query, limit), self._take, failed=self._fail)

    def _found(self, query: HubQuery, limit: int) -> tuple[FoundModel, ...]:
        """Ask the hub; not on the main thread."""
        from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  its client takes longer to import than the window

        endpoint = find_endpoint()
        self.route = find_route(endpoint)  # known also where the hub does not answer
        api = HubApi(self._tokens.access(endpoint))
        return api.search(query.words.strip(), sort=query.sort, limit=limit, gguf_only=query.gguf)

    def _take(self, answer: tuple[FoundModel, ...]) -> None:
        before = self.state.found
        known = {model.repository for model in before}
        found = (*before, *(model for model in answer if model.repository not in known))
        limit = STEPS[self._step]
        complete = len(answer) < limit or limit == STEPS[-1]
        self._set(replace(self.state, found=found, asking=False, complete=complete))

    def _fail(self, error: RdchatError) -> None:
        trouble = trouble_of(error, self.route)
        wait = int(trouble.wait_s + 1) if trouble.wait_s is not None else 0
        self._set(replace(self.state, asking=False, trouble=trouble, wait_s=wait))
        if wait:
            self._waiting.start()

    def _count_down(self) -> None:
        left = self.state.wait_s - 1
        if left <= 0:
            self.retry()
        else:
            self._set(replace(self.state, wait_s=left))

    def _set(self, state: SearchState) -> None:
        self.state = state
        self.changed.emit()
