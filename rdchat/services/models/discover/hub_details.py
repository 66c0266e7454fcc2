"""Details of one model of the hub, fetched on a thread: its facts and files, then its card."""

from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.errors import RdchatError
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.downloads.snapshot import is_snapshot
from rdchat.hub.endpoint import Route, find_endpoint, find_route
from rdchat.hub.found_models import FoundModel, HubModel
from rdchat.hub.hub_errors import HubError
from rdchat.hub.known_files import HubFile, RepositoryFiles, chosen_files, readable_ggufs
from rdchat.hub.tokens import Tokens
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.models.discover.card_text import plain_card
from rdchat.services.models.discover.hub_trouble import HubTrouble, trouble_of

_END_S = 0.5  # in which a question under way may end: a hub may take its time


@dataclass(frozen=True, slots=True)
class ModelDetails:
    """What is known of a model so far.

    Attributes:
        repository: The hub id.
        page: Its page.
        facts: What the hub tells of it; None until that is known.
        files: What would be fetched; None until that is known, or where nothing can be.
        problem, hint: Why nothing can be fetched, and what to do.
        ggufs: The GGUF files to choose one of, smallest first; none where there is nothing to choose.
        gguf: The chosen one.
        here: Whether all of `files` is on this machine.
        older_here: Whether another version of it is.
        loads: What the model slot takes for it: the hub id, or the path of the GGUF file; empty until that is known.
        asking: The hub is asked for facts and files.
        trouble: Why that was not answered.
        card: Its text, plain; None until it is known; empty where there is none.
        card_trouble: Why the card was not answered.
    """

    repository: str
    page: str = ""
    facts: FoundModel | None = None
    files: RepositoryFiles | None = None
    problem: str = ""
    hint: str = ""
    ggufs: tuple[HubFile, ...] = ()
    gguf: str = ""
    here: bool = False
    older_here: bool = False
    loads: str = ""
    asking: bool = True
    trouble: HubTrouble | None = None
    card: str | None = None
    card_trouble: HubTrouble | None = None


class HubDetails(QObject):
    """Looks at one model at a time. Lives on the main thread.

    Args:
        tokens: Where the person's tokens are found.
        parent: The Qt parent.

    Attributes:
        model: What is looked at; None where nothing is.
    """

    changed = Signal()

    def __init__(self, tokens: Tokens, parent: QObject | None = None) -> None:
        super().__init__(parent)
        self._tokens = tokens
        self._route: Route | None = None
        self._hub_model: HubModel | None = None
        self.model: ModelDetails | None = None
        self._facts_task = BackgroundWork("a model of the hub", self)
        self._card_task = BackgroundWork("a model's card", self)

    def show(self, repository: str, facts: FoundModel | None = None) -> None:
        """Look at a model; `changed` follows, now and whenever more is known.

        Args:
            repository: The hub id.
            facts: What a search told of it.
        """
        self._card_task.forget()
        self._hub_model = None
        self._set(ModelDetails(repository, facts=facts))
        self._facts_task.replace(lambda _job: self._looked_at(repository), self._take, failed=self._fail)

    def retry(self) -> None:
        """Look at it once more."""
        if self.model is not None:
            self.show(self.model.repository, self.model.facts)

    def clear(self) -> None:
        """Look at nothing."""
        self._facts_task.forget()
        self._card_task.forget()
        self.model = None
        self.changed.emit()

    def choose(self, gguf: str) -> None:
        """Take another one of the GGUF files."""
        if self.model is not None and self._hub_model is not None and gguf != self.model.gguf:
            details, hub_model = self.model, self._hub_model
            self._facts_task.replace(
                lambda _job: (hub_model, _with_files(details, hub_model, gguf)), self._take, failed=self._fail
            )

    def look_again(self) -> None:
        """See anew whether the model is on this machine."""
        if self.model is not None and self._hub_model is not None:
            details, hub_model = self.model, self._hub_model
            self._facts_task.replace(
                lambda _job: (hub_model, _with_files(details, hub_model, details.gguf)), self._take, failed=self._fail
            )

    def close(self) -> None:
        """Ask nothing more."""
        self._facts_task.close(_END_S)
        self._card_task.close(_END_S)

    def _looked_at(self, repository: str) -> tuple[HubModel, ModelDetails]:
        """Ask the hub, and look on the disk; not on the main thread."""
        from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  its client takes longer to import than the window

        endpoint = find_endpoint()
        self._route = find_route(endpoint)  # known also where the hub does not answer
        found = HubApi(self._tokens.access(endpoint)).look_at(repository)
        details = ModelDetails(repository, endpoint.page(repository), found.facts, asking=False)
        return found, _with_files(details, found)

    @Slot(object)
    def _take(self, answer: tuple[HubModel, ModelDetails]) -> None:
        first = self._hub_model is None
        self._hub_model, details = answer
        if self.model is not None:
            details = replace(details, card=self.model.card, card_trouble=self.model.card_trouble)
        self._set(details)
        if first:
            repository, commit = details.repository, self._hub_model.commit
            self._card_task.replace(
                lambda _job: self._read_card(repository, commit), self._take_card, failed=self._fail_card
            )

    def _read_card(self, repository: str, commit: str) -> str:
        """Ask the hub for a card; not on the main thread."""
        from rdchat.hub.hub_api import HubApi  # noqa: PLC0415

        return plain_card(HubApi(self._tokens.access(find_endpoint())).card(repository, commit))

    @Slot(RdchatError)
    def _fail(self, error: RdchatError) -> None:
        if self.model is not None:
            trouble = trouble_of(error, self._route)
            self._set(replace(self.model, asking=False, trouble=trouble, page=trouble.page))

    @Slot(object)
    def _take_card(self, card: str) -> None:
        if self.model is not None:
            self._set(replace(self.model, card=card, card_trouble=None))

    @Slot(RdchatError)
    def _fail_card(self, error: RdchatError) -> None:
        if self.model is not None:
            self._set(replace(self.model, card_trouble=trouble_of(error, self._route)))

    def _set(self, model: ModelDetails) -> None:
        self.model = model
        self.changed.emit()


def _with_files(details: ModelDetails, hub_model: HubModel, gguf: str = "") -> ModelDetails:
    """Return what is known of a model with what would be fetched, and whether it is here; reads the disk.

    Args:
        details: What is known.
        hub_model: What the hub says.
        gguf: The GGUF file to take; empty for the smallest one, where a repository holds nothing else.
    """
    ggufs = readable_ggufs(hub_model.files)
    if any(file.name.endswith(".safetensors") for file in hub_model.files):
        ggufs = ()
    gguf = gguf or (ggufs[0].name if ggufs else "")
    try:
        files, left_out = chosen_files(hub_model.files, gguf)
    except HubError as error:
        return replace(details, problem=error.message, hint=error.hint, ggufs=ggufs, gguf=gguf)
    fetched = RepositoryFiles(details.repository, "main", hub_model.commit, files, left_out)
    place = repository_of(details.repository)
    here = is_snapshot(place, fetched)
    older = not here and place.commit_of("main") not in {"", hub_model.commit}
    loads = str(place.snapshots / hub_model.commit / gguf) if gguf else details.repository
    details = replace(details, files=fetched, ggufs=ggufs, gguf=gguf, problem="", hint="")
    return replace(details, here=here, older_here=older, loads=loads)
