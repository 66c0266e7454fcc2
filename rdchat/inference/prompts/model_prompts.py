"""Makes token ids of conversations with the model's own chat template and tokenizer."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from rdchat.errors import InvalidSettingError
from rdchat.inference.api.requests import ChatMessage, Role, ThinkingChoice
from rdchat.inference.prompts.encoding import ControlTokens, Marks
from rdchat.inference.prompts.tokenizer_process import (
    TemplateRefusedError,
    TemplateThinking,
    TokenizerProcess,
    Waiting,
)

_BEYOND = 4  # contexts; longer conversations are not counted to their end


class ModelPrompts:
    """Makes token ids of conversations and texts for one model folder. It has no weights.

    Args:
        process: Reads the tokenizer; several models may share one.
        folder: The model's folder.
        tokenizer: mlx-lm's wrapper of the same tokenizer, in this process.

    Attributes:
        control: Id to text of control tokens.
    """

    def __init__(self, process: TokenizerProcess, folder: Path, tokenizer: Any) -> None:
        self.process = process
        self._folder = folder
        self._tokenizer = tokenizer
        ids = process.read(folder)
        self.control: Mapping[int, str] = {token_id: text for text, token_id in ids.items()}
        self._tokens = ControlTokens(ids)

    def encode(
        self,
        messages: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        limit: int,
        waiting: Waiting = lambda: None,
        thinking: ThinkingChoice | None = None,
    ) -> list[int]:
        """Return the ids of a conversation, open for a reply.

        Templates such as Gemma's have no system role; then the system prompt is put before the first question.

        Args:
            messages: The chat template is applied to them; base models get plain texts.
            unfinished: The beginning of the reply, unchanged.
            limit: The most tokens that are of use.
            waiting: Called every 20 ms meanwhile; an exception from it ends the work.
            thinking: Whether or how much the model thinks; None leaves it to the chat template.

        Raises:
            InvalidSettingError: If the template has no such switch for thinking.
            TemplateRefusedError: If the template refuses the conversation, or takes too long.
            PromptTooLongError: If it has far more tokens than `limit`; the caller checks the exact limit.
        """
        try:
            return self._encode_turns(messages, unfinished, limit, waiting, thinking)
        except TemplateRefusedError:
            if len(messages) < 2 or messages[0].role is not Role.SYSTEM:
                raise
        merged = ChatMessage(messages[1].role, f"{messages[0].content}\n\n{messages[1].content}")
        return self._encode_turns((merged, *messages[2:]), unfinished, limit, waiting, thinking)

    def _encode_turns(
        self,
        messages: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        limit: int,
        waiting: Waiting,
        thinking: ThinkingChoice | None,
    ) -> list[int]:
        if any(message.answer is not None for message in messages) and self._template(waiting).drops:
            messages = answers_only(messages)
        chosen = {} if thinking is None else self._variables(thinking, waiting)
        marks = Marks.for_texts([message.content for message in (*messages, *([unfinished] if unfinished else []))])
        turns = [{"role": message.role.value, "content": self._marked(message, marks)} for message in messages]
        text = self._marked(unfinished, marks) if unfinished else ""
        if not self._tokenizer.has_chat_template:  # a base model continues the text
            parts = [*(turn["content"] for turn in turns), *([text] if text else [])]
            return self._encode(None, "\n\n".join(parts), marks, limit, waiting, begins=True)
        if (render := _own_renderer(self._tokenizer)) is not None:
            text = str(render(turns, add_generation_prompt=True, tokenize=False)) + text
            return self._encode(None, text, marks, limit, waiting)
        return self._encode(turns, text, marks, limit, waiting, variables={**self._usual_variables(), **chosen})

    def count(self, messages: Sequence[ChatMessage], context_length: int) -> int:
        """Return the number of tokens of a conversation open for a reply; 0 for an empty one. From any thread.

        Raises:
            PromptTooLongError: If they far exceed the context.
            ModelError: If the chat template refuses the conversation.
        """
        limit = _BEYOND * context_length
        return len(self.encode(messages, None, limit)) if messages else 0

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of a text as it would be inside a message."""
        return self.process.encode_text(self._folder, text)

    @property
    def thinking(self) -> tuple[ThinkingChoice, ...]:
        """The choices of thinking; empty where the chat template has no switch."""
        return tuple(self._template().choices)

    def _template(self, waiting: Waiting = lambda: None) -> TemplateThinking:
        if not self._tokenizer.has_chat_template or _own_renderer(self._tokenizer) is not None:
            return TemplateThinking()
        return self.process.thinking(self._folder, self._usual_variables(), waiting)

    def _usual_variables(self) -> dict[str, Any]:
        return {"enable_thinking": bool(self._tokenizer.has_thinking)}  # as in mlx-lm

    def _variables(self, thinking: ThinkingChoice, waiting: Waiting) -> Mapping[str, Any]:
        found = self._template(waiting).choices
        if thinking not in found:
            raise InvalidSettingError(
                f"The chat template of {self._folder.name} has no setting for thinking {thinking.value}.",
                f"It has: {', '.join(found)}." if found else "Leave thinking to the model.",
            )
        return found[thinking]

    def _marked(self, message: ChatMessage, marks: Marks) -> str:
        return self._tokens.mark(message.content, message.own_control, marks)

    def _encode(
        self,
        turns: list[dict[str, str]] | None,
        text: str,
        marks: Marks,
        limit: int,
        waiting: Waiting,
        *,
        begins: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> list[int]:
        size = len(text.encode()) + sum(len(turn["content"].encode()) for turn in turns or ())
        request = {
            "turns": turns,
            "text": text,
            "variables": variables or {},
            "marks": [marks.before, marks.after],
            "limit": limit,
            "begins": begins,
        }
        return self.process.encode(self._folder, request, size, waiting)


def _own_renderer(tokenizer: Any) -> Any:
    """Return mlx-lm's or transformers' Python renderer where there is no template; None where there is one."""
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase  # noqa: PLC0415  is loaded by now

    inner = getattr(tokenizer, "_tokenizer", tokenizer)
    stock = getattr(type(inner), "apply_chat_template", None) is PreTrainedTokenizerBase.apply_chat_template
    in_python = getattr(tokenizer, "_chat_template", None) is not None or not stock
    return tokenizer.apply_chat_template if in_python else None


def answers_only(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Remove thoughts; where a message had nothing else, join its neighbours, as templates expect."""
    kept: list[ChatMessage] = []
    for message in messages:
        said = message if message.answer is None else _answer(message, message.answer)
        if not said.content.strip():
            continue
        if kept and kept[-1].role is said.role:
            before = kept[-1].content + "\n\n"
            moved = tuple(len(before) + offset for offset in said.own_control)
            kept[-1] = ChatMessage(said.role, before + said.content, kept[-1].own_control + moved)
        else:
            kept.append(said)
    return kept


def _answer(message: ChatMessage, spans: Sequence[tuple[int, int]]) -> ChatMessage:
    """Return the message with only the text at `spans`, without leading blanks."""
    text = "".join(message.content[start:end] for start, end in spans)
    blank = len(text) - len(text.lstrip())
    starts = accumulate((end - start for start, end in spans), initial=-blank)
    own = tuple(
        at + offset - start
        for at, (start, end) in zip(starts, spans, strict=False)
        for offset in message.own_control
        if start <= offset < end
    )
    return replace(message, content=text[blank:], own_control=own, answer=None)
