"""The windows beside the main one: each is imported and built when it is first asked for, then kept."""

import threading
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QWidget

from rdchat.inference.api.requests import DraftSettings, Role
from rdchat.services.chat.chat_controller import ChatController
from rdchat.services.models.installed.dropped_model import DroppedModel
from rdchat.services.models.sources import DeviceMemory, ModelSources
from rdchat.ui.look.focus import show_in_front
from rdchat.ui.look.theme import Theme
from rdchat.ui.window.model_drops import ModelDrops

if TYPE_CHECKING:
    from rdchat.services.models.models_desk import ModelsDesk
    from rdchat.ui.benchmark import BenchmarkWindow
    from rdchat.ui.benchmark.obstacles import Obstacles
    from rdchat.ui.drafts import DraftsWindow
    from rdchat.ui.ledger import LedgerWindow
    from rdchat.ui.models import ModelsWindow
    from rdchat.ui.race import RaceWindow


class Windows:
    """What the Draft and View menus open.

    Args:
        controller: What the windows follow.
        theme: The appearance to follow.
        parent: The main window, which they stay above and close with.
        sources: Read the models on this machine.

    Attributes:
        drops: Takes models and files that are dropped on the main window.
        memory: The machine's.
    """

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget, sources: ModelSources) -> None:
        self._controller, self._theme, self._parent, self._sources = controller, theme, parent, sources
        self._chat_of_tokens: int | None = None
        self.on_models_desk: Callable[[ModelsDesk], object] = lambda _desk: None
        self.memory = DeviceMemory(sources.memory, parent)
        self.drops = ModelDrops(DroppedModel(sources, controller.model_slot, parent), parent, theme, takes_files=True)

    @cached_property
    def ledger(self) -> "LedgerWindow":
        """The time ledger."""
        from rdchat.ui.ledger import LedgerWindow  # noqa: PLC0415

        return LedgerWindow(self._controller.time_ledger, self._controller.drafting, self._theme, self._parent)

    @cached_property
    def drafts(self) -> "DraftsWindow":
        """A reply's tokens and draft trees."""
        from rdchat.ui.drafts import DraftsWindow  # noqa: PLC0415

        window = DraftsWindow(self._controller.traces, self._theme, self._parent)
        self._controller.desk.conversation_removed.connect(self._close_tokens_of)
        return window

    def show_tokens(self, message_id: int) -> None:
        """Show how a reply of the open chat came about."""
        chat = self._controller.desk.conversation
        self._chat_of_tokens = chat.id if chat else None
        self.drafts.show_reply(message_id)

    def compare(self, message_id: int) -> None:
        """Show two alternatives of a message of the open chat beside each other."""
        from rdchat.ui.alternatives import AlternativesWindow  # noqa: PLC0415

        message = self._controller.messages.find(message_id)
        for open_one in self._parent.findChildren(AlternativesWindow):
            open_one.close()
        if message is not None:
            AlternativesWindow(self._controller, message, self._theme, self._parent).open_in_front()

    def _close_tokens_of(self, conversation_id: int) -> None:
        """Take the tokens of a chat away with the chat."""
        if conversation_id == self._chat_of_tokens:
            self.drafts.close()

    @cached_property
    def _obstacles(self) -> "Obstacles":
        """What stands in the way of a race or a benchmark, beside what they tell of themselves."""
        from rdchat.ui.benchmark.obstacles import Obstacles  # noqa: PLC0415

        controller = self._controller
        race, benchmark = controller.race, controller.benchmark
        obstacles = Obstacles(lambda: controller.state, race, benchmark, self._parent)
        for happened in (race.started, race.finished, race.stopped, race.failed):
            happened.connect(obstacles.changed)
        for happened in (controller.state_changed, benchmark.started, benchmark.ended, benchmark.failed):
            happened.connect(obstacles.changed)
        return obstacles

    @cached_property
    def race(self) -> "RaceWindow":
        """Drafting against plain decoding."""
        from rdchat.ui.race import RaceWindow  # noqa: PLC0415

        controller = self._controller
        return RaceWindow(
            controller.race,
            drafting=controller.drafting,
            obstacles=self._obstacles,
            desk=controller.desk,
            preferences=controller.preferences,
            theme=self._theme,
            parent=self._parent,
        )

    def try_in_race(self, draft: DraftSettings) -> None:
        """Show the race with a drafter that the chat need not use."""
        self.race.try_draft(draft, self._last_asked())

    def open_race(self, typed: str) -> None:
        """Show the race with a prompt: what is being typed, else the last one of the chat, else what it had."""
        self.race.open_with(typed.strip() or self._last_asked())

    def _last_asked(self) -> str:
        asked = (message.text for message in reversed(self._controller.messages) if message.role is Role.USER)
        return next(asked, "")

    @cached_property
    def benchmark(self) -> "BenchmarkWindow":
        """Ways of drafting on many prompts."""
        from rdchat.ui.benchmark import BenchmarkWindow  # noqa: PLC0415

        controller = self._controller
        return BenchmarkWindow(
            controller.benchmark,
            drafting=controller.drafting,
            obstacles=self._obstacles,
            model=controller.model_slot,
            theme=self._theme,
            parent=self._parent,
        )

    @cached_property
    def models_desk(self) -> "ModelsDesk":
        """What the models window works with; there before the window where downloads are to go on."""
        from rdchat.services.models.models_desk import ModelsDesk  # noqa: PLC0415

        controller = self._controller
        desk = ModelsDesk(
            controller.model_slot,
            controller.preferences,
            controller.drafting,
            self._sources,
            self._parent,
            memory=self.memory,
        )
        self.on_models_desk(desk)
        return desk

    @cached_property
    def models(self) -> "ModelsWindow":
        """Models on this machine and on the hub."""
        from rdchat.ui.models import ModelsWindow  # noqa: PLC0415

        desk = self.models_desk
        drops = DroppedModel(self._sources, self._controller.model_slot, desk)
        window = ModelsWindow(desk, self._theme, drops, self._parent)
        desk.shelf.race_requested.connect(self.try_in_race)
        return window

    def open_discover(self, repository: str) -> None:
        """Show the models window at a model of the hub, which is then asked for it."""
        self.models.show_page(self.models.discover)
        self.models.discover.open_model(repository)

    @property
    def has_models(self) -> bool:
        """Whether the models window was asked for."""
        return "models" in self.__dict__

    def ask_for_token(self, parent: QWidget) -> None:
        """Show the hub's token that is in use, in front of a window."""
        from rdchat.ui.models.token_dialog import TokenDialog  # noqa: PLC0415

        dialog = TokenDialog(self.models_desk.account, self._theme, parent)
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        dialog.open()

    def prepare(self) -> None:
        """Import what the models window needs, off the main thread: a third of its first opening remains."""
        threading.Thread(target=_import_models, name="models window", daemon=True).start()

    def close(self) -> None:
        """End what the windows do behind the app's back."""
        self.drops.close()
        self.memory.close()
        if "models_desk" in self.__dict__:
            self.models_desk.close()

    def may_quit(self) -> bool:
        """Tell whether nothing is lost by quitting; else ask, in the window whose work it is."""
        if not self._controller.benchmark.running:
            return True
        show_in_front(self.benchmark)
        self.benchmark.ask_to_stop("Stop the benchmark and quit?", "Stop and quit", self._parent.close)
        return False


def _import_models() -> None:
    import rdchat.ui.models.installed.page  # noqa: PLC0415  first what is shown first
    import rdchat.ui.models.window  # noqa: PLC0415

    # isort: split
    import rdchat.ui.models.discover.page  # noqa: PLC0415
    import rdchat.ui.models.downloads.page  # noqa: PLC0415
    import rdchat.ui.models.drafters.page  # noqa: F401, PLC0415
