"""Law: what a chat template renders has the text of every message, and each call's name and values, in order."""

import json
import re
from itertools import count
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as some

from rdchat.inference.api import ChatMessage, Role, ToolCall, join_neighbours
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.verification.kv_cache import shared_prefix
from tests.cases import INPUTS
from tests.grids import share
from tests.inference.prompts.folders import DEEPSEEK, QWEN, assistant, user

TURN = "{% for m in messages %}<|im_start|>{{ m.role }}\nTEXT<|im_end|>\n{% endfor %}<|im_start|>assistant"
CALLS = "{% for c in m.tool_calls or [] %}<call>{{ c.function.name }} ARGUMENTS</call>{% endfor %}"


def _calls(arguments: str) -> str:
    return TURN.replace("TEXT", "{{ m.content }}" + CALLS.replace("ARGUMENTS", arguments))


PARTS = TURN.replace("TEXT", "{% for c in m.content %}{% if c.type == 'text' %}{{ c.text }}{% endif %}{% endfor %}")
TWO_ROLES = (
    TURN.replace("%}<|im", "%}{% if m.role in ['user', 'assistant'] %}<|im", 1)
    .replace("<|im_end|>\n", "<|im_end|>\n{% endif %}")
    .replace("TEXT", "{{ m.content }}")
)
TEMPLATES = {
    "parts, as models that see": PARTS,
    "no role for a system message": TWO_ROLES,
    "no role for results": TWO_ROLES.replace(
        "{{ m.content }}", "{{ m.content }}" + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
    ),
    "the text behind </think>": QWEN,
    "the text behind </think> that is left as it is": DEEPSEEK,
    "trimmed": TURN.replace("TEXT", "{{ m.content | trim }}"),
    "each line trimmed": TURN.replace("TEXT", "{% for l in m.content.split('\\n') %}{{ l | trim }}\n{% endfor %}"),
    "the system message behind the rest": TURN.replace("<|im_start|>{{", "{% if m.role != 'system' %}<|im_start|>{{", 1)
    .replace("TEXT", "{{ m.content }}")
    .replace(
        "{% endfor %}",
        "{% endif %}{% endfor %}{% for m in messages if m.role == 'system' %}{{ m.content }}\n{% endfor %}",
    ),
    "the first system message alone": TURN.replace(
        "<|im_start|>{{", "{% if loop.first or m.role != 'system' %}<|im_start|>{{", 1
    )
    .replace("TEXT", "{{ m.content }}")
    .replace("{% endfor %}", "{% endif %}{% endfor %}"),
    "calls without the text beside them": TURN.replace(
        "TEXT",
        "{% if m.tool_calls %}"
        + CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}")
        + "{% else %}{{ m.content }}{% endif %}",
    ),
    "calls before the text": TURN.replace(
        "TEXT", CALLS.replace("ARGUMENTS", "{{ c.function.arguments | tojson }}") + "{{ m.content }}"
    ),
    "the first call alone": TURN.replace(
        "TEXT",
        "{{ m.content }}{% if m.tool_calls %}"
        "{{ m.tool_calls[0].function.name }}{{ m.tool_calls[0].function.arguments | tojson }}{% endif %}",
    ),
    "names of calls alone": _calls(""),
    "arguments as JSON": _calls("{{ c.function.arguments | tojson }}"),
    "arguments as JSON in ASCII": _calls("{{ c.function.arguments | tojson(ensure_ascii=true) }}"),
    "arguments as Python": _calls("{{ c.function.arguments }}"),
    "arguments as text": _calls("{{ '' + c.function.arguments }}"),
    "sorted parameters": _calls(
        "{% for k, v in c.function.arguments | dictsort %}<{{ k }}>{{ v | trim if v is string else v }}</{{ k }}>"
        "{% endfor %}"
    ),
    "contents as JSON": TURN.replace("TEXT", "{{ m.content | tojson }}"),
    **{path.stem: path.read_text() for path in sorted((INPUTS / "templates").glob("*.jinja"))},
}

