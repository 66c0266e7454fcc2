"""The limits of a request to a child process, and the errors of a child that ends early."""

from dataclasses import dataclass

from rdchat.errors import RdchatError


class ChildError(RdchatError):
    """The child ended, or was ended at a limit.

    Attributes:
        words: What became of the thing it worked on, as the end of a sentence that begins with that thing.
        interrupted: The child was killed or stopped from outside: what it worked on is not to blame.
    """

    interrupted = False

    def __init__(self, words: str, hint: str = "Try again.") -> None:
        super().__init__(f"This {words}.", hint)
        self.words = words


class ChildLimitError(ChildError):
    """The child took longer, or more memory, than the request allows."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"took {limit}, so it was ended")


class ChildEndedError(ChildError):
    """The child ended by itself, answered nonsense, or could not be started.

    Attributes:
        what: What became of the process, as the end of a sentence that begins with it.
    """

    def __init__(self, what: str) -> None:
        super().__init__(f"could not be done: the process for it {what}")
        self.what = what


class ChildInterruptedError(ChildEndedError):
    """The child was killed or stopped by another program, or by the system where memory is short."""

    interrupted = True


@dataclass(frozen=True, slots=True)
class Limits:
    """What one request may take. macOS does not hold a process to limits of memory, so the parent looks.

    Attributes:
        seconds: From the request, or from the last progress, to the next progress or the answer; None is without limit.
        memory_bytes: Resident memory beyond what the child has then; None is without limit.
        cancel_s: Time to stop in good order when cancelled; then the child is killed. None never kills it.
    """

    seconds: float | None = None
    memory_bytes: int | None = None
    cancel_s: float | None = 0.0
