"""The calls of tools in chats: they wait for the person's approval, are run, and then the model answers again.

A round here is a reply with calls, together with their results.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import takewhile
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import (
    Conversation,
    Message,
    MessagePath,
    MessageStatus,
    Origin,
    call_of,
    last_calls,
    waiting_calls,
)
from rdchat.chat.settings import ToolApproval
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError
from rdchat.inference.api import FinishReason, Role, ToolCall
from rdchat.services.chat.chat_prompt import NOT_RUN, ChatPrompt
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.reply_recorder import Reply
from rdchat.services.servers.tool_servers import NO_TOOLS
from rdchat.services.storage_watch import SettingsControl, StorageWatch
from rdchat.tools.definitions import ToolDefinition, ToolResult
from rdchat.work import CancelledError, Job

MAX_ROUNDS = 10
"""Replies with calls to one question after which every call waits for the person."""
_STOPPED = "The call was stopped."
_ANSWERED = (MessageStatus.COMPLETE, MessageStatus.FAILED)


class Scope(Enum):
    """How far an approval goes.

    Attributes:
        ONCE: For this call alone.
        CHAT: For later calls of the tool in this chat, until rdchat quits.
        ALWAYS: For all later calls of the tool, as long as its server and its definition stay the same.
    """

    ONCE = auto()
    CHAT = auto()
    ALWAYS = auto()


@dataclass(frozen=True, slots=True)
class WaitingCall:
    """A call as its card shows it.

    Attributes:
        tool: Its tool; None if that is not known, and then the call cannot be run.
        may_always: Whether its tool can be approved for all later calls (`Scope.ALWAYS`): it only reads, and runs here.
        status: `ServerState.status` of its server; empty if that is not on in the chat.
        remote: Whether its arguments leave this computer.
    """

    call: ToolCall
    tool: ToolDefinition | None
    may_always: bool
    status: str
    remote: bool


@dataclass(slots=True, eq=False)
class _Run:
    """A call that runs: `live` holds its result until that is stored, `job` stops it, once it has begun."""

    live: Reply
    job: Job[Any] | None = None


class ToolCalls(QObject):
    """Runs the calls of replies. Which of them wait follows from the messages, so it is the same after a restart.

    A refusal is the reason why a call cannot be run at all (`ToolCall.refusal`). A call that the person declines has
    none, but a result. So a call of a path's last reply waits if it has neither a refusal nor a result.

    A result is a message of its own: `STREAMING` while the tool runs, `FAILED` where the person declined the call or it
    failed, and `INTERRUPTED` where it was stopped or rdchat ended; then nothing goes on by itself. As soon as all calls
    have other results, the model answers.

    If all calls of a reply have refusals, the model answers these at once. There are two exceptions: the previous reply
    with calls had only refusals too, or this reply had no tools at all (`NO_TOOLS`).

    Args:
        store: The conversations.
        storage: Reports that a result cannot be stored.
        settings: Keeps what is always approved.
        chat: The open chat, with the replies of all chats.
    """

    changed = Signal()
    """`waiting`, `can_go_on` or what runs may have changed. Results themselves are messages of the open chat."""

    def __init__(
        self, store: ConversationStore, storage: StorageWatch, settings: SettingsControl, chat: OpenChat
    ) -> None:
        super().__init__(chat)
        self._store = store
        self._storage = storage
        self._settings = settings
        self._chat = chat
        self._replies = chat.replies
        self._tools = chat.replies.tools
        # The calls that run, by the ids of their results.
        self._runs: dict[int, _Run] = {}
        # What was approved for one chat, by its id.
        self._in_chats: set[tuple[int | None, ToolApproval]] = set()
        # Ids of the interrupted results whose calls the person wants to run again: these wait like new ones.
        self._to_repeat: set[int] = set()
        self._replies.ended.connect(self._on_reply_ended)
        for changed in (chat.opened, chat.path_changed, chat.message_added, chat.message_changed, chat.options_changed):
            changed.connect(self.changed)
        chat.opened.connect(self._start_stopped)
        self._tools.servers.changed.connect(self._on_servers_changed)
        # A tool's full name is `server__tool`.
        self._tools.servers.replaced.connect(
            lambda name: self._keep_approvals(lambda each: each.tool.partition("__")[0] != name)
        )

    # What a view shows

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls of the open chat that wait for the person."""
        return tuple(self._waiting_here())

    @property
    def can_go_on(self) -> bool:
        """Whether the open chat ends with results or refusals that the model has not answered, and nothing runs."""
        path = self._chat.path
        has_results = self.ran_nothing or (bool(path) and path[-1].role is Role.TOOL)
        return has_results and not self.waiting and not self.runs_in(self._chat.id)

    @property
    def ran_nothing(self) -> bool:
        """Whether the open chat ends with a reply whose calls all have refusals, which the model has not answered."""
        return bool(self._chat.path) and _is_mendable(self._chat.path[-1])

    @property
    def over_limit(self) -> bool:
        """Whether calls of the open chat wait because there were `MAX_ROUNDS` rounds, whatever was approved."""
        return bool(self.waiting) and len(_rounds(self._chat.path)) > MAX_ROUNDS

    def definition(self, call: ToolCall) -> ToolDefinition | None:
        """Return the tool of a call in the open chat; None while its server does not run."""
        return self._tools.definitions(self._chat.conversation).get(call.name)

    def waiting_call(self, call: ToolCall) -> WaitingCall:
        """Return what the card of a call in the open chat shows."""
        servers = self._tools.servers
        name = call.name.partition("__")[0]
        status = servers.server_state(name).status if name in self._tools.names(self._chat.conversation) else ""
        remote = any(each.is_remote for each in servers.servers if each.name == name)
        tool = self.definition(call)
        return WaitingCall(call, tool, _only_reads(tool), status, remote)

    def runs_in(self, conversation_id: int | None) -> bool:
        """Return whether a call runs in a chat."""
        return any(run.live.message.conversation_id == conversation_id for run in self._runs.values())

    def holds(self, conversation_id: int) -> bool:
        """Return whether messages of a chat that were sent during a reply wait on, until its calls are decided."""
        path = self._storage.read_or_default(lambda: self._chat.at(conversation_id)[1], MessagePath())
        return self.runs_in(conversation_id) or bool(waiting_calls(path))

    # Commands of the person

    def decide(self, call: ToolCall, scope: Scope | None, tool: ToolDefinition | None = None) -> None:
        """Run a call of the open chat, or decline it, unless it does not wait any more.

        With a larger scope, the other calls that wait and are approved by it are run too.

        Args:
            call: The call.
            scope: How far an approval goes; `ALWAYS` counts as `ONCE` where the tool writes or is remote. None declines
                the call: its result says that the person did not run it.
            tool: The tool as the person saw it, which alone may run. If it is another one, or None, the call waits on,
                and the chat's servers start.
        """
        waiting = self._waiting_here()
        conversation = self._chat.conversation
        path = self._chat.path
        if call not in waiting:
            return
        if scope is not None and (tool is None or tool != self.definition(call)):
            self._tools.start_servers(conversation)
            return
        interrupted = waiting[call]
        if interrupted is not None:
            self._to_repeat.discard(interrupted.id)
            if scope is None:
                # It ran once, so no result may say that it did not.
                self.changed.emit()
                return
        if tool is not None and scope is Scope.CHAT:
            self._in_chats.add((self._chat.id, _approval(tool)))
        elif tool is not None and scope is Scope.ALWAYS and _only_reads(tool):
            others = (each for each in self._settings.values.tool_approvals if each.tool != tool.full_name)
            self._settings.change_values(tool_approvals=(*others, _approval(tool)))
        with self._storage.writing():
            if interrupted is None:
                results = self._chat.add_results(path, [call])
            else:
                results = [self._store.reopen_message(interrupted.id)]
                self._replies.changed.emit(results[0])
            self._begin(conversation, results, {call: None if scope is None else tool})
            if scope in {Scope.CHAT, Scope.ALWAYS}:
                self._run_approved(conversation, path)

    def run_again(self, message_id: int) -> None:
        """Have the call of an interrupted result of the open chat wait again, so that its tool is seen first."""
        self._to_repeat.add(message_id)
        self._start_stopped()
        self.changed.emit()

    def go_on(self) -> None:
        """Have the model answer the results at the end of the open chat, also those of interrupted calls."""
        if self.can_go_on:
            with self._storage.writing():
                self._chat.answer_path(self._chat.conversation, self._chat.path)

    def stop_calls(self, conversation_id: int | None = None) -> None:
        """Stop the calls of one chat, or all; the model does not answer them by itself."""
        for message_id, run in list(self._runs.items()):
            if conversation_id in {None, run.live.message.conversation_id}:
                if run.job is not None:
                    run.job.cancel_silently()
                self._end_call(message_id, CancelledError())

    def begin_anew(self) -> None:
        """Forget what was approved for chats, as their ids now belong to others."""
        self._in_chats.clear()
        self._to_repeat.clear()

    # How a call goes

    def _start_stopped(self) -> None:
        """Start the servers of the open chat for calls that wait; one that failed is the person's to start.

        Calls of a backup and of an import start nothing: their cards have a button.
        """
        if not self.waiting or not self._chat.conversation.own.starts_servers:
            return
        if all(each.origin is not Origin.IMPORT for each in _rounds(self._chat.path)):
            self._tools.start_servers(self._chat.conversation, "stopped")

    def _on_reply_ended(self, reply: Message) -> None:
        """Run the calls of a reply that need no question, or have the model answer that none of them can be run.

        The model answers such refusals once, not twice in a row: `rounds[1]` is the reply with calls before this one.
        """
        if not reply.tool_calls or reply.finish_reason is FinishReason.CANCELLED or not reply.conversation_id:
            return
        with self._storage.writing():
            conversation, path = self._chat.at(reply.conversation_id)
            rounds = _rounds(path)
            if path.last_id != reply.id or len(rounds) > MAX_ROUNDS:
                return
            if not reply.runs_nothing:
                self._run_approved(conversation, path)
            elif _is_mendable(reply) and not any(each.runs_nothing for each in rounds[1:2]):
                self._chat.answer_path(conversation, path)

    def _run_approved(self, conversation: Conversation, path: MessagePath) -> None:
        """Run the calls that wait at the end of a chat's path and need no question."""
        tools = self._tools.definitions(conversation)
        approved = [each for each in waiting_calls(path) if self._is_approved(conversation.id, tools.get(each.name))]
        results = self._chat.add_results(path, approved)
        self._begin(conversation, results, {each: tools[each.name] for each in approved})

    def _waiting_here(self) -> dict[ToolCall, Message | None]:
        """Return the calls of the open chat that wait: each with the interrupted result if it is to run again, or None.

        A call that has an interrupted result is not among those of `waiting_calls`, which have no result.
        """
        path = self._chat.path
        waiting = dict[ToolCall, Message | None]()
        for result in filter(None, map(path.find_message, self._to_repeat)):
            call = call_of(path, result)
            if call is not None and result.status is MessageStatus.INTERRUPTED:
                waiting[call] = result
        return waiting | dict.fromkeys(waiting_calls(path))

    def _is_approved(self, conversation_id: int | None, definition: ToolDefinition | None) -> bool:
        approval = None if definition is None else _approval(definition)
        always = _only_reads(definition) and approval in self._settings.values.tool_approvals
        return always or (conversation_id, approval) in self._in_chats

    def _begin(
        self, conversation: Conversation, results: Sequence[Message], calls: Mapping[ToolCall, ToolDefinition | None]
    ) -> None:
        """Run calls whose empty results are stored, each with the tool that may run; one without was declined."""
        for result in results:
            self._runs[result.id] = _Run(self._replies.recorder.begin_reply(result, ChatPrompt((), ""), conversation))
        self._replies.state_changed.emit()
        for result, (call, tool) in zip(results, calls.items(), strict=True):
            run = self._runs[result.id]
            end = partial(self._end_call, result.id)
            try:
                if tool is None:
                    end(RdchatError(NOT_RUN))
                else:
                    run.job = self._tools.servers.call_tool(tool, call.arguments, end)
            except RdchatError as error:
                end(error)

    def _end_call(self, message_id: int, outcome: ToolResult | RdchatError) -> None:
        """Store a call's outcome in the message that is its result.

        The model answers once all calls of the path's last reply have results that were not interrupted.
        """
        if (run := self._runs.pop(message_id, None)) is None:
            # It was stopped meanwhile.
            return
        message = run.live.message
        if isinstance(outcome, ToolResult):
            with self._storage.writing():
                images = [image_file(data, f"image {number}") for number, data in enumerate(outcome.images, start=1)]
                message = self._store.attach(message_id, images) if images else message
            status = MessageStatus.FAILED if outcome.is_error else MessageStatus.COMPLETE
            message = replace(message, text=outcome.text, status=status)
        elif isinstance(outcome, CancelledError):
            message = replace(message, status=MessageStatus.INTERRUPTED, error=_STOPPED)
        else:
            message = replace(message, status=MessageStatus.FAILED, error=str(outcome))
        run.live.message = message
        self._replies.recorder.save_texts()
        self._replies.changed.emit(message)
        self._replies.state_changed.emit()
        with self._storage.writing():
            conversation, path = self._chat.at(message.conversation_id)
            # The person may have gone on with another path of the chat.
            results = last_calls(path).values() if path.index_of(message_id) is not None else ()
            if results and all(result is not None and result.status in _ANSWERED for result in results):
                self._chat.answer_path(conversation, path)

    def _on_servers_changed(self) -> None:
        """Forget approvals of tools that have changed; those of tools that are not known now are kept."""
        servers = self._tools.servers
        has_approvals = self._in_chats or self._settings.values.tool_approvals
        tools = servers.definitions([each.name for each in servers.servers]) if has_approvals else ()
        known = {each.full_name: _approval(each) for each in tools}
        self._keep_approvals(lambda each: known.get(each.tool, each) == each)
        self.changed.emit()

    def _keep_approvals(self, is_valid: Callable[[ToolApproval], bool]) -> None:
        self._in_chats = {each for each in self._in_chats if is_valid(each[1])}
        approvals = self._settings.values.tool_approvals
        if (valid := tuple(filter(is_valid, approvals))) != approvals:
            self._settings.change_values(tool_approvals=valid)


def _approval(definition: ToolDefinition) -> ToolApproval:
    return ToolApproval(definition.full_name, definition.fingerprint)


def _only_reads(definition: ToolDefinition | None) -> bool:
    """Return whether a tool is declared read-only, on a server of this computer."""
    return definition is not None and definition.read_only and not definition.remote


def _is_mendable(reply: Message) -> bool:
    """Return whether none of a reply's calls can be run, and the model may do better when it reads why."""
    return reply.runs_nothing and reply.tool_calls[0].refusal != NO_TOOLS


def _rounds(path: Sequence[Message]) -> list[Message]:
    """Return the replies with calls since the last question, newest first."""
    since = takewhile(lambda each: each.role is not Role.USER, reversed(path))
    return [message for message in since if message.tool_calls]
