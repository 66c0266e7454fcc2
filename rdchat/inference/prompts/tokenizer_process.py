"""The app's side of the child process for tokenizers and chat templates."""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError, PromptTooLongError, RdchatError
from rdchat.inference.api.requests import ThinkingChoice
from rdchat.inference.prompts.encoding import Marks
from rdchat.work.child_limits import ChildError, Limits
from rdchat.work.child_process import ChildProcess
from rdchat.work.frames import FrameError

_LOAD_S, _LOAD_BYTES = 20.0, 2 * 2**30  # the largest tokenizers, with 260,000 tokens, take 2 s and half a gigabyte
_TRY_S = 5.0
_ENCODE_S, _ENCODE_BYTES = 10.0, 3 * 2**28
_BYTES_PER_BYTE, _MOST_ENCODE_BYTES = 1000, 4 * 2**30  # limits for encoding: per byte of text, and in all
_ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "TRANSFORMERS_NO_ADVISORY_WARNINGS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}
_NO_LIMIT = 2**31  # tokens
_MOST_HELD = 4  # tokenizers: for a target and its draft model, and for the models before
_TICK_S = 0.02  # between two calls of `waiting`
_TEMPLATE_HINT = "Choose an instruction-tuned model, or start a new chat without a system prompt."
_LENGTH_HINT = "Shorten the prompt, start a new chat, or choose a model with a longer context."
_MODEL_HINT = "Download the model again, or choose another one."

Waiting = Callable[[], None]
"""Called every 20 ms during a request; an exception from it ends the request."""


class TemplateRefusedError(ModelError):
    """The chat template refuses the conversation."""


@cache
def shared_tokenizers() -> "TokenizerProcess":
    """Return the tokenizer process that all models share, since starting one takes a second."""
    return TokenizerProcess()


@dataclass(frozen=True, slots=True)
class TemplateThinking:
    """What a chat template does with thoughts."""

    drops: bool = False  # whether it removes the thoughts of earlier replies
    choices: Mapping[ThinkingChoice, Mapping[str, Any]] = field(default_factory=dict)
    """The variables that switch thinking, by choice; empty where the template has no switch."""


