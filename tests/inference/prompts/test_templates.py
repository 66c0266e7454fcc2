"""Foreign chat templates are programs: they end, and are tried for what they do with thoughts."""

import time
from collections.abc import Callable, Iterable
from itertools import count
from pathlib import Path

import psutil
import pytest

from rdchat.errors import InvalidSettingError, ModelError, PromptTooLongError, TemplateRefusedError
from rdchat.inference.api import ChatMessage, Role, ThinkingChoice, split_thoughts
from rdchat.inference.prompts import tokenizer_process
from rdchat.inference.prompts.encoding import ControlTokens, Marks
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.template_fitting import answers_only
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, tokenizer_view
from tests.grids import share
from tests.inference.prompts.folders import DEEPSEEK, LOOP, OPEN, QWEN, assistant, prompts_of, user, with_template

HANGS = {
    "nested loops": "{% for a in range(90000) %}{% for b in range(90000) %}{% endfor %}{% endfor %}",
    "a power that holds the interpreter": "{{ 9**(9**9) }}",
    "random words": "{{ lipsum(n=100000) }}",
    "a macro in loops": "{% macro m() %}{% for i in range(99999) %}{{ i }}{% endfor %}{% endmacro %}"
    "{% for i in range(99999) %}{% set x = m() %}{% endfor %}",
}
FLOODS = {
    "a width": '{{ "%0999999999d"|format(1) }}',
    "a doubled string": "{% set n = namespace(s='x') %}{% for i in range(60) %}{% set n.s = n.s + n.s %}{% endfor %}",
    "a long text": "{% for i in range(9999) %}" + "x" * 2000 + "{% endfor %}",
    "a list": "{{ [1] * 9**11 }}",
}
REFUSALS = {
    "an error of its own": ("{{ raise_exception('no system role') }}", "no system role"),
    "Python's inside": ("{{ ''.__class__.__mro__[1].__subclasses__() }}", "unsafe"),
    "a syntax error": ("{% for %}", "Expected"),
    "a macro that calls itself": ("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "calls itself"),
    "a division": ("{{ 1 // 0 }}", "zero"),
    "an error that is a sentence": ("{{ raise_exception('No system role.') }}", r"No system role\. Choose"),
    "an error without words": ("{{ raise_exception('') }}", "TemplateError"),
    "nothing": ("{# nothing #}", "leaves out a message with the role user"),
}


@pytest.mark.slow
def test_a_conversation_that_is_too_long_to_be_sent_is_refused_and_the_child_goes_on(
    small_model: Path, process: TokenizerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once was an error without a sentence for people."""
    prompts = prompts_of(small_model)
    child = process.child.pid
    with monkeypatch.context() as patch:
        patch.setattr("rdchat.work.served.MAX_BYTES", 1000)
        with pytest.raises(PromptTooLongError, match="too long for any model"):
            prompts.encode([user("a" * 1000)], None, 512)
    assert prompts.encode([user("a")], None, 512)
    assert process.child.pid == child


@pytest.mark.slow
@pytest.mark.parametrize("template", share((HANGS | FLOODS).values(), 8), ids=list(HANGS | FLOODS))
def test_a_template_without_end_is_ended_and_the_next_conversation_is_rendered(
    templated: Callable[[str], ModelPrompts], small_model: Path, template: str
) -> None:
    began = time.monotonic()
    # What does not end has half a second and 200 MB; the next conversation, in a new process, has the usual limits.
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tokenizer_process, "_TRY_S", 0.5)
        patch.setattr(tokenizer_process, "_ENCODE_S", 0.5)
        patch.setattr(tokenizer_process, "_ENCODE_BYTES", 200 * 10**6)
        prompts = templated(template)
        with pytest.raises(
            ModelError, match=r"so it was ended|crashed|makes .* characters|too much memory|accept this"
        ):
            prompts.encode([user("Hi")], None, 512)
    assert time.monotonic() - began < 60  # far above the limit, since other programs may hold the machine up
    assert prompts_of(small_model).encode([user("Hi")], None, 512)


@pytest.mark.parametrize(("template", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_template_that_fails_says_why(templated: Callable[[str], ModelPrompts], template: str, words: str) -> None:
    prompts = templated(template)
    with pytest.raises(TemplateRefusedError, match=words) as refused:
        prompts.encode([user("Hi")], None, 512)
    assert "\n" not in str(refused.value)
    assert refused.value.message.endswith(".")


@pytest.mark.slow
def test_whoever_waits_can_stop_a_template_at_once_and_nothing_is_left_running(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppedByPersonError(Exception):
        pass

    monkeypatch.setattr(tokenizer_process, "_TRY_S", 0.5)
    process = TokenizerProcess()
    prompts = prompts_of(with_template(folder, folder, HANGS["a power that holds the interpreter"]), process)
    child = psutil.Process(process.child.pid)
    monkeypatch.setattr(tokenizer_process, "_ENCODE_S", 3600.0)  # so that it is not ended by its limit of time
    looks = count()

    def waiting() -> None:
        if next(looks) > 3:
            raise StoppedByPersonError

    with pytest.raises(StoppedByPersonError):
        prompts.encode([user("Hi")], None, 512, waiting)
    child.wait(timeout=120)  # raises where it goes on


def test_stop_is_asked_for_before_each_text(
    templated: Callable[[str], ModelPrompts], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A long chat may have a hundred million characters: marking them takes seconds."""
    prompts = templated(QWEN)
    read = [0]

    def mark(tokens: ControlTokens, text: str, own: Iterable[int], marks: Marks) -> str:
        read[-1] += len(text)
        return marked(tokens, text, own, marks)

    marked = ControlTokens.mark
    monkeypatch.setattr(ControlTokens, "mark", mark)
    messages = [ask(word * 20) for _ in range(20) for ask, word in ((user, "a few "), (assistant, "words "))]
    prompts.encode(messages, None, 8192, lambda: read.append(0))
    assert sum(read) >= 40 * 120
    assert max(read) <= 120


def test_an_empty_rendering_is_empty(
    templated: Callable[[str], ModelPrompts],
) -> None:
    prompts = templated("{# nothing #}")
    assert prompts.encode([user(" ")], None, 512) == []


def test_a_template_of_megabytes_is_refused_by_name(folder: Path) -> None:
    with_template(folder, folder, "{# " + "a" * 2**20 + " #}")
    with (
        pytest.raises(ModelError, match="chat template of model has more than 1,048,576 characters"),
        tokenizer_view(folder),
    ):
        pass


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
    ],
    indirect=["prompts"],
    ids=["qwen", "deepseek", "gpt-oss", "solar", "none", "broken", "mentioned"],
)
def test_a_switch_is_found_where_the_template_renders_it(prompts: ModelPrompts, choices: tuple[str, ...]) -> None:
    assert prompts.thinking == choices


