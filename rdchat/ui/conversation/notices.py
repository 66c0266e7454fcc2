"""The banners above the transcript: what the services tell the person, and what can be done about it."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from PySide6.QtCore import QObject

from rdchat.chat.conversation import Notice
from rdchat.services.chat_controller import ChatController
from rdchat.services.context.chat_context import Doing
from rdchat.services.context.context_meter import ContextUse
from rdchat.services.context.summariser import SummaryProgress
from rdchat.services.engine.engine_events import EngineState, Failure
from rdchat.services.models.discover.larger_model import LargerModel
from rdchat.services.models.sources import DeviceMemory
from rdchat.services.order.chat_order import Step
from rdchat.ui.conversation.banner import UNDO_MS, Banner, BannerArea
from rdchat.ui.conversation.composer import Composer
from rdchat.ui.conversation.context_banner import ContextBanner
from rdchat.ui.look import formatting
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme

_DANGER = ("warning", "danger")


class Notices(QObject):
    """Shows each kind of notice in a banner of its own, until it is over or closed.

    Args:
        controller: Has the services.
        composer: Says why a prompt was refused.
        theme: The appearance to follow.
    """

    def __init__(self, controller: ChatController, composer: Composer, theme: Theme) -> None:
        self.area = BannerArea()
        super().__init__(self.area)
        self._controller, self._composer, self._theme = controller, composer, theme
        self._outgrown: tuple[ContextUse | None, Doing] | None = None  # as the banner says it
        self._put_away = False  # the banner of a chat that is too long was closed by hand
        self._offered: Step | None = None  # to be undone
        controller.notice_raised.connect(self.show_notice)
        controller.storage.failed.connect(self.show_storage_failure)
        controller.storage.recovered.connect(lambda: self.area.close_banner("storage"))
        controller.borrowed.changed.connect(self._show_borrowed)
        controller.chats.order.offered_undo.connect(self._offer_undo)
        controller.chats.conversations_changed.connect(self._end_offer)
        controller.context.changed.connect(self._show_outgrown)
        controller.context.summary_progressed.connect(self._show_summary_progress)
        controller.chat.files.changed.connect(self._show_outgrown)
        controller.prompt_refused.connect(self._show_refused)

    def _show(
        self,
        key: str,
        title: str,
        detail: str = "",
        *sign: str,
        actions: Mapping[str, Callable[[], object]] = MappingProxyType({}),
        lasts_ms: int | None = None,
    ) -> None:
        """Show a banner in the place of an earlier one of its key; `sign` is an icon and its colour."""
        banner = Banner(self._theme, title, detail, *sign)
        for text, act in actions.items():
            banner.add_action(text, act)
        self.area.show_banner(banner, key, lasts_ms)

    def show_notice(self, notice: Notice) -> None:
        self._show(f"notice {notice.title}", notice.title, notice.detail)

    def show_storage_failure(self, notice: Notice) -> None:
        self._show("storage", notice.title, notice.detail, *_DANGER)

    def show_refused_model(self, words: str) -> None:
        """Say why a file that was dropped is no model."""
        self._show("dropped model", "That cannot be loaded", words, *_DANGER)

    # Models

    def show_model(self, failure: Failure | None) -> None:
        """Say that a model did not load, above a chat that is read all the same, or that none is loaded."""
        slot = self._controller.model_slot
        if failure is None:
            self.area.close_banner("model")
        elif self.area.banner("model") is None:
            actions = {"Try again": slot.retry} | ({"Load anyway": slot.load_anyway} if failure.can_load_anyway else {})
            self._show("model", "The model did not load", failure.message, *_DANGER, actions=actions)
        if self._controller.replies.state is not EngineState.NO_MODEL or slot.failure is not None:
            self.area.close_banner("unloaded")
        elif self.area.banner("unloaded") is None:
            words = "It was unloaded, and its memory is free for other apps."
            self._show("unloaded", "No model is loaded", words, actions={"Load it again": slot.retry})

    def _show_borrowed(self) -> None:
        """Say which model writes one reply, and which one comes back then."""
        borrowed = self._controller.borrowed
        if (loan := borrowed.loan) is None:
            self.area.close_banner("borrowed")
            return
        words, detail = f"{loan.borrowed.name} writes this one reply", f"{loan.own_name} comes back afterwards."
        self._show("borrowed", words, detail, "model", actions={"Stay with it": borrowed.stay})

    def offer_larger_model(self, memory: DeviceMemory, show: Callable[[str], object]) -> None:
        """Offer a larger model than the default one, which this memory holds; `show` is called with its hub id."""
        larger = LargerModel(self._controller.model_slot, self._controller.preferences, memory, self)
        larger.changed.connect(lambda: self._show_larger_model(larger, show))

    def _show_larger_model(self, larger: LargerModel, show: Callable[[str], object]) -> None:
        offered = larger.offered
        if offered is None:
            self.area.close_banner("larger model")
            return
        size = formatting.file_size(offered.weight_bytes)
        words = f"The default model is small. {offered.name} fits {formatting.MACHINE}: {size}."
        banner = Banner(self._theme, words, icon="model")
        banner.dismissed.connect(larger.decline)
        button = banner.add_action("Get a larger one…", lambda: show(offered.repository))
        set_tip(button, "Shows it in the models window; nothing is downloaded before you say so")
        self.area.show_banner(banner, "larger model")

    # Undoing

    def _offer_undo(self, done: str) -> None:
        self._offered = self._controller.chats.order.history.last
        self._show("undo", done, actions={"Undo": self._controller.chats.undo}, lasts_ms=UNDO_MS)

    def _end_offer(self) -> None:
        """Offer no longer to undo what something else was done after: the button would take that back."""
        if self._controller.chats.order.history.last is not self._offered:
            self.area.close_banner("undo")

    # A chat that is too long

    def _show_outgrown(self) -> None:
        """Offer the choice while the chat does not fit, once for each state of it."""
        context = self._controller.context
        # of files that are too long by themselves a part is chosen: leaving out turns would not help
        state = (None if self._controller.chat.files.too_long else context.outgrown, context.doing)
        if state == self._outgrown:
            return
        self._outgrown = state
        if state[0] is None:
            self._put_away = False
            self.area.close_banner("context")
            self._composer.show_note("")  # that it was not sent, as it was too long
        elif not self._put_away or state[1] is not Doing.NOTHING:
            banner = ContextBanner(self._theme, state[0], state[1], context)
            banner.dismissed.connect(self._put_outgrown_away)
            self.area.show_banner(banner, "context")

    def _show_summary_progress(self, progress: SummaryProgress) -> None:
        banner = self.area.banner("context")
        if isinstance(banner, ContextBanner):
            banner.show_progress(progress)

    def _put_outgrown_away(self) -> None:
        self._put_away = True  # until the chat fits, or it is sent all the same

    def _show_refused(self, text: str, reason: str) -> None:
        self._put_away, self._outgrown = False, None
        self._show_outgrown()
        self._composer.give_back(text, reason)
