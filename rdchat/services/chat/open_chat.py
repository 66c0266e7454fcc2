"""The open chat: its path of messages, its options, the typed draft with its files, and the reply that is written."""

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.attachments.attached_file import FileKind, block_of
from rdchat.chat.conversation import (
    NEW_CHAT,
    Conversation,
    MadeWith,
    Message,
    MessagePath,
    MessageStatus,
    ReadingPosition,
    from_cut,
    is_temporary,
)
from rdchat.chat.option_order import ChatValues
from rdchat.chat.projects import Folder
from rdchat.chat.store import ConversationStore
from rdchat.chat.summaries import ContextCut
from rdchat.chat.titles import title_from_prompt
from rdchat.errors import StorageError
from rdchat.inference.api import Role, ToolCall, fresh_seed, reply_seed
from rdchat.services.chat.borrowed_model import OtherModel
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.chat.replies import Replies
from rdchat.services.chat.unsent_memory import UnsentMemory, WaitingMessage
from rdchat.services.files.pending_files import PendingFiles
from rdchat.services.storage_watch import StorageWatch


class OpenChat(QObject):
    """A conversation of the store, or a new one, which is stored with its first prompt.

    Methods that add messages raise StorageError and leave the chat as it was; the others report it to `storage`.

    Attributes:
        replies: The replies of all chats that are being written.
        files: The files of the message that is typed.
        edits: The files of prompts that are being edited, by the message's id.
        unsent: Typed texts that were neither sent nor saved, of all chats.
        conversation: The chat with its options, also before it is stored.
        path: Its messages, with the text of the reply that is being written. Views hold it.

    Signals:
        opened: Another conversation is open, or a new one.
        stored: A new chat was stored, or a chat has another prompt.
        path_changed: The path has other messages, or another context cut.
        message_added: A message was added at the end of the path.
        message_changed: More has changed than the text of a reply that is being written.
        reply_grew: A message, by its id, has gained this text.
        options_changed: The chat's own options have changed, or those of its project, the settings or the model.
        typed_changed: The message field has another text.
        project_taken: The chat, which has messages, is now in the project of this folder.
        leaving_asked: A temporary chat with content would be left. Has the function to call once the person agrees.
        temporary_ended: A temporary chat, by its id, ends. Whoever has something of it forgets that.
        discarded: A temporary chat with messages or files was discarded.
    """

    opened = Signal()
    stored = Signal()
    path_changed = Signal()
    message_added = Signal(Message)
    message_changed = Signal(Message)
    reply_grew = Signal(int, str)
    options_changed = Signal()
    typed_changed = Signal()
    project_taken = Signal(Folder)
    leaving_asked = Signal(object)
    temporary_ended = Signal(int)
    discarded = Signal()

    def __init__(self, store: ConversationStore, storage: StorageWatch, replies: Replies) -> None:
        super().__init__(replies)
        self._store = store
        self._storage = storage
        self.replies = replies
        self.files = PendingFiles(replies.model, replies.drafting.control)
        self.unsent = UnsentMemory(store, self)
        self.files.changed.connect(lambda: self.unsent.save_files(self.files.chat, tuple(self.files.to_send())))
        self.unsent.files_exceeded.connect(self.files.refused)
        self.edits: dict[int, PendingFiles] = {}
        self.conversation = NEW_CHAT
        # The chat's project when it was opened, or when `follow_project` last looked.
        self._project: Folder | None = None
        self.path = MessagePath()
        replies.grew.connect(self._on_reply_grew)
        replies.changed.connect(self._on_reply_changed)
        replies.ended.connect(self._on_reply_changed)
        replies.chat_allowed.connect(self.update_chat)
        replies.drafting.control.changed.connect(self.options_changed)
        replies.model.loaded.connect(self.options_changed)

    # What is open

    @property
    def stored_conversation(self) -> Conversation | None:
        """The conversation; None of a new chat that is not stored yet, and of a temporary one."""
        return self.conversation if self.conversation.id and not self.temporary else None

    @property
    def temporary(self) -> bool:
        """Whether it is a temporary chat."""
        return is_temporary(self.id)

    @property
    def id(self) -> int | None:
        """The conversation's; None of one that is not stored yet."""
        return self.conversation.id or None

    @property
    def typed(self) -> str:
        """The text in the message field."""
        return self.unsent.unsent_text(self.id)

    @property
    def values(self) -> ChatValues:
        """The options of the next reply."""
        return self.replies.order.effective_values(self.conversation)

    @property
    def project_folder(self) -> Folder | None:
        """The folder whose project the chat has; None outside of projects."""
        return self.replies.order.project_folder(self.conversation)

    @property
    def streaming_id(self) -> int | None:
        """The message of the path that is being written, or waits for the model."""
        live = (reply.message.id for reply in reversed(self.replies.live))
        return next(filter(self.has, live), None)

    def has(self, message_id: int) -> bool:
        """Return whether a message is on the path."""
        return self.path.index_of(message_id) is not None

    @property
    def reading_position(self) -> ReadingPosition | None:
        """Where the person was reading in this chat; None for its end."""
        with suppress(StorageError):
            return None if self.id is None else self._store.reading_position(self.id)
        return None

    def save_reading_position(self, conversation_id: int, position: ReadingPosition | None) -> None:
        """Store where the person is reading in a chat; a position that cannot be stored is forgotten."""
        with suppress(StorageError):
            if self._store.reading_position(conversation_id) != position:
                self._store.save_reading_position(conversation_id, position)

    def alternatives(self, message_id: int) -> list[Message]:
        """Return a message and its alternatives, oldest first, with text that is not stored yet."""
        stored = self._storage.read_or_default(lambda: self._store.alternatives(message_id), ())
        return [self.replies.recorder.completed(each) for each in stored]

    def prompt(self, waiting: WaitingMessage | None = None) -> ChatPrompt:
        """Return the prompt that the chat would have with the typed text and its files, or with a waiting message."""
        typed = self.typed
        blocks = self.files.blocks
        if waiting is not None:
            typed = waiting.text
            files = [(file, text) for file, text in waiting.files if file.kind is not FileKind.IMAGE]
            blocks = "\n\n".join(block_of(file, text) for file, text in files)
        images = () if waiting else self.files.images
        return ChatPrompt(
            from_cut(self.path),
            self.values.system_prompt,
            typed.strip(),
            blocks,
            images,
            files=self.replies.order.files(self.conversation),
            notes=self.replies.notes(self.conversation),
        )

    # Opening

    def start_new(self, folder_id: int | None = None) -> None:
        """Open a new chat, perhaps in a folder."""
        if self.asks_to_leave(partial(self.start_new, folder_id)):
            return
        self.conversation = replace(NEW_CHAT, folder_id=folder_id)
        self.path = MessagePath()
        self._emit_opened()

    def begin_chat(self, title: str, cut: ContextCut) -> None:
        """Open a new chat with the options of this one, stored at once.

        Its first message says where it comes from, and has the mark with what the model gets in its place.
        """
        origin = f"Goes on from “{self.conversation.title}”."
        # Where it cannot be stored, a new chat with these options is open.
        self.conversation = replace(
            self.conversation,
            id=NEW_CHAT.id,
            title=NEW_CHAT.title,
            pinned_at=None,
            archived=False,
        )
        self.path = MessagePath()
        with self._storage.writing():
            self.conversation = self._store.create_conversation(title, like=self.conversation)
            first = self._store.add_message(self.conversation.id, None, Role.USER, origin)
            self._store.set_context_cut(first.id, cut)
            self.path = self._store.messages(self.conversation.id)
        self._emit_opened()
        self.stored.emit()

    # The temporary chat

    def start_temporary(self) -> None:
        """Open a temporary chat; where it cannot be made, a new chat is opened."""
        if not self.asks_to_leave(self.start_temporary):
            self.conversation = NEW_CHAT
            self.path = MessagePath()
            with self._storage.reading():
                self.conversation = self._store.begin_temporary(NEW_CHAT)
            self._emit_opened()

    def asks_to_leave(self, then: Callable[[], object]) -> bool:
        """Ask before a temporary chat with content is left, and return True; discard an empty one, and return False."""
        if not self.temporary:
            return False
        if self.path or self.unsent.waiting_in(self.id) or self.typed.strip() or self.files.files:
            self.leaving_asked.emit(then)
            return True
        self.discard()
        return False

    def discard(self) -> None:
        """Forget the temporary chat, if one is open; a new one is open then."""
        if self.temporary:
            is_used = self.files.files or self._store.holder_of(self.id).rows("SELECT 1 FROM messages")
            self._end_temporary()
            if is_used:
                self.discarded.emit()

    def _end_temporary(self) -> None:
        """Forget all of the temporary chat, here and in the services; a new chat is open then."""
        chat = self.conversation.id
        self.temporary_ended.emit(chat)
        self.files.remove_files()
        for message_id in filter(is_temporary, tuple(self.edits)):
            self.end_edit(message_id)
        self.conversation = NEW_CHAT
        self.path = MessagePath()
        self.replies.forget_chat(chat)
        self.unsent.forget_chat(chat)
        self._store.end_temporary()

    def keep_temporary(self) -> None:
        """Store the temporary chat as a chat, where it goes on: its reply, what waits and what is typed.

        What is typed, its files and the waiting messages are read first, and given to the new chat last: ending the
        temporary chat forgets them.
        """
        before = self.conversation.id
        typed = self.typed
        files = self.files.to_send()
        waiting = self.unsent.waiting_in(before)
        first = self.path[0] if self.path else None
        with self._storage.writing():
            self.replies.recorder.flush()
            name = (first.text.strip() or first.files[0].name) if first else typed
            chat = self._store.keep_temporary(self.conversation, title_from_prompt(name))
            if (reply := self.streaming_id) is not None:
                last = self._store.reopen_message(self._store.messages(chat.id).ids[-1])
                # It belongs to the stored chat from here on: the end of the temporary one does not stop it.
                self.replies.recorder.continue_reply(reply, last, chat)
                self.replies.traces.drop_trace(reply)
            self._end_temporary()
            self.unsent.save_text(chat.id, None, typed)
            for message in waiting:
                self.unsent.queue_message(replace(message, chat=chat.id))
            self.open_chat(chat.id)
            self.files.restore_files(files)
            self.stored.emit()

    def open_chat(self, conversation_id: int) -> None:
        """Open a stored chat; where it cannot be read, the present one stays open."""
        if self.asks_to_leave(partial(self.open_chat, conversation_id)):
            return
        with self._storage.reading():
            self.conversation, self.path = self._read(conversation_id)
            self._emit_opened()
            self._forget_unchanged_edits()

    def forget_all(self) -> None:
        """Forget all chats after the store was replaced, but keep what waited and the typed text for a new chat."""
        self.discard()
        files = self.unsent.begin_anew(self.typed)
        self.files.begin_anew()
        self.files.restore_files(files)
        self.unsent.store()
        for message_id in tuple(self.edits):
            self.end_edit(message_id)
        self.conversation = NEW_CHAT
        self.path = MessagePath()

    def update_chat(self, conversation: Conversation) -> None:
        """Take over a change of title or options, if the conversation is the open one."""
        if conversation.id == self.id:
            self.conversation = conversation

    def follow_project(self) -> None:
        """Take over a change of the chat's project, or that it has another one.

        `options_changed` is emitted for both, `project_taken` only where a chat with messages has another project now.
        """
        before = self._project
        self._project = self.project_folder
        if self._project != before:
            self.options_changed.emit()
        if self.path and self._project is not None and (before is None or before.id != self._project.id):
            self.project_taken.emit(self._project)

    def read_path(self) -> None:
        """Read the path anew, as the store has changed it. Raises StorageError."""
        if self.conversation.id:
            self._show_path(self._store.messages(self.conversation.id))

    def show_alternative(self, message_id: int, step: int) -> None:
        """Show the alternative of a message that comes `step` later, and the messages after it."""
        with self._storage.writing():
            self._show_path(self._store.select_sibling(message_id, step))

    def _read(self, conversation_id: int) -> tuple[Conversation, MessagePath]:
        return self._store.conversation(conversation_id), self._completed(self._store.messages(conversation_id))

    def _completed(self, path: MessagePath) -> MessagePath:
        """Add the text of replies that the store does not have yet to a path of the store."""
        for reply in self.replies.recorder.held:
            path.update_message(reply.message)
        return path

    def _show_path(self, path: MessagePath) -> None:
        self.path = self._completed(path)
        self.path_changed.emit()

    def _emit_opened(self) -> None:
        self._project = self.project_folder
        self.files.show_chat(self.id)
        self.files.restore_files(self.unsent.take_files(self.id))
        self.opened.emit()

    # Changing

    def set_typed(self, text: str) -> None:
        """Take the text of the message field, to be stored soon."""
        self.unsent.save_text(self.id, None, text)
        self.typed_changed.emit()

    def set_options(self, **options: Any) -> None:
        """Give the chat values by their names in `ChatValues`."""
        order = self.replies.order
        chat = self.conversation
        self._store_options(chat.with_own(order.own(chat, replace(order.effective_values(chat), **options))))

    def use_preset(self, preset: str | None) -> None:
        """Give the chat just the options of a preset, without own ones.

        `preset` is the preset's id, "" for no preset, or None for the preset of the model.
        """
        chat = self.conversation.with_own({})
        self._store_options(replace(chat, own=replace(chat.own, preset=preset)))

    def set_tools(self, servers: Iterable[str], off: Iterable[str]) -> None:
        """Switch servers of tools on in the chat, by their names, and some of their tools off, by full names.

        - The servers of its project: the chat stores none, and follows the project.
        - None, although the project has some: "tools" is stored in `cleared`, as no servers would mean the project's.
        - Other servers: they are stored.
        """
        own = self.conversation.own
        chosen = tuple(servers)
        usual = self.replies.order.usual_tools(self.conversation)
        cleared = tuple(each for each in own.cleared if each != "tools")
        if usual and not chosen:
            cleared += ("tools",)
        tools = () if set(chosen) == set(usual) else chosen
        own = replace(own, tools=tools, tools_off=tuple(off), cleared=cleared)
        self._store_options(replace(self.conversation, own=own))

    def set_own(self, **options: Any) -> None:
        """Set whether the chat's KV caches may be kept on disk (`keep_cache`), or whether it has notes (`notes`)."""
        self._store_options(replace(self.conversation, own=replace(self.conversation.own, **options)))

    def _store_options(self, conversation: Conversation) -> None:
        with self._storage.writing() if conversation.id else nullcontext():
            # The prompt that goes is in the chat's caches.
            if self.conversation.system_prompt not in {None, conversation.system_prompt}:
                self.replies.caches.remove_chat(self.conversation)
            self.conversation = self._store.set_chat_options(conversation) if conversation.id else conversation
            self.options_changed.emit()

    def set_cut(self, message_id: int, cut: ContextCut | None) -> None:
        """Set the cut at a message; None removes it. `ContextCut` says what becomes of the messages up to it."""
        with self._storage.writing():
            message = self.path.find_message(message_id)
            # The summary that goes is in the chat's caches.
            if message is not None and message.context_cut is not None:
                self.replies.caches.remove_chat(self.conversation)
            self._store.set_context_cut(message_id, cut)
            if message is not None:
                self.path.update_message(replace(message, context_cut=cut))
        self.path_changed.emit()

    # Adding messages

    def take_message(self, text: str) -> WaitingMessage:
        """Take a text with the pending files out of the message field; the first one stores and names the chat."""
        if not self.conversation.id:
            typed = self.typed
            # Files go to a remote server only once the person was asked; so a chat with files is not allowed yet.
            like = self.conversation if self.files.to_send() else self.replies.new_chat(self.conversation)
            named = text if text.strip() else next((file.name for file in self.files.files), "")
            self.conversation = self._store.create_conversation(title_from_prompt(named), from_prompt=True, like=like)
            # What is typed moves from the field of new chats to the one of this chat, and so do the files.
            self.unsent.save_text(None, None, "")
            self.unsent.save_text(self.id, None, typed)
            self.files.follow(None, self.id)
            self.files.show_chat(self.id)
            self.stored.emit()
        message = WaitingMessage(self.conversation.id, text, tuple(self.files.to_send()))
        self.files.remove_files()
        return message

    def ask_question(self, message: WaitingMessage) -> None:
        """Add a prompt to its chat's path, and have it answered. Raises StorageError if it is not stored."""
        conversation, path = self.at(message.chat)
        prompt = self._store.add_message(
            conversation.id,
            path.last_id,
            Role.USER,
            message.text,
            files=message.files,
            origin=self.unsent.origin_of(message.text),
        )
        path.append(prompt)
        self._storage.note_success()
        if path is self.path:
            self.message_added.emit(prompt)
        self.stored.emit()
        with self._storage.writing():
            self.answer_path(conversation, path)

    def at(self, conversation_id: int) -> tuple[Conversation, MessagePath]:
        """Return a chat and its path: the open one's own, which grows. Raises StorageError."""
        return (self.conversation, self.path) if conversation_id == self.id else self._read(conversation_id)

    def answer_path(
        self,
        conversation: Conversation,
        path: MessagePath,
        made_with: MadeWith | None = None,
        other: OtherModel | None = None,
    ) -> None:
        """Have a reply, perhaps another one, written to the prompt or the results of calls that end a chat's path.

        Args:
            conversation: The chat.
            path: The path.
            made_with: Options for this reply; None for those of the chat.
            other: Another model for this reply.

        Raises:
            StorageError: If the reply is not stored.
        """
        if other is None:
            self.replies.load_model(conversation)
        # A copy: the path on view may be this one, and grows.
        prompts = path[:]
        last = path[-1]
        reply = self._store.add_message(
            last.conversation_id,
            last.id,
            Role.ASSISTANT,
            "",
            model=other.name if other else self.replies.model.name,
            seed=self.reply_seed(len(path), self._store.count_replies(last.id)),
            made_with=made_with or MadeWith(conversation.sampling),
            status=MessageStatus.STREAMING,
        )
        if reply.conversation_id == self.id:
            self._show_reply(reply, prompts)
        self.replies.write_reply(reply, conversation, prompts, other)

    def _show_reply(self, reply: Message, prompts: MessagePath) -> None:
        """Show a new reply: the path grows by it, or is replaced if the reply belongs to an earlier message of it."""
        if prompts.ids == self.path.ids:
            self.path.append(reply)
            self.message_added.emit(reply)
        else:
            self.path = prompts[:]
            self.path.append(reply)
            self.path_changed.emit()

    def take_back(self, message: WaitingMessage) -> None:
        """Put a waiting message back into the message field of its chat."""
        self.unsent.take_back(message)
        if message.chat == self.id:
            self.files.restore_files(message.files)
            self.typed_changed.emit()

    def edited_files(self, message: Message) -> PendingFiles | None:
        """Return the files that a prompt will have once its edit is saved, at first its own; None if unreadable."""
        if message.id not in self.edits:
            with self._storage.reading():
                own = [(file, self._store.file_text(file)) for file in message.files]
                files = PendingFiles(self.replies.model, self.replies.drafting.control)
                self.edits[message.id] = files
                files.restore_files(own)
        return self.edits.get(message.id)

    def _forget_unchanged_edits(self) -> None:
        """Forget the files of edits in other chats that are still the messages' own; an editor reads them again."""
        for message_id, files in tuple(self.edits.items()):
            if message_id in self.path.ids:
                continue
            is_there = self._store.holder_of(message_id).rows("SELECT 1 FROM messages WHERE id = ?", message_id)
            if not is_there or [each.file for each in files.files] == list(self._store.message(message_id).files):
                self.end_edit(message_id)

    def end_edit(self, message_id: int) -> None:
        """Forget the files of an edit that was saved or given up."""
        if files := self.edits.pop(message_id, None):
            files.stop_reading(0.0)
            files.deleteLater()

    def stop_files(self) -> None:
        """Stop reading and counting files."""
        for files in (self.files, *self.edits.values()):
            files.stop_reading()

    def add_version(self, old: Message, text: str) -> None:
        """Add a text of the person as an alternative of a prompt or of a reply; the path ends with it.

        A prompt has the files of its edit, or else those of the old one. A reply keeps the calls of the old one. Words
        of others stay theirs.
        """
        if old.role is Role.ASSISTANT:  # The seed is for a later continuation.
            seed = reply_seed(fresh_seed(), 0, 0)
            fields: dict[str, Any] = {"model": old.model, "seed": seed, "edited": True, "tool_calls": old.tool_calls}
        elif old.id in self.edits:
            fields = {"files": self.edits[old.id].to_send()}
        else:
            fields = {"files": [(file, self._store.file_text(file)) for file in old.files]}
        origin = old.origin or self.unsent.origin_of(text)
        new = self._store.add_message(old.conversation_id, old.parent_id, old.role, text, origin=origin, **fields)
        self._show_path(self._store.path_to(new.id))

    def path_to_prompt(self, message_id: int) -> MessagePath:
        """Return the path to what a reply answers, or to a prompt or a call's result itself.

        It is empty for a reply without a prompt, which only a store made by hand has.
        """
        path = self._store.path_to(message_id)
        return path if path and path[-1].role is not Role.ASSISTANT else path[:-1]

    def add_results(self, path: MessagePath, calls: Sequence[ToolCall]) -> list[Message]:
        """Add the empty results of calls to the path that a chat has (`at`), and show them at once."""
        results = self._store.add_results(path[-1], calls) if calls else []
        for result in results:
            path.append(result)
        if path is self.path and results:
            self.path_changed.emit()
        return results

    def reply_seed(self, messages: int, earlier_replies: int = 0) -> int:
        """Return the seed of a reply that follows `messages` messages.

        `earlier_replies` is the number of replies that the last of these has already.
        """
        own_seed = self.replies.drafting.control.values.seed
        return reply_seed(own_seed if own_seed is not None else fresh_seed(), messages, earlier_replies)

    def reopen_reply(self) -> Message:
        """Reopen the reply that ends the path, to continue it; options for it alone still hold.

        A cut there is removed: its summary would not have the new text.
        """
        if self.path[-1].context_cut is not None:
            self.set_cut(self.path[-1].id, None)
        before = self.path[-1].made_with
        made_with = before if before is not None and before.once else MadeWith(self.conversation.sampling)
        reply = self._store.reopen_message(self.path.ids[-1], made_with)
        self.path.update_message(reply)
        self.message_changed.emit(reply)
        return reply

    # The reply that is being written

    def _on_reply_grew(self, reply: Message, text: str) -> None:
        if self.path.update_message(reply) is not None:
            self.reply_grew.emit(reply.id, text)

    def _on_reply_changed(self, reply: Message) -> None:
        if (message := self.path.update_message(reply)) is not None:
            self.message_changed.emit(message)