class TokenizerProcess:
    """The child process, and the tokenizers that it read last; others are read again when needed.

    Threads take turns: tokens are counted while a reply waits for its prompt.
    """

    def __init__(self) -> None:
        self.child = ChildProcess("tokenizers", environment=_ENVIRONMENT)
        self._control: dict[Path, dict[str, int]] = {}  # by folder, the latest last
        self._thinking: dict[Path, TemplateThinking] = {}
        self._read_by = 0  # the start count of the child that has read them
        self._busy = threading.RLock()

    def start(self) -> None:
        """Start the child, which takes a second or two; the first request waits for it."""
        with _errors_about("The process for tokenizers"):
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
        with self._turn(waiting):
            self.start()
            if self._read_by != self.child.starts:
                self._control.clear()
            if reread or folder not in self._control:
                self._control.pop(folder, None)
                self._thinking.pop(folder, None)
                while len(self._control) >= _MOST_HELD:  # the child drops the same ones
                    del self._control[next(iter(self._control))]
                limits, request = Limits(_LOAD_S, _LOAD_BYTES), {"most": _MOST_HELD}
                self._control[folder] = self._ask("load", folder, request, limits, waiting=waiting, read=_control_of)
                self._read_by = self.child.starts
            return self._control[folder]

    def encode(self, folder: Path, request: dict[str, Any], size: int, waiting: Waiting) -> list[int]:
        """Return the token ids from `TokenizerCalls.encode`.

        Args:
            folder: The model's folder.
            request: Its arguments.
            size: Bytes of text.
            waiting: See `ModelPrompts.encode`, also for what is raised.
        """
        memory = min(_ENCODE_BYTES + _BYTES_PER_BYTE * size, _MOST_ENCODE_BYTES)
        limits = Limits(_ENCODE_S * (1 + size / 2**20), memory)
        # With reading: another thread's request may end the child, and a new child has read none.
        with self._turn(waiting):
            self.read(folder, waiting)
            return self._ask("encode", folder, request, limits, waiting=waiting, read=_ids_of)

    def encode_text(self, folder: Path, text: str) -> list[int]:
        """Return the ids of a text as it would be inside a message; raises as `encode` does."""
        marks = Marks.for_texts([text])
        request: dict[str, Any] = {
            "turns": None,
            "text": text,
            "variables": {},
            "marks": [marks.before, marks.after],
            "limit": _NO_LIMIT,
            "begins": False,
        }
        return self.encode(folder, request, len(text.encode()), lambda: None)

    @contextmanager
    def _turn(self, waiting: Waiting) -> Iterator[None]:
        while not self._busy.acquire(timeout=_TICK_S):
            waiting()
        try:
            yield
        finally:
            self._busy.release()

    def thinking(self, folder: Path, variables: dict[str, Any], waiting: Waiting = lambda: None) -> TemplateThinking:
        """Return what a chat template does with thoughts; the defaults where it cannot be tried."""
        with self._turn(waiting):
            self.read(folder, waiting)
            if folder not in self._thinking:
                limits, request = Limits(_TRY_S, _ENCODE_BYTES), {"variables": variables}
                try:
                    found = self._ask("thinking", folder, request, limits, waiting=waiting, read=_thinking_of)
                except _InterruptedError:  # not the template's fault: the next call tries again
                    return TemplateThinking()
                except ModelError:  # encoding a conversation will report it
                    found = TemplateThinking()
                self._thinking[folder] = found
            return self._thinking[folder]

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
        """Return `read` of the child's answer to a request about a folder."""
        what = f"The {'tokenizer' if do == 'load' else 'chat template'} of {folder.name}"

        def read_or_refuse(answer: Any) -> T:
            if "failure" in answer:
                raise _refusal(answer, what)
            return read(answer)

        with _errors_about(what):
            arguments = {"folder": str(folder), **request}
            answer: T = self.child.submit(do, arguments, limits, read=read_or_refuse).result(waiting)
            return answer


class _InterruptedError(ModelError):
    """The child was killed or stopped; the model is not at fault."""


@contextmanager
def _errors_about(what: str) -> Iterator[None]:
    """Turn errors of the child into errors about `what`."""
    try:
        yield
    except FrameError as error:
        raise PromptTooLongError("This chat is too long for any model.", _LENGTH_HINT) from error
    except ChildError as error:
        kind = _InterruptedError if error.interrupted else ModelError
        raise kind(f"{what} {error.words}.", error.hint if error.interrupted else _MODEL_HINT) from error


def _refusal(answer: Any, what: str) -> RdchatError:
    """Return the error for a failure that the child reports."""
    match answer["failure"]:
        case "too_long":
            return PromptTooLongError(
                f"This chat is too long for the model, which takes {answer['limit']:,} tokens.", _LENGTH_HINT
            )
        case "template":
            words = f"The model's chat template does not accept this chat: {answer['words']}"
            return TemplateRefusedError(words, _TEMPLATE_HINT)
        case "memory":
            return ModelError(f"{what} took too much memory.", _MODEL_HINT)
    return ModelError(f"{what} cannot be used: {str(answer['words']).rstrip('.')}.", _MODEL_HINT)


def _control_of(answer: Any) -> dict[str, int]:
    return {text: _whole(token_id) for text, token_id in dict(answer["control"]).items()}


def _ids_of(answer: Any) -> list[int]:
    return [_whole(token_id) for token_id in answer["ids"]]


def _thinking_of(answer: Any) -> TemplateThinking:
    told = answer["choices"]
    found = {each: dict(told[each.value]) for each in ThinkingChoice if each.value in told}
    return TemplateThinking(bool(answer["drops"]), found)


def _whole(number: object) -> int:
    if type(number) is not int or not 0 <= number < 2**31:
        raise TypeError("no token's id")
    return number
