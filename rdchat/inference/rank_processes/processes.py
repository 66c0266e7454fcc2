"""The processes of all ranks: started here and over ssh, watched, and ended together.

Rank 0 runs on this Mac and has the engine; the others follow its calls over a ring of connections between the Macs. A
rank that waits for a lost one waits for ever, so each is pinged. Any thread may ask a rank; what a rank answers comes
on a thread of `ChildProcess`.
"""

import queue
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

from rdchat.errors import DeviceError, ModelError, RanksError, RdchatError, one_line
from rdchat.host import local_network_hint
from rdchat.inference.api import Host
from rdchat.inference.rank_processes.ring import start_command
from rdchat.work import ChildEndedError, ChildError, ChildLimitError, ChildProcess, Job, Limits

DEADLINE_S = 90.0
"""A rank without a sign of life for so long is given up."""
# A ping must be answered within this part of the deadline: a rank that hangs must be found before rank 0, which waits
# for it, exceeds the deadline and gets the blame.
_PING_SHARE = 3
# When one rank ends, MLX may end the others. For so long faults are gathered, to name the first.
_SETTLE_S = 0.5
# These calls have so many times the deadline: loading waits for the slowest disk, and a benchmark reports once a reply.
_PATIENCE = {"join": 2, "load": 10, "benchmark": 10}
# Time for the ranks to free the model before they end: macOS may keep the wired memory of a process that just ends.
_UNLOAD_S = 2.0
# Calls that only rank 0 answers, so the other ranks go on resting.
_STILL = {"rest", "stop", "count_tokens"}
# What a rank says of its Mac besides versions.
_NUMBERS = ("free_bytes", "limit_bytes", "port")
# Requests that a rank may have at the same time.
_AT_ONCE = 1000
# Exit statuses: of ssh itself, and of a shell that does not find the command.
_SSH_FAILED = 255
_COMMAND_MISSING = 127
_AGAIN = "Go on when that Mac is back: the model is then loaded again."

type _Read = Callable[[Any], Any]
"""Converts JSON of a rank. A LookupError, TypeError or ValueError from it ends the rank."""


def _as_it_is(answer: Any) -> Any:
    return answer


class End(NamedTuple):
    """The last of a rank's answers to a request: the result, or the error."""

    outcome: Any


