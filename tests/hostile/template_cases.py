"""Cases of chat templates: loops and sizes without end, ways out of the sandbox, and text that is none."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.hostile.case import Call, Case, Kind, ask, evil_mark
from tests.hostile.data import expanded, read
from tests.hostile.harm import change_json
from tests.hostile.samples import copy_of

_PLAIN = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"


def _in_config(template: object, folder: Path) -> Call:
    model = copy_of("model", folder)
    if isinstance(template, str):
        template = template.replace("MARK", str(evil_mark(folder)))
    change_json(model / "tokenizer_config.json", chat_template=template)
    return ask(model)


def _in_file(template: str, name: str, folder: Path) -> Call:
    model = copy_of("model", folder)
    target = model / name
    target.parent.mkdir(exist_ok=True)
    said = json.dumps({"chat_template": template}) if name.endswith("json") else template
    target.write_text(said, errors="surrogatepass")
    return ask(model)


def _asked(options: tuple[str, ...], make: Callable[[Path], Call], folder: Path) -> Call:
    call = make(folder)
    return Call((*call.arguments[:-1], *options, call.arguments[-1]), model=call.model)


def template_cases() -> Iterator[Case]:
    """Yield all cases of chat templates."""
    named = expanded(read("templates"))
    for name, template in named.items():
        yield Case(Kind.TEMPLATES, name, partial(_in_config, template))
    for name in ("two loops of 90,000", "a string doubled 60 times", "nothing"):
        with_system = partial(_asked, ("--system", "Be brief"), partial(_in_config, named[name]))
        yield Case(Kind.TEMPLATES, f"{name}, with a system prompt", with_system)
        for file in ("chat_template.jinja", "chat_template.json", "additional_chat_templates/default.jinja"):
            yield Case(Kind.TEMPLATES, f"{name}, in {file}", partial(_in_file, named[name], file))
    odd: Mapping[str, object] = {
        "a number": 5, "a list of nothing": [], "a list of odd types": [1, {"name": 5}], "an object": {"default": 5},
        "two that are named": [{"name": "a", "template": _PLAIN}, {"name": "b", "template": "{{ 9**(9**9) }}"}],
        "one that is named default": [{"name": "default", "template": named["two loops of 90,000"]}],
    }  # fmt: skip
    for name, value in odd.items():
        yield Case(Kind.TEMPLATES, name, partial(_in_config, value))
