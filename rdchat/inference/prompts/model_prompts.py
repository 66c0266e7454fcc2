"""Token ids of a conversation: the model's chat template and tokenizer, run in a watched child process."""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from rdchat.errors import InvalidSettingError, ModelError, PromptTooLongError, RdchatError
from rdchat.inference.api.requests import ChatMessage, Role, ThinkingChoice
from rdchat.inference.prompts.answers_only import answers_only
from rdchat.inference.prompts.control_text import ControlTokens, Marks
from rdchat.work.child_limits import ChildError, Limits
from rdchat.work.child_process import ChildProcess
from rdchat.work.frames import FrameError

_LOAD_S, _LOAD_BYTES = 20.0, 2 * 2**30  # the largest tokenizers, of 260,000 tokens, take 2 s and half a gigabyte
_TRY_S = 5.0
_ENCODE_S, _ENCODE_BYTES = 10.0, 3 * 2**28
_BYTES_PER_BYTE, _MOST_ENCODE_BYTES = 1000, 4 * 2**30  # what a tokenizer takes for each byte of a text, and at most
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_KEPT = 4  # tokenizers: a target's and its draft model's, and those of the models before
_TICK_S = 0.02  # between two looks at the caller's patience
_TEMPLATE_HINT = "Pick an instruction-tuned model, or start a new chat without a system prompt."
_LENGTH_HINT = "Shorten the prompt, start a new chat, or pick a model with a longer context."
_MODEL_HINT = "Fetch the model again, or pick another one."


Waiting = Callable[[], None]


class TemplateRefusedError(ModelError):
    """The chat template does not take the conversation."""


@cache
def shared_tokenizers() -> "TokenizerProcess":
    """Return the process that reads tokenizers for this one: starting it takes a second, so all models share it."""
    return TokenizerProcess()


class PromptEncoder(Protocol):
    """Makes token ids of conversations and texts.

    Attributes:
        process: Reads strangers' tokenizers.
        control: Id to text of control tokens.
    """

    process: "TokenizerProcess"
    control: Mapping[int, str]

    def encode(
        self,
        messages: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        limit: int,
        waiting: Waiting,
        thinking: ThinkingChoice | None = None,
    ) -> list[int]:
        """Return the ids of a conversation, open for a reply.

        Args:
            messages: The chat template is applied to them; base models get the texts.
            unfinished: The beginning of the reply, as it stands.
            limit: The most tokens that are of use.
            waiting: Called every 20 ms meanwhile; what it raises ends the work.
            thinking: Whether or how much the model is to think; None leaves it to the chat template.

        Raises:
            InvalidSettingError: If the template has no such switch for thinking.
            TemplateRefusedError: If the template does not take the conversation, or takes too long.
            PromptTooLongError: If it has far more tokens than `limit`; a few more are for the caller to count.
        """

    def count(self, messages: Sequence[ChatMessage], limit: int, waiting: Waiting) -> int:
        """Return how many ids `encode` would give, from any thread; raises what `encode` raises."""

    def encode_text(self, text: str) -> list[int]:
        """Return the ids of a text as it stands inside a message."""


@dataclass(frozen=True, slots=True)
class TemplateThinking:
    """What a chat template does with thoughts.

    Attributes:
        drops: It wants none of earlier replies.
        choices: The variables that switch thinking, by what can be chosen; empty where it has no switch.
    """

    drops: bool = False
    choices: Mapping[ThinkingChoice, Mapping[str, Any]] = field(default_factory=dict)


def encoded[T](encode: Callable[[Sequence[ChatMessage]], T], messages: Sequence[ChatMessage]) -> T:
    """Return what `encode` makes of a conversation, where need be without a system role.

    Templates such as Gemma's know none: what it says is put before the first question then.

    Raises:
        TemplateRefusedError: If the template takes neither.
    """
    try:
        return encode(messages)
    except TemplateRefusedError:
        if messages[0].role is not Role.SYSTEM or len(messages) < 2:
            raise
        merged = ChatMessage(messages[1].role, f"{messages[0].content}\n\n{messages[1].content}")
        return encode((merged, *messages[2:]))


