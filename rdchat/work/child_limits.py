"""Limits of a request to a child process, and the errors of a child that ends early."""

from dataclasses import dataclass

from rdchat.errors import RdchatError


class ChildError(RdchatError):
    """The child ended, or was ended at a limit.

    Attributes:
        reason: What happened to the work, as the end of a sentence whose subject is the work.
        interrupted: Whether the child was killed or stopped by another program, or by the system when memory is short,
            so that its work is not at fault.
    """

    interrupted = False

    def __init__(self, reason: str, hint: str = "Try again.") -> None:
        super().__init__(f"This {reason}.", hint)
        self.reason = reason


class ChildLimitError(ChildError):
    """The child took more time or memory than the request allows."""

    def __init__(self, limit: str) -> None:
        super().__init__(f"took {limit}, so it was ended")


class ChildEndedError(ChildError):
    """The child ended by itself, gave an invalid answer, or could not be started.

    Attributes:
        what: What happened to the process, as the end of a sentence whose subject is the process.
        status: Its exit status; None if it did not end by itself.
    """

    def __init__(self, what: str, *, interrupted: bool = False, status: int | None = None) -> None:
        super().__init__(f"could not be done: the process for it {what}")
        self.what = what
        self.interrupted = interrupted
        self.status = status


class ChildClosedError(ChildEndedError):
    """The app closed the child before it answered."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request. macOS does not enforce memory limits, so the parent checks.

    Attributes:
        memory_bytes: Resident memory in addition to what the child has at the start; None for no limit.
    """

    # From the request, or the last progress, to the next progress or the answer; None for no limit.
    seconds: float | None = None
    memory_bytes: int | None = None
    # Time to stop in good order after cancelling; then the child is killed. None never kills it.
    cancel_s: float | None = 0.0
