"""One reply, from its prompt until the store has all of it."""

from dataclasses import dataclass, replace
from typing import Any

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
from rdchat.services.chat.chat_prompt import EMPTY_PROMPT, ChatPrompt
from rdchat.services.engine.engine_request import EngineRequest
from rdchat.thoughts import may_part


@dataclass(slots=True, eq=False)
class Reply:
    """A reply that is being written, or that the store lacks in part; its message is changed here alone.

    Attributes:
        message: The message, with all of its text.
        begins_at: Characters that were there before, where the reply is continued.
        prompt: What the model gets.
        conversation: The chat.
        request: The request to the engine; None until there is a model.
        stopping: Whether the reply was told to stop.
        writing: Whether the first token has come.
        saved_text: The text that the store has.
        unsaved_since: When the first text was written that the store lacks.
        in_thought: Whether the text ends inside a thought.
        thought_until: When the model was last known to think; None outside of thoughts.
    """

    message: Message
    begins_at: int = 0
    prompt: ChatPrompt = EMPTY_PROMPT
    conversation: Conversation = NEW_CHAT
    request: EngineRequest | None = None
    stopping: bool = False
    writing: bool = False
    saved_text: str = ""
    unsaved_since: float | None = None
    in_thought: bool = False
    thought_until: float | None = None

    @classmethod
    def continuing(cls, message: Message, **fields: Any) -> "Reply":
        """Return a reply that continues the text that a message has."""
        continued = message
        if not message.text.strip():
            continued = replace(message, text="", control_offsets=(), thinking=NO_THINKING)
        in_thought = continued.parts.open
        return cls(continued, len(continued.text), saved_text=message.text, in_thought=in_thought, **fields)

    @property
    def missing(self) -> int:
        """Number of characters that the store does not have."""
        text, saved = self.message.text, self.saved_text
        is_saved = text.startswith(saved) or saved.startswith(text)
        return max(0, len(text) - len(saved)) if is_saved else len(text)

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
        """Record that the chat template began a thought, if there is no text yet."""
        if not self.message.text:
            self.in_thought = True
            self.message = replace(self.message, thinking=Thinking(begun=True))

    def set_sampling(self, usual: SamplingParams) -> SamplingParams:
        """Record how the tokens are chosen: as the reply's own options say, or else in the usual way."""
        made_with = self.message.made_with or MadeWith()
        sampling = made_with.sampling or usual
        self.message = replace(self.message, made_with=replace(made_with, sampling=sampling))
        return sampling

    def stop_because(self, error: str) -> None:
        """Record why the reply is stopped."""
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
