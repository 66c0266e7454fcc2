"""The middle of the window: notices, the transcript or the welcome page, and the composer.

`ConversationView` connects these widgets with the open chat and the services; the widgets do not know each other.
"""

from functools import partial

from PySide6.QtCore import QSignalBlocker, Signal
from PySide6.QtWidgets import QSizePolicy, QStackedWidget, QWidget

from rdchat.chat.conversation import Message, Notice
from rdchat.chat.presets import SavedPrompt, unused_name
from rdchat.chat.titles import title_from_prompt
from rdchat.inference.api import Role
from rdchat.services.chat.unsent_memory import WaitingMessage
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.window.chat_controller import ChatController
from rdchat.ui.conversation.composer import Composer
from rdchat.ui.conversation.find_bar import FindBar
from rdchat.ui.conversation.model_offers import SightLine, WelcomeView
from rdchat.ui.conversation.note_line import NoteLine
from rdchat.ui.conversation.notices import Notices
from rdchat.ui.conversation.project_views import ProjectLine
from rdchat.ui.conversation.temporary_bar import TemporaryBar
from rdchat.ui.files.attaching import FileAttacher, PendingRow
from rdchat.ui.settings.tools_page import ChatToolsPopover
from rdchat.ui.style import (
    LARGE,
    SMALL,
    TEXT_WIDTH,
    TIGHT,
    Card,
    ElidedLabel,
    Ground,
    IconButton,
    Theme,
    column,
    row,
    scrolled,
    small_text,
)
from rdchat.ui.transcript.message_parts import MessageEditor
from rdchat.ui.transcript.pending_calls import PendingCalls
from rdchat.ui.transcript.view import TranscriptView
from rdchat.wording import counted

# The height of a waiting message in pixels, and how many are shown at once; more scroll.
_ROW = 28
_MAX_ROWS = 3
# States in which a reply waits for nothing.
_BUSY = (EngineState.IDLE, EngineState.WRITING)


class WaitingList(QWidget):
    """Lists the messages that are sent after the current reply, the next one first; hidden without any."""

    # Each has a `WaitingMessage`.
    edit_requested = Signal(object)
    remove_requested = Signal(object)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._messages: list[WaitingMessage] = []
        self.setAccessibleName("Waiting messages")
        self.title = small_text(theme, wraps=False)
        self._area = scrolled(QWidget())
        for widget in (self._area, self._area.viewport()):
            widget.setAutoFillBackground(False)
        card = Card(theme)
        card.setMaximumWidth(TEXT_WIDTH + 2 * LARGE)
        column(self.title, self._area, within=card, spacing=TIGHT, margins=(LARGE, SMALL, SMALL, SMALL))
        row(None, (card, 1000), None, within=self, spacing=0, margins=(LARGE, TIGHT, LARGE, TIGHT))
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Fixed)
        self.hide()

    def show_messages(self, messages: list[WaitingMessage], title: str) -> None:
        """Show these messages; the title shows what they wait for."""
        self.title.setText(title)
        if messages == self._messages:
            return
        self._messages = messages
        rows = QWidget()
        column(*map(self._row, messages), within=rows, spacing=0)
        self._area.takeWidget().deleteLater()
        self._area.setWidget(rows)
        rows.setAutoFillBackground(False)
        self._area.setFixedHeight(_ROW * min(len(messages), _MAX_ROWS))
        self.setVisible(bool(messages))

    def _row(self, message: WaitingMessage) -> QWidget:
        line = QWidget()
        line.setFixedHeight(_ROW)
        names = ", ".join(file.name for file, _ in message.files)
        first = ElidedLabel(self._theme, " ".join(message.text.split()) or names)
        files = counted(len(message.files), "file") if message.files else ""
        edit = IconButton("edit", "Edit this message", self._theme, None, lambda: self.edit_requested.emit(message))
        remove = IconButton(
            "close", "Remove this message", self._theme, None, lambda: self.remove_requested.emit(message)
        )
        row((first, 1), small_text(self._theme, files, wraps=False), edit, remove, within=line, spacing=TIGHT)
        return line


