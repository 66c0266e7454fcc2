"""One reply, from its first token until the store has it whole."""

from dataclasses import dataclass, field, replace
from functools import partial

from rdchat.chat.conversation import (
    NEW_CHAT,
    NO_THINKING,
    Conversation,
    Drafting,
    MadeWith,
    Message,
    MessageStatus,
    Thinking,
)
from rdchat.inference.api.events import FinishReason, ReplyEnd
from rdchat.inference.api.requests import SamplingParams
from rdchat.services.chat.chat_prompt import ChatPrompt
from rdchat.services.engine.engine_request import EngineRequest
from rdchat.thoughts import may_part


@dataclass(slots=True, eq=False)
class Reply:
    """A reply that is being written, or that the store does not have whole; its message is changed here alone."""

    message: Message  # with all of its text
    begins_at: int = 0  # characters that were there before, where the reply is continued
    sampling: SamplingParams | None = None  # that it is asked for with; None for the usual one of its model
    prompt: ChatPrompt = field(default_factory=partial(ChatPrompt, (), ""))
    conversation: Conversation = NEW_CHAT  # its chat
    request: EngineRequest | None = None  # None until there is a model
    stopping: bool = False
    writing: bool = False  # the first token has come
    saved_text: str = ""  # the text that the store has
    unsaved_since: float | None = None  # when the first text was written that the store lacks
    in_thought: bool = False  # the text ends inside a thought
    thought_until: float | None = None  # when it was last known to think; None outside of thoughts

    @classmethod
    def continuing(cls, message: Message, sampling: SamplingParams | None = None) -> "Reply":
        """Return a reply that continues the text that a message has."""
        continued = message
        if not message.text.strip():
            continued = replace(message, text="", control_offsets=(), thinking=NO_THINKING)
        length, in_thought = len(continued.text), continued.parts.open
        return cls(continued, length, sampling, saved_text=message.text, in_thought=in_thought)

    @property
    def missing(self) -> int:
        """Number of characters that the store does not have."""
        text, saved = self.message.text, self.saved_text
        kept = min(len(text), len(saved)) if text.startswith(saved) or saved.startswith(text) else 0
        return len(text) - kept

    @property
    def ended(self) -> bool:
        return self.message.status is not MessageStatus.STREAMING

    def grow(self, text: str, at: float) -> None:
        """Append text that was written from `at` on, and count the time of its thoughts."""
        thinking = self.message.thinking
        if self.in_thought and self.thought_until is not None:
            thinking = replace(thinking, ms=thinking.ms + max(0.0, at - self.thought_until) * 1000)
        self.message = replace(self.message, text=self.message.text + text, thinking=thinking)
        if may_part(text):
            self.in_thought = self.message.parts.open
        self.thought_until = at if self.in_thought else None

    def begin_thought(self) -> None:
        """Take note that the chat template began a thought, if there is no text yet."""
        if not self.message.text:
            self.in_thought = True
            self.message = replace(self.message, thinking=Thinking(begun=True))

    def set_sampling(self, sampling: SamplingParams) -> None:
        """Take note of how the tokens are chosen."""
        made_with = replace(self.message.made_with or MadeWith(), sampling=sampling)
        self.message = replace(self.message, made_with=made_with)

    def stop_because(self, error: str) -> None:
        """Take note of why the reply is stopped."""
        self.stopping, self.message = True, replace(self.message, error=error)

    def finish(self, end: ReplyEnd | None = None, model: str | None = None) -> None:
        """End as the engine says; without `end` it was stopped before the engine had it.

        The engine's final text counts; of a continued reply it knows the last part.
        """
        message, begins_at = self.message, self.begins_at
        ended = replace(
            message,
            text=message.text[:begins_at] + (end.text if end else ""),
            status=MessageStatus.COMPLETE,
            finish_reason=end.finish_reason if end else FinishReason.CANCELLED,
        )
        if end is not None:
            own_control = (begins_at + offset for offset in end.control_offsets)
            # each part of a continued reply has a prefill: the counters would not add up
            drafting = Drafting(end.mode, end.mode_reason or "", end.drafter or "", begins_at > 0, end.kind)
            ended = replace(
                ended,
                control_offsets=(*message.control_offsets, *own_control),
                statistics=end.statistics,
                drafting=drafting,
                model=model or message.model,
            )
        self.message = ended

    def break_off(self, status: MessageStatus, error: str = "") -> None:
        """End with the text that there is: the reply failed, or rdchat closes."""
        self.message = replace(self.message, status=status, error=error)
