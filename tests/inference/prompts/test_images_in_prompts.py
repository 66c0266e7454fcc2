"""Law: a prompt with images has the text that it has without them, and texts and images stand in their order.

The templates are of the kinds that models that see are published with.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings, strategies as some

from rdchat.errors import TemplateRefusedError
from rdchat.inference.api.messages import UNSEEN, ChatImage, ChatMessage, ImageCap, Role, without_images
from rdchat.inference.prompts.model_prompts import ModelPrompts
from rdchat.inference.prompts.template_fitting import tools_as_text

_PARTS = (
    "{% for p in m.content %}{% if p.type == 'image' %}<image>{% elif p.type == 'text' %}{{ p.text }}{% endif %}"
    "{% endfor %}"
)
_EITHER = f"{{% if m.content is string %}}{{{{ m.content }}}}{{% else %}}{_PARTS}{{% endif %}}"
_TRIMMED = _EITHER.replace("{{ m.content }}", "{{ m.content | trim }}").replace("{{ p.text }}", "{{ p.text | trim }}")
_TURN = "{% for m in messages %}<|im_start|>{{ m.role }}\nTEXT<|im_end|>\n{% endfor %}<|im_start|>assistant\n"
_SYSTEM_APART = """{% set rest = messages %}{% if messages[0].role == 'system' %}<|im_start|>system
SYSTEM<|im_end|>
{% set rest = messages[1:] %}{% endif %}""" + _TURN.replace("in messages", "in rest")


def _only_users_see(text: str) -> str:
    return _TURN.replace("TEXT", f"{{% if m.role == 'user' %}}{_EITHER}{{% else %}}{text}{{% endif %}}")


TEMPLATES = {
    "Gemma 3": """{% if messages[0].role == 'system' %}{% if messages[0].content is string %}\
{% set prefix = messages[0].content + '\n\n' %}{% else %}{% set prefix = messages[0].content[0].text + '\n\n' %}\
{% endif %}{% set rest = messages[1:] %}{% else %}{% set prefix = '' %}{% set rest = messages %}{% endif %}\
{% for m in rest %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate') }}\
{% endif %}<|im_start|>{{ m.role }}
{{ prefix if loop.first }}"""
    + _TRIMMED
    + "<|im_end|>\n{% endfor %}<|im_start|>model\n",
    "Gemma 4": _SYSTEM_APART.replace("SYSTEM", "{{ messages[0]['content'] | trim }}").replace("TEXT", _TRIMMED),
    "Qwen3-VL": _SYSTEM_APART.replace("SYSTEM", _EITHER.replace("m.content", "messages[0].content")).replace(
        "TEXT", _EITHER.replace("p.type == 'image'", "p.type == 'image' or 'image' in p or 'image_url' in p")
    ),
    "Qwen3.5": "{% macro shown(content) %}{% if content is string %}{{ content }}{% elif content is iterable and "
    "content is not mapping %}"
    + _PARTS.replace("m.content", "content")
    + "{% else %}{{ raise_exception('a content') }}{% endif %}{% endmacro %}"
    + _TURN.replace("TEXT", "{{ shown(m.content) | trim }}"),
    "LFM2-VL": _SYSTEM_APART.replace(
        "<|im_start|>system\nSYSTEM", "{{ '<|im_start|>system\n' + messages[0].content }}"
    ).replace("TEXT", _EITHER),
    "LFM2, JSON of what is no text": _only_users_see("{{ m.content if m.content is string else m.content | tojson }}"),
    "SmolVLM": "<|im_start|>{% for m in messages %}{{ m.role | capitalize }}{% if m.content[0]['type'] == 'image' %}:"
    "{% else %}: {% endif %}" + _PARTS + "<end_of_utterance>\n{% endfor %}Assistant:",
    "Pixtral": _TURN.replace("TEXT", _EITHER.replace("p.text", "p['content']")),
    "lists alone": _TURN.replace("TEXT", _PARTS),
    "a fine-tune that prints contents": _only_users_see("{{ m.content }}"),
    "a fine-tune that adds contents": _only_users_see("{{ '' + m.content }}"),
    "a fine-tune that joins contents": _only_users_see("{{ m.content | join }}"),
    "a fine-tune that prints the first part": _only_users_see(
        "{{ m.content if m.content is string else m.content[0] }}"
    ),
    "a test of the printed form": _TURN.replace(
        "TEXT", "{% if '<tool>' in m.content | string %}!{% endif %}" + _EITHER
    ),
}
_PERSONS_OWN = "[{'type': 'text', 'text': 'x'}]\U000ffffe"


class Sight:
    """Writes the name of an image in its place."""

    placeholder = "<image>"

    def is_unseen(self, _image: ChatImage) -> bool:
        return False

    def expanded(self, images: Sequence[ChatImage], cap: ImageCap, _limit: int) -> list[str]:
        return [f"<{image.name}>" for image in images]


@pytest.fixture
def prompts(
    request: pytest.FixtureRequest, templated: Callable[[str], ModelPrompts], monkeypatch: pytest.MonkeyPatch
) -> ModelPrompts:
    prompts = templated(request.param)
    monkeypatch.setattr(prompts, "sight", Sight())
    return prompts


def chat_of(*turns: tuple[Role, str]) -> list[ChatMessage]:
    """Return a chat in which `@` becomes a word of its own, and `#` an image."""
    numbers = count()
    messages = list[ChatMessage]()
    for role, written in turns:
        images = list[ChatImage]()
        offsets = list[int]()
        content = ""
        for letter in written:
            if letter == "#":
                images.append(ChatImage(Path(), "", 1, 1, f"i{next(numbers)}"))
                offsets.append(len(content))
            else:
                content += f" w{next(numbers)}." if letter == "@" else letter
        messages.append(ChatMessage(role, content, images=tuple(images), image_offsets=tuple(offsets)))
    return messages


def _shown(prompts: ModelPrompts, tokenizer: Any, messages: Sequence[ChatMessage]) -> str:
    return str(tokenizer.decode(prompts.encode(messages, None, 100_000)))


def _check(prompts: ModelPrompts, tokenizer: Any, messages: list[ChatMessage]) -> None:
    text = _shown(prompts, tokenizer, messages)
    plain = _shown(prompts, tokenizer, [replace(each, images=(), image_offsets=()) for each in messages])
    # Templates trim the parts between images, and SmolVLM's writes no blank before an image.
    assert re.sub(r"<i\d+>|\s", "", text) == re.sub(r"\s", "", plain), text
    said = [name for each in messages if each.role is not Role.SYSTEM for name in _names(each)]
    assert [name for name in re.findall(r"[iw]\d+", text) if name in said] == said, text


def _names(message: ChatMessage) -> list[str]:
    lines = message.with_lines([image.name for image in message.images])
    return re.findall(r"[iw]\d+", lines.content)


_PIECES = some.lists(some.sampled_from(("@", "#", "\n", _PERSONS_OWN)), max_size=4).map("".join)
_SEEN = some.tuples(
    some.sampled_from((Role.USER, Role.TOOL)), some.builds(lambda one, other: f"{one}@{other}", _PIECES, _PIECES)
)
_SAID = some.tuples(some.just(Role.ASSISTANT), some.sampled_from(("@", f"@{_PERSONS_OWN}@")))
_TURNS = some.lists(_SEEN | _SAID, min_size=1, max_size=4)
_SYSTEM = some.sampled_from(("", "", "@", f"@{_PERSONS_OWN}"))


@pytest.mark.parametrize("prompts", TEMPLATES.values(), indirect=True, ids=TEMPLATES)
@settings(max_examples=8)
@given(system=_SYSTEM, turns=_TURNS)
@example(system="@", turns=[(Role.USER, "#@")])
@example(system="@", turns=[(Role.USER, "@#@#"), (Role.ASSISTANT, "@"), (Role.USER, "@")])
@example(system="", turns=[(Role.USER, "@"), (Role.ASSISTANT, _PERSONS_OWN), (Role.USER, "#")])
def test_an_image_changes_no_text_of_a_prompt(
    prompts: ModelPrompts, tokenizer: Any, system: str, turns: list[tuple[Role, str]]
) -> None:
    """A system message once became a list of Python's beside an image, or a part of the question."""
    chat = chat_of(*([(Role.SYSTEM, system)] if system else []), *turns)
    try:
        _shown(prompts, tokenizer, [replace(each, images=(), image_offsets=()) for each in chat])
    except TemplateRefusedError:
        return
    _check(prompts, tokenizer, chat)


@settings(max_examples=40)
@given(turns=_TURNS)
def test_lines_stand_where_a_blind_model_s_images_were(turns: list[tuple[Role, str]]) -> None:
    """Also in results that are text, whose marks are escaped."""
    marked = [(role, written.replace("\n", "<tool_call>")) for role, written in turns]
    chat = chat_of(*((Role.TOOL, written) for _, written in marked))
    text = "".join(each.content for each in without_images(tools_as_text(chat)))
    names = [name for each in chat for name in _names(each)]
    assert re.findall(rf"w\d+|{re.escape(UNSEEN)}", text) == [
        name if name.startswith("w") else UNSEEN for name in names
    ]
    assert "<tool_call>" not in text


@settings(max_examples=50)
@given(text=some.text("ab\n", max_size=6), data=some.data())
def test_a_control_token_of_the_model_s_own_stays_where_it_is(text: str, data: some.DataObject) -> None:
    offsets = data.draw(some.lists(some.integers(0, len(text)), max_size=3).map(sorted))
    own = tuple(data.draw(some.lists(some.integers(0, max(len(text) - 1, 0)), unique=True).map(sorted))) if text else ()
    images = tuple(ChatImage(Path(), "", 1, 1) for _ in offsets)
    before = ChatMessage(Role.USER, text, own, images=images, image_offsets=tuple(offsets))
    seen: list[ChatImage | str] = ["line" if data.draw(some.booleans()) else image for image in images]
    after = before.with_lines(seen)
    assert [after.content[at] for at in after.own_control] == [text[at] for at in own]
    assert after.content.replace("line", "").replace("\n", "") == text.replace("\n", "")
    both = before.joined(after)
    assert [both.content[at] for at in both.own_control] == 2 * [text[at] for at in own]
    assert len(both.images) == len(both.image_positions)


@pytest.mark.parametrize("prompts", [TEMPLATES["SmolVLM"], TEMPLATES["lists alone"]], indirect=True)
def test_a_text_that_is_a_word_of_the_template_is_not_lost_beside_an_image(
    prompts: ModelPrompts, tokenizer: Any
) -> None:
    chat = [ChatMessage(Role.SYSTEM, "start"), *chat_of((Role.USER, "#@"))]
    empty = [ChatMessage(Role.SYSTEM, ""), *chat[1:]]
    texts = [_shown(prompts, tokenizer, each) for each in (chat, empty)]
    assert texts[0].count("start") == texts[1].count("start") + 1
