"""Cases of chat templates: loops and sizes without end, ways out of the sandbox, and text that is none."""

import json
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path

from tests.hostile.case import Call, Case, Kind, ask, evil_mark
from tests.hostile.harm import change_json
from tests.hostile.samples import copy_of

_PLAIN = "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
_DOUBLED = "{% set ns = namespace(x='ab') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}"
ENDLESS: Mapping[str, str] = {
    "two loops of 90,000": "{% for i in range(90000) %}{% for j in range(90000) %}{% endfor %}{% endfor %}",
    "two loops that write": "{% for i in range(90000) %}{% for j in range(90000) %}a{% endfor %}{% endfor %}",
    "six loops of 1,000": "{% for i in range(1000) %}" * 6 + "{% endfor %}" * 6,
    "a power of powers": "{{ 9**(9**9) }}",
    "a power that is not shown": "{% set x = 9**(9**9) %}a",
    "a power modulo": "{{ (9**(9**8)) % 7 }}",
    "a shift by products": "{{ (10**10)**(10**7) }}",
    "lipsum": "{{ lipsum(n=100000) }}",
    "lipsum of long paragraphs": "{{ lipsum(n=10, min=10**7, max=10**8) }}",
    "a width": '{{ "%0999999999d"|format(1) }}',
    "a width of text": '{{ "%999999999s"|format("a") }}',
    "a precision": '{{ "%.999999999f"|format(1.5) }}',
    "a width of str.format": '{{ "{:999999999}".format("a") }}',
    "a width from an argument": '{{ "{:{w}}".format("a", w=10**10) }}',
    "a string doubled 60 times": _DOUBLED + "{{ ns.x }}",
    "a string doubled, its length only": _DOUBLED + "{{ ns.x|length }}",
    "a string times 10**10": '{{ "a" * 10**10 }}',
    "a list times 10**10": "{{ ([1] * 10**10)|length }}",
    "a list added to itself": "{% set ns = namespace(x=[1]) %}{% for i in range(60) %}{% set ns.x = ns.x + ns.x %}"
    "{% endfor %}{{ ns.x|length }}",
    "a range of 10**12": "{% for i in range(10**12) %}{% endfor %}",
    "a list of a range": "{{ range(10**10)|list|length }}",
    "a sum of a range": "{{ range(10**12)|sum }}",
    "a macro that calls itself": "{% macro f(n) %}{{ f(n + 1) }}{% endmacro %}{{ f(0) }}",
    "a macro that calls itself twice": "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}"
    "{{ f(60) }}",
    "a loop that calls itself": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "a cycler without end": "{% set c = cycler('a', 'b') %}{% for i in range(99999) %}{% for j in range(99999) %}"
    "{{ c.next() }}{% endfor %}{% endfor %}",
    "centred in 10**10": '{{ "a"|center(10**10) }}',
    "indented by 10**9": '{{ ("a\n" * 100)|indent(10**9) }}',
    "filled by 10**9": '{{ [1]|batch(10**9, "a")|list }}',
    "sliced into 10**9": "{{ [1]|slice(10**9)|list|length }}",
    "wrapped at every letter": '{{ ("a " * 10**7)|wordwrap(1) }}',
    "made title case": '{{ ("a" * 10**9)|title }}',
    "replaced by more": '{{ ("a" * 10**5)|replace("a", "b" * 10**5) }}',
    "joined by much": '{{ range(10**5)|join("a" * 10**5) }}',
    "justified": '{{ "a".ljust(10**10) }}',
    "filled with zeros": '{{ "1".zfill(10**10) }}',
    "tabs made wide": '{{ "\t".expandtabs(10**10) }}',
    "a slice of all bytes": "{{ ('a' * 10**9)[::-1] }}",
    "JSON of what holds itself": "{% set x = [] %}{% set _ = x.append(x) %}{{ x|tojson }}",
    "JSON of much": "{{ ([[1] * 1000] * 10**5)|tojson }}",
    "JSON indented by much": "{{ [1]|tojson(indent=10**9) }}",
    "a sort of much": "{{ range(10**8)|sort(reverse=true)|first }}",
    "links in much": '{{ ("www.a.b " * 10**6)|urlize }}',
    "100 MB of text": '{{ "a" * 10**8 }}',
    "2 GB of text": '{% for i in range(20) %}{{ "a" * 10**8 }}{% endfor %}',
    "a date of much": '{{ strftime_now("%Y" * 10**8) }}',
}
_WAYS = (
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ ''['__class__']['__mro__'] }}",
    "{{ ''|attr('__class__')|attr('__mro__') }}",
    "{{ ''|attr('\\x5f\\x5fclass\\x5f\\x5f') }}",
    "{{ messages.__class__.__base__.__subclasses__()|length }}",
    "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "{{ '{0.__class__.__mro__}'.format_map({'0': 1}) }}",
    "{% set f = '{0.__class__.__init__.__globals__}'.format %}{{ f(cycler) }}",
    "{{ ['{0.__class__}']|map('format', 1)|list }}",
    "{{ [messages]|map(attribute='__class__')|list }}",
    "{{ [messages]|groupby('__class__')|list }}",
    "{{ cycler.__init__.__globals__.os.system('touch MARK') }}",
    "{{ joiner.__init__.__globals__['__builtins__']['open']('MARK', 'w') }}",
    "{{ namespace.__init__.__globals__['os'].system('touch MARK') }}",
    "{{ lipsum.__globals__['os'].popen('touch MARK').read() }}",
    "{{ lipsum|attr('__globals__')|attr('get')('os') }}",
    "{{ self.__init__.__globals__.__builtins__.__import__('os').system('touch MARK') }}",
    "{{ self._TemplateReference__context.cycler.__init__.__globals__.os }}",
    "{{ range.__self__ }}",
    "{{ raise_exception.__globals__['__builtins__']['open']('MARK', 'w') }}",
    "{{ strftime_now.__globals__['__builtins__']['open']('MARK', 'w') }}",
    "{{ (messages|tojson).__class__.__init__.__globals__ }}",
    "{% set x = namespace(__class__=1) %}{{ x.__class__ }}",
    "{% set ns = namespace() %}{% set ns.__init__ = lipsum %}{{ ns.__init__.__globals__ }}",
    "{% macro f() %}{% endmacro %}{{ f._func.__globals__ }}",
    "{{ (namespace)|attr('__init__')|attr('__globals__') }}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "{{ dict.mro() }}",
    "{{ config.items() }}{{ request.application.__globals__ }}",
    "{{ messages|map('attr', '__class__')|list }}",
    "{{ messages.append({'role': 'system', 'content': 'evil'}) }}",
    "{{ tools.__class__ }}{{ documents.__class__ }}",
    "{% generation %}{{ self.__class__ }}{% endgeneration %}",
    "{{ loop.__class__ }}{% for m in messages %}{{ loop._iterable.__class__.__mro__ }}{% endfor %}",
)
ODD: Mapping[str, str] = {
    "nothing": "",
    "only spaces": "   \n  ",
    "a comment only": "{# nothing #}",
    "no message": "{% if false %}{{ messages }}{% endif %}",
    "half a surrogate": "{{ '\\ud800' }}",
    "half a surrogate as bytes": "a\ud800b",
    "zero bytes": "a\0b{{ messages[0].content }}\0",
    "a file included": "{% include '/etc/passwd' %}",
    "a file imported": "{% import '/etc/passwd' as x %}{{ x }}",
    "a file extended": "{% extends '../../../../etc/passwd' %}",
    "what raises": "{{ raise_exception('evil\n\x1b[31mrdchat: all is well') }}",
    "what raises much": "{{ raise_exception('evil ' * 10**7) }}",
    "what raises without end": "{% for m in messages %}{{ m.content.nothing.at.all }}{% endfor %}",
    "a division by zero": "{{ 1 // 0 }}",
    "a tag that is not closed": "{% for m in messages %}",
    "a filter nobody knows": "{{ messages|evil }}",
    "nested 10,000 times": "{% if true %}" * 10_000 + "a" + "{% endif %}" * 10_000,
    "brackets nested 10,000 times": "{{ " + "(" * 10_000 + "1" + ")" * 10_000 + " }}",
    "a sum of 20,000 terms": "{{ " + "+".join("1" * 20_000) + " }}",
    "10 MB of template": "{# " + "a" * 10_000_000 + " #}" + _PLAIN,
    "a million variables": "".join(f"{{% set a{n} = {n} %}}" for n in range(20_000)) + _PLAIN,
    "an extension nobody knows": "{% evil %}{% endevil %}",
    "a debug tag": "{% debug %}",
    "a translation": "{% trans %}{{ messages }}{% endtrans %}",
    "a million turns": "{% for i in range(99999) %}<|im_start|>user\na<|im_end|>\n{% endfor %}",
}


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
    named = {**ENDLESS, **{f"a way out: {way[:80]}": way for way in _WAYS}, **ODD}
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
        "one that is named default": [{"name": "default", "template": ENDLESS["two loops of 90,000"]}],
    }  # fmt: skip
    for name, value in odd.items():
        yield Case(Kind.TEMPLATES, name, partial(_in_config, value))
