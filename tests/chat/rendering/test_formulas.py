"""The process that draws formulas: its limits, its end, and what happens where it crashes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rdchat import host
from rdchat.chat.rendering.formulas import FormulaDrawer
from rdchat.work.served import packed, read_message

# answers a formula's own length as its width, and misbehaves where the formula says so
_CHILD = """
import os, sys, time
from pathlib import Path
from rdchat.work.served import serve

def draw(job, tex, display):
    seen = Path(sys.argv[1])
    seen.write_text(seen.read_text() + tex + "\\n")
    if tex == "hang":
        time.sleep(60)
    if tex == "grow":
        taken = bytearray(300 << 20)
        taken[::4096] = bytes(len(taken[::4096])).replace(b"\\0", b"x")
        time.sleep(60)
    if tex == "crash":
        os.abort()
    return {"svg": "", "width": len(tex), "ascent": 1, "depth": 0}

serve({"draw": draw})
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """Have another child in the place of the real one; return the formulas that were sent to it."""
    record = tmp_path / "seen"
    record.touch()
    monkeypatch.setattr(host, "child_command", lambda _name: [sys.executable, "-c", _CHILD, str(record)])
    return lambda: record.read_text().split("\n")[:-1]


def request(number: int, tex: str) -> bytes:
    return packed({"id": number, "do": "draw", "arguments": {"tex": tex, "display": True}, "seconds": 30})


@pytest.mark.parametrize(
    ("tex", "drawer"),
    [
        pytest.param("hang", FormulaDrawer(seconds=1.0), marks=pytest.mark.slow),
        ("grow", FormulaDrawer(seconds=30, memory_bytes=100 << 20)),
        pytest.param("crash", FormulaDrawer(seconds=30), marks=pytest.mark.slow),
    ],
)
def test_one_that_goes_beyond_a_limit_or_crashes_is_given_up_and_the_next_is_drawn(
    tex: str, drawer: FormulaDrawer, seen: Callable[[], list[str]]
) -> None:
    assert drawer.draw_formula(tex, True) is None
    assert drawer.child.pid is None
    assert drawer.draw_formula("fine", True) is not None
    assert seen() == [tex, "fine"]
    drawer.child.close()


@pytest.mark.slow
def test_the_apps_own_process_draws_and_ends_with_its_input_in_the_midst_of_a_formula() -> None:
    process = subprocess.Popen(host.child_command("formulas"), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    assert read_message(process.stdout) == {"ready": True}
    for number, tex in enumerate(("x^2", r"\nosuchthing")):
        process.stdin.write(request(number, tex))
    process.stdin.flush()
    first = read_message(process.stdout)
    second = read_message(process.stdout)
    assert (first or {})["result"]["width"] > 10
    assert second == {"id": 1, "result": None}
    slow = r"\begin{pmatrix}" + r"\frac{a}{b} & " * 140 + r"\end{pmatrix}"
    for number in range(2, 302):  # minutes of work
        process.stdin.write(request(number, slow))
    process.stdin.close()
    assert process.wait(60) == 0
    process.stdout.close()
