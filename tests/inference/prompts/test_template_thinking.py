"""What chat templates do with thoughts, tried on the forms that the families' templates have."""

import pytest

from rdchat.errors import InvalidSettingError
from rdchat.inference.api import ChatMessage, Role, ThinkingChoice, split_thoughts
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.template_fitting import answers_only
from tests.inference.prompts.folders import assistant, user
from tests.inference.prompts.thinking_templates import DEEPSEEK, LOOP, OPEN, QWEN

GPT_OSS = (
    "<|im_start|>system\nReasoning: {{ reasoning_effort | default('medium') }}<|im_end|>\n"
    "{% for message in messages %}{% if message.role == 'assistant' and '<|channel|>' in message.content %}"
    "{{ raise_exception('no channels in the content, put them into thinking') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}" + OPEN
)
KIMI = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% if loop.last %}"
    "<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}<|im_end|>\n{% endfor %}" + OPEN
)
SOLAR = (
    LOOP.replace("TEXT", "message.content")
    + OPEN
    + "{% if reasoning_effort | default('high') in ['low', 'minimal'] %}no thoughts{% endif %}"
)
ENDLESS = "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}"
PLAIN = LOOP.replace("TEXT", "message.content") + OPEN
KEEPS = PLAIN + "{# a thought ends with </think>, which stays #}"

THOUGHT = "<think>\nI wonder.\n</think>\n\nHello."
CHANNELS = "<|channel|>analysis<|message|>I wonder.<|end|><|start|>assistant<|channel|>final<|message|>Hello."


def said(text: str, begun: bool = False, own: tuple[int, ...] = ()) -> ChatMessage:
    return ChatMessage(Role.ASSISTANT, text, own, split_thoughts(text, begun=begun).spans)


def ids(prompts: ModelPrompts, *messages: ChatMessage, thinking: ThinkingChoice | None = None) -> list[int]:
    return prompts.encode(messages, None, 512, thinking=thinking)


@pytest.mark.parametrize(
    ("prompts", "reply"),
    [(QWEN, THOUGHT), (DEEPSEEK, THOUGHT), (GPT_OSS, CHANNELS), (KIMI, THOUGHT)],
    indirect=["prompts"],
    ids=["qwen", "deepseek", "gpt-oss", "kimi"],
)
def test_thoughts_are_not_sent_back_where_the_template_wants_none(prompts: ModelPrompts, reply: str) -> None:
    bare = ids(prompts, user("Hi"), assistant("Hello."), user("And?"))
    assert ids(prompts, user("Hi"), said(reply), user("And?")) == bare


@pytest.mark.parametrize("prompts", [PLAIN, KEEPS], indirect=True, ids=["silent", "keeps"])
def test_thoughts_stay_where_the_template_does_not_leave_them_out(prompts: ModelPrompts) -> None:
    as_written = ids(prompts, user("Hi"), assistant(THOUGHT), user("And?"))
    assert ids(prompts, user("Hi"), said(THOUGHT), user("And?")) == as_written


@pytest.mark.parametrize("prompts", [QWEN], indirect=True)
def test_a_reply_that_was_cut_off_in_its_thought_is_left_out(prompts: ModelPrompts) -> None:
    joined = ids(prompts, user("Hi\n\nAnd?"))
    assert ids(prompts, user("Hi"), said("<think>\nI wonder"), user("And?")) == joined
    assert ids(prompts, user("Hi"), said("I wonder", begun=True), user("And?")) == joined


def test_control_tokens_keep_their_places_in_the_answer() -> None:
    text = "<think>a<x></think>\n\nOne <x>."
    (message,) = answers_only([said(text, own=(0, 8, 11, 25))])
    assert message.content == "One <x>."
    assert message.content[message.own_control[0] :] == "<x>."


@pytest.mark.parametrize(
    ("prompts", "choices"),
    [
        (QWEN, ("off", "on")),
        (DEEPSEEK, ("off", "on")),
        (GPT_OSS, ("low", "medium", "high")),
        (SOLAR, ("low", "high")),
        (PLAIN, ()),
        ("{{ enable_thinking }}{% for %}", ()),
        (PLAIN + "{# enable_thinking and reasoning_effort are only spoken of #}", ()),
        pytest.param(f"{{% if enable_thinking %}}{ENDLESS}{{% endif %}}", (), marks=pytest.mark.slow),
    ],
    indirect=["prompts"],
    ids=["qwen", "deepseek", "gpt-oss", "solar", "none", "broken", "mentioned", "endless"],
)
def test_a_switch_is_found_where_the_template_renders_it(
    prompts: ModelPrompts, choices: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    if not choices:  # one of them takes all of the time
        monkeypatch.setattr("rdchat.inference.prompts.tokenizer_process._TRY_S", 1.0)
    assert prompts.thinking == choices


@pytest.mark.parametrize("prompts", [QWEN], indirect=True)
def test_a_choice_changes_the_prompt_and_none_leaves_it_as_it_was(prompts: ModelPrompts) -> None:
    usual, on, off = (ids(prompts, user("Hi"), thinking=each) for each in (None, ThinkingChoice.ON, ThinkingChoice.OFF))
    assert usual == off  # mlx-lm has it so where the vocabulary has no markers of thoughts
    assert (on, len(on) < len(off)) == (off[: len(on)], True)
    with pytest.raises(InvalidSettingError, match="no setting for thinking high") as refused:
        ids(prompts, user("Hi"), thinking=ThinkingChoice.HIGH)
    assert refused.value.hint == "It has: off, on."


def test_openings_that_a_thought_begins_with_again_are_left_out_and_later_ones_are_its_text() -> None:
    parts = split_thoughts("<think>\n" * 50_000 + " [THINK] a <think> b</think>c")
    assert (parts.thought, parts.answer) == ("a <think> b", "c")
    parts = split_thoughts("<|message|>" * 1000 + "\n<think>a</think>b")
    assert (parts.thought, parts.answer) == ("a", "<|message|>" * 1000 + "\nb")
