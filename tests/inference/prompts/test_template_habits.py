"""Laws: a chat template is judged by what it renders, and with nothing chosen its prompt is its own."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as some
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from rdchat.inference.api import ChatMessage, Opening, Role, ThinkingChoice, openings
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.template_fitting import CALL_MARKERS, CHANNEL_MARKERS, THOUGHT_FIELDS
from rdchat.inference.prompts.tokenizer_process import tool_of
from tests.grids import share
from tests.inference.calls.call_forms import FORMS
from tests.inference.prompts.folders import assistant, edited, prompts_of, user, with_template

Templated = Callable[[str], ModelPrompts]
# Ways to write a text in a template: A and B are its two pieces, as literals.
WRITINGS = {
    "one piece": "{{ AB }}",
    "split": "{{ A }}{{ B }}",
    "added": "{{ A + B }}",
    "joined": "{{ [A, B] | join }}",
    "a variable": "{% set mark = A ~ B %}{{ mark }}",
    "a macro": "{% macro mark(x) %}{{ A ~ x }}{% endmacro %}{{ mark(B) }}",
    "a loop": "{% for x in [A, B] %}{{ x }}{% endfor %}",
    "a changed text": "{{ '@'.replace('@', A) ~ B }}",
}
TOOLS = "{% for t in tools or [] %}{{ t | tojson }}\n{% endfor %}"
TURN = "<|im_start|>{{ m.role }}\n{{ m.content }}CALLS<|im_end|>\n"
CHAT = f"{{% for m in messages %}}{TURN}{{% endfor %}}"
OPEN = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
CALLS = (
    "{% for c in m.tool_calls or [] %}{% for key, value in c.function.arguments.items() %}CALL{% endfor %}{% endfor %}"
)
TOOL = tool_of("look")


def _written(form: str, text: str, at: int) -> str:
    """Return the part of a template that writes a text in a form of `WRITINGS`, cut at an offset."""
    pieces = {"AB": text, "A": text[:at], "B": text[at:]}
    return re.sub(r"\bAB?\b|\bB\b", lambda piece: json.dumps(pieces[piece[0]], ensure_ascii=False), WRITINGS[form])


def _marks(form: str) -> tuple[str, str]:
    if form == "channels":
        return CHANNEL_MARKERS
    module = import_module(f"mlx_lm.tool_parsers.{form}")
    return module.tool_call_start, module.tool_call_end


def _call(form: str, written: str, cut: float) -> str:
    """Return the part of a template that writes a call in a form."""
    begin, end = _marks(form)
    inside = FORMS.get(form, lambda *_: 'NAME<|channel|>commentary json<|message|>{"KEY": "VALUE"}')
    whole = begin + inside("NAME", {"KEY": "VALUE"}) + end
    values = {"NAME": "c.function.name", "KEY": "key", "VALUE": "value"}
    for name in values:
        whole = whole.replace(name, f"\0{name}\0")
    pieces = [
        f"{{{{ {values[piece]} }}}}" if piece in values else _written(written, piece, round(cut * len(piece)))
        for piece in filter(None, whole.split("\0"))
    ]
    return CALLS.replace("CALL", "".join(pieces))


@pytest.mark.parametrize("form", share([*FORMS, "channels"], 4))
@settings(max_examples=4)
@given(written=some.sampled_from(sorted(WRITINGS)), cut=some.floats(0, 1))
@example(written="split", cut=0.4)
def test_a_form_of_calls_is_known_however_its_marks_are_written(
    templated: Templated, tokenizer: Any, form: str, written: str, cut: float
) -> None:
    prompts = templated(TOOLS + CHAT.replace("CALLS", _call(form, written, cut)) + OPEN)
    assert prompts.trained_for_tools
    assert prompts.tool_markers == _marks(form)
    ids = prompts.encode([user("Hi")], None, 8192, tools=json.dumps([TOOL]))
    assert tokenizer.decode(ids) == f"{json.dumps(TOOL)}\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"


@pytest.mark.parametrize("form", share([*FORMS, "channels"], 4))
@pytest.mark.parametrize("hidden", ["{{# {} #}}", "{{% if false %}}{}{{% endif %}}", "{{% set x = {!r} %}}"])
def test_marks_that_a_template_does_not_write_are_none_of_its_own(
    templated: Templated, tokenizer: Any, form: str, hidden: str
) -> None:
    """Its source names them, and it writes calls as no reader takes them: tools are text for such a model."""
    marks = " tool_call.name ".join(_marks(form))
    calls = CALLS.replace("CALL", "{{ c.function.name }} with {{ value }}")
    prompts = templated(hidden.format(marks) + TOOLS + CHAT.replace("CALLS", calls) + OPEN)
    assert (prompts.trained_for_tools, prompts.tool_markers) == (False, CALL_MARKERS)
    assert "You can call these tools" in tokenizer.decode(
        prompts.encode([user("Hi")], None, 8192, tools=json.dumps([TOOL]))
    )


@pytest.mark.parametrize("place", ["{# tools #}", "{% if tools %}You have tools.{% endif %}", "{% set x = tools %}"])
def test_tools_are_never_left_out_by_a_template_that_only_names_them(
    templated: Templated, tokenizer: Any, place: str
) -> None:
    prompts = templated(place + CHAT.replace("CALLS", _call("mistral", "one piece", 1)) + OPEN)
    ids = prompts.encode([user("Hi")], None, 8192, tools=json.dumps([TOOL]))
    assert '"name": "look"' in tokenizer.decode(ids)


# Without those behind the header of a message, which the prompt ends with.
THOUGHTS = {each.marker: each for each in openings() if not each.marker.startswith("<|start|>")}


@pytest.mark.parametrize("opening", THOUGHTS.values(), ids=THOUGHTS)
@settings(max_examples=3)
@given(some.sampled_from(sorted(WRITINGS)), some.sampled_from(["", "\n", "\n\n"]), some.sampled_from(THOUGHT_FIELDS))
@example("split", "\n", "thinking")
def test_a_continued_reply_has_its_thought_as_the_template_writes_it(
    templated: Templated, tokenizer: Any, opening: Opening, written: str, blank: str, field: str
) -> None:
    """Law: what stands before the continued answer is what the template writes there.

    Gemma 4 got the marks of Solar Open, and Apertus those of Qwen, which its vocabulary has too
    (ml-explore/mlx-lm#1663); gpt-oss lost the thought.
    """
    before = _written(written, f"{opening.marker}{blank}", 3)
    between = _written(written, f"{blank}{opening.close}{blank}", 2)
    thought = f"{{% if m.{field} %}}{before}{{{{ m.{field} }}}}{between}{{% endif %}}"
    names = "{# <think> </think> <|think|> [THINK] #}"
    prompts = templated(names + CHAT.replace("{{ m.content }}CALLS", f"{thought}{{{{ m.content }}}}") + OPEN)
    begun = replace(assistant("The answer"), thought="plan it")
    expected = f"{opening.marker}{blank}plan it{blank}{opening.close}{blank}The answer"
    assert tokenizer.decode(prompts.encode([user("Hi")], begun, 8192)) == (
        f"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n{expected}"
    )


@pytest.mark.parametrize(
    ("source", "expected"),
    [("", ""), ("{# <|inner_prefix|> #}", "<|inner_prefix|>\nplan it\n<|inner_suffix|>\n\n"),
     ("{# <|channel>thought <|think|> #}", "<|channel>thought\nplan it\n<channel|>\n\n")],
)  # fmt: skip
def test_a_template_that_writes_no_thoughts_may_name_their_marks(
    templated: Templated, tokenizer: Any, source: str, expected: str
) -> None:
    prompts = templated(source + CHAT.replace("CALLS", "") + OPEN)
    ids = prompts.encode([user("Hi")], replace(assistant("The answer"), thought="plan it"), 8192)
    assert tokenizer.decode(ids).endswith(f"<|im_start|>assistant\n{expected}The answer")


# How templates choose what they write behind the opening of a reply: SWITCH is a variable's name.
CONDITIONS = {
    "on": (
        "{% if SWITCH is defined and SWITCH is false %}<think></think>{% else %}<think>{% endif %}",
        "{% if not SWITCH | default(true) %}<think></think>{% endif %}",
        "{% set on = SWITCH if SWITCH is defined else true %}{% if on %}<think>{% endif %}",
    ),
    "off": (
        "{% if SWITCH is defined and SWITCH is true %}<think>\n{% else %}<think></think>{% endif %}",
        "{% if SWITCH %}<think>{% else %}</think>{% endif %}",
        "{% if not SWITCH is defined %}{% set SWITCH = false %}{% endif %}{% if SWITCH %}<think>{% endif %}",
    ),
    "": ("{% if SWITCH is defined %}{% if SWITCH %}/think{% else %}/no_think{% endif %}{% endif %}",),
}
EFFORTS = {"low": "'low'", "high": "'high'", "medium": "'medium'", "": "'as usual'"}
SWITCHING = [
    (name, default, condition.replace("SWITCH", name))
    for name in ("enable_thinking", "thinking")
    for default, conditions in CONDITIONS.items()
    for condition in conditions
] + [
    (name, default, f"Effort: {{{{ {name} | default({value}) }}}}")
    for name in ("reasoning_effort", "thinking_effort")
    for default, value in EFFORTS.items()
] + [
    ("thinking_mode", "off", "{% if thinking_mode == 'enabled' %}<think>{% else %}</think>{% endif %}"),
    ("low_effort", None, "{% if low_effort %}{low}{% else %}<think>{% endif %}"),
]  # fmt: skip
MESSAGES = some.lists(some.sampled_from(("Hi", "a b", "<think>", "?")), min_size=1, max_size=5).map(
    lambda texts: [(assistant if number % 2 else user)(text) for number, text in enumerate(texts)]
)


def _stock(folder: Path, messages: list[ChatMessage], *, parts: bool = False, **variables: Any) -> str:
    """Return what transformers renders."""
    stock: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    turns = [
        {
            "role": each.role.value,
            "content": [{"type": "text", "text": each.content}] if parts else each.content,
        }
        for each in messages
    ]  # fmt: skip
    return str(stock.apply_chat_template(turns, tokenize=False, add_generation_prompt=True, **variables))


@pytest.mark.parametrize("has_markers", [True, False])
@pytest.mark.parametrize(("name", "default", "condition"), share(SWITCHING, 2))
@settings(max_examples=4)
@given(messages=MESSAGES)
def test_with_nothing_chosen_the_prompt_is_the_template_s_own(
    small_model: Path, tmp_path_factory: pytest.TempPathFactory, tokenizer: Any, has_markers: bool,
    name: str, default: str | None, condition: str, messages: list[ChatMessage],
) -> None:  # fmt: skip
    """Whether the vocabulary has markers of thoughts or not, by which mlx-lm guesses."""
    template = CHAT.replace("CALLS", "") + OPEN + condition
    folder = with_template(small_model, tmp_path_factory.mktemp("switching") / "model", template)
    if has_markers:
        edited(folder, "tokenizer.json", _with_markers)
    prompts = prompts_of(folder)
    decode = AutoTokenizer.from_pretrained(folder, trust_remote_code=False).decode

    def seen(thinking: ThinkingChoice | None) -> str:
        return str(decode(prompts.encode(messages, None, 8192, thinking=thinking)))

    usual = seen(None)
    assert usual == _stock(folder, messages)
    assert prompts.thinking_default == (default or None)
    if default:
        assert seen(ThinkingChoice(default)) == usual
    for choice in prompts.thinking:
        values = {"on": True, "off": False} if name != "thinking_mode" else {"on": "enabled", "off": "disabled"}
        assert seen(choice) == _stock(folder, messages, **{name: values.get(choice, choice.value)})


def _with_markers(content: dict[str, Any]) -> None:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    content["added_tokens"] += [
        {"id": 265 + number, "content": text, **flags} for number, text in enumerate(("<think>", "</think>"))
    ]


TAKEN = {
    "a text": "m.content + ''",
    "the first part": "m.content[0].text",
    "all parts": "m.content | map(attribute='text') | join",
    "parts of a type": "m.content | selectattr('type', 'equalto', 'text') | map(attribute='text') | join",
}
TAKES = [(own, other) for own in TAKEN for other in TAKEN if "part" in own or own == other]


@pytest.mark.parametrize(("of_user", "of_assistant"), share(TAKES, 2))
@settings(max_examples=6)
@given(messages=MESSAGES, has_system=some.booleans())
@example(messages=[user("Hi"), assistant("Ho"), user("?")], has_system=False)
def test_a_chat_that_a_template_renders_with_texts_or_parts_is_rendered(
    templated: Templated, tokenizer: Any, of_user: str, of_assistant: str, messages: list[ChatMessage], has_system: bool
) -> None:
    """Each role for itself: LLaVA-NeXT's template takes the first part of a reply, and all parts of a question."""
    taken = f"({TAKEN[of_user]}) if m.role != 'assistant' else ({TAKEN[of_assistant]})"
    template = CHAT.replace("CALLS", "").replace("m.content", taken) + OPEN
    chat = [*([ChatMessage(Role.SYSTEM, "Be kind.")] * has_system), *messages]
    text = tokenizer.decode(templated(template).encode(chat, None, 8192))
    turns = "".join(f"<|im_start|>{each.role.value}\n{each.content}<|im_end|>\n" for each in chat)
    assert text == f"{turns}<|im_start|>assistant\n"


@pytest.mark.parametrize("of_assistant", TAKEN)
@pytest.mark.parametrize("end", ["<|im_end|>", "<|endoftext|>", "\n", "", "<|im_end|><|endoftext|>"])
def test_the_end_of_replies_stands_behind_the_answer(
    templated: Templated, tokenizer: Any, of_assistant: str, end: str
) -> None:
    """A template that takes no texts once gave the first token of the prompt."""
    body = f"<|im_start|>{{{{ m.role }}}}\n{{{{ {TAKEN[of_assistant]} }}}}"
    prompts = templated(f"{{% for m in messages %}}{body}{end}{{% endfor %}}{OPEN}")
    found = prompts.process.habits(prompts._folder).end
    chat = tokenizer.decode(prompts.encode([user("Hi"), assistant("Hello"), user("?")], None, 8192))
    behind = chat.partition("Hello")[2].lstrip()
    # Between two turns the next one's opening is all that there is.
    first = end.partition("><")[0] + (">" if "><" in end else "")
    assert (tokenizer.decode([found]) if found is not None else "") == (first.strip() or "<|im_start|>")
    assert found is None or behind.startswith(tokenizer.decode([found]))
