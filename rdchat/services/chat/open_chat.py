"""The conversation that is open: its active path, its own options, and what is added to it."""

from collections.abc import Sequence
from dataclasses import replace

from rdchat.chat.attachments.attached_file import AttachedFile
from rdchat.chat.conversation import ContextCut, Conversation, MadeWith, Message, MessageStatus
from rdchat.chat.message_path import MessagePath
from rdchat.chat.settings import Settings
from rdchat.chat.store import ConversationStore
from rdchat.chat.titles import title_from_prompt
from rdchat.inference.api.reply_statistics import Statistics
from rdchat.inference.api.requests import Role, SamplingParams, ThinkingChoice, fresh_seed, reply_seed


class OpenChat:
    """A conversation of the store, or a new one, which is stored with its first prompt.

    Methods that reach the store raise StorageError and leave the chat as it was.

    Attributes:
        conversation: The stored conversation; None for a new chat.
        path: Its active path as it was read; replies that are being written may have gained text since.
        system_prompt: The chat's own; None where it takes the one of the preferences.
        sampling: The chat's own; None where it takes the one of the preferences.
        thinking: Whether or how much the model is to think; None leaves it to the model.
    """

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        self.start_new()

    def start_new(self) -> None:
        self.conversation: Conversation | None = None
        self.path = MessagePath()
        self.system_prompt: str | None = None
        self.sampling: SamplingParams | None = None
        self.thinking: ThinkingChoice | None = None

    def begin(self, title: str, system_prompt: str, sampling: SamplingParams | None) -> None:
        """Store a new chat without a message, with options of its own."""
        self.start_new()
        self.conversation = self._store.create_conversation(title)
        self.set_options(system_prompt, sampling)

    def open(self, conversation_id: int) -> None:
        conversation, path = self._store.conversation(conversation_id), self._store.messages(conversation_id)
        self.path = path
        self._take(conversation)

    def update(self, conversation: Conversation) -> None:
        """Take over a change of title or options, if the conversation is the open one."""
        if self.is_open(conversation.id):
            self._take(conversation)

    def _take(self, conversation: Conversation) -> None:
        self.conversation = conversation
        self.system_prompt, self.sampling = conversation.system_prompt, conversation.sampling
        self.thinking = conversation.thinking_choice

    @property
    def id(self) -> int | None:
        """The conversation's; None of one that is not stored yet."""
        return self.conversation.id if self.conversation else None

    def is_open(self, conversation_id: int) -> bool:
        return self.conversation is not None and self.conversation.id == conversation_id

    def set_options(self, system_prompt: str | None, sampling: SamplingParams | None) -> None:
        if self.conversation is None:
            self.system_prompt, self.sampling = system_prompt, sampling
        else:
            self._take(self._store.set_chat_options(self.conversation.id, system_prompt, sampling))

    def set_thinking(self, thinking: ThinkingChoice | None) -> None:
        if self.conversation is None:
            self.thinking = thinking
        else:
            self._take(self._store.set_thinking_choice(self.conversation.id, thinking))

    def has(self, message_id: int) -> bool:
        """Tell whether a message is on the active path."""
        return self.path.place_of(message_id) is not None

    def ends_with(self, message_id: int) -> bool:
        return bool(self.path) and self.path.ids[-1] == message_id

    def replace(self, message: Message) -> Message:
        """Put a message in its place on the path, and return it with its place among the alternatives."""
        if (old := self.path.find(message.id)) is not None:
            message = replace(message, sibling=old.sibling, siblings=old.siblings)
            self.path.put(message)
        return message

    def set_cut(self, message_id: int, cut: ContextCut | None) -> None:
        """Leave a message and those before it out of what the model is told, or with None no longer."""
        self._store.set_context_cut(message_id, cut)
        if (message := self.path.find(message_id)) is not None:
            self.path.put(replace(message, context_cut=cut))

    def last_statistics(self) -> Statistics:
        last = self.path.last_measured
        return last.statistics if last is not None and last.statistics else Statistics()

    def add_prompt(self, text: str, files: Sequence[tuple[AttachedFile, str]] = ()) -> Message:
        """Add a prompt, with files and their texts, to the end of the path; the first one stores and names the chat."""
        if self.conversation is None:
            self._store_new(title_from_prompt(text))
        assert self.conversation is not None
        parent_id = self.path.ids[-1] if self.path else None
        prompt = self._store.add_message(self.conversation.id, parent_id, Role.USER, text, files=files)
        self.path.append(prompt)
        return prompt

    def _store_new(self, title: str) -> None:
        thinking = self.thinking
        self.conversation = self._store.create_conversation(title, from_prompt=True)
        if (self.system_prompt, self.sampling) != (None, None):
            self.set_options(self.system_prompt, self.sampling)
        if thinking is not None:
            self.set_thinking(thinking)

    def add_prompt_version(self, message_id: int, text: str) -> None:
        """Add an alternative of a prompt, with the same files; the path ends with it."""
        old = self._store.message(message_id)
        prompt = self._store.add_message(old.conversation_id, old.parent_id, Role.USER, text, files_of=old.id)
        self.path = self._store.path_to(prompt.id)

    def add_reply(self, settings: Settings, model: str | None, made_with: MadeWith) -> Message:
        """Add an empty reply to the prompt that ends the path."""
        return self._add_reply(self.path, settings, model, made_with)

    def path_to_prompt(self, message_id: int) -> MessagePath:
        """Return the path to what a reply answers, or to a prompt itself; of a store made by hand, perhaps nothing."""
        path = self._store.path_to(message_id)
        return path if path and path[-1].role is Role.USER else path[:-1]

    def add_another_reply(self, message_id: int, settings: Settings, model: str | None, made_with: MadeWith) -> Message:
        """Add an empty alternative of a reply, or the first reply of a prompt; the path ends with it."""
        return self._add_reply(self.path_to_prompt(message_id), settings, model, made_with)

    def _add_reply(self, path: MessagePath, settings: Settings, model: str | None, made_with: MadeWith) -> Message:
        seed = settings.seed if settings.seed is not None else fresh_seed()
        earlier_replies = self._store.count_replies(path[-1].id)
        reply = self._store.add_message(
            path[-1].conversation_id,
            path[-1].id,
            Role.ASSISTANT,
            "",
            status=MessageStatus.STREAMING,
            model=model,
            seed=reply_seed(seed, len(path), earlier_replies),
            made_with=made_with,
        )
        self.path = path[:]
        self.path.append(reply)
        return reply

    def add_edited_reply(self, old: Message, text: str) -> None:
        """Add the person's version of a reply as an alternative; the path ends with it."""
        edited = self._store.add_message(
            old.conversation_id,
            old.parent_id,
            Role.ASSISTANT,
            text,
            model=old.model,
            seed=reply_seed(fresh_seed(), 0, 0),  # for what a model may write on
            edited=True,
        )
        self.path = self._store.path_to(edited.id)

    def read_path(self) -> None:
        """Read the active path anew: what is shown of it has changed in the store."""
        if self.conversation is not None:
            self.path = self._store.messages(self.conversation.id)

    def reopen_reply(self, made_with: MadeWith) -> Message:
        """Let the reply that ends the path be written on."""
        reply = self._store.reopen_message(self.path.ids[-1], made_with)
        self.path.put(reply)
        return reply

    def select_alternative(self, message_id: int, step: int) -> None:
        self.path = self._store.select_sibling(message_id, step)
