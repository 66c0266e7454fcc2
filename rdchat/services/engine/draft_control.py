"""The draft settings of the loaded model, and when their changes take effect.

Draft settings say how a reply is drafted: the mode, the drafter or draft model, and sizes. Each model has its own; a
chat or its preset may have others, which then count in that chat. Lives on the main thread; the engine answers which
modes and drafters are possible (`FindDraftOptions`).
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.settings import ModelDraft
from rdchat.inference.api import (
    DrafterFit,
    DraftOptions,
    DraftSettings,
    LoadProgress,
    Mode,
    ModelCard,
    ModelInfo,
    ModeOption,
    ReplyEnd,
    not_prepared,
    ranked_model,
    remote_model,
)
from rdchat.services.background_work import FolderSearch
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.engine.engine_request import EngineEvent, EngineRequest, Failure, FindDraftOptions
from rdchat.services.storage_watch import SettingsControl

# Models whose draft settings are stored, and names in a list of recent ones.
_REMEMBERED_MODELS = 50
_RECENT = 8
# Time between two questions whether a mode is prepared.
_PREPARING_MS = 2000
# When a change takes effect.
NEXT_ROUND = "from the next step"
NEXT_REPLY = "from the next reply"


@dataclass(slots=True)
class _Running:
    """The reply under way.

    Attributes:
        begun: The settings that it began with.
        chat: Id of its chat; 0 for one that is not stored.
        own: The draft settings of its chat, or of that one's preset; None for those of the model.
    """

    request: EngineRequest
    begun: DraftSettings
    chat: int
    own: DraftSettings | None


class DraftControl(QObject):
    """Keeps one `DraftSettings` per model.

    Beams, draft tokens, the lookup branch and exact times change a running reply from its next round on; another mode,
    drafter or draft model waits for the next reply.

    Args:
        model: The loaded model.
        control: The app's settings.

    Attributes:
        settings: The draft settings of the open chat, or of its preset; otherwise those of the model.
        of_model: The loaded model's draft settings; the defaults if no model is loaded or it has none of its own.
        exact_times: Whether stages wait for their results, so that the time ledger is exact.
        checking: Whether the engine has been asked about another drafter or mode, and loads what that drafts with, or
            the model that wakes; while it writes a reply, the answer waits. One about the present drafter ends it.
        last_problem: Why the last reply was not drafted to its end although the mode asks for it.
    """

    # The settings, the options, or when they take effect.
    changed = Signal()
    exact_times_changed = Signal()
    # The person changed those of the open chat.
    own_changed = Signal(DraftSettings)

    def __init__(self, model: ModelSlot, control: SettingsControl) -> None:
        super().__init__(model)
        self.model = model
        self.control = control
        self.settings = DraftSettings()
        self.of_model = self.settings
        # The id of the open chat, and its draft settings or those of its preset; None for those of the model.
        self._chat: int | None = None
        self._own: DraftSettings | None = None
        # The engine's last answer, for the loaded model.
        self._options: dict[Mode, ModeOption] = {}
        self._running: _Running | None = None
        self.exact_times = False
        self.checking = False
        # The search for drafters on this machine; and the engine's last answer which of them fit the loaded model.
        self._search: FolderSearch | None = None
        self._fits: dict[str, DrafterFit] = {}
        self.last_problem = ""
        # Whether the last problem is that the mode is not prepared yet, which the engine does while it is idle; and the
        # timer for the next question whether that is done.
        self._waits = False
        self._asks_again = QTimer(self, singleShot=True, interval=_PREPARING_MS)
        self._asks_again.timeout.connect(self.refresh_options)
        model.engine.idle_worked.connect(self._on_idle_worked)
        model.engine.asleep_changed.connect(self._on_asleep_changed)
        for left in (model.load_started, model.failed, model.unload_started):
            left.connect(self._forget_options)
        model.loaded.connect(self._on_loaded)
        control.changed.connect(self.read_settings)

    @property
    def ready(self) -> bool:
        """Whether a model is loaded whose settings can be changed."""
        return self.model.info is not None and not self.is_remote

    @property
    def is_remote(self) -> bool:
        """Whether a remote server runs the loaded model, and drafts by its own settings."""
        return self.model.info is not None and bool(self.model.info.server)

    @property
    def reply_mode(self) -> Mode:
        """The mode of the reply under way; without one, of the next reply."""
        return (self._running.begun if self._running else self.settings).mode

    @property
    def applies(self) -> str:
        """When changes made since the open chat's reply under way began take effect; empty where there are none.

        The settings that a reply begins with also say `profile` and `trace` (`requested`), which are no such changes.
        """
        if self._running is None or self._running.chat != self._chat:
            return ""
        begun = self._running.begun
        now = self.settings
        if (begun.mode, begun.draft_model, begun.drafter) != (now.mode, now.draft_model, now.drafter):
            return NEXT_REPLY
        return "" if replace(begun, profile=False, trace=False) == now else NEXT_ROUND

    @property
    def recent_draft_models(self) -> tuple[str, ...]:
        """Draft models chosen before, and other models opened before, latest first."""
        settings = self.control.values
        own = self._model_name()
        named = [*(item.draft.draft_model for item in settings.drafts), *settings.recent_models]
        return _distinct(name for name in named if name != own and not (ranked_model(name) or remote_model(name)))

    @property
    def recent_drafters(self) -> tuple[str, ...]:
        """Drafters chosen before, folders or hub ids, latest first."""
        return _distinct(item.draft.drafter for item in self.control.values.drafts)

    def offer_drafters(self, search: FolderSearch) -> None:
        """Offer the drafters that a search finds on this machine."""
        self._search = search
        search.changed.connect(self.refresh_options)
        self.look_for_drafters()

    def look_for_drafters(self) -> None:
        """Search for drafters; `changed` follows when the engine has reported which ones fit the model."""
        if self._search is not None and self.model.info is not None:
            self._search.search_folders(self.model.info.path)

    @property
    def drafters(self) -> tuple[ModelCard, ...]:
        """The drafters on this machine that were checked, each with its `problem`.

        The engine checks whether a drafter fits the loaded model; one whose files are wrong needs no such check.
        """
        results = self._search.results if self._search is not None else ()
        checked = []
        for each in results:
            fit = self._fits.get(each.model)
            if fit is not None:
                checked.append(replace(each, problem=fit.problem, match=fit.match))
            elif each.problem:
                checked.append(each)
        return tuple(checked)

    @property
    def _candidates(self) -> tuple[str, ...]:
        """The drafters on this machine that the engine may check: their files are right."""
        return tuple(each.model for each in self._search.results if not each.problem) if self._search else ()

    def option(self, mode: Mode) -> ModeOption | None:
        """Return whether a mode can run; None before the engine has answered."""
        return self._options.get(mode)

    def problem(self, mode: Mode) -> str:
        """Return why a mode cannot run; empty where it can, or before the engine has answered."""
        option = self.option(mode)
        return option.reason if option is not None and not option.available else ""

    def read_settings(self) -> None:
        """Read the settings again, after another model was loaded or the app's settings were changed."""
        model = self._model_name()
        drafts = self.control.values.drafts
        self.of_model = next((each.draft for each in drafts if each.model == model), DraftSettings())
        self.settings = self._own or self.of_model

    def set_own(self, chat: int | None, settings: DraftSettings | None) -> None:
        """Take the id of the open chat, and its draft settings or those of its preset; None for those of the model."""
        if (chat, settings) != (self._chat, self._own):
            before = self.settings
            self._chat = chat
            self._own = settings
            self.read_settings()
            self._update_running()
            if _drafter_of(self.settings) != _drafter_of(before):
                self._check_options()
            self.changed.emit()

    def change(self, settings: DraftSettings) -> None:
        """Use these settings from now on, as far as a running reply allows.

        They are stored for the loaded model, or if the open chat has settings of its own, given to the chat
        (`own_changed`). The engine is asked again after another drafter, and after another mode.
        """
        settings = replace(settings, profile=False, trace=False)
        before = self.settings
        if not self.ready or settings == before:
            return
        model = self._model_name()
        others = tuple(item for item in self.control.values.drafts if item.model != model)
        self.last_problem = ""
        if self._own is None:
            drafts = (ModelDraft(model, settings), *others)[:_REMEMBERED_MODELS]
            self.control.change_values(drafts=drafts)
        else:
            # First `_own`: the chat takes the settings, and brings them back to `set_own`, which finds nothing new.
            self._own = settings
            self.own_changed.emit(settings)
        self.settings = settings
        self._update_running()
        if _drafter_of(settings) != _drafter_of(before) or settings.mode is not before.mode:
            self._check_options()
        self.changed.emit()

    def set_exact_times(self, exact: bool) -> None:
        """Choose exact times in the ledger or fast replies; from the next round on."""
        if exact != self.exact_times:
            self.exact_times = exact
            self._update_running()
            self.exact_times_changed.emit()

    def refresh_options(self, *, load: bool = False) -> None:
        """Ask the engine again, as a drafter may have been trained since. Its last answer holds until then.

        It only reads small files, unless it loads the drafter. During a reply it waits until that has ended.
        """
        if self.ready and self._running is None:
            settings = self.settings
            self.model.engine.submit(
                FindDraftOptions(settings, self._candidates, load), lambda event: self._on_options(settings, event)
            )

    def _check_options(self) -> None:
        """Ask the engine about a drafter or a mode that is another one than before, and have it loaded.

        During a reply the question waits for its end (`note_reply`), and the next reply loads the drafter.
        """
        if self.ready:
            self.checking = True
            self.refresh_options(load=True)

    def _on_asleep_changed(self) -> None:
        """Have the drafter loaded with the model that wakes."""
        if not self.model.engine.asleep:
            self._check_options()

    def requested(self, own: DraftSettings | None) -> DraftSettings:
        """Return the settings for a reply that begins now, by those of its chat, or else of the model."""
        return replace(own or self.of_model, profile=self.exact_times, trace=True)

    def follow_reply(
        self, request: EngineRequest, settings: DraftSettings, chat: int, own: DraftSettings | None
    ) -> None:
        """Send later changes of the settings to a reply, until it ends.

        Args:
            request: The reply's request.
            settings: Those that it began with.
            chat: Id of its chat; 0 for one that is not stored.
            own: The draft settings of its chat, or of that one's preset; None for those of the model.
        """
        self._running = _Running(request, settings, chat, own)
        self.last_problem = ""
        self.changed.emit()

    def note_reply(self, request: EngineRequest | None, end: ReplyEnd | Failure) -> None:
        """Take the end of a reply: whether it was drafted, and if not, why."""
        if self._running is None or self._running.request is not request:
            return
        self._running = None
        self.last_problem = ""
        self._waits = False
        if isinstance(end, ReplyEnd) and end.mode_reason:
            self.last_problem = end.mode_reason
            self._waits = self.model.info is not None and end.mode_reason == not_prepared(self.model.info.name)
        self.changed.emit()
        self.refresh_options()

    def _on_idle_worked(self) -> None:
        """Ask again soon whether the mode is prepared: the engine has done some of that."""
        if self._waits and not self._asks_again.isActive():
            self._asks_again.start()

    def _update_running(self) -> None:
        """Send the present settings to the reply under way."""
        if (running := self._running) is not None:
            if running.chat == self._chat:
                running.own = self._own
            running.request.draft = self.requested(running.own)

    def _model_name(self) -> str:
        """Return the name under which the loaded model's settings are stored: its folder."""
        return str(self.model.info.path) if self.model.info else ""

    def _on_options(self, settings: DraftSettings, event: EngineEvent) -> None:
        """Take an event of a question; `settings` are those that it was about, which may have changed since."""
        if isinstance(event, LoadProgress):
            self.model.load_progressed.emit(event)
            return
        if _drafter_of(settings) == _drafter_of(self.settings):
            self.checking = False
        if isinstance(event, DraftOptions):
            if self.model.info is not None and event.model == self.model.info.path:
                self._use_options(event)
        else:
            self.changed.emit()

    def _use_options(self, event: DraftOptions) -> None:
        """Take the engine's answer about the loaded model.

        The last problem is over if the mode can run now and could not before, or if the mode is prepared at last.
        """
        before = self.option(self.settings.mode)
        self._options = {option.mode: option for option in event.modes}
        self._fits = {fit.drafter: fit for fit in event.drafters}
        now = self.option(self.settings.mode)
        if before and now and now.available and not before.available:
            self.last_problem = ""
        if self._waits and event.is_prepared:
            self.last_problem = ""
            self._waits = False
        self.changed.emit()
        if event.drafters and self._fits.keys() < set(self._candidates):
            self.refresh_options()  # An answer covers some of many drafters.

    def _forget_options(self) -> None:
        """Forget what was about the model that is no longer loaded."""
        self.read_settings()
        self.checking = False
        self._options = {}
        self._fits = {}
        self.last_problem = ""
        self._running = None
        self.changed.emit()

    def _on_loaded(self, _info: ModelInfo) -> None:
        self.read_settings()
        self._check_options()  # Before a reply that waited for the model: it shows what it waits for.
        self.changed.emit()
        self.look_for_drafters()


def _drafter_of(settings: DraftSettings) -> tuple[str | None, str | None]:
    return settings.draft_model, settings.drafter


def _distinct(names: Iterable[str | None]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in names if name))[:_RECENT]
