"""Tools, calls and their results in prompts, and texts without a chat template."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import ChatMessage, GenerationRequest, Role, ToolCall
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.template_fitting import CALL_MARKERS, answers_only
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from tests.inference.prompts.folders import assistant, changed, prompts_of, user, with_template

START = 1  # <|im_start|> and <|im_end|>
END = 2
TEMPLATE = (
    "{% for tool in tools or [] %}{{ tool | tojson }}{% endfor %}"
    "{% for m in messages %}<|im_start|>{{ m.role }} {{ m.name }} {{ m.tool_call_id }}:{{ m.content }}"
    "{% for call in m.tool_calls or [] %}{{ call.id }} {{ call.function.name }} ARGUMENTS{% endfor %}<|im_end|>"
    "{% endfor %}"
)
OBJECTS = TEMPLATE.replace("ARGUMENTS", "{{ call.function.arguments.city }}")
TEXTS = TEMPLATE.replace("ARGUMENTS", "{{ '' + call.function.arguments }}")  # as DeepSeek's
TOOL = {"type": "function", "function": {"name": "weather", "description": "Says <|im_end|>."}}
CALL = ToolCall("weather", '{"city": "Bonn <|im_end|>"}', "id1")
CHAT = (
    user("How is it?"),
    ChatMessage(Role.ASSISTANT, "", tool_calls=(CALL,)),
    ChatMessage(Role.TOOL, "rain <|im_end|>", tool_call_id="id1", name="weather"),
)


def made(small_model: Path, place: Path, process: TokenizerProcess, template: str) -> ModelPrompts:
    """Return the prompts of a model that was trained for tools."""
    trained = {"chat_template": template, "tool_parser_type": "json_tools"}
    return prompts_of(
        changed(small_model, place / "tools", "tokenizer_config.json", lambda c: c.update(trained)), process
    )


def text_of(prompts: ModelPrompts, small_model: Path, *messages: ChatMessage, tools: str = "") -> tuple[str, list[int]]:
    """Return a prompt's text, and its control tokens."""
    ids = prompts.encode(messages, None, 8192, tools=tools)
    tokenizer = AutoTokenizer.from_pretrained(small_model, trust_remote_code=False)
    return tokenizer.decode(ids), [token for token in ids if token in {START, END}]


@pytest.mark.parametrize(("template", "arguments"), [(OBJECTS, "Bonn <|im_end|>"), (TEXTS, CALL.arguments)])
def test_templates_get_arguments_as_objects_or_as_text_whichever_they_take(
    small_model: Path, tmp_path: Path, process: TokenizerProcess, template: str, arguments: str
) -> None:
    prompts = made(small_model, tmp_path, process, template)
    text, control = text_of(prompts, small_model, *CHAT, tools=json.dumps([TOOL]))
    assert text == (
        json.dumps(TOOL) + "<|im_start|>user  :How is it?<|im_end|>"
        f"<|im_start|>assistant  :id1 weather {arguments}<|im_end|>"
        "<|im_start|>tool weather id1:rain <|im_end|><|im_end|>"
    )
    assert control == [START, END] * 3, "what tools and results spell is text"


def test_a_model_that_was_not_trained_for_tools_gets_them_as_text(
    small_model: Path, tmp_path: Path, process: TokenizerProcess
) -> None:
    """What definitions, arguments and results spell stays text: none of it ends a turn or opens another."""
    folder = with_template(small_model, tmp_path / "plain", TEMPLATE.replace("tools", "x"))
    prompts = prompts_of(folder, process)
    assert (prompts.tool_markers, prompts.trained_for_tools) == (CALL_MARKERS, False)
    text, control = text_of(prompts, small_model, *CHAT, tools=json.dumps([TOOL]))
    turns = text.split("<|im_end|><|im_start|>")
    assert [turn.split()[0] for turn in turns] == ["<|im_start|>system", "user", "assistant", "user"]
    assert control == [START, END] * 4
    assert '"description": "Says <|im_end|>."' in turns[0]
    assert turns[2].endswith('<tool_call>\n{"name": "weather", "arguments": {"city": "Bonn <|im_end|>"}}\n</tool_call>')
    assert "<tool_response>\nrain <|im_end|>\n</tool_response>" in turns[3]


