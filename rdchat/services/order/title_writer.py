"""Lets the model write titles of new chats while it is idle."""

from collections.abc import Callable, Sequence
from itertools import accumulate

from PySide6.QtCore import QObject, QTimer, Slot

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.chat.store import ConversationStore
from rdchat.chat.titles import TITLE_WISH, begins_in_thought, title_from_model
from rdchat.errors import StorageError
from rdchat.inference.api.events import FinishReason, ReplyEnd
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.services.chat.replies import Replies
from rdchat.services.chat.settings_control import SettingsControl
from rdchat.services.engine.engine_events import EngineEvent, EngineState, Failure
from rdchat.services.engine.engine_request import EngineRequest

_QUIET_MS = 1500  # after the last thing that happened: the person may be about to go on
_LONGEST_TOLD = 4000  # characters of each message
_QUICKLY_READ = 4000  # characters of a chat
_EXCHANGE = 2  # messages
_TITLE_TOKENS, _THINKING_TOKENS = 48, 2048
_ENDED_BY_ITSELF = {FinishReason.EOS, FinishReason.STOP_STRING}


class TitleWriter(QObject):
    """One title at a time, of the newest chat whose title was made of its first prompt.

    A reply, a race, a benchmark or another model stops it at once, and it is written again later. A title of the
    person's is never replaced. What the model thinks is neither told to it nor taken for a title. Where the model has
    read a long chat since it was loaded, titles of other chats wait: reading that chat anew would take long.

    Args:
        store: The conversations.
        replies: Know whether the engine is idle.
        preferences: Have the switch.
        titled: Called when a title was stored.

    Attributes:
        quiet: Runs while nothing happens.
    """

    def __init__(
        self, store: ConversationStore, replies: Replies, preferences: SettingsControl, titled: Callable[[], object]
    ) -> None:
        super().__init__(replies)
        self._store, self._replies, self._preferences = store, replies, preferences
        self._engine = replies.model.engine
        self._titled = titled
        self._request: EngineRequest | None = None  # of the title that is being written
        self._last_chat: int | None = None  # that the engine wrote in since the model was loaded
        self._failed: set[int] = set()  # chats that the engine refused, until the app starts again
        self._closed = False
        self.quiet = QTimer(self, singleShot=True, interval=_QUIET_MS)
        self.quiet.timeout.connect(self._begin)
        replies.state_changed.connect(self.wait)
        replies.ended.connect(self._on_reply_ended)
        replies.model.loaded.connect(self._forget_last_chat)
        preferences.changed.connect(self.wait)

    @property
    def writing(self) -> bool:
        """Whether a title is being written."""
        return self._request is not None

    @Slot()
    def wait(self) -> None:
        """Something happened: begin after a quiet while."""
        if not self._closed and self._preferences.settings.titles_by_model:
            self.quiet.start()
        else:
            self.quiet.stop()

    def close(self) -> None:
        """Begin no more."""
        self._closed = True
        self.quiet.stop()

    @Slot()
    def _begin(self) -> None:
        """Ask for the next title, where the engine has nothing to do; what ends that comes by `wait` again."""
        if self.writing or self._replies.state is not EngineState.IDLE or self._engine.measuring:
            return
        try:
            last = () if self._last_chat is None else self._store.messages(self._last_chat)
            lengths = accumulate(len(message.text) for message in last)
            is_short = all(characters < _QUICKLY_READ for characters in lengths)  # reads no more of it than that
            for conversation_id in self._store.organiser.without_title():
                path = self._store.messages(conversation_id)
                kept = is_short or (conversation_id == self._last_chat and len(path) == _EXCHANGE)
                if conversation_id not in self._failed and kept and (exchange := _first_exchange(path)):
                    self._ask(conversation_id, *exchange)
                    return
        except StorageError:  # the person's own next command reports it
            return

    def _ask(self, conversation_id: int, prompt: Message, reply: Message) -> None:
        own = self._store.conversation(conversation_id).system_prompt
        system_prompt = self._preferences.settings.system_prompt if own is None else own
        in_thought = reply.thinking.begun or begins_in_thought(reply.text)
        answer = reply.parts.answer
        thinks = answer.strip() != reply.text.strip()
        whole = answer == reply.text and len(answer) <= _LONGEST_TOLD
        messages = (  # as the next prompt's would begin, so that what the model has read of the chat stays read
            *([ChatMessage(Role.SYSTEM, system_prompt)] if system_prompt.strip() else []),
            ChatMessage(Role.USER, prompt.text[:_LONGEST_TOLD]),
            ChatMessage(Role.ASSISTANT, answer[:_LONGEST_TOLD], reply.control_offsets if whole else ()),
            ChatMessage(Role.USER, TITLE_WISH),
        )
        sampling = SamplingParams(temperature=0.0, max_tokens=_THINKING_TOKENS if thinks else _TITLE_TOKENS)
        generation = GenerationRequest(messages, sampling, draft=DraftSettings(Mode.OFF))
        self._request = self._engine.submit(
            generation, lambda event: self._on_event(conversation_id, event, in_thought), background=True
        )

    @Slot(Message)
    def _on_reply_ended(self, reply: Message) -> None:
        self._last_chat = reply.conversation_id

    @Slot()
    def _forget_last_chat(self) -> None:
        self._last_chat = None

    def _on_event(self, conversation_id: int, event: EngineEvent, in_thought: bool) -> None:
        if not isinstance(event, ReplyEnd | Failure):
            return
        self._request = None
        if isinstance(event, Failure):
            self._failed.add(conversation_id)
        elif event.finish_reason is not FinishReason.CANCELLED:
            # what was cut off may be a thought; that there is no title to be had is stored too
            whole = event.text if event.finish_reason in _ENDED_BY_ITSELF else ""
            try:
                if self._store.organiser.set_title_by_model(
                    conversation_id, title_from_model(whole, begins_in_thought=in_thought)
                ):
                    self._titled()
            except StorageError:
                self._failed.add(conversation_id)
        self.wait()


def _first_exchange(path: Sequence[Message]) -> tuple[Message, Message] | None:
    """Return the first prompt and its reply, where there is one with words that are no thoughts."""
    if len(path) < _EXCHANGE or path[0].role is not Role.USER or path[1].role is not Role.ASSISTANT:
        return None
    prompt, reply = path[0], path[1]
    if reply.status is not MessageStatus.COMPLETE or not prompt.text.strip():
        return None
    return (prompt, reply) if reply.parts.answer.strip() else None
