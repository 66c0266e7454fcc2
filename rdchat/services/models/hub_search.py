"""Searches the hub as the person types, filters the results, and fetches the details of one model, with its card.

`HubSearch` and `HubDetails` live on the main thread; each asks the hub on a thread of its own, and emits `changed`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer

from rdchat.errors import RdchatError
from rdchat.hub import (
    HubError,
    HubModel,
    RepositoryFiles,
    SortBy,
    Tokens,
    chosen_files,
    find_endpoint,
    for_window,
    repository_of,
)
from rdchat.inference.api import Fit
from rdchat.services.models.card_text import plain_card
from rdchat.services.models.fit import Machine, pair_bytes, sizes_read
from rdchat.services.models.threaded_service import ModelService
from rdchat.work import Job

# A search asks for so many results first, and for more each time that the person wants more.
STEPS = (60, 200, 500)
# A search starts after a pause in typing, not with every letter.
_TYPING_MS = 300


@dataclass(frozen=True, slots=True)
class HubQuery:
    """A search.

    Attributes:
        text: Words in models' names; empty for no search.
        sort: The order of the results.
    """

    text: str = ""
    sort: SortBy = "downloads"


@dataclass(frozen=True, slots=True)
class SearchState:
    """The results of a search so far.

    Attributes:
        results: The models, in the hub's order.
        asking: Whether the hub is being asked.
        complete: Whether no more is asked for.
        trouble: Why the last request failed.
    """

    query: HubQuery = HubQuery()
    results: tuple[HubModel, ...] = ()
    asking: bool = False
    complete: bool = True
    trouble: HubError | None = None


class HubSearch(ModelService):
    """Runs one search at a time.

    Attributes:
        state: The results so far.
    """

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(tokens, parent)
        self.state = SearchState()
        # Index in `STEPS` of the number of results that is asked for.
        self._step_index = 0
        self._typing = QTimer(self, singleShot=True)
        self._typing.timeout.connect(self._ask)

    def search(self, query: HubQuery, *, at_once: bool = False) -> None:
        """Start another search; `changed` follows, now and with every result.

        Args:
            query: The search.
            at_once: Whether not to wait for a pause in typing; the same search is then done again, too.
        """
        if query == self.state.query and not at_once:
            return
        self._work.drop_jobs()
        self._step_index = 0
        is_empty = not query.text.strip()
        self._set(SearchState(query, asking=not is_empty, complete=is_empty))
        self._typing.stop()
        if not is_empty:
            self._typing.start(0 if at_once else _TYPING_MS)

    def more(self) -> None:
        """Ask for more results, unless there are none, the hub is being asked, or the last request failed."""
        state = self.state
        if not (state.asking or state.complete or state.trouble):
            self._step_index += 1
            self._set(replace(state, asking=True))
            self._ask()

    def retry(self) -> None:
        """Ask again after a failure."""
        if self.state.trouble is not None:
            self._set(replace(self.state, asking=True, trouble=None))
            self._ask()

    def _ask(self) -> None:
        query = self.state.query
        limit = STEPS[self._step_index]
        self._work.replace(
            lambda _job: self._hub().search_models(query.text.strip(), sort=query.sort, limit=limit),
            self._take,
            failed=self._fail,
        )

    def _take(self, answer: tuple[HubModel, ...]) -> None:
        # The answer begins with the results that are visible; they keep their order, though the hub's may have changed.
        before = self.state.results
        known = {model.repository for model in before}
        results = (*before, *(model for model in answer if model.repository not in known))
        limit = STEPS[self._step_index]
        complete = len(answer) < limit or limit == STEPS[-1]
        self._set(replace(self.state, results=results, asking=False, complete=complete))

    def _fail(self, error: RdchatError) -> None:
        self._set(replace(self.state, asking=False, trouble=for_window(error)))

    def _set(self, state: SearchState) -> None:
        self.state = state
        self.changed.emit()


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """Required properties. A model whose value is unknown does not pass.

    Attributes:
        max_bytes: Largest size of the weights; None for any size.
        quantization: The quantisation as the hub names it; empty for any.
        fitting: Whether it must fit this machine.
    """

    max_bytes: int | None = None
    quantization: str = ""
    licence: str = ""
    family: str = ""
    fitting: bool = False

    def accepts(self, model: HubModel, machine: Machine | None) -> bool:
        """Return whether a model passes."""
        required = (self.quantization, self.licence, self.family)
        if any(name and name != actual for name, actual in zip(required, _names(model), strict=True)):
            return False
        if self.max_bytes is not None and (model.weight_bytes is None or model.weight_bytes > self.max_bytes):
            return False
        fit = machine.fit(sizes_read(model), pair_bytes(model.repository)) if machine is not None else None
        return not self.fitting or fit in {Fit.FITS, Fit.TIGHT}


def choices_among(results: Iterable[HubModel]) -> tuple[list[str], ...]:
    """Return three lists, the quantisations, licences and families of models, each with the most frequent first."""
    counters = (Counter[str](), Counter[str](), Counter[str]())
    for model in results:
        for counter, name in zip(counters, _names(model), strict=True):
            counter[name] += 1
    return tuple(sorted(filter(None, counter), key=lambda name: (-counter[name], name)) for counter in counters)


def _names(model: HubModel) -> tuple[str, str, str]:
    """Return what can be filtered by: quantisation, licence and family."""
    return model.quantization, model.licence, model.family


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """The model whose details are visible, as far as they are known.

    Attributes:
        repository: The hub id.
        page: The address of its page.
        hub: The hub's description, from a search, then with its files; None until it is known.
        files: To fetch; None until they are known, and where nothing can be fetched.
        problem: Why nothing can be fetched, and what to do about it.
        here: Whether all of `files` is on this machine.
        older_here: Whether another version of it is.
        trouble: Why the hub did not answer.
        card: Its model card as plain text; None until it is known, empty where there is none.
        card_trouble: Why the card could not be read.
    """

    repository: str
    page: str = ""
    hub: HubModel | None = None
    files: RepositoryFiles | None = None
    problem: str = ""
    here: bool = False
    older_here: bool = False
    trouble: HubError | None = None
    card: str | None = None
    card_trouble: HubError | None = None

    @property
    def is_listed(self) -> bool:
        """Whether the hub has listed its files; a search's description has no commit."""
        return self.hub is not None and bool(self.hub.commit)