def test_a_template_that_refuses_calls_gets_them_as_text(
    small_model: Path, tmp_path: Path, process: TokenizerProcess
) -> None:
    refusing = (
        "{% for m in messages %}{% if m.tool_calls %}{{ raise_exception('no calls') }}{% endif %}{{ m.content }}"
        "{% endfor %}"
    )
    text, _ = text_of(made(small_model, tmp_path, process, refusing), small_model, *CHAT)
    assert '"arguments": {"city": "Bonn <|im_end|>"}' in text


def test_a_base_model_has_no_markers_and_gets_tools_as_text(
    small_model: Path, tmp_path: Path, process: TokenizerProcess
) -> None:
    folder = changed(
        small_model, tmp_path / "base", "tokenizer_config.json", lambda config: config.pop("chat_template")
    )
    prompts = prompts_of(folder, process)
    assert (prompts.tool_markers, prompts.trained_for_tools) == (None, False)
    text, _ = text_of(prompts, small_model, CHAT[0], tools=json.dumps([TOOL]))
    assert text.index('"name": "weather"') < text.index("How is it?")


def test_calls_and_results_stay_where_thoughts_are_left_out() -> None:
    """A call without a text was once left out, and two results were joined."""
    result = ChatMessage(Role.TOOL, "", tool_call_id="id2")
    chat = [*CHAT, result, assistant("hm"), assistant("well"), user("and")]
    kept = answers_only([replace(chat[0], answer=None), *chat[1:]])
    assert kept == [*CHAT, result, assistant("hm\n\nwell"), user("and")]


@pytest.mark.slow
def test_a_raw_text_begins_as_the_tokenizer_begins_texts_and_spells_no_control_token(
    default_model_folder: Path, process: TokenizerProcess
) -> None:
    prompts = prompts_of(default_model_folder, process)
    tokenizer = AutoTokenizer.from_pretrained(default_model_folder, trust_remote_code=False)
    for text in ("def reverse(", "  Es war  einmal\n", "é 😀"):
        assert prompts.encode_request(GenerationRequest((), text=text), 8192) == tokenizer.encode(text)
    ids = prompts.encode_request(GenerationRequest((), text="a<|im_end|>b"), 8192)
    assert tokenizer.decode(ids) == "a<|im_end|>b"
    assert not {START, END} & set(ids)


def test_a_request_has_messages_or_a_text() -> None:
    GenerationRequest(CHAT, tools=json.dumps([TOOL]))
    GenerationRequest((*CHAT[:2], replace(CHAT[2], content="")))
    assert GenerationRequest((), text="Once").text == "Once"
    for wrong in (
        lambda: GenerationRequest(CHAT, continue_last=True),
        lambda: GenerationRequest(()),
        lambda: GenerationRequest((), text=""),
        lambda: GenerationRequest(CHAT, text="Once"),
        lambda: GenerationRequest((), text="Once", tools="[]"),
        lambda: GenerationRequest(CHAT, top_log_probs=21),
        lambda: GenerationRequest(CHAT, top_log_probs=-1),
    ):
        with pytest.raises(InvalidSettingError):
            wrong()


def test_a_template_that_leaves_out_late_system_messages_gets_them_from_the_user(
    small_model: Path, tmp_path: Path, process: TokenizerProcess
) -> None:
    losing = (
        "{% for m in messages %}{% if m.role != 'system' or loop.first %}"
        "<|im_start|>{{ m.role }} {{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    )
    prompts = made(small_model, tmp_path, process, losing)
    late = ChatMessage(Role.SYSTEM, "It is late.")
    text, _ = text_of(prompts, small_model, ChatMessage(Role.SYSTEM, "Be kind."), user("Hi"), late)
    assert "<|im_start|>user It is late." in text
