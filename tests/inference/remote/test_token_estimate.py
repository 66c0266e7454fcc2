"""An estimate of tokens is near what tokenizers give, for each kind of text, and reads a text once."""

import base64
import random

import pytest

from rdchat.inference.remote.remote_engine import estimated_tokens
from tests.growth import SHAPES, assert_grows_no_faster

_DRAW = random.Random(1)
_LEVELS = ("INFO", "WARNING", "ERROR")
_TEXTS = {
    "English": "The lighthouse keeper climbed the stairs every morning, cleaned the lamp and looked for whales. " * 20,
    "code": "def area(circle: Circle) -> float:\n    return math.pi * circle.radius_m**2  # in m²\n\n\n" * 20,
    "JSON": "".join(f'{{"id": {_DRAW.randint(1, 9999)}, "name": "item", "ok": true}},\n' for _ in range(80)),
    "German": "Der Leuchtturmwärter stieg jeden Morgen die Treppe hinauf und hielt Ausschau nach Walen. " * 20,
    "Chinese": "灯塔看守人每天早上爬上楼梯，擦拭灯具，寻找鲸鱼。" * 30,  # noqa: RUF001  Chinese commas
    "Japanese": "灯台守は毎朝階段を上り、ランプを磨いて、クジラを探しました。" * 30,
    "Russian": "Смотритель маяка каждое утро поднимался по лестнице и высматривал китов. " * 20,
    "digits": "".join(_DRAW.choice("0123456789") for _ in range(2000)),
    "table": "\n".join(",".join(f"{_DRAW.random() * 1000:.3f}" for _ in range(6)) for _ in range(50)),
    "base64": base64.b64encode(_DRAW.randbytes(1500)).decode(),
    "hex": _DRAW.randbytes(1000).hex(),
    "log": "".join(
        f"2026-11-28 05:{_DRAW.randint(10, 59)}:07 {_DRAW.choice(_LEVELS)} [worker-3] done\n" for _ in range(60)
    ),
}
# The fewest and the most tokens of the texts above by SmolLM2, Qwen, cl100k, o200k, Claude 2 and DeepSeek V3.
_COUNTED = {
    "English": (341, 381),
    "code": (500, 599),
    "JSON": (1431, 1670),
    "German": (481, 721),
    "Chinese": (420, 1560),
    "Japanese": (720, 1590),
    "Russian": (461, 1062),
    "digits": (667, 2000),
    "table": (1199, 2358),
    "base64": (1347, 1593),
    "hex": (1144, 1772),
    "log": (1140, 1706),
}


@pytest.mark.parametrize("kind", _TEXTS)
def test_an_estimate_is_near_what_tokenizers_give(kind: str) -> None:
    """A fourth of the bytes gave 1,848 where 3,557 were counted."""
    factor = 1.5 if kind in {"English", "code", "JSON", "table", "log"} else 2.25
    fewest, most = _COUNTED[kind]
    assert most / factor <= estimated_tokens(_TEXTS[kind]) <= fewest * factor


def test_the_rest_of_a_very_long_text_counts_as_its_beginning() -> None:
    text = _TEXTS["English"]
    assert estimated_tokens(text * 1000) == pytest.approx(1000 * estimated_tokens(text), rel=0.01)
    assert estimated_tokens("") == 0


def test_line_breaks_are_counted() -> None:
    """Of a table of numbers, 44 tokens were estimated and 76 counted."""
    assert estimated_tokens("\n" * 8) == 2
    assert estimated_tokens("a,1\n" * 50) == pytest.approx(50 * (3 + 0.65), rel=0.02)


@pytest.mark.parametrize("shape", ["only a letter", "only blanks", "only quotes"])
def test_an_estimate_grows_no_faster_than_its_text(shape: str) -> None:
    assert_grows_no_faster(estimated_tokens, SHAPES[shape])
