"""Builds the services of a window, and carries out the commands that need several of them: sending, regenerating.

It lives on the main thread; only `shut_down` waits.
"""

import logging
from collections.abc import Callable
from dataclasses import replace
from functools import partial

from PySide6.QtCore import QObject, QTimer, Signal

from rdchat.chat.conversation import USUAL_OPTIONS, Conversation, MadeWith, Notice
from rdchat.chat.settings import SettingsStore
from rdchat.chat.storage import DeletedMessage, MessageTrash
from rdchat.chat.store import ConversationStore
from rdchat.errors import StorageError
from rdchat.inference.api import ModelInfo, Role
from rdchat.log import errors_logged
from rdchat.mac_desktop import HotKey
from rdchat.services.chat.borrowed_model import OtherModel
from rdchat.services.chat.chat_context import TOO_LONG, ChatContext
from rdchat.services.chat.chat_prompt import ends_with_question
from rdchat.services.chat.note_control import NoteControl
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.quick_chat import QuickChat
from rdchat.services.chat.replies import Replies
from rdchat.services.chat.rescue_file import RescueFile, rescued_notice
from rdchat.services.chat.tool_call_control import ToolCalls
from rdchat.services.chat_list.chat_list import ChatList
from rdchat.services.chat_list.title_writer import TitleWriter
from rdchat.services.engine.benchmark import Benchmark
from rdchat.services.engine.chat_caches import DiskCacheControl, MemoryCacheControl
from rdchat.services.engine.draft_control import DraftControl
from rdchat.services.engine.earlier_replies import EarlierReplyIndex
from rdchat.services.engine.engine_client import EngineClient, ModelSlot
from rdchat.services.engine.engine_request import EngineState
from rdchat.services.engine.time_ledger import TimeLedger
from rdchat.services.servers.remote_servers import RemoteServers
from rdchat.services.servers.server_control import ServerControl
from rdchat.services.servers.tool_servers import ToolServers
from rdchat.services.storage_watch import SettingsControl, StorageWatch
from rdchat.services.window.app_status import AppStatus

_LOG = logging.getLogger(__name__)
_EMPTY_MESSAGE = Notice("The message is empty", "Type something to ask. The old message is unchanged.")
_MEASURING = Notice("A benchmark is running", "Wait for it to end, or stop it in its window.")
# An open chat is stored for the next start after this time, so that one that crashes the app is not opened again.
_REMEMBERED_MS = 2000
_BEING_WRITTEN = Notice(
    "A reply is being written below it", "Stop the reply or wait until it ends, then delete the message."
)
NOT_KEPT = Notice("This chat is temporary", "Choose Keep This Chat first. Then it can be branched and exported.")
_NO_QUESTION = Notice("There is no question to answer", "Type one below, or start a new chat.")