class TokenizerProcess:
    """The child process and the tokenizers that it has read: the latest few, others are read again when asked for.

    Threads take turns: tokens are counted while a reply waits for its prompt.
    """

    def __init__(self) -> None:
        self.child = ChildProcess("tokenizers", environment=_ENVIRONMENT)
        self._control: dict[Path, dict[str, int]] = {}  # the latest last
        self._thinking: dict[Path, TemplateThinking] = {}
        self._read_by = 0  # the start of the child that has read them
        self._busy = threading.RLock()

    def start(self) -> None:
        """Start the child, which takes a second or two; the first request waits for it."""
        self._say(self.child.start, "The process for tokenizers")

    def read(self, folder: Path, waiting: Waiting = lambda: None, *, anew: bool = False) -> dict[str, int]:
        """Read and try out a model folder's tokenizer, unless that was done; return text and id of control tokens.

        Args:
            folder: The model's.
            waiting: See `PromptEncoder.encode`.
            anew: Read it even so: the files may be others by now.

        Raises:
            ModelError: If it cannot be read, or takes too long or too much memory.
        """
        with self._turn(waiting):
            return self._read(folder, waiting, anew)

    def _read(self, folder: Path, waiting: Waiting, anew: bool) -> dict[str, int]:
        self.start()
        if self._read_by != self.child.starts:
            self._control.clear()
        if anew or folder not in self._control:
            self._control.pop(folder, None)
            self._thinking.pop(folder, None)
            gone = list(self._control)[: -_KEPT + 1]
            for other in gone:
                del self._control[other]
            request = {"folder": str(folder), "forget": [str(other) for other in gone]}
            what = f"The tokenizer of {folder.name}"
            self._control[folder] = self._ask(
                "load", request, Limits(_LOAD_S, _LOAD_BYTES), what, waiting=waiting, read=_control_of
            )
            self._read_by = self.child.starts
        return self._control[folder]

    def encode(self, folder: Path, request: dict[str, Any], size: int, waiting: Waiting) -> list[int]:
        """Return the ids of `TokenizerCalls.encode`, or with `count` a list of their number alone.

        Args:
            folder: The model's.
            request: Its arguments.
            size: Bytes of text.
            waiting: See `PromptEncoder.encode`, which says too what is raised.
        """
        request = {"folder": str(folder), **request}
        memory = min(_ENCODE_BYTES + _BYTES_PER_BYTE * size, _MOST_ENCODE_BYTES)
        limits = Limits(_ENCODE_S * (1 + size / 2**20), memory)
        with self._turn(waiting):  # with reading: another thread's request may end the child, which then has read none
            self._read(folder, waiting, anew=False)
            read = _count_of if request["count"] else _ids_of
            return self._ask(
                "encode", request, limits, f"The chat template of {folder.name}", waiting=waiting, read=read
            )

    @contextmanager
    def _turn(self, waiting: Waiting) -> Iterator[None]:
        while not self._busy.acquire(timeout=_TICK_S):
            waiting()
        try:
            yield
        finally:
            self._busy.release()

    def thinking(self, folder: Path, variables: dict[str, Any], waiting: Waiting = lambda: None) -> TemplateThinking:
        """Tell what a folder's chat template does with thoughts; nothing where it cannot be tried."""
        with self._turn(waiting):
            return self._thoughts_of(folder, variables, waiting)

    def _thoughts_of(self, folder: Path, variables: dict[str, Any], waiting: Waiting) -> TemplateThinking:
        self._read(folder, waiting, anew=False)
        if folder not in self._thinking:
            request = {"folder": str(folder), "variables": variables}
            what = f"The chat template of {folder.name}"
            limits = Limits(_TRY_S, _ENCODE_BYTES)
            try:
                self._thinking[folder] = self._ask(
                    "thinking", request, limits, what, waiting=waiting, read=_thinking_of
                )
            except _InterruptedError:  # it is not the template's fault: the next one who asks has it tried again
                return TemplateThinking()
            except ModelError:  # the person hears of it when it is to render a conversation
                self._thinking[folder] = TemplateThinking()
        return self._thinking[folder]

    def _ask[T](
        self,
        do: str,
        request: dict[str, Any],
        limits: Limits,
        what: str,
        *,
        waiting: Waiting,
        read: Callable[[Any], T],
    ) -> T:
        """Return what `read` makes of the child's answer; an error says what became of `what`."""

        def read_or_refuse(answer: Any) -> T:
            if "failure" in answer:
                raise _refusal(answer, what)
            return read(answer)

        def call() -> T:
            answer: T = self.child.submit(do, request, limits, read=read_or_refuse).result(waiting)
            return answer

        return self._say(call, what)

    def _say[T](self, call: Callable[[], T], what: str) -> T:
        try:
            return call()
        except FrameError as error:
            raise PromptTooLongError("The conversation is longer than any model takes.", _LENGTH_HINT) from error
        except ChildError as error:
            if error.interrupted:
                raise _InterruptedError(f"{what} {error.words}.", error.hint) from error
            raise ModelError(f"{what} {error.words}.", _MODEL_HINT) from error


class _InterruptedError(ModelError):
    """The child was killed or stopped; the model is not to blame."""


def _refusal(answer: Any, what: str) -> RdchatError:
    """Return what a child's failure is for people."""
    match answer["failure"]:
        case "too_long":
            return PromptTooLongError(
                f"The conversation is longer than the {answer['limit']:,} tokens that the model takes.", _LENGTH_HINT
            )
        case "template":
            words = f"The model's chat template does not accept this conversation: {answer['words']}"
            return TemplateRefusedError(words, _TEMPLATE_HINT)
        case "memory":
            return ModelError(f"{what} took too much memory.", _MODEL_HINT)
    return ModelError(f"{what} cannot be used: {str(answer['words']).rstrip('.')}.", _MODEL_HINT)


