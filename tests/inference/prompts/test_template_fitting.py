"""A conversation is changed as little as a chat template needs."""

import re
from collections.abc import Callable, Sequence

import pytest

from rdchat.inference.api.messages import ChatMessage, Role, ToolCall
from rdchat.inference.prompts.template_fitting import fitted, in_turns, short_id

S, U, A, T = Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL
CALL = ToolCall("ls", '{"p": "/"}', "toolu_01")


def said(*turns: tuple[Role, str]) -> tuple[ChatMessage, ...]:
    return tuple(ChatMessage(*turn) for turn in turns)


def system_first(messages: Sequence[ChatMessage]) -> bool:
    return all(message.role is not S for message in messages[1:])


def in_strict_turns(messages: Sequence[ChatMessage]) -> bool:
    roles = [message.role for message in messages if message.role is not S]
    return system_first(messages) and all(role is (A if at % 2 else U) for at, role in enumerate(roles))


def without_system(messages: Sequence[ChatMessage]) -> bool:
    return all(message.role is not S for message in messages)


@pytest.mark.parametrize("takes", [system_first, in_strict_turns, without_system])
@pytest.mark.parametrize(
    "messages",
    [
        said((S, "a"), (U, "b")),
        said((S, "a"), (S, "b"), (U, "c"), (S, "d"), (A, "e"), (U, "f")),
        said((U, "a"), (U, "b"), (A, "c"), (A, "d"), (U, "e")),
        said((A, "a"), (U, "b"), (S, "c")),
        said((S, "a")),
        (*said((U, "a")), ChatMessage(A, "b", tool_calls=(CALL,)), ChatMessage(T, "c", tool_call_id="toolu_01")),
    ],
    ids=["usual", "late systems", "twice", "greeting", "only a system", "call"],
)
def test_every_order_fits_each_kind_of_template_and_no_text_is_lost(
    takes: Callable[[Sequence[ChatMessage]], bool], messages: tuple[ChatMessage, ...]
) -> None:
    fit = next(each for each in fitted(messages) if takes(each))
    text = "\n".join(message.content + "".join(call.name for call in message.tool_calls) for message in fit)
    at = [text.index(message.content) for message in messages]
    assert at == sorted(at)
    assert ("ls" in text) is any(message.tool_calls for message in messages)


def test_a_conversation_that_fits_is_left_as_it_is() -> None:
    messages = said((S, "a"), (U, "b"), (A, "c"), (U, "d"))
    assert next(fitted(messages)) == messages
    assert in_turns(messages) == messages


def test_ids_are_nine_letters_the_same_in_call_and_result() -> None:
    other = ToolCall("ls", "{}", "")
    messages = (
        ChatMessage(A, "", tool_calls=(CALL, other)),
        ChatMessage(T, "b", tool_call_id="toolu_01"),
        ChatMessage(T, "c"),
    )
    _, changed, *_ = fitted(messages)
    ids = [call.call_id for call in changed[0].tool_calls]
    assert ids == [changed[1].tool_call_id, changed[2].tool_call_id]
    assert all(re.fullmatch("[a-zA-Z0-9]{9}", each) for each in ids)
    assert len({short_id(str(number)) for number in range(10_000)}) == 10_000


def test_joined_messages_keep_what_the_model_wrote_as_tokens() -> None:
    (joined,) = in_turns((ChatMessage(U, "ab"), ChatMessage(U, "<x>c", own_control=(0,))))
    assert joined.content[joined.own_control[0] :] == "<x>c"
