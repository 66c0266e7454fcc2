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
    """The shown model, as far as it is known."""

    repository: str  # the hub id
    page: str = ""  # the address of its page
    facts: FoundModel | None = None  # of a search, then of the model itself; None until one is known
    files: RepositoryFiles | None = None  # to fetch; None until they are known, and where nothing can be fetched
    problem: str = ""  # why nothing can be fetched
    hint: str = ""  # what to do about it
    ggufs: tuple[HubFile, ...] = ()  # to choose one of, smallest first; empty where there is no choice
    gguf: str = ""  # the chosen one
    here: bool = False  # whether all of `files` is on this machine
    older_here: bool = False  # whether another version of it is
    loads: str = ""  # what loads it: the hub id, or the path of the GGUF file; empty until that is known
    asking: bool = True  # whether the hub is asked for facts and files
    trouble: HubTrouble | None = None  # why it did not answer
    card: str | None = None  # plain text; None until it is known, empty where there is none
    card_trouble: HubTrouble | None = None  # why the card was not answered
    at_hub: HubModel | None = None  # the hub's answer


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
        """Choose another GGUF file."""
        if self.model is not None and gguf != self.model.gguf:
            self._look_at_files(self.model, gguf)

    def look_again(self) -> None:
        """Look again whether the model is on this machine."""
        if self.model is not None:
            self._look_at_files(self.model, self.model.gguf)

    def _look_at_files(self, model: ModelDetails, gguf: str) -> None:
        if model.at_hub is not None:
            self._facts_task.replace(lambda _job: _with_files(model, gguf), self._take, failed=self._fail)

    def close(self) -> None:
        """Ask nothing more."""
        self._facts_task.close(_END_S)
        self._card_task.close(_END_S)

    def _looked_at(self, repository: str) -> ModelDetails:
        """Ask the hub, and look on the disk; not on the main thread."""
        from rdchat.hub.hub_api import HubApi  # noqa: PLC0415  its client takes longer to import than the window

        endpoint = find_endpoint()
        self._route = find_route(endpoint)  # known also where the hub does not answer
        found = HubApi(self._tokens.access(endpoint)).look_at(repository)
        return _with_files(ModelDetails(repository, endpoint.page(repository), found.facts, asking=False, at_hub=found))

    @Slot(object)
    def _take(self, details: ModelDetails) -> None:
        before = self.model
        if before is not None:
            details = replace(details, card=before.card, card_trouble=before.card_trouble)
        self._set(details)
        if (before is None or before.at_hub is None) and details.at_hub is not None:
            repository, commit = details.repository, details.at_hub.commit
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


def _with_files(details: ModelDetails, gguf: str = "") -> ModelDetails:
    """Return details with the files to fetch, and whether they are here; reads the disk.

    Args:
        details: With the hub's answer.
        gguf: The GGUF file to take; empty for the smallest one, where the repository holds nothing else.
    """
    at_hub = details.at_hub
    assert at_hub is not None
    ggufs = readable_ggufs(at_hub.files)
    if any(file.name.endswith(".safetensors") for file in at_hub.files):
        ggufs = ()
    gguf = gguf or (ggufs[0].name if ggufs else "")
    try:
        files, left_out = chosen_files(at_hub.files, gguf)
    except HubError as error:
        return replace(details, problem=error.message, hint=error.hint, ggufs=ggufs, gguf=gguf)
    fetched = RepositoryFiles(details.repository, "main", at_hub.commit, files, left_out)
    place = repository_of(details.repository)
    here = is_snapshot(place, fetched)
    older = not here and place.commit_of("main") not in {"", at_hub.commit}
    loads = str(place.snapshots / at_hub.commit / gguf) if gguf else details.repository
    details = replace(details, files=fetched, ggufs=ggufs, gguf=gguf, problem="", hint="")
    return replace(details, here=here, older_here=older, loads=loads)