_TEXT = some.lists(
    some.sampled_from(("@", "@", "@", "</think>", " ", "\n", '"', "'", "\u00e9\u6f22", "\\", "<|im_end|>", "<")),
    max_size=6,
).map("".join)
_VALUE = some.recursive(
    _TEXT | some.integers() | some.booleans() | some.none(),
    lambda inner: some.lists(inner, max_size=2) | some.dictionaries(some.sampled_from("cd"), inner, max_size=2),
    max_leaves=4,
)
_CALL = some.builds(
    lambda arguments: ToolCall("@", json.dumps(arguments), "id"),
    some.dictionaries(some.sampled_from("zab"), _VALUE, max_size=3),
)
_MESSAGE = some.builds(ChatMessage, some.sampled_from((Role.SYSTEM, Role.USER, Role.ASSISTANT, Role.TOOL)), _TEXT) | (
    some.builds(lambda text, calls: ChatMessage(Role.ASSISTANT, text, tool_calls=tuple(calls)), _TEXT, some.lists(
        _CALL, min_size=1, max_size=2))
)  # fmt: skip
WITH_CALL = ChatMessage(Role.ASSISTANT, "@", tool_calls=(ToolCall("@", '{"z": ["@\u00e9\\n", null, 1.5], "a": "@"}'),))


def _numbered(messages: list[ChatMessage]) -> list[ChatMessage]:
    """Return a chat in which each `@` is a word of its own."""
    numbers = count()

    def words(text: str) -> str:
        return re.sub("@", lambda _: f"w{next(numbers)}.", text)

    return [
        ChatMessage(each.role, words(each.content), tool_calls=tuple(
            ToolCall(words(call.name), words(call.arguments), call.call_id) for call in each.tool_calls))
        for each in messages
    ]  # fmt: skip


def _words(text: str) -> list[str]:
    return re.findall(r"w\d+\.", text)


def _check(prompts: ModelPrompts, tokenizer: Any, messages: list[ChatMessage]) -> None:
    chat = _numbered(messages)
    text = tokenizer.decode(prompts.encode(chat, None, 100_000))
    given_words = [word for each in chat for word in _words(f"{each.content}{each.tool_calls}")]
    assert not (lost := [word for word in given_words if word not in text]), (lost, chat, text)
    # A result moves to its call, where a template answers every call.
    moving = (Role.SYSTEM, Role.TOOL)
    said = [word for each in chat if each.role not in moving for word in _words(each.content)]
    assert [word for word in _words(text) if word in set(said)] == said, "the order is another"


@pytest.mark.parametrize("prompts", share(TEMPLATES.values()), indirect=True, ids=TEMPLATES)
@settings(max_examples=12)
@given(messages=some.lists(_MESSAGE, min_size=1, max_size=5))
@example(messages=[ChatMessage(Role.SYSTEM, "@"), user("@"), assistant("The </think> of @ and @"), user("@")])
@example(messages=[user("@"), WITH_CALL, ChatMessage(Role.TOOL, '"@"')])
def test_no_text_of_a_chat_is_lost_by_its_template(
    prompts: ModelPrompts, tokenizer: Any, messages: list[ChatMessage]
) -> None:
    _check(prompts, tokenizer, messages)


@pytest.mark.slow
@pytest.mark.parametrize("prompts", TEMPLATES.values(), indirect=True, ids=TEMPLATES)
@settings(max_examples=60)
@given(messages=some.lists(_MESSAGE, min_size=1, max_size=8))
def test_no_text_of_many_chats_is_lost(prompts: ModelPrompts, tokenizer: Any, messages: list[ChatMessage]) -> None:
    _check(prompts, tokenizer, messages)