class ConversationView(Ground):
    """Shows the open chat in the transcript and the composer, or the welcome page in place of the transcript."""

    def __init__(self, controller: ChatController, theme: Theme, transcript: TranscriptView) -> None:
        super().__init__(theme, "surface")
        self._controller = controller
        self._chat = controller.chat
        self._model = controller.model_slot
        self.transcript = transcript
        self.welcome = WelcomeView(theme)
        self.composer = Composer(theme)
        self.tools = ChatToolsPopover(self._chat, controller.servers, self._model, self.composer.tools, theme)
        self.waiting = WaitingList(theme)
        self.notices = Notices(controller, self.composer, theme)
        self.banners = self.notices.area
        self.files = FileAttacher(
            controller, controller.chat.files, self.composer.files, theme, self, question=lambda: controller.chat.typed
        )
        self.sight = SightLine(self._model, controller.chat.files, theme, controller.context.meter)
        self.composer.add_line(self.sight)
        self.composer.add_line(self.tools.line)
        transcript.on_edit = self._add_files_to
        transcript.file_text = controller.replies.file_text
        transcript.has_tokens = controller.traces.has_trace
        self.calls = PendingCalls(controller.calls, theme)
        transcript.show_pending(self.calls)
        self.find_bar = FindBar(controller.chats.finder, transcript, theme)
        self.project_line = ProjectLine(controller, theme, self.notices)
        self.note = NoteLine(controller, theme)
        self.stack = QStackedWidget()
        self.stack.addWidget(self.transcript)
        self.stack.addWidget(self.welcome)
        temporary = TemporaryBar(self._chat, theme)
        # Its button goes with the focus.
        temporary.keep.clicked.connect(self.composer.setFocus)
        temporary.shown.connect(self.composer.dash_outline)
        parts = (self.project_line, temporary, self.find_bar, self.banners, (self.stack, 1), self.note, self.waiting)
        column(*parts, self.composer, within=self, spacing=0)
        # The speed panel fits beside it in the smallest window.
        self.setMinimumWidth(256)
        self._connect_chat()
        self._connect_transcript()
        self._connect_composer()
        self._show_conversation()

    def _connect_chat(self) -> None:
        """Follow the open chat and the services."""
        chat = self._chat
        controller = self._controller
        chats = controller.chats
        replies = controller.replies
        transcript = self.transcript
        chat.opened.connect(self._show_conversation)
        chat.path_changed.connect(self._show_messages)
        chat.message_added.connect(self._add_message)
        chat.message_changed.connect(transcript.update_message)
        chat.message_changed.connect(self._show_in_find_bar)
        chat.reply_grew.connect(transcript.append_text)
        chat.typed_changed.connect(self._show_typed)
        for changed in (chat.opened, chat.options_changed):
            changed.connect(lambda: self.composer.shape.show_shape(chat.values.answer_shape))
        chat.files.changed.connect(self.composer.refresh_button)
        chats.store_replaced.connect(self._forget_messages)
        # A search that ends closes the find bar; one that begins is followed when a chat is opened.
        chats.conversations_changed.connect(lambda: None if chats.query.text else self._find_searched())
        meter = controller.context.meter
        for changed in (controller.status.changed, replies.state_changed, chat.unsent.waiting_changed, meter.changed):
            changed.connect(self._show_status)
        meter.changed.connect(lambda: transcript.mark_left_out(self.sight.left_out))
        for changed in (chat.opened, chat.options_changed, meter.changed):
            changed.connect(lambda: self.welcome.show_project(chat, meter.use))

    def _connect_transcript(self) -> None:
        """Carry out what the person asks for in the messages and above them."""
        controller = self._controller
        transcript = self.transcript
        transcript.reading_failed.connect(
            lambda error: self.notices.show_storage_failure(Notice(error.message, error.hint))
        )
        transcript.reader_moved.connect(self._chat.save_reading_position)
        transcript.edit_submitted.connect(self._save_edit)
        transcript.regenerate_requested.connect(controller.regenerate)
        transcript.continue_requested.connect(controller.continue_reply)
        transcript.alternative_requested.connect(self._chat.show_alternative)
        transcript.quote_requested.connect(self.composer.quote)
        transcript.note_requested.connect(self.note.add_note)
        transcript.delete_requested.connect(controller.delete_message)
        for changed in (transcript.delete_requested, transcript.alternative_requested):
            changed.connect(lambda *_: transcript.focus_last())
        transcript.branch_requested.connect(controller.branch)
        transcript.file_requested.connect(
            lambda file: self.files.view(file, self._chat.path, controller.replies.file_text)
        )
        transcript.stop_requested.connect(controller.stop_reply)
        transcript.run_again_requested.connect(controller.calls.run_again)
        for decided in (self.calls.decided, self.note.decided):
            decided.connect(self.composer.setFocus)
        transcript.cut_undo_requested.connect(controller.context.undo_cut)
        transcript.summary_edited.connect(controller.context.edit_summary)
        transcript.replaced_requested.connect(transcript.show_first)
        self.find_bar.version_requested.connect(lambda message_id: self._chat.show_alternative(message_id, 0))
        for requested in (transcript.regenerate_requested, transcript.continue_requested):
            requested.connect(lambda _id: self.composer.setFocus())

    def _connect_composer(self) -> None:
        """Carry out what the person asks for in the composer and the widgets that work with it."""
        settings = self._controller.settings
        composer = self.composer
        field = composer.field
        composer.submitted.connect(self._controller.send)
        composer.shape.remove.clicked.connect(self._end_shape)
        composer.stop_requested.connect(self._controller.stop_reply)
        field.above_requested.connect(self._edit_last_question)
        field.pasted.connect(self._chat.unsent.note_origin)
        field.textChanged.connect(lambda: self._chat.set_typed(composer.text))
        field.prompts.offer_prompts(settings.values.prompts)
        settings.changed.connect(lambda values: field.prompts.offer_prompts(values.prompts))
        field.prompts.saved.connect(self._save_prompt)
        # Its files.
        composer.attach.clicked.connect(self.files.offer)
        field.files_pasted.connect(self.files.attach_files)
        field.image_pasted.connect(self.files.add_image)
        field.attach_text = self.files.add_text
        self.files.share_undo(field)
        self.files.noted.connect(composer.show_note)
        self.files.done.connect(composer.setFocus)
        self.welcome.files.choice_requested.connect(self.files.add_shared)
        # The waiting messages, and the questions of the welcome page.
        self.waiting.edit_requested.connect(self._chat.take_back)
        self.waiting.edit_requested.connect(lambda _message: composer.setFocus())
        self.waiting.remove_requested.connect(self._chat.unsent.end_wait)
        self.welcome.starter_chosen.connect(self._take_starter)

    def _save_edit(self, message_id: int, text: str) -> None:
        """Add another version of a message; where that is refused, or fails, the editor keeps its text."""
        self._controller.edit_message(message_id, text)
        # The new version has taken its place in the open chat.
        if not self._chat.has(message_id):
            self._chat.unsent.save_text(self._chat.id, message_id, "")
            self._chat.end_edit(message_id)
            self.composer.setFocus()

    def _add_files_to(self, message: Message, editor: MessageEditor) -> None:
        """Let the files of a prompt be changed while it is edited."""
        editor.field.pasted.connect(self._chat.unsent.note_origin)
        if message.role is Role.USER and (files := self._chat.edited_files(message)) is not None:
            chips = PendingRow(self._theme)
            attacher = FileAttacher(self._controller, files, chips, self._theme, editor, question=lambda: editor.text)
            attacher.noted.connect(self.composer.show_note)
            attacher.done.connect(editor.setFocus)
            chips.height_changed.connect(editor.field.height_changed)
            editor.add_files(chips, attacher.choose_files)
            attacher.share_undo(editor.field)
            editor.needs_no_words = lambda: bool(files.images)
            files.changed.connect(editor.refresh_button)
            editor.cancelled.connect(partial(self._chat.end_edit, message.id))

    # What is shown

    def _show_conversation(self) -> None:
        # Qt would give the focus of a message that goes to the button beside the field.
        if not self._chat.stored_conversation or self.stack.isAncestorOf(self.window().focusWidget()):
            self.composer.setFocus()
        self._show_typed()
        self._show_messages()
        self._show_status()
        self._find_searched()

    def _show_typed(self) -> None:
        if self.composer.text != self._chat.typed:
            self.composer.set_text(self._chat.typed)

    def _forget_messages(self) -> None:
        """Show no messages: the store is another one now."""
        # The reading position in the old chat means nothing in a new one.
        with QSignalBlocker(self.transcript):
            self.transcript.set_messages(())

    def _find_searched(self) -> None:
        """Find the words of the sidebar's search in the open chat."""
        self.find_bar.follow(self._controller.chats.query.text.strip())

    def _show_messages(self) -> None:
        self._show_page()  # First: the transcript gets its width, for which messages are laid out.
        self.transcript.set_messages(self._chat.path, self._chat.reading_position)
        self._show_in_find_bar()

    def _show_in_find_bar(self) -> None:
        self.find_bar.show_chat(self._chat.id)

    def _add_message(self, message: Message) -> None:
        self._show_page()
        self.transcript.add_message(message)
        self._show_in_find_bar()

    def _show_status(self) -> None:
        """Show the status at the composer and its ring, above the messages that wait, and in a reply that waits."""
        status = self._controller.status.value
        # A reply that waits for the model and a call of a tool count as well.
        writing = self._chat.id in self._controller.replies.chats_being_written
        self.composer.set_state(writing=writing, sent_when=status.sent_when)
        if status.state is EngineState.LOADING:
            self.composer.meter.show_status(status)
        else:
            self.composer.meter.show_use(self._controller.context.meter.use)
        # Where the engine has nothing to do, they wait for the person's decision.
        sent_when = status.sent_when or "you have answered"
        self.waiting.show_messages(self._chat.unsent.waiting_in(self._chat.id), f"Sent when {sent_when}")
        last_id = self._chat.path.last_id
        if last_id is not None and last_id == self._chat.streaming_id and status.state not in _BUSY:
            self.transcript.set_waiting(last_id, status.text)
        self._show_page()

    def _show_page(self) -> None:
        self.welcome.show_model(self._model)
        is_begun = self._chat.path or self._chat.unsent.waiting_in(self._chat.id)
        self.stack.setCurrentWidget(self.transcript if is_begun else self.welcome)

    # The composer

    def quote_selection(self) -> None:
        """Quote the selected text of a message into the field, or show that nothing is selected."""
        if not self.transcript.quote_selection():
            self.composer.show_note("Select some text of a message first, then quote it.")

    def _edit_last_question(self) -> None:
        """Edit the last question; one that still waits goes back into the field."""
        if waiting := self._chat.unsent.waiting_in(self._chat.id):
            self._chat.take_back(waiting[-1])
            return
        question = next((message.id for message in reversed(self._chat.path) if message.role is Role.USER), None)
        if question is not None and (editor := self.transcript.edit(question)) is not None:
            editor.cancelled.connect(self.composer.setFocus)

    def _save_prompt(self, text: str) -> None:
        settings = self._controller.settings
        name = unused_name(title_from_prompt(text), settings.values.prompts)
        settings.change_values(prompts=(*settings.values.prompts, SavedPrompt(name, text)))
        self.composer.show_note(f"Saved as {name}. Type / in the empty field to insert it.")

    def _end_shape(self) -> None:
        self._chat.set_options(answer_shape=None)
        self.composer.setFocus()

    def _take_starter(self, prompt: str) -> None:
        self.composer.set_text(prompt)
        self.composer.setFocus()