class ChatController(QObject):
    """Carries out the commands; none raises an exception. Views connect to the services, its attributes, directly.

    A new chat is stored with its first prompt. One reply is written at a time, in the open chat or in another one that
    was open before. Editing and regenerating stop it first; what is sent meanwhile waits for its end.

    Args:
        store: The conversations.
        settings: The settings.
        engine: The engine, which is shut down with the controller.
        tools: The servers of tools; None for those of the settings.
    """

    notice_raised = Signal(Notice)
    # It concerns the open chat alone.
    chat_notice_raised = Signal(Notice)
    # The text, and why it was not sent.
    prompt_refused = Signal(str, str)
    hot_key_pressed = Signal()

    def __init__(
        self, store: ConversationStore, settings: SettingsStore, engine: EngineClient, tools: ToolServers | None = None
    ) -> None:
        super().__init__()
        self._store = store
        self._engine = engine
        self.storage = StorageWatch(self)
        control = SettingsControl(settings, self.storage, store)
        self.settings = control
        model = ModelSlot(engine, settings.settings, self)
        self.model_slot = model
        self.remote = RemoteServers(control)
        self.drafting = DraftControl(model, control)
        self.memory_caches = MemoryCacheControl(model, control)
        self.server = ServerControl(model, self.drafting, control)
        self.earlier = EarlierReplyIndex(store.reply_tokens, self.storage, control, model)
        self.disk_caches = DiskCacheControl(store, control)
        self.servers = tools or ToolServers(
            control.values.tool_servers, lambda changed: control.change_values(tool_servers=changed)
        )
        if tools is None:
            control.changed.connect(lambda settings: self.servers.replace_servers(settings.tool_servers))
        replies = Replies(store, self.storage, self.drafting, self.earlier, self.disk_caches, servers=self.servers)
        self.replies = replies
        self.recorder = replies.recorder
        self.traces = replies.traces
        self._rescue_file = RescueFile(self.recorder, store.path.parent)
        self.chat = OpenChat(store, self.storage, replies)
        self.calls = ToolCalls(store, self.storage, control, self.chat)
        for changed in (self.chat.opened, self.chat.stored, self.chat.options_changed):
            changed.connect(lambda: self.drafting.set_own(self.chat.id, self.chat.values.draft))
        self.drafting.own_changed.connect(lambda draft: self.chat.set_options(draft=draft))
        self.chats = ChatList(store, self.chat, self.storage)
        self.quick = QuickChat(store, self.storage, self.chat)
        self.time_ledger = TimeLedger(self.drafting)
        self.benchmark = Benchmark(engine, self)
        self.borrowed = replies.borrowed
        self.titles = TitleWriter(store, replies, self.chats.update_list)
        self.notes = NoteControl(store, replies, self.storage)
        self.context = ChatContext(self.chat, self.storage, self.chat_notice_raised.emit)
        self.status = AppStatus(self.chat, self.calls, self.context)
        engine.sleep_after(control.values.unload_after_minutes)
        control.changed.connect(lambda settings: engine.sleep_after(settings.unload_after_minutes))
        self.hot_key = HotKey(self.hot_key_pressed.emit)
        self.hot_key.set(control.values.quick_shortcut)
        control.changed.connect(lambda settings: self.hot_key.set(settings.quick_shortcut))
        # Whether `shut_down` was called.
        self._closed = False
        # Runs after everything that follows the end of a reply.
        self._next = QTimer(self, singleShot=True, interval=0)
        self._next.timeout.connect(self.quick.write_next)
        self._next.timeout.connect(self._send_next)
        self._opened = QTimer(self, singleShot=True, interval=_REMEMBERED_MS)
        self._opened.timeout.connect(self._remember_chat)
        self._connect()

    def _connect(self) -> None:
        """Connect the services: each follows what the others do."""
        chats = self.chats
        # Notices of the services.
        self._store.on_notice = self.notice_raised.emit
        self.server.start_failed.connect(self.notice_raised)
        self.replies.tools_left_out.connect(self.chat_notice_raised)
        # The model: the next start loads it again, and its times are its own.
        for happened in (self.model_slot.loaded, self.model_slot.failed, self.borrowed.stayed):
            happened.connect(self._remember_model)
        self.model_slot.loaded.connect(self._show_warning)
        self.model_slot.loaded.connect(self.time_ledger.forget_rates)
        self.chat.typed_changed.connect(self._engine.wake)
        # Replies: their times are counted, and the list shows which chats have new ones.
        self.replies.statistics_changed.connect(self.time_ledger.add_statistics)
        self.replies.written.connect(self.time_ledger.add_end)
        self.replies.ended.connect(chats.update_list)
        # Changes of chats, also of their options and notes: the index and the caches follow.
        self.notes.decided.connect(self.chat.update_chat)
        self.notes.changed.connect(self.chat.options_changed)
        chats.conversations_changed.connect(self.chat.follow_project)
        chats.conversations_changed.connect(self.earlier.check_soon)
        for changed in (chats.conversations_changed, self.chat.options_changed):
            changed.connect(self.disk_caches.tidy_soon)
        # Chats that are gone: nothing of them goes on.
        self.chat.temporary_ended.connect(chats.conversation_removed)
        # The history is looked up at each call, as a restore replaces it.
        self.chat.temporary_ended.connect(lambda chat_id: chats.order.history.forget_chat(chat_id))  # noqa: PLW0108
        self.chat.discarded.connect(self.memory_caches.drop_caches)
        chats.conversation_removed.connect(self.calls.stop_calls)
        chats.conversation_removed.connect(self.replies.stop_replies)
        chats.store_replaced.connect(self.earlier.rebuild)
        chats.store_replaced.connect(self.notes.waiting.clear)
        chats.store_replaced.connect(self.calls.begin_anew)
        chats.store_replaced.connect(self._load_restored)
        # Whatever may let the next message be sent.
        self.context.reply_requested.connect(self.continue_reply)
        for freed in (
            self.replies.state_changed,
            self.chat.unsent.waiting_changed,
            self._engine.request_ended,
            self.calls.changed,
            self.context.changed,
        ):
            freed.connect(self._next.start)
        for opened in (self.chat.opened, self.chat.stored):
            opened.connect(self._opened.start)

    def open_last_chat(self) -> None:
        """Open the conversation viewed last and load the model of the settings."""
        for notice in (self._store.notice, self.settings.notice):
            if notice:
                self.notice_raised.emit(notice)
        settings = self.settings.values
        if settings.last_chat is not None:
            # Opening it may crash the app.
            self.settings.change_values(last_chat=None)
            self.settings.wait_until_saved()
        self.chats.open_list(settings.last_chat)
        if notice := rescued_notice(self._store.path.parent):
            self.notice_raised.emit(notice)
        self.model_slot.retry()
        self.server.start_with_app()

    def shut_down(self, timeout_s: float = 10.0) -> bool:
        """Stop, save and end the engine thread; False if that did not come back (`EngineClient.shutdown`).

        What cannot be saved goes into a file beside the chats. Closing again saves again what could not be saved, but
        waits for the thread no longer. An unexpected error of one part is logged, and the others are closed all the
        same.

        The order: the server, the quick reply and the calls of tools; all other work; the engine thread; and when no
        more text can come, the replies and traces are saved for the last time.
        """
        # Silenced, not stopped: a later event may start this timer again.
        self._next.blockSignals(True)
        self._opened.stop()
        # First the server: its replies end before the engine does.
        first = (self._remember_chat, self.server.end_server, self.quick.stop_reply, self.calls.stop_calls)
        once = () if self._closed else (*first, self.chat.discard)
        ends = (
            self.servers.end_servers,
            self.remote.drop_requests,
            self.earlier.end_work,
            self.disk_caches.end_work,
            self.titles.stop_writing,
            self.context.end_threads,
            self.quick.files.stop_reading,
            self.chat.stop_files,
            self.chats.close_list,
        )
        for close in (*once, *ends):
            with errors_logged("Closing"):
                close()
        ended = False
        with errors_logged("Closing the engine"):
            ended = self._engine.shutdown(0.0 if self._closed else timeout_s)
        self._closed = True
        for close in (self.recorder.end_replies, self.traces.end_traces, self._rescue_file.write_replies):
            with errors_logged("Saving"):
                close()
        self._store.on_notice = lambda notice: _LOG.warning(notice.title)
        return ended

    def _remember_chat(self) -> None:
        """Store which chat is open, for the next start."""
        chat = self.chat.stored_conversation
        last = chat.id if chat else None
        if self.settings.values.last_chat != last:
            self.settings.change_values(last_chat=last)

    # Messages

    def send(self, text: str) -> None:
        """Add a prompt and begin its reply, or emit `prompt_refused` with the reason.

        It waits in the queue (`UnsentMemory`) while the engine is not free, while other messages wait, while calls run
        in its chat, or until the chat is shortened; `_send_next` sends it then. The model has to be there by that time.
        """
        if text.strip() or self.chat.files.images:
            if self.chat.files.files:
                # The model counts them.
                self.replies.load_model(self.chat.conversation)
            reason = self.chat.files.reason_to_wait() or (TOO_LONG if self.context.refuses(text) else "")
        else:
            reason = "Type something to ask."
        if reason:
            self.prompt_refused.emit(text, reason)
            return
        # Kept for an error: `take_message` removes them from the field.
        files = self.chat.files.files
        try:
            message = self.chat.take_message(text)
            is_free = self.replies.free and not self.chat.unsent.waiting and not self.context.wants_room
            if is_free and not self.calls.runs_in(message.chat):
                self.chat.ask_question(message)
            else:
                self.replies.load_model(self.chat.conversation)
                self.chat.unsent.queue_message(message)
        except StorageError as error:
            self.storage.report(error)
            self.chat.files.put_back(files)
            self.prompt_refused.emit(text, str(error))

    def _send_next(self) -> None:
        """Send the first message that waits, if the engine is free. One that cannot be stored is typed again.

        A message is passed over while calls of its chat run or wait for the person. If the first one left is in the
        open chat, and that has to be shortened first, all wait.
        """
        unsent = self.chat.unsent
        if not unsent.waiting or self.replies.state is not EngineState.IDLE or not self.replies.free:
            return
        message = next((each for each in unsent.waiting if not self.calls.holds(each.chat)), None)
        if message is None or (message.chat == self.chat.id and self.context.make_room(message)):
            return
        try:
            self.chat.ask_question(message)
        except StorageError as error:
            self.storage.report(error)
            self.chat.take_back(message)
        else:
            unsent.end_wait(message)

    def stop_reply(self) -> None:
        """Stop the open chat's reply that is being written, or that waits for the model.

        Messages that wait for its end are not sent: they go back into the message field.
        """
        if self.chat.id is not None:
            for message in reversed(self.chat.unsent.waiting_in(self.chat.id)):
                self.chat.take_back(message)
            self.calls.stop_calls(self.chat.id)
            self.replies.stop_replies(self.chat.id)

    def edit_message(self, message_id: int, text: str) -> None:
        """Add another version of a message, and have a prompt answered; the old one is kept as an alternative.

        An empty text needs an image. A result of a tool cannot be edited. Replies and calls under way are stopped, also
        for an edited reply, which is not answered; one whose answer is the same as before is left as it is.
        """
        files = self.chat.edits.get(message_id)
        old = self.chat.path.find_message(message_id)
        if not text.strip() and not (files and files.images):
            self.chat_notice_raised.emit(_EMPTY_MESSAGE)
            return
        if old is not None and old.role is Role.TOOL:
            return
        is_reply = old is not None and old.role is Role.ASSISTANT
        if not is_reply and not self._may_write():
            return
        if files and (reason := files.reason_to_wait()):
            self.chat_notice_raised.emit(Notice("The message was not sent", reason))
            return
        self.calls.stop_calls()
        self.replies.stop_replies()
        with self.storage.writing():
            self.recorder.flush()  # The edit begins with the stored text.
            message = self._store.message(message_id)
            if is_reply and text == message.parts.answer.strip("\n"):
                return
            self.chat.add_version(message, text)
            if not is_reply:
                self.chat.answer_path(self.chat.conversation, self.chat.path)

    def regenerate(self, message_id: int, options: MadeWith = USUAL_OPTIONS, other: OtherModel | None = None) -> None:
        """Have another reply written; the old one stays as an alternative. A prompt without a reply gets one.

        Args:
            message_id: The reply, or the prompt.
            options: Options for this reply alone; by default those of the chat.
            other: Another model to load for it; the present one is loaded again when the reply has ended.
        """
        if not self._may_write():
            return
        self.calls.stop_calls()
        self.replies.stop_replies()
        with self.storage.writing():
            path = self.chat.path_to_prompt(message_id)
            if not ends_with_question(path):
                self.chat_notice_raised.emit(_NO_QUESTION)
                return
            # Options for this reply alone; `OpenChat.reopen_reply` keeps them if it is continued.
            once = other is not None or options != USUAL_OPTIONS
            made_with = replace(options, sampling=options.sampling or self.chat.conversation.sampling, once=once)
            self.chat.answer_path(self.chat.conversation, path, made_with, other)

    def continue_reply(self, message_id: int) -> None:
        """Have the reply at the end of the path written on, once it has ended.

        Not one with calls of tools, and an empty one only if there is a question before it.
        """
        path = self.chat.path
        is_ended = bool(path) and path.ids[-1] == message_id != self.chat.streaming_id
        if not is_ended or path[-1].role is Role.TOOL or path[-1].tool_calls or not self._may_write():
            return
        if not path[-1].text.strip() and not ends_with_question(path[:-1]):
            self.chat_notice_raised.emit(_NO_QUESTION)
            return
        self.calls.stop_calls()
        self.replies.stop_replies()
        with self.storage.writing():
            self.recorder.flush()  # The store reopens its own text.
            self.replies.load_model(self.chat.conversation)
            reply = self.chat.reopen_reply()
            path = self.chat.path[:-1]
            if reply.text.strip():
                path.append(replace(reply, context_cut=None))
            self.replies.write_reply(reply, self.chat.conversation, path)

    def delete_message(self, message_id: int) -> None:
        """Delete a message and all messages after it; `ChatList.undo` restores them.

        Not while a reply or a result of a call is written that is this message, or comes after it.
        """
        if self.chat.id is None:
            return
        with self.storage.writing():
            self.recorder.flush()
            paths = (self._store.path_to(reply.message.id) for reply in self.recorder.live)
            if any(path.index_of(message_id) is not None for path in paths):
                self.chat_notice_raised.emit(_BEING_WRITTEN)
                return
            role = self._store.message(message_id).role
            deleted = self._delete(self.chat.conversation, message_id)
            self._add_undo(partial(self._trash_of(message_id).restore, deleted))
            self.chats.order.undo_offered.emit(_deletion_text(role, deleted.count))

    def _delete(self, chat: Conversation, message_id: int) -> DeletedMessage:
        """Delete a message and those after it; the chat's caches hold them, so they are removed too."""
        self.disk_caches.remove_chat(chat)
        return self._trash_of(message_id).delete(message_id)

    def _trash_of(self, any_id: int | None) -> MessageTrash:
        """Return the Trash of the store that has a chat or a message; temporary chats have a store of their own."""
        return self._store.holder_of(any_id).message_trash

    def has_deleted(self, chat_id: int) -> bool:
        """Return whether deleted messages of a chat can be restored."""
        last = self._store.message_trash.last
        return self.storage.read_or_default(lambda: last(chat_id), None) is not None

    def restore_deleted(self, chat_id: int) -> None:
        """Open a chat, and restore its last deleted message and the messages after it.

        Nothing is restored where the chat cannot be opened yet, because the open one is temporary.
        """
        if self.chat.id != chat_id:
            self.chat.open_chat(chat_id)
        if self.chat.id != chat_id:
            return
        with self.storage.writing():
            message_id = self._store.message_trash.restore_last(chat_id)
            if message_id is not None:
                self._add_undo(partial(self._delete, self.chat.conversation, message_id))

    def _add_undo(self, change: Callable[[], object]) -> None:
        """Read the path that a command has changed, and add the change that undoes the command."""
        chat_id = self.chat.id
        assert chat_id is not None

        def undo() -> None:
            change()
            if self.chat.id == chat_id:
                self.chat.read_path()
            else:
                self.chat.open_chat(chat_id)

        self.chats.order.history.add_step(undo, chat_id)
        self.chat.read_path()

    def branch(self, message_id: int) -> None:
        """Copy the chat up to a message, with its settings and folder, and open the copy."""
        conversation = self.chat.stored_conversation
        if conversation is None:
            self.chat_notice_raised.emit(NOT_KEPT)
            return
        with self.storage.writing():
            self.recorder.flush()  # The store makes the copy.
            self.chats.order.branch(conversation, message_id)

    def plain_pace(self) -> float | None:
        """Return the loaded model's tokens a second without drafting, by its last reply since it was loaded.

        Without one, by the last reply of the open chat, if this model wrote it; None otherwise.
        """
        last = self.chat.path.last_reply
        measured = last.statistics if last and last.model == self.model_slot.name else None
        if self.time_ledger.plain_pace is not None or measured is None:
            return self.time_ledger.plain_pace
        return measured.plain_tps or measured.decode_tps

    def _may_write(self) -> bool:
        """Return whether another reply can be written now; if not, raise a notice that says why."""
        if measuring := self.model_slot.engine.measuring:
            self.notice_raised.emit(_MEASURING)
        return not measuring

    # Models

    def _remember_model(self) -> None:
        """Store the chosen model for the next start, also one that did not load: another precision may mend it.

        It waits for the outcome: a model that ends the process must not do so at every start. A model that is borrowed
        for a reply is stored once the person stays with it.
        """
        if self.borrowed.loan is not None or self.model_slot.loading:
            return
        remembered = self.model_slot.remembered_in(self.settings.values)
        if remembered != self.settings.values:
            self.settings.change(remembered)

    def _load_restored(self) -> None:
        """Load the model of a restored backup's settings, which `_remember_model` would otherwise overwrite."""
        slot = self.model_slot
        settings = self.settings.values
        if slot.remembered_in(settings) != settings:
            slot.load_model(settings.model, settings.dtype)

    def _show_warning(self, info: ModelInfo) -> None:
        """Raise a notice of what is wrong with a model that was loaded all the same."""
        if info.warning:
            title = "Replies can differ" if info.may_differ else "Memory is tight"
            self.notice_raised.emit(Notice(title, info.warning))


def _deletion_text(role: Role, count: int) -> str:
    """Return what was deleted: a message, and how many with it and after it."""
    deleted = {Role.USER: "your message", Role.TOOL: "the result"}.get(role, "the reply")
    if count == 1:
        return f"Deleted {deleted}"
    return f"Deleted {deleted} and {'the one message' if count == 2 else f'the {count - 1:,} messages'} after it"