@pytest.mark.parametrize("prompts", share(TEMPLATES.values()), indirect=True, ids=TEMPLATES)
@settings(max_examples=8)
@given(
    messages=some.lists(_MESSAGE, max_size=4), notes=some.lists(_TEXT, max_size=3), question=_TEXT,
    has_system=some.booleans(),
)  # fmt: skip
@example(messages=[], notes=[], question="@", has_system=True)
@example(messages=[], notes=["@", "@"], question="@", has_system=True)
def test_the_chats_of_a_project_share_its_files_and_nothing_of_their_own(
    prompts: ModelPrompts,
    tokenizer: Any,
    messages: list[ChatMessage],
    notes: list[str],
    question: str,
    has_system: bool,
) -> None:
    """What a prompt has in common with that of the instructions and files alone is kept for all chats: no note is."""
    shared = [*([ChatMessage(Role.SYSTEM, "@")] if has_system else []), user("<file>@ and @</file>")]
    numbered = _numbered([*shared, *(user(f"- {note} @") for note in notes), user(question), *messages])
    beginning = numbered[: len(shared)]
    chat = join_neighbours(numbered)
    _check(prompts, tokenizer, chat)
    alone, prompt = (prompts.encode(each, None, 100_000) for each in (beginning, chat))
    common = _words(tokenizer.decode(prompt[: shared_prefix(alone, prompt)]))
    assert common == [word for each in beginning for word in _words(each.content) if word in common]
    if not any(each.role is Role.SYSTEM for each in messages):
        assert set(_words(beginning[-1].content)) <= set(common)


def _encoded(prompts: ModelPrompts, tokenizer: Any, *messages: ChatMessage) -> str:
    return str(tokenizer.decode(prompts.encode(messages, None, 8192)))


def _chatml(*turns: tuple[str, str]) -> str:
    return "".join(f"<|im_start|>{role}\n{text}<|im_end|>\n" for role, text in turns) + "<|im_start|>assistant"


QUESTION = user("Hi.")
RESULT = ChatMessage(Role.TOOL, "rain", tool_call_id="c", name="now")
CALL = ChatMessage(Role.ASSISTANT, "I look.", tool_calls=(ToolCall("now", '{"in": "Bonn"}', "c"),))
NAMES_THE_MARK = assistant(" The </think> tag ends a thought.")


@pytest.mark.parametrize("prompts", [QWEN], indirect=True)
def test_an_answer_that_names_a_mark_is_whole_and_the_others_are_as_they_were(
    prompts: ModelPrompts, tokenizer: Any
) -> None:
    """Thoughts that programs send back in the text are still the template's: the same tokens come from the cache."""
    before = [QUESTION, assistant("<think>\nWell\n</think>\n\nWell"), user("\n And? ")]
    first = _encoded(prompts, tokenizer, *before, assistant("Yes."), QUESTION)
    text = _encoded(prompts, tokenizer, *before, NAMES_THE_MARK, QUESTION)
    assert text == first.replace("Yes.", NAMES_THE_MARK.content)
    assert "<|im_start|>assistant\nWell<|im_end|>" in text


@pytest.mark.parametrize("prompts", [TEMPLATES["calls without the text beside them"]], indirect=True)
def test_a_text_beside_a_call_is_a_message_of_its_own_and_the_call_keeps_its_form(
    prompts: ModelPrompts, tokenizer: Any
) -> None:
    assert _encoded(prompts, tokenizer, QUESTION, CALL, RESULT) == _chatml(
        ("user", "Hi."), ("assistant", "I look."), ("assistant", '<call>now {"in": "Bonn"}</call>'), ("tool", "rain")
    )


@pytest.mark.parametrize("prompts", [TEMPLATES["arguments as Python"]], indirect=True)
def test_a_template_that_spells_marks_out_makes_no_control_token(prompts: ModelPrompts, tokenizer: Any) -> None:
    """Python's spelling of the characters around a typed control token once left the token alone."""
    call = ChatMessage(Role.ASSISTANT, "", tool_calls=(ToolCall("say", '{"a": "<|im_end|>"}', "c"),))
    plain = ChatMessage(Role.ASSISTANT, "", tool_calls=(ToolCall("say", '{"a": "b"}', "c"),))
    ends = [prompts.encode([QUESTION, each, RESULT], None, 8192).count(2) for each in (call, plain)]
    assert ends[0] == ends[1]
    assert '{"a": "<|im_end|>"}' in _encoded(prompts, tokenizer, QUESTION, call, RESULT)
