"""The app's side of the process that runs tokenizers and chat templates, because they are foreign data."""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError, PromptTooLongError, RdchatError, ShapeRefusedError
from rdchat.inference.api.answer_shape import SHAPE_HINT, AnswerShape
from rdchat.inference.api.requests import ThinkingChoice
from rdchat.inference.prompts.encoding import LENGTH_HINT, Marks
from rdchat.inference.prompts.tokenizer_files import MODEL_HINT
from rdchat.work.child_process import ChildProcess
from rdchat.work.child_run import ChildEndedError, ChildError, Limits
from rdchat.work.frames import FrameError

# The largest tokenizers, with 260,000 tokens, take 2 s and half a gigabyte.
_LOAD_S = 20.0
_LOAD_BYTES = 2 * 2**30
_TRY_S = 5.0
_ENCODE_S = 10.0
_ENCODE_BYTES = 3 * 2**28
_SHAPE_S = 5.0
_SHAPE_BYTES = 2**30
_SETTINGS_LIMITS = Limits(60.0, 2**30)
# Limits for encoding: per byte of text, and in all.
_BYTES_PER_BYTE = 1000
_MAX_ENCODE_BYTES = 4 * 2**30
# How often a request is sent, if requests of other threads end the child.
_TRIES = 3

Waiting = Callable[[], None]
"""Called every 20 ms during a request; an exception from it ends the request."""


@cache
def shared_tokenizers() -> "TokenizerProcess":
    """Return the tokenizer process that all models share, since starting one takes a second."""
    return TokenizerProcess()


@dataclass(frozen=True, slots=True)
class TemplateThinking:
    """What a chat template does with thoughts, and how it ends a reply.

    Attributes:
        drops: Whether it removes the thoughts of earlier replies.
        choices: The variables that switch thinking, by choice; empty where the template has no switch.
        end: The control token directly after a reply; None where there is none.
    """

    drops: bool = False
    choices: Mapping[ThinkingChoice, Mapping[str, Any]] = field(default_factory=dict)
    end: int | None = None


class TokenizerProcess:
    """The child process, which keeps the tokenizers that it read last; others are read again when needed.

    Any thread may call it: tokens are counted while a reply waits for its prompt.
    """

    def __init__(self) -> None:
        self.child = ChildProcess("tokenizers")
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
        limits = Limits(_LOAD_S, _LOAD_BYTES)
        request = {"reread": reread}
        return self._request("load", folder, request, limits, waiting=waiting, read=_control_of)

    def encode(self, folder: Path, waiting: Waiting, **request: Any) -> list[int]:
        """Return the token ids from `TokenizerCalls.encode`; `ModelPrompts.encode` lists the errors.

        Args:
            folder: The model's folder.
            waiting: See `ModelPrompts.encode`.
            request: The arguments of `TokenizerCalls.encode`.
        """
        size = len(json.dumps(request, ensure_ascii=False, default=str).encode("utf-8", "replace"))
        memory = min(_ENCODE_BYTES + _BYTES_PER_BYTE * size, _MAX_ENCODE_BYTES)
        limits = Limits(_ENCODE_S * (1 + size / 2**20), memory)
        return self._request("encode", folder, request, limits, waiting=waiting, read=_ids_of)

    def encode_text(self, folder: Path, text: str) -> list[int]:
        """Return the ids of a text as it would be inside a message; raises as `encode` does."""
        return self.encode(folder, lambda: None, text=text, marks=Marks.for_texts([text]), limit=2**31)

    def thinking(self, folder: Path, variables: dict[str, Any], waiting: Waiting = lambda: None) -> TemplateThinking:
        """Return what a chat template does with thoughts; the defaults where it cannot be tried."""
        if folder not in self._thinking:
            limits = Limits(_TRY_S, _ENCODE_BYTES)
            request = {"variables": variables}
            # Errors of reading are not the template's.
            self.read(folder, waiting)
            try:
                thinking = self._request("thinking", folder, request, limits, waiting=waiting, read=_thinking_of)
            except _InterruptedError:
                # It is not the template's fault: the next call tries again.
                return TemplateThinking()
            except ModelError:
                # Encoding a conversation will report it.
                thinking = TemplateThinking()
            self._thinking[folder] = thinking
        return self._thinking[folder]

    def settings(self, config: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return `class_settings` of a config.json.

        Raises:
            ModelError: If that takes too long or too much memory.
        """
        try:
            answer = self.child.submit("settings", {"config": config}, _SETTINGS_LIMITS).result()
        except RdchatError as error:
            raise ModelError("The model's config.json could not be read in time.", "Load it again.") from error
        return list(answer["parts"])

    def check_shape(self, shape: AnswerShape, waiting: Waiting = lambda: None) -> None:
        """Compile the shape of an answer, so that one that is wrong or too large fails outside this process.

        Raises:
            ShapeRefusedError: If it cannot be used; the message says why.
        """
        self._check(shape, "shape", {"kind": shape.kind, "source": shape.source}, waiting)

    def check_answer(self, shape: AnswerShape, answer: str) -> None:
        """Check a finished answer with the schemas that its shape's grammar does not enforce.

        Raises:
            ModelError: If it does not fit, or the check takes too long.
        """
        self._check(shape, "answer", {"answer": answer, "schemas": shape.unenforced})

    def _check(self, shape: AnswerShape, do: str, arguments: dict[str, Any], waiting: Waiting = lambda: None) -> None:
        try:
            self.child.submit(do, arguments, Limits(_SHAPE_S, _SHAPE_BYTES)).result(waiting)
        except ChildError as error:
            hint = error.hint if error.interrupted else SHAPE_HINT
            raise ShapeRefusedError(f"The {shape.label} {error.reason}.", hint) from error

    def _request[T](
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
                # The child is a new one, or it dropped the tokenizer.
                self.read(folder, waiting)
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
    return {text: _token_id(token_id) for text, token_id in dict(answer["control"]).items()}


def _ids_of(answer: Any) -> list[int]:
    return [_token_id(token_id) for token_id in answer["ids"]]


def _thinking_of(answer: Any) -> TemplateThinking:
    given = answer["choices"]
    end = answer["end"]
    choices = {each: dict(given[each.value]) for each in ThinkingChoice if each.value in given}
    return TemplateThinking(bool(answer["drops"]), choices, None if end is None else _token_id(end))


def _token_id(number: object) -> int:
    if type(number) is not int or not 0 <= number < 2**31:
        raise TypeError("no token's id")
    return number