@pytest.mark.slow
def test_a_switch_that_takes_for_ever_is_none(
    templated: Callable[[str], ModelPrompts], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokenizer_process, "_TRY_S", 0.5)
    prompts = templated(f"{{% if enable_thinking %}}{HANGS['nested loops']}{{% endif %}}{PLAIN}")
    assert prompts.thinking == ()
    assert prompts.encode([user("Hi")], None, 512)


@pytest.mark.parametrize("prompts", [QWEN], indirect=True)
def test_a_choice_changes_the_prompt_and_none_leaves_it_as_it_was(prompts: ModelPrompts) -> None:
    usual, on, off = (ids(prompts, user("Hi"), thinking=each) for each in (None, ThinkingChoice.ON, ThinkingChoice.OFF))
    assert usual == on
    assert (on, len(on) < len(off)) == (off[: len(on)], True)
    with pytest.raises(InvalidSettingError, match="no setting for thinking high") as refused:
        ids(prompts, user("Hi"), thinking=ThinkingChoice.HIGH)
    assert refused.value.hint == "It has: off, on."


def test_openings_that_a_thought_begins_with_again_are_left_out_and_later_ones_are_its_text() -> None:
    parts = split_thoughts("<think>\n" * 50_000 + " [THINK] a <think> b</think>c")
    assert (parts.thought, parts.answer) == ("a <think> b", "c")
    parts = split_thoughts("<|message|>" * 1000 + "\n<think>a</think>b")
    assert (parts.thought, parts.answer) == ("a", "<|message|>" * 1000 + "\nb")