class HubDetails(ModelService):
    """Fetches one model at a time.

    Attributes:
        model: The model whose details are visible; None for none.
    """

    model: ModelDetails | None = None

    def show_model(self, repository: str, hub: HubModel | None = None) -> None:
        """Fetch a model; `changed` follows, now and whenever more is known.

        Args:
            repository: The hub id.
            hub: The search's description of it.
        """
        model = ModelDetails(repository, hub=hub)
        self._set(model)
        self._fetch(model)

    def retry(self) -> None:
        """Fetch the model again."""
        if self.model is not None:
            self.show_model(self.model.repository, self.model.hub)

    def look_again(self) -> None:
        """Look again whether the model is on this machine."""
        if self.model is not None and self.model.is_listed:
            self._fetch(self.model)

    def _fetch(self, model: ModelDetails) -> None:
        """Fetch the details that are missing, and look again for the files on this machine."""
        self._work.replace(lambda job: self._fetched(job, model), self._set, failed=self._fail, on_progress=self._set)

    def _fetched(self, job: Job[ModelDetails], model: ModelDetails) -> ModelDetails:
        """Fetch what is missing; not on the main thread. A card that was read before is not asked for again.

        The order: facts and files from the hub, what is on the disk, a report of that, and then the card.
        """
        api = self._hub()
        if (hub := model.hub) is None or not model.is_listed:
            hub = api.look_at(model.repository)
            model = replace(model, page=find_endpoint().page(model.repository), hub=hub)
        model = _with_files(model, hub)
        if model.card is not None:
            return model
        job.report_progress(model)
        try:
            return replace(model, card=plain_card(api.card(model.repository, hub.commit)), card_trouble=None)
        except RdchatError as error:
            return replace(model, card_trouble=for_window(error))

    def _fail(self, error: RdchatError) -> None:
        if self.model is not None:
            trouble = for_window(error)
            self._set(replace(self.model, trouble=trouble, page=trouble.page))

    def _set(self, model: ModelDetails) -> None:
        self.model = model
        self.changed.emit()


def _with_files(details: ModelDetails, hub: HubModel) -> ModelDetails:
    """Return details with the files to fetch, and whether they are here; reads the disk.

    Args:
        details: The model.
        hub: The hub's description, with its files.
    """
    try:
        files, left_out = chosen_files(hub.files, hub.packed)
    except HubError as error:
        return replace(details, problem=str(error))
    fetched = RepositoryFiles(details.repository, "main", hub.commit, files, left_out)
    cached = repository_of(details.repository)
    here = cached.holds(fetched)
    older = not here and cached.commit_of("main") not in {"", hub.commit}
    return replace(details, files=fetched, problem="", here=here, older_here=older)
