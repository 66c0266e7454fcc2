"""A chat that has a value in every field, and what becomes of its JSON where one text or list in it is huge."""

import json
from collections.abc import Iterator
from typing import Any

from rdchat.chat.attachments.attached_file import FileKind, ReadFile, attached
from rdchat.chat.conversation import Conversation, Drafting, MadeWith, Message, MessageStatus, OwnOptions, Thinking
from rdchat.chat.storage import FullChat
from rdchat.chat.summaries import ContextCut
from rdchat.inference.api import (
    AnswerShape,
    DraftSettings,
    Mode,
    ReplyPart,
    Role,
    SamplingParams,
    ShapeKind,
    Statistics,
    ThinkingChoice,
    ToolCall,
)

LONG = "word " * 50_000
MANY = 1100
_FILE = attached(ReadFile("a.txt", FileKind.TEXT, (), "A note."), "words", "lines 1 to 3")


def full_chat() -> FullChat:
    """Return two questions, each with a reply that calls tools; the last call waits."""
    sampling = SamplingParams(stop=("end",))
    reply: dict[str, Any] = {
        "model": "m",
        "statistics": Statistics(generated_tokens=3, accepted_lengths=(1, 2), speeds=(1.0,)),
        "drafting": Drafting(Mode.DRAFTER, "It is faster.", "a/drafter", server="there"),
        "made_with": MadeWith(sampling, "Be brief.", once=True, passages=("a.txt: passage 1 of 2",)),
    }
    thinking = Thinking(ms=3.0, parts=(ReplyPart(0, 5, is_thought=True), ReplyPart(5, 9)))
    cut = ContextCut("A summary.", "writer", 1.0, sources=("a tool",), files=(_FILE,))
    call = ToolCall("web__look", '{"a": "b"}', "1")
    calls = call, ToolCall("web__see", "{}", "2", refusal="It is unknown.")
    failed: dict[str, Any] = {"status": MessageStatus.FAILED, "error": "It broke."}
    result: dict[str, Any] = {"tool_call_id": "1", "tool_name": "web__look", "files": (_FILE,)}
    messages = (
        Message(0, 0, None, Role.USER, "First", context_cut=cut, files=(_FILE,)),
        Message(1, 0, 0, Role.ASSISTANT, "Think and say", tool_calls=calls, thinking=thinking, **reply),
        Message(2, 0, 1, Role.TOOL, "A result", **result, **failed),
        Message(3, 0, 2, Role.ASSISTANT, "Half", edited=True, control_offsets=(1,), **reply, **failed),
        Message(4, 0, 3, Role.USER, "Second"),
        Message(5, 0, 4, Role.ASSISTANT, "", tool_calls=(call,), **reply),
    )
    tools: dict[str, Any] = {"tools": ("web",), "tools_off": ("web__see",), "sent_to": ("http://a",)}
    own = OwnOptions("preset", 5, DraftSettings(), ("thinking_tokens",), decided_notes=("0",), **tools)
    shape = AnswerShape(ShapeKind.REGEX, "a+", left_out=("x",))
    options: dict[str, Any] = {"thinking_choice": ThinkingChoice.ON, "answer_shape": shape, "own": own}
    chat = Conversation(0, "Title", 1.0, 1.0, "Be kind.", sampling, **options)
    return FullChat(chat, messages, texts={_FILE.digest: "words"})


def grown(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield a JSON value with each of its texts and lists in turn far larger, behind the path of that."""
    if isinstance(value, str):
        # Arguments of calls are JSON themselves.
        yield "", json.dumps({"a": LONG}) if value.startswith("{") else LONG
    elif isinstance(value, list) and value:
        yield "[]", [_copy(value[0], number) for number in range(MANY)]
        for index, inner in enumerate(value):
            for path, each in grown(inner):
                yield f"[{index}]{path}", [*value[:index], each, *value[index + 1 :]]
    elif isinstance(value, dict):
        for key, inner in value.items():
            for path, each in grown(inner):
                yield f".{key}{path}", value | {key: each}


def _copy(item: Any, number: int) -> Any:
    """Return one of many items; each call has an id of its own."""
    return item | {"call_id": f"{number}"} if isinstance(item, dict) and "call_id" in item else item
