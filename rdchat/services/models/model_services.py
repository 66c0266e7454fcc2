"""Builds the services of the models window, and closes them."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

from PySide6.QtCore import QObject

from rdchat.hub import HubModel, PublishedKind, Tokens, downloaded_repositories, drafter_for
from rdchat.hub.downloads.download import DownloadState
from rdchat.inference.api import ModelCard
from rdchat.services.background_work import FolderSearch
from rdchat.services.models.deletion_and_verification import RemovalQuestion
from rdchat.services.models.downloads import LIMITS, Downloads, HubAccount
from rdchat.services.models.fit import Machine, Model
from rdchat.services.models.hub_search import HubDetails, HubSearch
from rdchat.services.models.library import HubDrafters, Library, PartSearch
from rdchat.services.models.macs import Macs
from rdchat.services.models.model_sources import DeviceMemory, ModelSources
from rdchat.services.models.removal import Removal, Verification
from rdchat.services.models.threaded_service import ModelService
from rdchat.services.models.training_control import TrainingControl
from rdchat.services.window.chat_controller import ChatController


class Models(QObject):
    """The models window's services; built when the window is first asked for. Lives on the main thread.

    Args:
        controller: Has the loaded model, the settings, the drafters and the remote servers.
        sources: Read models.
        parent: The Qt parent.
        memory: This machine's memory; None makes one.

    Attributes:
        here: Finds the hub ids of the models on this machine.
        problem: Returns why a dropped model cannot be loaded, empty if it can. Called on a thread.
    """

    def __init__(
        self,
        controller: ChatController,
        sources: ModelSources,
        parent: QObject | None = None,
        *,
        memory: DeviceMemory | None = None,
    ) -> None:
        super().__init__(parent)
        slot = controller.model_slot
        self.slot = slot
        self.status = controller.status
        settings = controller.settings
        self.remote = controller.remote
        self.problem = sources.problem
        self.tokens = Tokens()
        self.account = HubAccount(self.tokens, self)
        limits = replace(LIMITS, at_once=settings.values.downloads_at_once)
        self.downloads = Downloads(self.tokens, limits, self)
        self.account.accepted.connect(self.downloads.retry_refused)
        settings.changed.connect(lambda values: self.downloads.set_at_once(values.downloads_at_once))
        self.library = Library(sources, controller, self)
        self.verification = Verification(self.tokens, self)
        self.removal = Removal(parent=self)
        self.search = HubSearch(self.tokens, self)
        self.details = HubDetails(self.tokens, self)
        self.memory = memory or DeviceMemory(sources.memory, self)
        for happened in (slot.loaded, slot.failed, slot.unloaded):
            happened.connect(self.memory.ask_again)
        self.here = FolderSearch(downloaded_repositories, self)
        self.removal.removed.connect(self._on_removed)
        # Deletes the model that is being unloaded, once that is done.
        self._after_unload: Callable[[], None] | None = None
        slot.unloaded.connect(self._on_unloaded)
        slot.failed.connect(self._on_load_failed)
        self.hub_drafters = HubDrafters(self.tokens, self)
        self.parts = PartSearch(self.tokens, sources.original_parts, self.downloads, self)
        for changed in (self.downloads.finished, self.downloads.removed, self.removal.restored):
            changed.connect(self.library.look_for_all)
        self.training = TrainingControl(self)
        for changed in (slot.engine.request_accepted, slot.engine.request_ended):
            changed.connect(lambda: self.training.hold(slot.engine.writing))  # It waits for replies.
        self.macs = Macs(settings)
        self.downloads.restore_downloads()

    @property
    def machine(self) -> Machine | None:
        """This machine's memory and precision; None before the engine has started."""
        memory = self.memory.now
        return None if memory is None else Machine(memory, self.slot.dtype)

    def installed(self, card: ModelCard) -> Model:
        """Return the model of files on this machine; an unfinished one with its download, if that is listed."""
        unfinished = card.is_unfinished
        name = card.repository or str(card.path)
        download = self.downloads.find_download(name, card.revision) if unfinished else None
        is_model = not card.is_drafter
        return Model(name, card, None, download, is_installed=not unfinished, is_model=is_model)

    @property
    def drafters(self) -> tuple[Model, ...]:
        """The drafters on this machine for the chosen model."""
        cards = self.library.fitting if self.library.chosen is not None else ()
        return tuple(Model(card.model, card, is_installed=True, drafts=True, is_model=False) for card in cards)

    @property
    def published(self) -> tuple[Model, ...]:
        """The drafters that the hub has for the chosen model: the suggested one, then what a search found."""
        matches = self.hub_drafters.results if self.was_searched else ()
        here = self.library.here
        # The hub's answer about the suggested one replaces that of the list.
        results = {each.repository: each for each in (*self._suggested, *matches)}.values()
        models = (Model(each.repository, hub=each, drafts=True, is_model=each.is_smaller_model) for each in results)
        return tuple(self.with_download(replace(model, is_installed=model.id in here)) for model in models)

    @property
    def _suggested(self) -> tuple[HubModel, ...]:
        """The drafter that is suggested for the chosen model, if it is not here."""
        drafter = drafter_for(self.library.chosen.name) if self.library.chosen is not None else None
        if drafter is None or drafter.repository in self.library.here:
            return ()
        kind = next((kind for kind in PublishedKind if drafter.kind.startswith(kind.value)), PublishedKind.MODEL)
        return (HubModel(drafter.repository, licence=drafter.licence, kind=kind, download_bytes=drafter.weight_bytes),)

    @property
    def was_searched(self) -> bool:
        """Whether the hub was asked for drafters of the chosen model."""
        chosen = self.library.chosen
        return chosen is not None and self.hub_drafters.model == chosen.name

    def with_download(self, model: Model) -> Model:
        """Return a model of the hub with its download; it is installed if that is complete."""
        download = self.downloads.find_download(model.id)
        is_downloaded = download is not None and download.state is DownloadState.FINISHED
        if download is not None and is_downloaded and not Path(download.folder).is_dir():
            # Another program deleted it.
            download = None
            is_downloaded = False
        # Of a pair (`Download.companion`), the model is here first; the pair counts once its drafter is here too.
        is_here = model.is_installed and (download is None or not download.companion)
        return replace(model, download=download, is_installed=is_here or is_downloaded)

    def delete(self, question: RemovalQuestion, ask_again: Callable[[RemovalQuestion], object]) -> None:
        """Delete a model or a drafter. A loaded model is unloaded first; a drafter in use is no longer used.

        Args:
            question: Its answer was yes.
            ask_again: Called with another question if there is no Trash for the model.
        """
        remove = partial(self.removal.delete_model, question, ask_again)
        if self.library.is_in_use(question.model):
            self._after_unload = remove
            self.slot.unload_model()
            return
        self.library.let_go(question.model)
        remove()

    def end_services(self) -> None:
        """End all work; running downloads are resumed at the next start."""
        self.downloads.end_process()
        self.training.save_and_end()
        for service in self.findChildren(ModelService):
            service.drop_requests()
        self.here.finish_work()
        self.macs.end_checks()
        self.memory.finish_work()

    def _on_unloaded(self) -> None:
        remove = self._after_unload
        self._after_unload = None
        if remove is not None:
            remove()

    def _on_load_failed(self) -> None:
        """Delete nothing after all: the slot failed instead of unloading the model."""
        self._after_unload = None

    def _on_removed(self, question: RemovalQuestion) -> None:
        model = question.model
        self.downloads.forget_deleted(model.path, model.repository if question.plan.unfinished else "")
        self.library.hide_model(model)
        self.library.look_for_all()
