"""Searches the hub on a thread, and filters the results.

A pause in typing starts a search; answers to earlier ones are dropped.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer

from rdchat.errors import RdchatError
from rdchat.hub.endpoint import Tokens
from rdchat.hub.found_models import FoundModel, SortBy
from rdchat.hub.hub_errors import HubError, for_window
from rdchat.inference.api.model_facts import Fit
from rdchat.services.models.discover.fit import Machine, sizes_found
from rdchat.services.models.model_service import ModelService

STEPS = (60, 200, 500)  # results asked for, one number after the other
_TYPING_MS = 300  # a pause in typing asks; not every letter


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
    trouble: HubError | None = None  # why the last request failed


class HubSearch(ModelService):
    """Runs one search at a time.

    Attributes:
        state: The results so far.
    """

    close_s = 0.5

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self.state = SearchState()
        self._step = 0  # index into `STEPS`
        self._typing = QTimer(self, singleShot=True)
        self._typing.timeout.connect(self._ask)

    def search(self, query: HubQuery, *, at_once: bool = False) -> None:
        """Start another search; `changed` follows, now and with every result.

        Args:
            query: The search.
            at_once: Whether not to wait for a pause in typing.
        """
        if query == self.state.query and not at_once:
            return
        self._work.forget()
        self._step = 0
        empty = not query.words.strip()
        self._set(SearchState(query, asking=not empty, complete=empty))
        self._typing.stop()
        if not empty:
            self._typing.start(0 if at_once else _TYPING_MS)

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
            self._set(replace(self.state, asking=True, trouble=None))
            self._ask()

    def _ask(self) -> None:
        query, limit = self.state.query, STEPS[self._step]
        words, sort, gguf = query.words.strip(), query.sort, query.gguf
        self._work.replace(
            lambda _job: self._hub().search(words, sort=sort, limit=limit, gguf_only=gguf),
            self._take,
            failed=self._fail,
        )

    def _take(self, answer: tuple[FoundModel, ...]) -> None:
        before = self.state.found
        known = {model.repository for model in before}
        found = (*before, *(model for model in answer if model.repository not in known))
        limit = STEPS[self._step]
        complete = len(answer) < limit or limit == STEPS[-1]
        self._set(replace(self.state, found=found, asking=False, complete=complete))

    def _fail(self, error: RdchatError) -> None:
        self._set(replace(self.state, asking=False, trouble=for_window(error)))

    def _set(self, state: SearchState) -> None:
        self.state = state
        self.changed.emit()


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """Required properties. A model whose value is unknown does not pass."""

    most_bytes: int | None = None  # of its weights; None for any size
    quantization: str = ""  # as the hub names it; empty for any
    licence: str = ""
    family: str = ""
    fitting: bool = False  # whether it must fit this machine

    def wanted(self, model: FoundModel, machine: Machine | None) -> bool:
        """Return whether a model passes."""
        wanted = (self.quantization, self.licence, self.family)
        if any(name and name != has for name, has in zip(wanted, _names(model), strict=True)):
            return False
        if self.most_bytes is not None and (model.weight_bytes is None or model.weight_bytes > self.most_bytes):
            return False
        return not self.fitting or (machine is not None and machine.fit(sizes_found(model)) in {Fit.FITS, Fit.TIGHT})


def choices_among(found: Iterable[FoundModel]) -> tuple[list[str], ...]:
    """Return the quantisations, licences and families of models, the most frequent first."""
    counters = [Counter(filter(None, names)) for names in zip(*map(_names, found), strict=True)] or [Counter()] * 3
    return tuple(sorted(counter, key=lambda name: (-counter[name], name)) for counter in counters)


def _names(model: FoundModel) -> tuple[str, str, str]:
    return model.quantization, model.licence, model.family