def _control_of(answer: Any) -> dict[str, int]:
    return {text: _whole(token_id) for text, token_id in dict(answer["control"]).items()}


def _ids_of(answer: Any) -> list[int]:
    return [_whole(token_id) for token_id in answer["ids"]]


def _count_of(answer: Any) -> list[int]:
    return [_whole(answer["count"])]


def _thinking_of(answer: Any) -> TemplateThinking:
    told = answer["choices"]
    found = {each: dict(told[each.value]) for each in ThinkingChoice if each.value in told}
    return TemplateThinking(bool(answer["drops"]), found)


def _whole(number: object) -> int:
    if type(number) is not int or not 0 <= number < 2**31:
        raise TypeError("no token's id, or number of them")
    return number


class ModelPrompts:
    """`PromptEncoder` of one model folder.

    Args:
        process: Reads the tokenizer; several models may share one.
        folder: The model's.
        tokenizer: mlx-lm's wrapper of the same tokenizer, in this process.
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
        return self._ask(messages, unfinished, limit, waiting, thinking)

    def count(self, messages: Sequence[ChatMessage], limit: int, waiting: Waiting = lambda: None) -> int:
        (count,) = self._ask(messages, None, limit, waiting, count=True)
        return count

    def encode_text(self, text: str) -> list[int]:
        return self._encode(None, text, Marks.for_texts([text]), 2**31, lambda: None)

    def _ask(
        self,
        messages: Sequence[ChatMessage],
        unfinished: ChatMessage | None,
        limit: int,
        waiting: Waiting,
        thinking: ThinkingChoice | None = None,
        *,
        count: bool = False,
    ) -> list[int]:
        if any(message.answer is not None for message in messages) and self._template(waiting).drops:
            messages = answers_only(messages)
        chosen = {} if thinking is None else self._variables(thinking, waiting)
        marks = Marks.for_texts([message.content for message in (*messages, *([unfinished] if unfinished else []))])
        turns = [{"role": message.role.value, "content": self._marked(message, marks)} for message in messages]
        rest = self._marked(unfinished, marks) if unfinished else ""
        if not self._tokenizer.has_chat_template:  # a base model: it writes on
            text = "\n\n".join([*(turn["content"] for turn in turns), *([rest] if rest else [])])
            return self._encode(None, text, marks, limit, waiting, begins=True, count=count)
        if (render := _own_renderer(self._tokenizer)) is not None:
            text = str(render(turns, add_generation_prompt=True, tokenize=False))
            return self._encode(None, text + rest, marks, limit, waiting, count=count)
        return self._encode(turns, rest, marks, limit, waiting, chosen=chosen, count=count)

    @property
    def thinking(self) -> tuple[ThinkingChoice, ...]:
        """What can be chosen of thinking; empty where the chat template has no switch."""
        return tuple(self._template().choices)

    def _template(self, waiting: Waiting = lambda: None) -> TemplateThinking:
        if not self._tokenizer.has_chat_template or _own_renderer(self._tokenizer) is not None:
            return TemplateThinking()
        return self.process.thinking(self._folder, self._usual_variables(), waiting)

    def _usual_variables(self) -> dict[str, Any]:
        return {"enable_thinking": bool(self._tokenizer.has_thinking)}  # as mlx-lm has it

    def _variables(self, thinking: ThinkingChoice, waiting: Waiting) -> Mapping[str, Any]:
        found = self._template(waiting).choices
        if thinking not in found:
            raise InvalidSettingError(
                f"The chat template of {self._folder.name} has no switch for thinking {thinking.value}.",
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
        chosen: Mapping[str, Any] = MappingProxyType({}),
        count: bool = False,
    ) -> list[int]:
        size = len(text.encode()) + sum(len(turn["content"].encode()) for turn in turns or ())
        request = {
            "turns": turns,
            "text": text,
            "variables": {**self._usual_variables(), **chosen},
            "marks": [marks.before, marks.after],
            "limit": limit,
            "begins": begins,
            "count": count,
        }
        return self.process.encode(self._folder, request, size, waiting)


def _own_renderer(tokenizer: Any) -> Any:
    """Return what renders in Python, of mlx-lm or transformers, in the place of a template; None where one is there."""
    from transformers.tokenization_utils_base import PreTrainedTokenizerBase  # noqa: PLC0415  is loaded by now

    inner = getattr(tokenizer, "_tokenizer", tokenizer)
    stock = getattr(type(inner), "apply_chat_template", None) is PreTrainedTokenizerBase.apply_chat_template
    in_python = getattr(tokenizer, "_chat_template", None) is not None or not stock
    return tokenizer.apply_chat_template if in_python else None
