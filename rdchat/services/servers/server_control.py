"""Starts and stops the HTTP server, and gives it the window's engine and model.

The server runs on threads of its own. `SharedEngine` is what it calls there; `ServerControl` is what the window uses.
"""

import logging
import socket
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QObject, Signal, Slot

from rdchat.chat.conversation import Notice
from rdchat.chat.settings import Settings
from rdchat.errors import RdchatError
from rdchat.inference.api import (
    DraftSettings,
    GenerationEvent,
    GenerationRequest,
    ModelCard,
    ModelInfo,
    PrefillProgress,
    ReplyEnd,
)
from rdchat.server.interfaces.fields import CONTEXT_FULL, ApiError
from rdchat.server.served_models import Stop
from rdchat.server.server_settings import DEFAULT_HOST, ServerFacts, ServerSettings
from rdchat.services.background_work import BackgroundWork, MainThread
from rdchat.services.engine.draft_control import DraftControl
from rdchat.services.engine.engine_client import ModelSlot
from rdchat.services.engine.engine_request import EngineEvent, EngineRequest, Failure, LoadModel, ReplyProgress
from rdchat.services.storage_watch import SettingsControl

if TYPE_CHECKING:
    from rdchat.server.server import Server

_LOG = logging.getLogger(__name__)
_EVERYWHERE = "0.0.0.0"  # noqa: S104  the person chose it, in words that say what it means
# The facts of a server that does not run: it has no address.
_OFF = ServerFacts("")
# Time in which connections close.
_STOP_S = 2.0


class SharedEngine(QObject):
    """Implements `ServerEngine`. It is made on the main thread; its public methods may be called from any thread.

    Args:
        slot: The app's one model.
        find_models: Finds the models on this machine.
        draft: Returns how the person wants replies to be drafted; called on the server's thread.
    """

    # The submitted request, and an event of it.
    _load_progressed = Signal(object, object)

    def __init__(
        self,
        slot: ModelSlot,
        find_models: Callable[[], Sequence[ModelCard]],
        draft: Callable[[], DraftSettings] = DraftSettings,
    ) -> None:
        super().__init__(slot)
        self._slot = slot
        self.find_models = find_models
        self._draft = draft
        self._info = slot.info
        # Whether the slot just now takes an event of a load for the server, from `_follow`.
        self._following = False
        self._load_progressed.connect(self._follow)
        for changed in (slot.loaded, slot.load_started, slot.unload_started, slot.failed):
            changed.connect(self._on_slot_changed)

    @property
    def model(self) -> ModelInfo | None:
        # What other programs send must not go on to another computer.
        return None if self._info is None or self._info.server else self._info

    @property
    def draft(self) -> DraftSettings:
        return self._draft()

    def installed(self) -> Sequence[ModelCard]:
        return tuple(card for card in self.find_models() if card.can_be_loaded)

    def count_tokens(self, request: GenerationRequest) -> int:
        return self._slot.engine.count_tokens(request)

    def generate(self, request: GenerationRequest, on_event: Callable[[GenerationEvent | ApiError], object]) -> Stop:
        """See `ServerEngine`. Progress becomes one event for each token, a failure an ApiError."""

        def take(event: EngineEvent) -> None:
            match event:
                case ReplyProgress(tokens=tokens):
                    for token in tokens:
                        on_event(token)
                case PrefillProgress() | ReplyEnd():
                    on_event(event)
                case Failure():
                    on_event(_error_of(event))

        return self._slot.engine.submit_direct(request, take).cancel

    def load(self, model: ModelCard, on_end: Callable[[ModelInfo | ApiError], object]) -> Stop:
        """See `ServerEngine`. The window shows the load as one of its own."""
        submitted: Future[EngineRequest] = Future()

        def take(event: EngineEvent) -> None:
            self._info = event if isinstance(event, ModelInfo) else None
            self._load_progressed.emit(submitted, event)
            if isinstance(event, ModelInfo):
                on_end(event)
            elif isinstance(event, Failure):
                on_end(_error_of(event))

        request = self._slot.engine.submit_direct(LoadModel(model.model or None, self._slot.dtype), take)
        submitted.set_result(request)
        return request.cancel

    @Slot(object, object)
    def _follow(self, submitted: "Future[EngineRequest]", event: EngineEvent) -> None:
        """Pass an event of the server's load to the slot, on the main thread.

        The slot lags behind `_info`, which `load` sets on the engine thread. So while a load goes on, changes of the
        slot that come from it do not set `_info`.
        """
        self._following = True
        # The first event may come before `submit` has returned.
        self._slot.follow(submitted.result(), event)
        self._following = False
        if isinstance(event, ModelInfo | Failure):
            self._info = self._slot.info

    @Slot()
    def _on_slot_changed(self) -> None:
        if not self._following:
            self._info = self._slot.info


def _error_of(failure: Failure) -> ApiError:
    code = CONTEXT_FULL if failure.too_long else ""
    return ApiError(400 if failure.refused else 500, str(failure), code=code)


