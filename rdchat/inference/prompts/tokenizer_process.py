"""The app's side of the child process for tokenizers and chat templates."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from rdchat.errors import ModelError, PromptTooLongError
from rdchat.inference.api.requests import ThinkingChoice
from rdchat.inference.prompts.encoding import LENGTH_HINT
from rdchat.inference.prompts.tokenizer_files import MODEL_HINT
from rdchat.work.child_limits import ChildEndedError, ChildError, Limits
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
_TRIES = 3  # of a request, if requests of other threads end the child

Waiting = Callable[[], None]
"""Called every 20 ms during a request; an exception from it ends the request."""


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
    """The child process, which keeps the tokenizers that it read last; others are read again when needed.

    Any thread may call it: tokens are counted while a reply waits for its prompt.
    """

    def __init__(self) -> None:
        self.child = ChildProcess("tokenizers", environment=_ENVIRONMENT)
        self._thinking: dict[Path, TemplateThinking] = {}

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
        if reread:
            self._thinking.pop(folder, None)
        limits, request = Limits(_LOAD_S, _LOAD_BYTES), {"reread": reread}
        return self._ask("load", folder, request, limits, waiting=waiting, read=_control_of)

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
        return self._ask("encode", folder, request, limits, waiting=waiting, read=_ids_of)

    def thinking(self, folder: Path, variables: dict[str, Any], waiting: Waiting = lambda: None) -> TemplateThinking:
        """Return what a chat template does with thoughts; the defaults where it cannot be tried."""
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
        """Return `read` of the child's answer to a request about a folder, which the child reads first if necessary."""
        arguments = {"folder": str(folder), **request}

        def read_known(answer: Any) -> T | None:
            return None if "unread" in answer else read(answer)

        with _errors_about(f"The {'tokenizer' if do == 'load' else 'chat template'} of {folder.name}"):
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
def _errors_about(what: str) -> Iterator[None]:
    """Turn errors of the child into errors about `what`."""
    try:
        yield
    except FrameError as error:
        raise PromptTooLongError("This chat is too long for any model.", LENGTH_HINT) from error
    except ChildError as error:
        kind = _InterruptedError if error.interrupted else ModelError
        raise kind(f"{what} {error.words}.", error.hint if error.interrupted else MODEL_HINT) from error


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
