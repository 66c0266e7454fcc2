"""Makes token ids of conversations with the model's own chat template and tokenizer.

A child process runs both, because they are foreign data: `TokenizerProcess` is the app's side of it.
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import Any

from rdchat.errors import (
    InvalidSettingError,
    ModelError,
    PromptTooLongError,
    ShapeRefusedError,
    TemplateRefusedError,
)
from rdchat.inference.api.answer_shape import SHAPE_HINT, AnswerShape
from rdchat.inference.api.messages import ChatMessage
from rdchat.inference.api.requests import GenerationRequest, ThinkingChoice
from rdchat.inference.prompts.encoding import LENGTH_HINT, ControlTokens, Marks
from rdchat.inference.prompts.fitting import calls_as_text, fitted
from rdchat.inference.prompts.tokenizer_files import MODEL_HINT
from rdchat.inference.prompts.turns import answers_only, marked, texts_of, turn_of
from rdchat.work.child_limits import ChildEndedError, ChildError, Limits
from rdchat.work.child_process import ChildProcess
from rdchat.work.frames import FrameError

_LOAD_S, _LOAD_BYTES = 20.0, 2 * 2**30  # the largest tokenizers, with 260,000 tokens, take 2 s and half a gigabyte
_TRY_S = 5.0
_ENCODE_S, _ENCODE_BYTES = 10.0, 3 * 2**28
_SHAPE_S, _SHAPE_BYTES = 5.0, 2**30
_BYTES_PER_BYTE, _MAX_ENCODE_BYTES = 1000, 4 * 2**30  # limits for encoding: per byte of text, and in all
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_TRIES = 3  # of a request, if requests of other threads end the child

Waiting = Callable[[], None]
"""Called every 20 ms during a request; an exception from it ends the request."""


@cache
def shared_tokenizers() -> "TokenizerProcess":
    """Return the tokenizer process that all models share, since starting one takes a second."""
    return TokenizerProcess()


@dataclass(frozen=True, slots=True)
class TemplateThinking:
    """What a chat template does with thoughts, and how it ends a reply."""

    drops: bool = False  # whether it removes the thoughts of earlier replies
    choices: Mapping[ThinkingChoice, Mapping[str, Any]] = field(default_factory=dict)
    """The variables that switch thinking, by choice; empty where the template has no switch."""
    end: int | None = None
    """The control token directly after a reply; None where there is none."""


class TokenizerProcess:
    """The child process, which keeps the tokenizers that it read last; others are read again when needed.

    Any thread may call it: tokens are counted while a reply waits for its prompt.
    """

    def __init__(self) -> None:
        self.child = ChildProcess("tokenizers", environment=_ENVIRONMENT)
        self._thinking: dict[Path, TemplateThinking] = {}

    def start(self) -> None:
        """Start the child, which takes a second or two; the first request waits for it."""
        with _errors_of("The process for tokenizers"):
            self.child.start()

    def read(self, folder: Path, waiting: Waiting = lambda: None, *, reread: bool = False) -> dict[str, int]:
        """Read and test a model folder's tokenizer, unless that is done; return text and id of control tokens.

        Args:
            folder: The model's folder.
            waiting: See `ModelPrompts.encode`.
            reread: Read it again, since the files may have changed.

        Raises:
            ModelError: If it cannot be read, or takes too long or too much memory.
        """
        if reread:
            self._thinking.pop(folder, None)
        limits, request = Limits(_LOAD_S, _LOAD_BYTES), {"reread": reread}
        return self._ask("load", folder, request, limits, waiting=waiting, read=_control_of)

    def encode(
        self,
        folder: Path,
        text: str,
        marks: Marks,
        *,
        limit: int,
        waiting: Waiting,
        turns: Sequence[dict[str, Any]] | None = None,
        variables: Mapping[str, Any] | None = None,
        begins: bool = False,
    ) -> list[int]:
        """Return the token ids from `TokenizerCalls.encode`; `ModelPrompts.encode` says what is raised."""
        size = len(json.dumps([turns, text, variables], ensure_ascii=False, default=str).encode("utf-8", "replace"))
        request = {
            "turns": turns,
            "text": text,
            "variables": variables or {},
            "marks": [marks.before, marks.after],
            "limit": limit,
            "begins": begins,
        }
        memory = min(_ENCODE_BYTES + _BYTES_PER_BYTE * size, _MAX_ENCODE_BYTES)
        limits = Limits(_ENCODE_S * (1 + size / 2**20), memory)
        return self._ask("encode", folder, request, limits, waiting=waiting, read=_ids_of)

    def encode_text(self, folder: Path, text: str) -> list[int]:
        """Return the ids of a text as it would be inside a message; raises as `encode` does."""
        return self.encode(folder, text, Marks.for_texts([text]), limit=2**31, waiting=lambda: None)

    def thinking(self, folder: Path, variables: dict[str, Any], waiting: Waiting = lambda: None) -> TemplateThinking:
        """Return what a chat template does with thoughts; the defaults where it cannot be tried."""
        if folder not in self._thinking:
            limits, request = Limits(_TRY_S, _ENCODE_BYTES), {"variables": variables}
            self.read(folder, waiting)  # its errors are not the template's
            try:
                found = self._ask("thinking", folder, request, limits, waiting=waiting, read=_thinking_of)
            except _InterruptedError:  # not the template's fault: the next call tries again
                return TemplateThinking()
            except ModelError:  # encoding a conversation will report it
                found = TemplateThinking()
            self._thinking[folder] = found
        return self._thinking[folder]

    def check_shape(self, shape: AnswerShape, waiting: Waiting = lambda: None) -> None:
        """Compile the shape of an answer, so that one that is wrong or too large fails outside this process.

        Raises:
            ShapeRefusedError: If it cannot be used; the message says why.
        """
        self._ask_child(shape, "shape", {"kind": shape.kind, "source": shape.source}, waiting)

    def check_answer(self, shape: AnswerShape, answer: str) -> None:
        """Check a finished answer with the schemas that its shape's grammar does not enforce.

        Raises:
            ModelError: If it does not fit, or the check takes too long.
        """
        self._ask_child(shape, "answer", {"answer": answer, "schemas": shape.unenforced}, lambda: None)

    def _ask_child(self, shape: AnswerShape, do: str, arguments: dict[str, Any], waiting: Waiting) -> None:
        try:
            job = self.child.submit(do, arguments, Limits(_SHAPE_S, _SHAPE_BYTES), read=lambda _: True)
            job.result(waiting)
        except ChildError as error:
            hint = error.hint if error.interrupted else SHAPE_HINT
            raise ShapeRefusedError(f"The {shape.label} {error.reason}.", hint) from error

    def _ask[T](
        self,
        do: str,
        folder: Path,
        request: dict[str, Any],
        limits: Limits,
        *,
        waiting: Waiting,
        read: Callable[[Any], T],
    ) -> T:
        """Return `read` of the child's answer to a request about a folder, which the child reads first if necessary."""
        arguments = {"folder": str(folder), **request}

        def read_known(answer: Any) -> T | None:
            return None if "unread" in answer else read(answer)

        with _errors_of(f"The {'tokenizer' if do == 'load' else 'chat template'} of {folder.name}"):
            for _ in range(_TRIES):
                job = self.child.submit(do, arguments, limits, read=read_known)
                answer: T | None = job.result(waiting)
                if answer is not None:
                    return answer
                self.read(folder, waiting)  # the child is a new one, or it dropped the tokenizer
            raise ChildEndedError("ended again and again")


