"""Requests titles of new chats from the model while it is idle. It lives on the main thread."""

from collections.abc import Callable, Sequence
from functools import partial
from itertools import takewhile

from PySide6.QtCore import QObject, QTimer

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.store import ConversationStore
from rdchat.chat.titles import TITLE_WISH, title_from_model
from rdchat.errors import StorageError
from rdchat.inference.api import ChatMessage, FinishReason, ReplyEnd, Role
from rdchat.services.chat.replies import Replies
from rdchat.services.engine.engine_request import EngineEvent, EngineRequest, Failure

# A title is begun so long after the last event: the person may be about to go on.
_QUIET_MS = 1500
# Characters of each message that are in the prompt for a title.
_MAX_PROMPT_CHARACTERS = 4000
# Tokens of a title; and with the thoughts of a model that thought in its reply.
_TITLE_TOKENS = 48
_THINKING_TOKENS = 2048


class TitleWriter(QObject):
    """Writes one title at a time, of the newest chat whose title is still the beginning of its first prompt.

    A small model writes none: it would repeat its answer.

    A reply, a race, a benchmark or the load of a model cancels it, and it is written later. Titles that the person
    typed are never replaced. Thoughts are not part of the prompt or the title.

    Args:
        store: The conversations.
        replies: Gives the state of the engine, and the settings.
        titled: Called when a title was stored.

    Attributes:
        quiet: Runs while nothing happens.
    """

    def __init__(self, store: ConversationStore, replies: Replies, titled: Callable[[], object]) -> None:
        super().__init__(replies)
        self._store = store
        self._replies = replies
        self._settings = replies.drafting.control
        self._titled = titled
        # The title that is being written.
        self._request: EngineRequest | None = None
        # Chats whose title failed, at the engine or in the store: none is asked for until the app starts again.
        self._failed: set[int] = set()
        self.quiet = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self.quiet.timeout.connect(self._begin)
        replies.state_changed.connect(self.wait_for_calm)
        self._settings.changed.connect(self.wait_for_calm)

    @property
    def writing(self) -> bool:
        """Whether a title is being written."""
        return self._request is not None

    def wait_for_calm(self) -> None:
        """Begin when nothing has happened for a while."""
        if self._settings.values.titles_by_model:
            self.quiet.start()
        else:
            self.quiet.stop()

    def stop_writing(self) -> None:
        """Write no more titles."""
        # Silenced, not stopped: a later event may start this timer again.
        self.quiet.blockSignals(True)

    def _begin(self) -> None:
        """Request the next title if the engine is idle; its end calls `wait_for_calm` again."""
        if self.writing or not self._replies.may_write_aside:
            return
        try:
            for conversation_id in self._store.organiser.without_title():
                path = self._store.messages(conversation_id)
                if conversation_id not in self._failed and (exchange := _first_exchange(path)):
                    self._ask(conversation_id, *exchange)
                    return
        except StorageError:
            # The person's next command reports it.
            return

    def _ask(self, conversation_id: int, prompt: Message, reply: Message) -> None:
        """Request the title of a chat from its first prompt and reply.

        A model that thought in the reply gets tokens to think here too. The reply's control tokens are at offsets in
        its text, so they are passed on only if all of that text is in the message.
        """
        system_prompt = self._replies.order.effective_values(self._store.conversation(conversation_id)).system_prompt
        answer = reply.parts.answer
        thinks = answer.strip() != reply.text.strip()
        is_complete = answer == reply.text and len(answer) <= _MAX_PROMPT_CHARACTERS
        messages = (  # The beginning of the chat's next prompt, so that the KV cache stays valid.
            *([ChatMessage(Role.SYSTEM, system_prompt)] if system_prompt.strip() else []),
            ChatMessage(Role.USER, prompt.text[:_MAX_PROMPT_CHARACTERS]),
            ChatMessage(Role.ASSISTANT, answer[:_MAX_PROMPT_CHARACTERS], reply.control_offsets if is_complete else ()),
            ChatMessage(Role.USER, TITLE_WISH),
        )
        max_tokens = _THINKING_TOKENS if thinks else _TITLE_TOKENS
        self._request = self._replies.ask_aside(messages, max_tokens, partial(self._on_event, prompt))

    def _on_event(self, prompt: Message, event: EngineEvent) -> None:
        """Store the title that a reply gives, perhaps none; one that was cancelled is requested again later.

        So is one of a prompt that has changed: after a restore, another chat may have its ids.
        """
        chat = prompt.conversation_id
        if not isinstance(event, ReplyEnd | Failure):
            return
        self._request = None
        if isinstance(event, Failure):
            self._failed.add(chat)
        elif event.finish_reason is not FinishReason.CANCELLED:
            # A reply that was cut off may be a thought; that there is no title is stored too.
            title = title_from_model(event.told.answer if event.is_whole else "")
            try:
                if self._store.message(prompt.id) == prompt and self._store.organiser.set_title_by_model(chat, title):
                    self._titled()
            except StorageError:
                self._failed.add(chat)
        self.wait_for_calm()


def _first_exchange(path: Sequence[Message]) -> tuple[Message, Message] | None:
    """Return the first prompt and its reply; None if there is no complete reply with text besides thoughts."""
    if not path or path[0].role is not Role.USER:
        return None
    # Calls of tools may come before the answer.
    replies = takewhile(lambda each: each.role is not Role.USER, (path[index] for index in range(1, len(path))))
    prompt = path[0]
    reply = next((each for each in replies if each.role is Role.ASSISTANT and not each.tool_calls), None)
    if reply is None or reply.status is not MessageStatus.COMPLETE or not prompt.text.strip():
        return None
    return (prompt, reply) if reply.parts.answer.strip() else None