class ServerControl(QObject):
    """Starts and stops the server on a thread, since a keychain may ask the person, and clients may be slow.

    Args:
        slot: The model, shared with the window.
        drafting: How replies are drafted.
        settings: The settings.

    Attributes:
        changed: Emitted when it starts or stops, or its address, key or problem changes.
        start_failed: Emitted when the server does not start with the app.
        on: Whether the person wants it to run.
        problem: Why it does not run, in a sentence or two; empty if it runs or is off.
        facts: Its present and waiting requests.
    """

    changed = Signal()
    facts_changed = Signal(ServerFacts)
    start_failed = Signal(Notice)

    def __init__(self, slot: ModelSlot, drafting: DraftControl, settings: SettingsControl) -> None:
        super().__init__(settings)
        self._drafting = drafting
        self._settings = settings
        self._work = BackgroundWork("server control", self)
        self._main = MainThread(self)
        self._engine = SharedEngine(slot, tuple, self._draft)
        # Changed on the control's thread alone; None before the server listens, and once it is stopped.
        self._server: Server | None = None
        # The fields of its settings at the last start; other ones in the settings start it again.
        self._started_with: dict[str, Any] = {}
        self._key = ""
        self.on = False
        self.problem = ""
        self.facts = _OFF
        settings.changed.connect(self._follow_settings)

    @property
    def address(self) -> str:
        """Where it answers, such as `http://127.0.0.1:8817`; empty while it does not run."""
        return self.facts.address.replace(_EVERYWHERE, socket.gethostname())

    @property
    def key(self) -> str:
        """The key that each request needs; empty while it does not run."""
        return self._key if self.address else ""

    def offer_models(self, find: Callable[[], Sequence[ModelCard]]) -> None:
        """Set what finds the models on this machine; the server calls it on its own threads."""
        self._engine.find_models = find

    def start_with_app(self) -> None:
        """Start it if the person chose that it starts with the app; a problem is also a notice."""
        if self._settings.values.server_at_start:
            self.on = True
            self._start(with_notice=True)

    @Slot(bool)
    def set_on(self, on: bool) -> None:
        """Start or stop it."""
        if on is not self.on:
            self.on = on
            self.problem = ""
            if on:
                self._start()
            else:
                self._stop()
            self.changed.emit()

    def renew_key(self) -> None:
        """Make a new key, and start the server again with it: the old one is of no use from now on."""
        if self.on:
            self._stop()
            self._start(new_key=True)

    def cancel_request(self, request_id: int) -> None:
        """Stop a client's request that waits or runs."""
        if (server := self._server) is not None:
            server.cancel_request(request_id)

    def end_server(self) -> None:
        """End all requests and the server."""
        self.on = False
        self._settings.changed.disconnect(self._follow_settings)
        self._stop()
        self._work.finish_work(_STOP_S + 1.0)
        self._main.refuse_calls()

    @Slot(Settings)
    def _follow_settings(self, settings: Settings) -> None:
        if self.on and _fields_of(settings) != self._started_with:
            self._stop()
            self._start()

    def _start(self, *, with_notice: bool = False, new_key: bool = False) -> None:
        self._started_with = _fields_of(self._settings.values)
        # Callbacks go through `_main`, so that `_stop` can drop those of an earlier start.
        notify = self._main.bring(self._on_facts)
        start = partial(self._start_server, self._started_with, notify, new_key=new_key)
        self._work.do(start, self._main.bring(partial(self._on_started, with_notice), once=True))

    def _start_server(
        self, fields: dict[str, Any], notify: Callable[[ServerFacts], object], *, new_key: bool
    ) -> "Server":
        """Find the key, or make a new one, and listen; on the control's thread.

        Raises:
            RdchatError: If there is no key, or the port cannot be listened on.
        """
        from rdchat.server.credentials import find_key, replace_key  # noqa: PLC0415
        from rdchat.server.server import Server  # noqa: PLC0415  only where it is on

        key = (replace_key if new_key else find_key)().text
        server = Server(ServerSettings(key, **fields), self._engine, notify)
        server.listen()
        self._server = server
        return server

    def _stop_server(self) -> None:
        """Stop the server, if one runs; on the control's thread."""
        server = self._server
        self._server = None
        if server is not None and not server.stop_server(_STOP_S):
            _LOG.error("The server did not end within %.0f s", _STOP_S)

    def _draft(self) -> DraftSettings:
        """Return how replies are drafted, without what only the window shows; called on the server's thread."""
        return replace(self._drafting.of_model, trace=False, profile=False)

    def _stop(self) -> None:
        """Show that it is off, and stop it on the control's thread, after a start that may still be under way there."""
        # The callbacks of that start would show it as running.
        self._main.drop_callbacks()
        self._work.do(self._stop_server)
        self._show(_OFF)

    def _on_started(self, with_notice: bool, outcome: "Server | RdchatError") -> None:
        """Show the server that runs now, or why it does not start; then it is off."""
        if isinstance(outcome, RdchatError):
            _LOG.warning("The server did not start: %s", outcome)
            self.on = False
            self.problem = str(outcome)
            if with_notice:
                self.start_failed.emit(Notice("The server did not start", self.problem))
        else:
            self._key = outcome.settings.key
            self.problem = ""
            self._show(outcome.facts)
        self.changed.emit()

    def _on_facts(self, facts: ServerFacts) -> None:
        """Take facts of a running server; before `_on_started` there is no address, and they are passed over."""
        if self.address:
            self._show(facts)

    def _show(self, facts: ServerFacts) -> None:
        """Take other facts, and emit what changed."""
        before = self.facts
        self.facts = facts
        if facts != before:
            self.facts_changed.emit(facts)
        if facts.address != before.address:
            self.changed.emit()


def _fields_of(settings: Settings) -> dict[str, Any]:
    """Return the chosen fields of `ServerSettings`; a running server is started again when they change."""
    return {
        "host": _EVERYWHERE if settings.server_on_network else DEFAULT_HOST,
        "port": settings.server_port,
        "may_load_models": settings.server_loads_models,
        "allowed_hosts": settings.server_hosts,
        "substitutes_models": settings.server_substitutes_models,
    }
