"""The calls of tools in chats: they wait for the person's approval, are run, and then the model answers again."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum, auto
from functools import partial
from itertools import takewhile
from typing import Any

from PySide6.QtCore import QObject, Signal

from rdchat.chat.attachments.attached_file import image_file
from rdchat.chat.conversation import Conversation, Message, MessageStatus
from rdchat.chat.message_path import MessagePath, call_of, results_after
from rdchat.chat.settings import ToolApproval
from rdchat.chat.store import ConversationStore
from rdchat.errors import RdchatError
from rdchat.inference.api.events import FinishReason
from rdchat.inference.api.messages import Role, ToolCall
from rdchat.services.chat.chat_prompt import NOT_RUN, ChatPrompt
from rdchat.services.chat.chat_tools import problem_of
from rdchat.services.chat.open_chat import OpenChat
from rdchat.services.chat.reply_recorder import Reply
from rdchat.services.chat.storage_watch import SettingsControl, StorageWatch
from rdchat.tools.definitions import ToolDefinition, ToolResult
from rdchat.work.job import CancelledError, Job

MAX_ROUNDS = 10
"""Replies with calls to one question after which every call waits for the person."""
_STOPPED = "The call was stopped."
_ANSWERED = (MessageStatus.COMPLETE, MessageStatus.FAILED)


class Scope(Enum):
    """How far an approval goes.

    Attributes:
        CHAT: For later calls of the tool in this chat, until rdchat quits.
        ALWAYS: For all later calls of the tool, as long as its server and its definition stay the same.
    """

    ONCE = auto()
    CHAT = auto()
    ALWAYS = auto()


@dataclass(slots=True, eq=False)
class _Run:
    """A call that runs, or waits for its server; `live` holds its result until that is stored."""

    live: Reply
    call: ToolCall
    job: Job[Any] | None = None


class ToolCalls(QObject):
    """Runs the calls of replies. Which of them wait follows from the messages, so it is the same after a restart.

    A call without a result, of the last reply of a path, waits. A result is a message of its own: `STREAMING` while the
    tool runs, `FAILED` where it was refused or failed, and `INTERRUPTED` where it was stopped or rdchat ended; then
    nothing goes on by itself. As soon as all calls of a reply have other results, the model answers.

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
        self._store, self._storage, self._settings, self._chat = store, storage, settings, chat
        self._replies, self._tools = chat.replies, chat.replies.tools
        # By the id of the result.
        self._runs: dict[int, _Run] = {}
        self._in_chats: set[tuple[int | None, ToolApproval]] = set()
        self._replies.ended.connect(self._on_reply_ended)
        for changed in (chat.opened, chat.path_changed, chat.message_added, chat.message_changed, chat.options_changed):
            changed.connect(self.changed)
        self._tools.servers.changed.connect(self._on_servers_changed)

    # What a view shows

    @property
    def waiting(self) -> tuple[ToolCall, ...]:
        """The calls of the open chat's last reply that wait for the person."""
        return _waiting(self._chat.path)

    @property
    def can_go_on(self) -> bool:
        """Whether the open chat ends with results that the model has not answered, and nothing runs."""
        path = self._chat.path
        return bool(path) and path[-1].role is Role.TOOL and not self.waiting and not self.runs_in(self._chat.id)

    @property
    def over_limit(self) -> bool:
        """Whether calls of the open chat wait because there were `MAX_ROUNDS` rounds, whatever was approved."""
        return bool(self.waiting) and _rounds(self._chat.path) > MAX_ROUNDS

    def definition(self, call: ToolCall) -> ToolDefinition | None:
        """Return the tool of a call in the open chat; None while its server does not run."""
        return self._tools.definitions(self._chat.conversation).get(call.name)

    def may_always(self, call: ToolCall) -> bool:
        """Return whether a call can be approved for always: its tool only reads, and its server is not remote."""
        return _only_reads(self.definition(call))

    def runs_in(self, conversation_id: int | None) -> bool:
        """Return whether a call runs in a chat."""
        return any(run.live.message.conversation_id == conversation_id for run in self._runs.values())

    def holds(self, conversation_id: int) -> bool:
        """Return whether messages of a chat that were sent during a reply wait on, until its calls are decided."""
        path = self._storage.read(lambda: self._chat.at(conversation_id)[1], MessagePath())
        return self.runs_in(conversation_id) or bool(_waiting(path))

    # Commands of the person

    def decide(self, call: ToolCall, scope: Scope | None) -> None:
        """Run or refuse a call of the open chat, unless it does not wait any more.

        With a larger scope, the other calls that wait and are approved by it are run too.

        Args:
            call: The call.
            scope: How far an approval goes; `ALWAYS` counts as `ONCE` where `may_always` does not hold. None refuses
                the call: its result says that the person did not run it.
        """
        if call not in self.waiting:
            return
        if (definition := self.definition(call)) is not None:
            approval = _approval(definition)
            if scope is Scope.CHAT:
                self._in_chats.add((self._chat.id, approval))
            elif scope is Scope.ALWAYS and self.may_always(call):
                others = (each for each in self._settings.values.tool_approvals if each.tool != approval.tool)
                self._settings.update(tool_approvals=(*others, approval))
        runs_others = scope in {Scope.CHAT, Scope.ALWAYS}
        refusal = NOT_RUN if scope is None else ""
        with self._storage.writing():
            for each in self.waiting:
                if each == call or (runs_others and self._is_approved(self._chat.id, self.definition(each))):
                    self._begin(self._chat.conversation, self._chat.add_result(self._chat.path, each), each, refusal)

    def run_again(self, message_id: int) -> None:
        """Run the call of an interrupted result of the open chat again."""
        result = self._chat.path.find(message_id)
        call = call_of(self._chat.path, result) if result is not None else None
        if result is not None and call is not None and result.status is MessageStatus.INTERRUPTED:
            with self._storage.writing():
                self._begin(self._chat.conversation, self._store.reopen_message(message_id), call)

    def go_on(self) -> None:
        """Have the model answer the results at the end of the open chat, also those of interrupted calls."""
        if self.can_go_on:
            with self._storage.writing():
                self._chat.answer(self._chat.conversation, self._chat.path)

    def stop(self, conversation_id: int | None = None) -> None:
        """Stop the calls of one chat, or all; the model does not answer them by itself."""
        for message_id, run in list(self._runs.items()):
            if conversation_id in {None, run.live.message.conversation_id}:
                if run.job is not None:
                    run.job.forget()
                self._take(message_id, CancelledError())

    # How a call goes

    def _on_reply_ended(self, reply: Message) -> None:
        """Run the calls of a reply that need no question, and give those that cannot be run an error."""
        if not reply.tool_calls or reply.finish_reason is FinishReason.CANCELLED or not reply.conversation_id:
            return
        with self._storage.writing():
            conversation, path = self._chat.at(reply.conversation_id)
            if path.ids[-1:] != (reply.id,) or _rounds(path) > MAX_ROUNDS:
                return
            definitions = self._tools.definitions(conversation)
            for call in reply.tool_calls:
                definition = definitions.get(call.name)
                if problem_of(call, definition) or self._is_approved(conversation.id, definition):
                    self._begin(conversation, self._chat.add_result(path, call), call)

    def _is_approved(self, conversation_id: int | None, definition: ToolDefinition | None) -> bool:
        approval = None if definition is None else _approval(definition)
        always = _only_reads(definition) and approval in self._settings.values.tool_approvals
        return always or (conversation_id, approval) in self._in_chats

    def _begin(self, conversation: Conversation, result: Message, call: ToolCall, refusal: str = "") -> None:
        """Run a call whose empty result is stored, or fail it with a refusal."""
        live = self._replies.recorder.begin(result, ChatPrompt((), ""), conversation)
        self._runs[result.id] = _Run(live, call)
        self._replies.changed.emit(live.message)
        self._replies.state_changed.emit()
        if refusal:
            self._take(result.id, RdchatError(refusal))
        else:
            self._tools.start(conversation)
            self._call(result.id)

    def _call(self, message_id: int) -> None:
        """Call the tool, if its server runs; otherwise `_on_servers_changed` does."""
        run = self._runs.get(message_id)
        if run is None or run.job is not None:
            return
        conversation, call = run.live.conversation, run.call
        if call.name.partition("__")[0] in self._tools.names(conversation, "starting"):
            return
        definition = self._tools.definitions(conversation).get(call.name)
        problem = problem_of(call, definition)
        if problem or definition is None:
            self._take(message_id, RdchatError(problem))
            return
        try:
            run.job = self._tools.servers.call(definition, call.arguments, partial(self._take, message_id))
        except RdchatError as error:
            self._take(message_id, error)

    def _take(self, message_id: int, outcome: ToolResult | RdchatError) -> None:
        """Store the end of a call; the model answers once all calls of the path's last reply have results."""
        if (run := self._runs.pop(message_id, None)) is None:
            return
        message = run.live.message
        if isinstance(outcome, ToolResult):
            with self._storage.writing():
                images = [image_file(data, number) for number, data in enumerate(outcome.images, start=1)]
                message = self._store.attach(message_id, images) if images else message
            status = MessageStatus.FAILED if outcome.is_error else MessageStatus.COMPLETE
            message = replace(message, text=outcome.text, status=status)
        elif isinstance(outcome, CancelledError):
            message = replace(message, status=MessageStatus.INTERRUPTED, error=_STOPPED)
        else:
            message = replace(message, status=MessageStatus.FAILED, error=str(outcome))
        run.live.message = message
        self._replies.recorder.save()
        self._replies.changed.emit(message)
        self._replies.state_changed.emit()
        with self._storage.writing():
            conversation, path = self._chat.at(message.conversation_id)
            # The person may have gone on elsewhere in the chat.
            results = _last_calls(path).values() if path.index_of(message_id) is not None else ()
            if results and all(result is not None and result.status in _ANSWERED for result in results):
                self._chat.answer(conversation, path)

    def _on_servers_changed(self) -> None:
        """Call tools whose servers have started, and forget approvals of tools that have changed."""
        for message_id in list(self._runs):
            self._call(message_id)
        servers, approvals = self._tools.servers, self._settings.values.tool_approvals
        tools = servers.definitions([each.name for each in servers.servers]) if approvals else ()
        known = {each.full_name: _approval(each) for each in tools}
        valid = tuple(each for each in approvals if known.get(each.tool, each) == each)
        if valid != approvals:
            self._settings.update(tool_approvals=valid)
        self.changed.emit()


def _approval(definition: ToolDefinition) -> ToolApproval:
    return ToolApproval(definition.full_name, definition.fingerprint)


def _only_reads(definition: ToolDefinition | None) -> bool:
    """Return whether a tool is declared read-only, on a server of this computer."""
    return definition is not None and definition.read_only and not definition.remote


def _last_calls(path: Sequence[Message]) -> dict[ToolCall, Message | None]:
    """Return the calls of the reply that ends a path, perhaps with results behind it; None for a call without one."""
    reply = next((each for each in reversed(path) if each.role is not Role.TOOL), None)
    if reply is None or not reply.tool_calls:
        return {}
    results = results_after(path, reply.id)
    return {call: results.get(call.call_id) for call in reply.tool_calls}


def _waiting(path: Sequence[Message]) -> tuple[ToolCall, ...]:
    """Return the calls of a path's last reply that have no result."""
    return tuple(call for call, result in _last_calls(path).items() if result is None)


def _rounds(path: Sequence[Message]) -> int:
    """Return how many replies with calls there are since the last question."""
    since = takewhile(lambda each: each.role is not Role.USER, reversed(path))
    return sum(bool(message.tool_calls) for message in since)
