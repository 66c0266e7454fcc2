"""Calls that cannot be run: refused without a message each, answered once, and never in a circle."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api import AnswerShape, Role, ShapeKind, ToolCall
from rdchat.services.chat.chat_prompt import history
from rdchat.services.chat.tool_call_control import MAX_ROUNDS, Scope
from rdchat.services.servers.tool_servers import MAX_CALLS, NO_TOOLS, with_refusals
from tests.services.fakes import Reply, ScriptedEngine
from tests.services.tool_chats import ANSWER, approve, ask, roles, tools
from tests.services.tool_fakes import READ, ScriptedServers, calling, read
from tests.services.window import Window

__all__ = ["tools"]

MISSING = ToolCall("files__read", "{}")
UNKNOWN = ToolCall("files__delete", "{}")
WRONG = ToolCall("files__read", '{"path": 1}')
GONE = "The tool files__delete is not available."


def results(engine: ScriptedEngine, request: int = -1) -> list[str]:
    """Return the results of calls in a request."""
    return [each.content for each in engine.requests[request].messages if each.role is Role.TOOL]


def many(call: ToolCall, count: int) -> Reply:
    return calling(*(replace(call, call_id=str(number)) for number in range(count)))


@pytest.mark.parametrize("call", [UNKNOWN, read()])
def test_calls_of_a_reply_without_tools_are_not_answered(
    window: Window, engine: ScriptedEngine, call: ToolCall
) -> None:
    reply = ask(window, many(call, 40), ANSWER)
    assert len(engine.requests) == 1
    assert roles(window) == ["user", "assistant"]
    assert [each.refusal for each in reply.tool_calls] == [NO_TOOLS] * 40
    calls = window.calls
    assert not calls.waiting
    assert not calls.can_go_on
    window.ask("And now?")
    assert len(engine.requests) == 2
    assert results(engine) == [f"Error: {NO_TOOLS}"] * 40


def test_an_answer_with_a_format_has_no_tools(tools: Window) -> None:
    tools.chat.set_options(answer_shape=AnswerShape(ShapeKind.JSON))
    reply = ask(tools)
    assert reply.tool_calls[0].refusal == NO_TOOLS
    assert len(tools.engine.requests) == 1


@pytest.mark.parametrize("call", [UNKNOWN, WRONG])
def test_the_model_may_mend_a_round_of_calls_that_cannot_be_run(
    tools: Window, servers: ScriptedServers, call: ToolCall
) -> None:
    ask(tools, many(call, 40), calling(read()), many(call, 2), ANSWER)
    assert roles(tools) == ["user", "assistant", "assistant"]
    assert len(results(tools.engine)) == 40
    approve(tools)
    assert roles(tools) == ["user", "assistant", "assistant", "tool", "assistant", "assistant"]
    assert tools.texts[-1] == "It says so."
    assert len(servers.made) == 1


def test_two_rounds_in_which_nothing_could_be_run_end_the_loop(tools: Window, engine: ScriptedEngine) -> None:
    ask(tools, calling(UNKNOWN), calling(WRONG, MISSING), calling(UNKNOWN), ANSWER)
    calls = tools.calls
    assert (len(engine.requests), calls.ran_nothing, calls.can_go_on) == (2, True, True)
    calls.go_on()
    tools.wait_until_idle()
    assert (len(engine.requests), calls.can_go_on) == (3, True)
    problems = ("The argument path has to be of the type string.", "The argument path is missing.")
    assert results(engine) == [f"Error: {each}" for each in (GONE, *problems)]
    tools.ask("Never mind.")
    assert tools.texts[-1] == "It says so."
    assert not calls.ran_nothing
    tools.ask("Once more.")
    assert len(engine.requests) == 5


def test_after_ten_rounds_refused_calls_are_not_answered(tools: Window, servers: ScriptedServers) -> None:
    rounds = [calling(read()) for _ in range(MAX_ROUNDS)]
    ask(tools, *rounds, calling(UNKNOWN), ANSWER)
    approve(tools, Scope.CHAT)
    assert len(servers.made) == MAX_ROUNDS
    assert tools.calls.can_go_on


def test_a_reply_to_refused_calls_can_be_written_again(tools: Window) -> None:
    ask(tools, calling(UNKNOWN), ANSWER)
    tools.regenerate(tools.last.id)
    assert roles(tools) == ["user", "assistant", "assistant"]
    assert tools.last.siblings == 2
    assert results(tools.engine) == [f"Error: {GONE}"]
    assert not tools.seen.notices


def test_at_most_sixteen_calls_of_a_reply_are_run_and_each_has_a_result(
    tools: Window, engine: ScriptedEngine, servers: ScriptedServers
) -> None:
    mixed = [call for number in range(50) for call in (UNKNOWN, read(str(number)))]
    reply = ask(tools, calling(*mixed), ANSWER)
    calls = tools.calls
    assert len(calls.waiting) == MAX_CALLS
    shown: list[int] = []
    calls.changed.connect(lambda: shown.append(len(calls.waiting)))
    approve(tools, Scope.CHAT)
    assert len(servers.made) == MAX_CALLS
    assert MAX_CALLS - 2 not in shown, "results of one decision come together"
    assert len(results(engine)) == len(reply.tool_calls) == 100
    assert roles(tools).count("tool") == MAX_CALLS
    assert results(engine)[:2] == [f"Error: {GONE}", "the text"]
    assert results(engine)[-1] == "Error: Only 16 calls of a reply are run."


CALLS = st.lists(st.sampled_from([UNKNOWN, WRONG, read(), ToolCall("", "{}")]), max_size=2 * MAX_CALLS + 4)


@given(CALLS, st.booleans())
def test_of_any_calls_the_first_sixteen_that_can_be_run_are(calls: list[ToolCall], has_tools: bool) -> None:
    checked = with_refusals(calls, {READ.full_name: READ} if has_tools else {})
    assert [replace(each, refusal="") for each in checked] == calls
    runnable = [index for index, each in enumerate(calls) if each == read()] if has_tools else []
    assert [index for index, each in enumerate(checked) if not each.refusal] == runnable[:MAX_CALLS]


@settings(max_examples=40)
@given(st.lists(st.tuples(CALLS, st.sets(st.integers(0, 40)), st.booleans()), max_size=4))
def test_in_any_prompt_each_call_is_followed_by_its_result(
    rounds: Sequence[tuple[list[ToolCall], set[int], bool]],
) -> None:
    path = [Message(1, 1, None, Role.USER, "Go on.")]
    for calls, done, is_passed_over in rounds:
        named = tuple(replace(call, call_id=str(number)) for number, call in enumerate(calls))
        path.append(Message(len(path) + 1, 1, None, Role.ASSISTANT, "", tool_calls=with_refusals(named, {})))
        for number in done & set(range(len(calls))):
            fields = {"tool_call_id": str(number), "tool_name": calls[number].name}
            path.append(Message(len(path) + 1, 1, None, Role.TOOL, "done", MessageStatus.COMPLETE, **fields))
        path += [Message(len(path) + 1, 1, None, Role.USER, "Go on.")] if is_passed_over else []
    turns = list(history(path, ""))
    while turns:
        turn = turns.pop(0)
        assert turn.role is not Role.TOOL
        answers = [turns.pop(0) for _ in turn.tool_calls]
        assert [each.tool_call_id for each in answers] == [each.call_id for each in turn.tool_calls]
        assert all(each.role is Role.TOOL and each.content in {"done", f"Error: {NO_TOOLS}"} for each in answers)
