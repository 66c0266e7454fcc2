"""Foreign chat templates are programs: they end, and harm at most their own reply."""

import time
from collections.abc import Callable
from itertools import count
from pathlib import Path

import psutil
import pytest

from rdchat.errors import ModelError, PromptTooLongError, TemplateRefusedError
from rdchat.inference.prompts import tokenizer_process
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess, tokenizer_view
from tests.grids import share
from tests.inference.prompts.folders import prompts_of, user, with_template

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


@pytest.fixture
def quick_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second and 200 MB, so that tests of what does not end are quick."""
    monkeypatch.setattr(tokenizer_process, "_ENCODE_S", 0.5)
    monkeypatch.setattr(tokenizer_process, "_ENCODE_BYTES", 200 * 10**6)


@pytest.mark.slow
def test_a_conversation_that_is_too_long_to_be_sent_is_refused_and_the_child_goes_on(
    small_model: Path, process: TokenizerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It once was an error without a sentence for people."""
    prompts = prompts_of(small_model, process)
    child = process.child.pid
    with monkeypatch.context() as patch:
        patch.setattr("rdchat.work.served.MAX_BYTES", 1000)
        with pytest.raises(PromptTooLongError, match="too long for any model"):
            prompts.encode([user("a" * 1000)], None, 512)
    assert prompts.encode([user("a")], None, 512)
    assert process.child.pid == child


@pytest.mark.slow
@pytest.mark.usefixtures("quick_limits")
@pytest.mark.parametrize("template", share((HANGS | FLOODS).values(), 8), ids=list(HANGS | FLOODS))
def test_a_template_without_end_is_ended_and_the_next_conversation_is_rendered(
    templated: Callable[[str], ModelPrompts], small_model: Path, process: TokenizerProcess, template: str
) -> None:
    prompts = templated(template)
    began = time.monotonic()
    with pytest.raises(ModelError, match=r"so it was ended|crashed|makes .* characters|too much memory|accept this"):
        prompts.encode([user("Hi")], None, 512)
    assert time.monotonic() - began < 20  # a dozen times the limit
    assert prompts_of(small_model, process).encode([user("Hi")], None, 512)


@pytest.mark.parametrize(("template", "words"), REFUSALS.values(), ids=REFUSALS)
def test_a_template_that_fails_says_why(templated: Callable[[str], ModelPrompts], template: str, words: str) -> None:
    prompts = templated(template)
    with pytest.raises(TemplateRefusedError, match=words) as refused:
        prompts.encode([user("Hi")], None, 512)
    assert "\n" not in str(refused.value)
    assert refused.value.message.endswith(".")


@pytest.mark.slow
def test_whoever_waits_can_stop_a_template_at_once_and_nothing_is_left_running(
    small_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class StoppedByPersonError(Exception):
        pass

    process = TokenizerProcess()
    prompts = prompts_of(
        with_template(small_model, tmp_path / "bad", HANGS["a power that holds the interpreter"]), process
    )
    child = psutil.Process(process.child.pid)
    monkeypatch.setattr(tokenizer_process, "_ENCODE_S", 3600.0)  # so that it is not ended by its limit of time
    looks = count()

    def waiting() -> None:
        if next(looks) > 3:
            raise StoppedByPersonError

    with pytest.raises(StoppedByPersonError):
        prompts.encode([user("Hi")], None, 512, waiting)
    child.wait(timeout=120)  # raises where it goes on


@pytest.mark.slow
def test_a_child_whose_parent_is_gone_ends() -> None:
    """It reads to the end of its input; a template that hangs then is ended by the child's own alarm."""
    process = TokenizerProcess()
    process.start_child()
    child = psutil.Process(process.child.pid)
    process.child._running.process.stdin.close()  # type: ignore[union-attr]  as the system does when the parent is killed
    child.wait(timeout=120)
    assert not child.is_running()
    process.child.close()


def test_an_empty_rendering_is_empty(
    templated: Callable[[str], ModelPrompts],
) -> None:
    prompts = templated("{# nothing #}")
    assert prompts.encode([user(" ")], None, 512) == []


def test_a_template_of_megabytes_is_refused_by_name(small_model: Path, tmp_path: Path) -> None:
    folder = with_template(small_model, tmp_path / "model", "{# " + "a" * 2**20 + " #}")
    with (
        pytest.raises(ModelError, match="chat template of model has more than 1,048,576 characters"),
        tokenizer_view(folder),
    ):
        pass