class RankProcesses:
    """The processes of all ranks. When one ends, hangs or fails, all are ended, and `error` says why.

    `hello` starts them, `fetch` gives each the model, and `join` connects them and makes rank 0's engine. From then on
    `ask_rank` calls that engine, until `unload_ranks` or `close`.

    Args:
        hosts: One for each rank, with an address each.

    Attributes:
        error: Why they were ended; None while they run.
    """

    def __init__(self, hosts: Sequence[Host]) -> None:
        self.hosts = tuple(hosts)
        self.error: RdchatError | None = None
        self._children = [
            ChildProcess("rank", at_once=_AT_ONCE, command=start_command(host), restarts=False) for host in hosts
        ]
        # Ranks that ended, hang or failed, with their errors, in the order in which that was seen.
        self._faults: list[tuple[int, RdchatError]] = []
        # Set once `error` is, half a second after the first fault; see `_give_up`.
        self._failed = threading.Event()
        # Set when the processes are to end, for whatever reason: what then happens to a rank is no fault.
        self._closed = threading.Event()
        # All ranks but rank 0, and an entry for each that follows it no more.
        self._others = range(1, len(hosts))
        self._ends: queue.SimpleQueue[int] = queue.SimpleQueue()
        # Whether rank 0 has an engine.
        self._joined = False
        # Whether all ranks rest: from `rest_ranks` on, until `ask_rank` has a call for which they are needed.
        self._resting = False

    def hello(self) -> list[dict[str, Any]]:
        """Start all; return the versions, the memory and a free port of each.

        Raises:
            RdchatError: If one cannot be started, or has other versions than the first. It names the Mac.
        """
        facts = self.together("hello", _facts, ips=[host.ips[0] for host in self.hosts])
        for host, each in zip(self.hosts, facts, strict=True):
            for what, version in facts[0]["versions"].items():
                if (other := each["versions"].get(what)) != version:
                    first = self.hosts[0].display_name
                    text = f"{host.display_name} has {what} {other}, and {first} has {version}."
                    raise ModelError(text, "Install the same versions on all Macs.")
        return facts

    def ring(self, facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Return the arguments with which each rank joins the ring."""
        addresses = [f"{host.ips[0]}:{each['port']}" for host, each in zip(self.hosts, facts, strict=True)]
        return {"addresses": addresses, "key": secrets.token_hex()}

    def together(self, do: str, read: _Read = _as_it_is, **arguments: Any) -> list[Any]:
        """Have all ranks do something at the same time; return their results. Each also gets its own number."""
        ranks = range(len(self._children))
        answers = [self.ask_rank(do, {"rank": rank, **arguments}, rank, read) for rank in ranks]
        return [self.result_of(each, rank=rank) for rank, each in zip(ranks, answers, strict=True)]

    def fetch(self, model: str | None, read_progress: _Read, on_progress: Callable[[Any], object]) -> None:
        """Check that a model can be split, let ranks without it download it, and begin to watch all ranks.

        Raises:
            RdchatError: If one cannot. It names the Mac.
        """
        threading.Thread(target=self._watch, name="ranks", daemon=True).start()
        # Rank 0 first: it refuses a model that cannot be split before the others download it.
        for ranks in (range(1), self._others):
            arguments = {"model": model, "ranks": len(self._children)}
            answers = [
                self.ask_rank("fetch", {"rank": rank, **arguments}, rank, _as_it_is, read_progress) for rank in ranks
            ]
            for rank, each in zip(ranks, answers, strict=True):
                self.result_of(each, on_progress, rank)

    def join(self, **arguments: Any) -> None:
        """Have rank 0 make its engine, and the others follow it: their request has no answer until they end."""
        for rank in self._others:
            sent = {"rank": rank, **arguments}
            on_end = partial(self._note_end, rank)
            self._children[rank].submit("join", sent, on_end=on_end)
        self.result_of(self.ask_rank("join", {"rank": 0, **arguments}))
        self._joined = True

    def rest_ranks(self) -> None:
        """Have all ranks give memory back until rank 0 gets a request; the others take no processor time meanwhile."""
        # The others must know it before rank 0's message comes, which they would else wait for.
        for job in [self._notify(rank, "wait") for rank in self._others]:
            job.result()
        self._resting = True
        self.result_of(self.ask_rank("rest", {}))

    def ask_rank(
        self,
        do: str,
        arguments: dict[str, Any],
        rank: int = 0,
        read: _Read = _as_it_is,
        read_progress: _Read = _as_it_is,
    ) -> "queue.SimpleQueue[Any]":
        """Send a request to a rank; return its answers: progress, then an `End`. Any thread may call it.

        Args:
            do: Name of the call.
            arguments: As JSON.
            rank: The rank.
            read: Converts the result.
            read_progress: Converts progress.
        """
        if self._resting and do not in _STILL:
            self._resting = False
            for other in self._others:
                self._notify(other, "go")
        answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
        # A download has no deadline.
        limits = Limits(None if do == "fetch" else DEADLINE_S * _PATIENCE.get(do, 1))

        def report(progress: Any) -> None:
            reported = read_progress(progress)
            # Another Mac may report progress without end: only one report of it waits in the queue at a time. Rank 0 is
            # on this Mac, and none of its events may be lost.
            if not rank or answers.empty():
                answers.put(reported)

        def end(outcome: Any) -> None:
            answers.put(End(outcome))

        self._children[rank].submit(do, arguments, limits, read=read, on_progress=report, on_end=end)
        return answers

    def result_of(
        self, answers: "queue.SimpleQueue[Any]", on_progress: Callable[[Any], object] = lambda _: None, rank: int = 0
    ) -> Any:
        """Return the result of a request to a rank; raise the error that it ended with, for people."""
        while not isinstance(answer := answers.get(), End):
            on_progress(answer)
        if isinstance(answer.outcome, RdchatError):
            raise self.explained(answer.outcome, rank)
        return answer.outcome

    def explained(self, error: RdchatError, rank: int = 0) -> RdchatError:
        """Return a rank's error for people, or the error of another rank that ended or hangs and so caused it."""
        if isinstance(error, ChildError):
            self._note_fault(rank, error)
        # These may come from another rank's end, so wait for the verdict. The class of unexpected errors is RdchatError
        # itself.
        if isinstance(error, ChildError | DeviceError | RanksError) or type(error) is RdchatError:
            self._failed.wait(2 * _SETTLE_S)
        return self.error or self._named(rank, error)

    def unload_ranks(self) -> None:
        """Have all ranks free the model, and end them, at the latest when none has answered for two seconds."""
        if self._joined and not self._closed.is_set():
            # From now on, a rank that ends is not at fault.
            self._closed.set()
            with suppress(queue.Empty):
                # Its one answer is the `End`.
                for ends in (self.ask_rank("close", {}), *[self._ends for _ in self._others]):
                    ends.get(timeout=_UNLOAD_S)
        self.close()

    def close(self) -> None:
        """End all processes: one on another Mac ends itself when that of ssh here is gone. Idempotent."""
        self._closed.set()
        for child in self._children:
            child.close()

    def _watch(self) -> None:
        """Ping all ranks now and then, until they are closed."""
        while not self._closed.wait(DEADLINE_S / _PING_SHARE / 2):
            for rank in range(len(self._children)):
                self._notify(rank, "ping")

    def _notify(self, rank: int, what: str) -> Job[Any]:
        """Send a rank something that its reading thread answers at once, also while MLX waits for another rank."""
        limits = Limits(DEADLINE_S / _PING_SHARE)
        return self._children[rank].submit(what, {}, limits, on_end=partial(self._note_fault, rank))

    def _note_end(self, rank: int, outcome: Any) -> None:
        """Take note that a rank follows rank 0 no more."""
        self._note_fault(rank, outcome)
        self._ends.put(rank)

    def _note_fault(self, rank: int, outcome: Any) -> None:
        """Take note of a rank's error; after the first one, all ranks are ended. A result is no fault."""
        if isinstance(outcome, RdchatError) and not self._closed.is_set():
            self._faults.append((rank, outcome))
            if len(self._faults) == 1:
                threading.Thread(target=self._give_up, name="end of ranks", daemon=True).start()

    def _give_up(self) -> None:
        """End all ranks, and say which one is at fault."""
        time.sleep(_SETTLE_S)
        # A process that was killed or stopped from outside comes first: the others were ended by MLX because of it.
        faults = sorted(self._faults, key=lambda fault: not getattr(fault[1], "interrupted", False))
        self.error = self._named(*faults[0])
        self.close()
        self._failed.set()

    def _named(self, rank: int, error: RdchatError) -> RdchatError:
        """Return an error of a rank for people, with the name of its Mac."""
        host = self.hosts[rank]
        match error:
            case ChildEndedError(status=status) if status == _SSH_FAILED and not host.is_this_mac:
                line = one_line(self._children[rank].last_log)
                hint = local_network_hint(line).strip() or f"Check that `ssh {host.ssh} true` works without a password."
                return ModelError(f"ssh cannot reach {host.display_name}: {line}", hint)
            case ChildEndedError(status=status) if status == _COMMAND_MISSING:
                return ModelError(
                    f"ssh finds no rdchat on {host.display_name}.", "Put the app into Applications there."
                )
            case ChildEndedError(what=what):
                return ModelError(f"The process on {host.display_name} {what}.", _AGAIN)
            case ChildLimitError():
                return ModelError(f"The process on {host.display_name} does not answer.", _AGAIN)
        return error if host.is_this_mac else type(error)(f"On {host.display_name}: {error.message}", error.hint)


def _facts(data: Any) -> dict[str, Any]:
    """Return the known fields of a rank's answer to `hello`: another Mac might send anything."""
    return {"versions": dict(data["versions"])} | {name: int(data[name]) for name in _NUMBERS}
