"""Jobs on threads and in child processes. No Qt."""

from rdchat.work.child_process import (
    ChildClosedError,
    ChildEndedError,
    ChildError,
    ChildLimitError,
    ChildProcess,
    Limits,
)
from rdchat.work.job import CancelledError, Job, SerialThread, StopWork, error_of, outcome_of
from rdchat.work.served import FrameError, ParentLink, Request, answer_one, serve, serve_together
