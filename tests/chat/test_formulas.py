"""The process that draws formulas: its limits, its end, and what happens where it crashes."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from rdchat import host
from rdchat.chat.formulas import FormulaDrawer
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


@pytest.mark.slow
def test_one_that_takes_too_long_is_given_up_and_the_next_is_drawn(seen: Callable[[], list[str]]) -> None:
    drawer = FormulaDrawer(seconds=1.0)
    assert drawer.draw_formula("hang", True) is None
    assert drawer.draw_formula("fine", True) is not None
    assert seen() == ["hang", "fine"]
    drawer.child.close()


def test_one_that_takes_too_much_memory_is_given_up(seen: Callable[[], list[str]]) -> None:
    drawer = FormulaDrawer(seconds=30, memory_bytes=100 << 20)
    assert drawer.draw_formula("grow", True) is None
    assert seen() == ["grow"]
    assert drawer.child.pid is None


@pytest.mark.slow
def test_one_that_crashes_the_process_is_given_up_and_the_next_is_drawn(seen: Callable[[], list[str]]) -> None:
    drawer = FormulaDrawer(seconds=30)
    assert drawer.draw_formula("crash", True) is None
    assert drawer.draw_formula("fine", True) is not None
    assert seen() == ["crash", "fine"]
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


@pytest.mark.slow
def test_the_process_does_not_outlive_the_one_that_asks() -> None:
    code = (
        "from rdchat.chat.formulas import FormulaDrawer as D; d = D();"
        "d.draw_formula('x', True); print(d.child.pid, flush=True); import time; time.sleep(60)"
    )
    asking = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert asking.stdout is not None
    child = psutil.Process(int(asking.stdout.readline()))
    asking.kill()
    asking.wait()
    asking.stdout.close()
    child.wait(60)  # raises where it goes on
