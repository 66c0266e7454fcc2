"""A conversation is changed as little as a chat template needs."""

import json
import re
from collections.abc import Callable, Sequence
from random import Random

import pytest
from hypothesis import example, given
from hypothesis import strategies as some

from rdchat.inference.api import ChatMessage, Role, ToolCall
from rdchat.inference.prompts.template_fitting import fitted, in_turns, short_id

S = Role.SYSTEM
U = Role.USER
A = Role.ASSISTANT
T = Role.TOOL
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


def each_call_is_answered(messages: Sequence[ChatMessage]) -> bool:
    """Return whether a template that wants a result for each call, directly behind it, takes a conversation."""
    open_calls = list[str]()
    for message in (*messages, None):
        if message is not None and message.role is T:
            if message.tool_call_id not in open_calls:
                return False
            open_calls.remove(message.tool_call_id)
        elif open_calls:
            return False
        elif message is not None:
            open_calls = [call.call_id for call in message.tool_calls]
    return True


@given(
    turns=some.lists(some.tuples(some.lists(some.sampled_from("ab"), max_size=2, unique=True), some.integers(0, 2))),
    seed=some.randoms(use_true_random=False),
)
@example(turns=[(["a"], 1)], seed=Random(0))
def test_a_late_result_comes_to_its_call_and_none_is_lost_or_doubled(
    turns: list[tuple[list[str], int]], seed: Random
) -> None:
    messages = [*said((U, "q"))]
    waiting = list[tuple[str, str]]()
    sent = dict[str, str]()
    for at, (ids, results) in enumerate(turns):
        if ids:
            calls = tuple(ToolCall("ls", json.dumps({"n": f"c{at}{one}"}), f"call_{one}") for one in ids)
            messages.append(ChatMessage(A, f"a{at}.", tool_calls=calls))
            # A later call with the same id takes the results that follow.
            waiting = [each for each in waiting if each[0] not in ids] + [(one, f"c{at}{one}") for one in ids]
        messages += said((U, f"w{at}."))
        for _ in range(min(results, len(waiting))):
            one, call = waiting.pop(seed.randrange(len(waiting)))
            sent[call] = f"r{len(sent)}."
            messages.append(ChatMessage(T, sent[call], tool_call_id=f"call_{one}"))
    fit = next(each for each in fitted(messages) if each_call_is_answered(each))
    texts = [message.content for message in fit]
    assert all(texts.count(message.content) == 1 for message in messages)
    for message, following in zip(fit, [*fit[1:], *said((U, ""))], strict=True):
        for call in message.tool_calls[:1]:
            wanted = [sent.get(json.loads(each.arguments)["n"]) for each in message.tool_calls]
            assert following.role is T
            assert following.content in wanted or None in wanted, call


def test_joined_messages_keep_what_the_model_wrote_as_tokens() -> None:
    (joined,) = in_turns((ChatMessage(U, "ab"), ChatMessage(U, "<x>c", own_control=(0,))))
    assert joined.content[joined.own_control[0] :] == "<x>c"
