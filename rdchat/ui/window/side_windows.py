"""The windows beside the main one: each is imported and built when it is first asked for, then kept."""

from functools import cached_property
from typing import TYPE_CHECKING

from PySide6.QtWidgets import QWidget

from rdchat.inference.api.requests import Role
from rdchat.services.chat.chat_controller import ChatController
from rdchat.services.models.dropped_model import DroppedModel
from rdchat.services.models.sources import ModelSources
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
        drops: Takes models that are dropped on the main window.
    """

    def __init__(self, controller: ChatController, theme: Theme, parent: QWidget, sources: ModelSources) -> None:
        self._controller, self._theme, self._parent, self._sources = controller, theme, parent, sources
        self._chat_of_tokens: int | None = None
        self._models_desk: ModelsDesk | None = None
        self.drops = ModelDrops(DroppedModel(sources, controller.model_slot, parent), parent)

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

    def open_race(self, typed: str) -> None:
        """Show the race with a prompt: what is being typed, else the last one of the chat, else what it had."""
        asked = [message.text for message in self._controller.messages if message.role is Role.USER]
        self.race.open_with(typed.strip() or (asked[-1] if asked else ""))

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
    def models(self) -> "ModelsWindow":
        """Models on this machine and on the hub."""
        from rdchat.services.models.models_desk import ModelsDesk  # noqa: PLC0415
        from rdchat.ui.models import ModelsWindow  # noqa: PLC0415

        controller = self._controller
        desk = ModelsDesk(
            controller.model_slot, controller.preferences, controller.drafting, self._sources, self._parent
        )
        self._models_desk = desk
        return ModelsWindow(desk, self._theme, DroppedModel(self._sources, controller.model_slot, desk), self._parent)

    def close(self) -> None:
        """End what the windows do behind the app's back."""
        self.drops.close()
        if self._models_desk is not None:
            self._models_desk.close()

    def may_quit(self) -> bool:
        """Tell whether nothing is lost by quitting; else ask, in the window whose work it is."""
        if not self._controller.benchmark.running:
            return True
        show_in_front(self.benchmark)
        self.benchmark.ask_to_stop("Stop the benchmark and quit?", "Stop and quit", self._parent.close)
        return False