class _InterruptedError(ModelError):
    """The child was killed or stopped; the model is not at fault."""


@contextmanager
def _errors_of(what: str) -> Iterator[None]:
    """Turn errors of the child into errors about `what`."""
    try:
        yield
    except FrameError as error:
        raise PromptTooLongError("This chat is too long for any model.", LENGTH_HINT) from error
    except ChildError as error:
        kind = _InterruptedError if error.interrupted else ModelError
        raise kind(f"{what} {error.reason}.", error.hint if error.interrupted else MODEL_HINT) from error


def _control_of(answer: Any) -> dict[str, int]:
    return {text: _whole(token_id) for text, token_id in dict(answer["control"]).items()}


def _ids_of(answer: Any) -> list[int]:
    return [_whole(token_id) for token_id in answer["ids"]]


def _thinking_of(answer: Any) -> TemplateThinking:
    told = answer["choices"]
    found = {each: dict(told[each.value]) for each in ThinkingChoice if each.value in told}
    end = answer["end"]
    return TemplateThinking(bool(answer["drops"]), found, None if end is None else _whole(end))


def _whole(number: object) -> int:
    if type(number) is not int or not 0 <= number < 2**31:
        raise TypeError("no token's id")
    return number


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
        *,
        thinking: ThinkingChoice | None = None,
        tools: str = "",
    ) -> list[int]:
        """Return the ids of a conversation, open for a reply.

        Where the template refuses a conversation, it gets one that is changed to fit (`fitting.fitted`).

        Args:
            messages: The chat template is applied to them; base models get plain texts.
            unfinished: The beginning of the reply, unchanged.
            limit: The most tokens that are of use.
            waiting: Called every 20 ms meanwhile; an exception from it ends the work.
            thinking: Whether or how much the model thinks; None leaves it to the chat template.
            tools: JSON list of the tools that the model may call; empty for none.

        Raises:
            InvalidSettingError: If the template has no such switch for thinking, or no place for tools.
            TemplateRefusedError: If the template refuses the conversation, or takes too long.
            PromptTooLongError: If it has far more tokens than `limit`; the caller checks the exact limit.
        """
        if tools and not self._mentions("tools"):
            raise InvalidSettingError(
                f"The chat template of {self._folder.name} has no place for tools.",
                "Choose a model that was trained to call tools, or leave the tools out.",
            )
        if not self._mentions("tool_calls"):  # it would leave calls out without a word
            messages = calls_as_text(messages)
        if any(message.answer is not None for message in messages) and self._template(waiting).drops:
            messages = answers_only(messages)
        refusal: TemplateRefusedError | None = None
        for fit in fitted(messages):
            try:
                return self._encode_turns(fit, unfinished, limit, waiting, thinking=thinking, tools=tools)
            except TemplateRefusedError as error:
                refusal = refusal or error
        assert refusal is not None
        raise refusal

    def check_shape(self, shape: AnswerShape, waiting: Waiting = lambda: None) -> None:
        self.process.check_shape(shape, waiting)

    def check_answer(self, shape: AnswerShape, answer: str) -> None:
        self.process.check_answer(shape, answer)

    def encode_request(self, request: GenerationRequest, limit: int, waiting: Waiting = lambda: None) -> list[int]:
        """Return the ids of a request's prompt; arguments and errors are those of `encode`.

        Thinking is off for an answer with a shape, where it can be: a thought would come before the shape. A text gets
        no chat template: words in it that look like control tokens are plain text, and the tokens with which the
        tokenizer begins a text are added.
        """
        if request.text is not None:
            marks = Marks.for_texts([request.text])
            plain = self._tokens.mark(request.text, (), marks)
            return self.process.encode(self._folder, plain, marks, limit=limit, waiting=waiting, begins=True)
        turns, unfinished = list(request.messages), None
        if request.continue_last:
            unfinished = turns.pop()
            while turns and turns[-1].can_be_joined(unfinished):
                unfinished = turns.pop().joined(unfinished)
        is_off = request.shape is not None and ThinkingChoice.OFF in self.thinking
        thinking = ThinkingChoice.OFF if is_off else request.thinking
        return self.encode(turns, unfinished, limit, waiting, thinking=thinking, tools=request.tools)

    def _encode_turns(
        self,
        messages: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        limit: int,
        waiting: Waiting,
        *,
        thinking: ThinkingChoice | None,
        tools: str,
    ) -> list[int]:
        chosen = {} if thinking is None else self._variables(thinking, waiting)
        marks = Marks.for_texts([tools, *texts_of((*messages, *([unfinished] if unfinished else [])))])
        mark = partial(self._tokens.mark, marks=marks)
        encode = partial(self.process.encode, self._folder, marks=marks, limit=limit, waiting=waiting)
        turns = [turn_of(message, mark) for message in messages]
        text = mark(unfinished.content, unfinished.own_control) if unfinished else ""
        if not self._tokenizer.has_chat_template:  # a base model continues the text
            parts = [*(turn["content"] for turn in turns), *([text] if text else [])]
            return encode("\n\n".join(parts), begins=True)
        given = {"tools": marked(json.loads(tools), mark)} if tools else {}
        if (render := _own_renderer(self._tokenizer)) is not None:
            return encode(str(render(turns, add_generation_prompt=True, tokenize=False, **given)) + text)
        variables = {**usual_variables(self._tokenizer), **chosen, **given}
        try:
            return encode(text, turns=turns, variables=variables)
        except TemplateRefusedError:
            if not any(message.tool_calls for message in messages):
                raise
        turns = [turn_of(message, mark, as_text=True) for message in messages]
        return encode(text, turns=turns, variables=variables)

    def _mentions(self, variable: str) -> bool:
        """Return whether the chat template reads a variable, such as `tools`; one in Python does."""
        if not self._tokenizer.has_chat_template:
            return False
        in_python = _own_renderer(self._tokenizer) is not None
        return in_python or re.search(rf"\b{variable}\b", str(self._tokenizer.chat_template)) is not None

    def count(self, prompt: Sequence[ChatMessage] | GenerationRequest, context_length: int) -> int:
        """Return the number of tokens of a conversation open for a reply; 0 for an empty one. From any thread.

        A request's tools, its thinking and the reply that it continues are counted too.

        Raises:
            PromptTooLongError: If they far exceed the context.
            ModelError: If the chat template refuses the conversation.
        """
        limit = _BEYOND * context_length
        if isinstance(prompt, GenerationRequest):
            return len(self.encode_request(prompt, limit))
        return len(self.encode(prompt, None, limit)) if prompt else 0

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
        return self.process.thinking(self._folder, usual_variables(self._tokenizer), waiting)

    def _variables(self, thinking: ThinkingChoice, waiting: Waiting) -> Mapping[str, Any]:
        found = self._template(waiting).choices
        if thinking not in found:
            raise InvalidSettingError(
                f"The chat template of {self._folder.name} has no setting for thinking {thinking.value}.",
                f"It has: {', '.join(found)}." if found else "Leave thinking to the model.",
            )
        return found[thinking]


def usual_variables(tokenizer: Any) -> dict[str, Any]:
    """Return the variables that a chat template always gets, as in mlx-lm."""
    return {"enable_thinking": bool(tokenizer.has_thinking)}


def _own_renderer(tokenizer: Any) -> Any:
    """Return mlx-lm's or transformers' Python renderer where there is no template; None where there is one."""
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase  # noqa: PLC0415  is loaded by now

    inner = getattr(tokenizer, "_tokenizer", tokenizer)
    stock = getattr(type(inner), "apply_chat_template", None) is PreTrainedTokenizerBase.apply_chat_template
    in_python = getattr(tokenizer, "_chat_template", None) is not None or not stock
    return tokenizer.apply_chat_template if in_python else None
