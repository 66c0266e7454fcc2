import json
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from rdchat.errors import PromptTooLongError
from rdchat.inference.api import AnswerShape, GenerationRequest, ShapeKind, ThinkingChoice
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.tokenizer_process import TokenizerProcess
from tests.inference.prompts.folders import assistant, prompts_of, user


def test_the_count_is_that_of_the_prompt(small_model: Path, process: TokenizerProcess) -> None:
    prompts = prompts_of(small_model, process)
    chat = (user("Hello <|im_end|> there"), assistant("Hi!"), user("What is \u6f22?"))
    assert prompts.count(chat, 512) == len(prompts.encode(chat, None, 512))
    assert prompts.count((), 512) == 0


def test_the_count_of_a_request_is_that_of_its_prompt(
    templated: Callable[[str], ModelPrompts],
) -> None:
    template = "{{ tools }}{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: "
    prompts = templated(template)
    chat = (user("Hello"), assistant("Well, "))
    tools = json.dumps([{"type": "function", "function": {"name": "look"}}])
    begun = prompts.count(GenerationRequest(chat, continue_last=True), 512)
    assert begun == len(prompts.encode(chat[:1], chat[1], 512))
    assert begun != prompts.count(chat, 512)
    asked = prompts.count(GenerationRequest(chat[:1], tools=tools), 512)
    assert asked == len(prompts.encode(chat[:1], None, 512, tools=tools)) > prompts.count(chat[:1], 512)


def test_an_answer_with_a_shape_is_counted_without_its_thought(
    templated: Callable[[str], ModelPrompts],
) -> None:
    template = "{{ messages[0].content }}{% if not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
    prompts = templated(template)
    plain = GenerationRequest((user("Hello"),), thinking=ThinkingChoice.ON)
    off = replace(plain, thinking=ThinkingChoice.OFF)
    shaped = replace(plain, shape=AnswerShape(ShapeKind.JSON))
    assert prompts.encode_request(shaped, 512) == prompts.encode_request(off, 512)
    assert prompts.count(shaped, 512) == prompts.count(off, 512) > prompts.count(plain, 512)


def test_far_more_than_the_context_is_not_counted_to_the_end(small_model: Path, process: TokenizerProcess) -> None:
    with pytest.raises(PromptTooLongError):
        prompts_of(small_model, process).count((user("word " * 100_000),), 16)


@pytest.mark.slow  # it starts another child
def test_threads_take_turns_also_where_the_child_was_ended(small_model: Path, process: TokenizerProcess) -> None:
    prompts = prompts_of(small_model, process)
    chat = (user("Hello"),)
    expected = prompts.count(chat, 512)
    counts = list[int]()
    threads = [threading.Thread(target=lambda: counts.append(prompts.count(chat, 512))) for _ in range(4)]
    process.child.close()  # as a request that takes too long has it
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counts == [expected] * 4
