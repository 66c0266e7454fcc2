"""The middle of the window: notices, the transcript or what stands in its place, and the composer."""

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QStackedWidget, QVBoxLayout, QWidget

from rdchat.chat.conversation import Message, MessageStatus, Notice
from rdchat.inference.api.events import LoadProgress, PrefillProgress
from rdchat.services.chat.chat_controller import ChatController
from rdchat.services.context.chat_context import Doing, Outgrown
from rdchat.services.context.summariser import SummaryProgress
from rdchat.services.engine.engine_events import EngineState, Failure
from rdchat.services.models.discover.larger_model import LargerModel
from rdchat.services.models.sources import DeviceMemory
from rdchat.services.order.undo_history import Step
from rdchat.ui.conversation.banner import UNDO_MS, Banner, BannerArea
from rdchat.ui.conversation.composer import Composer, ComposerState
from rdchat.ui.conversation.context_banner import ContextBanner
from rdchat.ui.conversation.find_bar import FindBar
from rdchat.ui.conversation.welcome import ModelFailedView, WelcomeView
from rdchat.ui.files.attaching import FileAttacher
from rdchat.ui.look import formatting
from rdchat.ui.look.labels import Ground
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import Theme
from rdchat.ui.transcript import TranscriptView


class ConversationView(Ground):
    """Wires the controller to the transcript and the composer, and chooses what stands between the two."""

    choose_model_requested = Signal()
    larger_model_requested = Signal(str)  # its hub id

    def __init__(
        self, controller: ChatController, theme: Theme, transcript: TranscriptView, parent: QWidget | None = None
    ) -> None:
        super().__init__(theme, "surface", parent)
        self._controller = controller
        self._read_despite: Failure | None = None  # the person reads on although this model did not load
        self._outgrown: tuple[Outgrown | None, Doing] | None = None  # as the banner says it
        self._put_away = False  # the banner was closed by hand
        self._typed_for: int | None = None  # the chat that the field is of
        self._offered: Step | None = None  # to be undone
        self.transcript = transcript
        self.welcome = WelcomeView(theme)
        self.failed = ModelFailedView(theme)
        self.banners = BannerArea()
        self.composer = Composer(theme)
        self.files = FileAttacher(controller, self.composer, theme, self)
        self.find_bar = FindBar(controller.desk.finder, transcript, theme)
        self.stack = QStackedWidget()
        for page in (self.transcript, self.welcome, self.failed):
            self.stack.addWidget(page)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.find_bar)
        layout.addWidget(self.banners)
        layout.addWidget(self.stack, 1)
        layout.addWidget(self.composer)
        self.setMinimumWidth(256)  # the speed panel fits beside it in the smallest window
        self._connect_transcript()
        self._connect_commands()
        self._connect_notices()
        self._show_conversation()
        self._show_state()

    def offer_larger_model(self, memory: DeviceMemory) -> None:
        """Say in one line that the default model is small, while there is a larger one that this memory holds."""
        larger = LargerModel(self._controller.model_slot, self._controller.preferences, memory, self)
        larger.changed.connect(lambda: self._show_larger_model(larger))

    def _connect_transcript(self) -> None:
        controller, transcript = self._controller, self.transcript
        controller.desk.conversation_opened.connect(self._show_conversation)
        controller.desk.store_replaced.connect(self._begin_anew)
        controller.desk.conversations_changed.connect(self._on_list_changed)
        controller.transcript_changed.connect(self._show_messages)
        controller.message_added.connect(self._add_message)
        controller.message_changed.connect(transcript.update_message)
        controller.message_changed.connect(self._show_in_find_bar)
        controller.reply_text_added.connect(transcript.append_text)
        controller.load_progressed.connect(self._show_load)
        controller.prefill_progressed.connect(self._show_prefill)
        controller.state_changed.connect(self._show_state)
        transcript.reading_failed.connect(lambda error: self._show_storage_failure(Notice(error.message, error.hint)))
        transcript.reader_moved.connect(controller.desk.reader.keep)
        transcript.edit_submitted.connect(self._save_edit)
        transcript.regenerate_requested.connect(controller.regenerate)
        transcript.continue_requested.connect(controller.continue_reply)
        transcript.alternative_requested.connect(controller.show_alternative)
        transcript.quote_requested.connect(self.composer.quote)
        transcript.delete_requested.connect(controller.text.delete_message)
        transcript.delete_requested.connect(lambda _id: transcript.focus_last())
        transcript.branch_requested.connect(controller.text.branch)
        transcript.file_requested.connect(self.files.view)
        self.find_bar.version_requested.connect(lambda message_id: controller.show_alternative(message_id, 0))
        for asked in (transcript.regenerate_requested, transcript.continue_requested):
            asked.connect(self._go_on_writing)

    def _save_edit(self, message_id: int, text: str) -> None:
        """Add another version of a message; where that is refused, or fails, the editor keeps its text."""
        self._controller.edit_message(message_id, text)
        if self._controller.messages.find(message_id) is None:
            self._controller.desk.unsent.keep(self._typed_for, message_id, "")
            self._go_on_writing()

    def _on_list_changed(self) -> None:
        if not self._controller.desk.listing.query.words:
            self._find_searched()

    def _connect_commands(self) -> None:
        controller = self._controller
        self.composer.submitted.connect(controller.send)
        self.composer.field.textChanged.connect(self._note_typed)
        controller.context.meter.changed.connect(lambda: self.composer.meter.show_use(controller.context.meter.use))
        controller.context.changed.connect(self._show_outgrown)
        controller.context.summary_progressed.connect(self._show_summary_progress)
        controller.files.changed.connect(self._show_outgrown)
        self.transcript.cut_undo_requested.connect(controller.context.undo)
        self.composer.stop_requested.connect(controller.stop)
        controller.prompt_refused.connect(self._show_refused)
        controller.text_given_back.connect(self.composer.set_text)
        self.welcome.example_chosen.connect(self._take_example)
        self.failed.retry_requested.connect(controller.model_slot.retry)
        self.failed.default_requested.connect(lambda: controller.load_model(None))
        self.failed.choose_requested.connect(self.choose_model_requested)
        self.failed.anyway_requested.connect(controller.model_slot.load_anyway)
        self.failed.read_requested.connect(self._read_on)

    def _connect_notices(self) -> None:
        self._controller.notice_raised.connect(self._show_notice)
        self._controller.borrowed.changed.connect(self._show_borrowed)
        self._controller.storage_failed.connect(self._show_storage_failure)
        self._controller.storage_recovered.connect(lambda: self.banners.close_banner("storage"))
        self._controller.desk.order.offered_undo.connect(self._offer_undo)
        self._controller.desk.conversations_changed.connect(self._end_offer)

    def _show_conversation(self) -> None:
        conversation = self._controller.desk.conversation
        self._typed_for = conversation.id if conversation else None
        self.composer.set_text(self._controller.desk.unsent.text(self._typed_for))
        self._read_despite = self._controller.model_slot.failure if self._controller.messages else None
        self._show_messages()
        self._find_searched()

    def _begin_anew(self) -> None:
        """Keep what is typed for a new chat, and nothing else: the store is another one now."""
        with QSignalBlocker(self.transcript):  # where the reader was in the old chat is no place in a new one
            self.transcript.set_messages(())
        self._controller.desk.unsent.begin_anew(self.composer.text)
        self._typed_for = None

    def _note_typed(self) -> None:
        typed = self.composer.text
        self._controller.context.meter.set_typed(typed)
        self._controller.desk.unsent.keep(self._typed_for, None, typed)

    def _find_searched(self) -> None:
        """Look in the open chat for what is searched for in all of them."""
        self.find_bar.follow(self._controller.desk.listing.query.words.strip())

    def _show_messages(self) -> None:
        self._show_page()  # first: the transcript gets its width, for which messages are laid out
        chat = self._controller.desk.conversation
        place = self._controller.desk.reader.place(chat.id) if chat else None
        self.transcript.set_messages(self._controller.messages, place)
        self._show_in_find_bar()

    def _show_in_find_bar(self) -> None:
        chat, messages = self._controller.desk.conversation, self._controller.messages
        self.find_bar.show_chat(chat.id if chat else None, messages.ids)

    def _add_message(self, message: Message) -> None:
        if self._typed_for is None:  # a new chat becomes a conversation with its first message
            self._controller.desk.unsent.keep(None, None, "")
            self._typed_for = message.conversation_id
            self._note_typed()
        self._show_page()
        self.transcript.add_message(message)
        self._show_in_find_bar()
        if message.status is MessageStatus.STREAMING and self._controller.state is EngineState.LOADING:
            self.transcript.set_waiting(message.id, "Waiting for the model to load…")

    def _show_state(self) -> None:
        state = self._controller.state
        if self._controller.streaming_message_id is not None or state in (EngineState.PREFILL, EngineState.WRITING):
            self.composer.set_state(ComposerState.WRITING)
        elif state is EngineState.NO_MODEL:
            self.composer.set_state(ComposerState.NO_MODEL)
        elif state is EngineState.LOADING:
            self.composer.set_state(ComposerState.LOADING)
        else:
            self.composer.set_state(ComposerState.READY)
        self._show_page()

    def _show_page(self) -> None:
        failure = self._controller.model_slot.failure
        messages = bool(self._controller.messages)
        if failure is not None and failure is not self._read_despite:
            self.failed.show_failure(failure, messages, self._controller.model_slot.chosen is None)
            self.stack.setCurrentWidget(self.failed)
        else:
            self.stack.setCurrentWidget(self.transcript if messages else self.welcome)
        self._show_model_banner(failure if failure is self._read_despite else None)
        self._show_unloaded_banner()

    def quote_selection(self) -> None:
        """Quote what is selected in a message into the field, or say that nothing is."""
        if not self.transcript.quote_selection():
            self.composer.show_note("Select some text of a message first, then quote it.")

    def show_refused_model(self, words: str) -> None:
        """Say why what was dropped is no model."""
        banner = Banner(self._theme, "That cannot be loaded", words, "warning", "danger")
        self.banners.show_banner(banner, "dropped model")

    def _show_borrowed(self) -> None:
        """Say which model writes one reply, and which one comes back then."""
        borrowed = self._controller.borrowed
        if not borrowed.holds:
            self.banners.close_banner("borrowed")
            return
        words = f"{borrowed.name} writes this one reply"
        banner = Banner(self._theme, words, f"{borrowed.own_name} comes back afterwards.", icon="model")
        banner.add_action("Stay with it", borrowed.stay).setAccessibleDescription(borrowed.name)
        self.banners.show_banner(banner, "borrowed")

    def _show_unloaded_banner(self) -> None:
        """Say that nothing can answer, while a model was unloaded and no other one loaded."""
        slot = self._controller.model_slot
        if self._controller.state is not EngineState.NO_MODEL or slot.failure is not None:
            self.banners.close_banner("unloaded")
        elif self.banners.banner("unloaded") is None:
            banner = Banner(
                self._theme, "No model is loaded", "It was unloaded, and its memory is free for other apps."
            )
            banner.add_action("Load it again", slot.retry)
            self.banners.show_banner(banner, "unloaded")

    def _show_model_banner(self, failure: Failure | None) -> None:
        if failure is None:
            self.banners.close_banner("model")
        elif self.banners.banner("model") is None:
            banner = Banner(self._theme, "The model did not load", failure.message, "warning", "danger")
            banner.add_action("Try again", self._controller.model_slot.retry)
            if failure.can_load_anyway:
                banner.add_action("Load anyway", self._controller.model_slot.load_anyway)
            self.banners.show_banner(banner, "model")

    def _read_on(self) -> None:
        self._read_despite = self._controller.model_slot.failure
        self._show_page()

    def _show_load(self, progress: LoadProgress) -> None:
        self._show_waiting(formatting.load_words(progress))

    def _show_prefill(self, progress: PrefillProgress) -> None:
        self._show_waiting(formatting.prefill_words(progress))

    def _show_waiting(self, words: str) -> None:
        messages = self._controller.messages
        if messages and messages[-1].id == self._controller.streaming_message_id:
            self.transcript.set_waiting(messages[-1].id, words)

    def _take_example(self, prompt: str) -> None:
        self.composer.set_text(prompt)
        self.composer.setFocus()

    def _go_on_writing(self) -> None:
        self.composer.setFocus()  # the button that was pressed is hidden while the reply is written

    def _show_notice(self, notice: Notice) -> None:
        self.banners.show_banner(Banner(self._theme, notice.title, notice.detail), f"notice {notice.title}")

    def _show_storage_failure(self, notice: Notice) -> None:
        self.banners.show_banner(Banner(self._theme, notice.title, notice.detail, "warning", "danger"), "storage")

    def _offer_undo(self, done: str) -> None:
        self._offered = self._controller.desk.order.history.last
        banner = Banner(self._theme, done)
        banner.add_action("Undo", self._controller.desk.undo)
        self.banners.show_banner(banner, "undo", UNDO_MS)

    def _end_offer(self) -> None:
        """Offer no longer to undo what something else was done after: the button would take that back."""
        if self._controller.desk.order.history.last is not self._offered:
            self.banners.close_banner("undo")

    def _show_outgrown(self) -> None:
        """Offer the choice while the chat does not fit, once for each state of it."""
        context = self._controller.context
        # of files that are too long by themselves a part is chosen: leaving out turns would not help
        state = (None if self._controller.files.too_long else context.outgrown, context.doing)
        if state == self._outgrown:
            return
        self._outgrown = state
        if state[0] is None:
            self._put_away = False
            self.banners.close_banner("context")
            self.composer.show_note("")  # that it was not sent, as it was too long
            return
        if self._put_away and state[1] is Doing.NOTHING:
            return
        banner = ContextBanner(self._theme, state[0], state[1])
        banner.dismissed.connect(self._put_outgrown_away)
        banner.leave_out_requested.connect(context.leave_out)
        banner.summarise_requested.connect(context.summarise)
        banner.anew_requested.connect(context.start_anew)
        banner.stop_requested.connect(context.stop)
        self.banners.show_banner(banner, "context")

    def _show_summary_progress(self, progress: SummaryProgress) -> None:
        banner = self.banners.banner("context")
        if isinstance(banner, ContextBanner):
            banner.show_progress(progress)

    def _put_outgrown_away(self) -> None:
        self._put_away = True  # until the chat fits, or it is sent all the same

    def _show_refused(self, text: str, reason: str) -> None:
        self._put_away, self._outgrown = False, None
        self._show_outgrown()
        self.composer.give_back(text, reason)

    def _show_larger_model(self, larger: LargerModel) -> None:
        offered = larger.offered
        if offered is None:
            self.banners.close_banner("larger model")
            return
        size = formatting.file_size(offered.weight_bytes)
        banner = Banner(
            self._theme, f"The default model is small. {offered.name} fits {formatting.MACHINE}: {size}.", icon="model"
        )
        banner.dismissed.connect(larger.decline)
        button = banner.add_action("Get a larger one…", lambda: self.larger_model_requested.emit(offered.repository))
        set_tip(button, "Shows it in the models window; nothing is downloaded before you say so")
        self.banners.show_banner(banner, "larger model")
