"""Measures how long the window stalls while large or hostile replies are opened, and while they stream in.

Each is shown in the real `TranscriptView`, in a real event loop with a timer every millisecond; its delay is what a
click would have waited. Wanted: never over 100 ms. The main thread's processor time is also given, for busy machines.
"""

import argparse
import json
import sys
import time
from dataclasses import replace

from bench_transcript import DelayMeter, wait
from PySide6.QtWidgets import QApplication

from rdchat.chat.conversation import Message, MessageStatus
from rdchat.inference.api.requests import Role
from rdchat.thoughts import split_thoughts
from rdchat.ui.look.theme import Theme
from rdchat.ui.transcript import TranscriptView
from rdchat.ui.transcript.markdown.text_body import Work
from rdchat.ui.transcript.message_widget import MessageWidget

_ENDING_S, _STREAMED_S, _BATCHES_A_SECOND = 60.0, 4.0, 30
_FORMULA = (
    r"\sum_{{i=1}}^{{{n}}} \frac{{x_i^2}}{{\sqrt{{{n} + \alpha}}}} = \begin{{cases}} a & b > {n} \\ c \end{{cases}}"
)
_SCRIPTS = (
    "Latin text, مرحبا بالعالم في فقرة واحدة, नमस्ते दुनिया, 你好世界, こんにちは世界, สวัสดีชาวโลก,\n"
    "👩‍👩‍👧‍👦🏳️‍🌈 and on.\n\n"
    "هذه فقرة كاملة من اليمين إلى اليسار with English inside.\n\n"
)


def cases() -> dict[str, str]:
    """Return the replies by name."""
    rows = "".join(f"| {n} | row {n} | `code {n}` | some more words of row {n} |\n" for n in range(1000))
    return {
        "a table of a thousand rows": f"| a | b | c | d |\n|---|---|---|---|\n{rows}",
        "500 lines of formulas": "\n\n".join(f"$${_FORMULA.format(n=n)}$$" for n in range(500)),
        "500 formulas in lines": "\n".join(f"line {n} with $x_{{{n}}}^2 + {n}$ in it" for n in range(500)),
        "10,000 nested quotes": ">" * 10_000 + " text",
        "10,000 quotes, a line each": "\n".join(">" * depth + " text" for depth in range(1, 140)),
        "one megabyte of unclosed code": "```python\n" + "def function(argument): return argument + 1\n" * 23_000,
        "one megabyte in a line of code": "```\n" + "x = 1; " * 143_000,
        "one megabyte of thoughts' openers": "<think>\n" * 125_000,
        "text in six scripts": _SCRIPTS * 300,
        "10,000 dollars": "$" * 10_000 + "\n\n" + "a $b " * 10_000,
        "a table of 60 columns": "|" + " x |" * 60 + "\n|" + "---|" * 60 + "\n" + ("|" + " y |" * 60 + "\n") * 50,
    }


class Stalls(DelayMeter):
    """Also notes the main thread's processor time between two beats."""

    def __init__(self) -> None:
        self.longest_cpu, self._last_cpu = 0.0, time.thread_time()
        super().__init__()

    def _tick(self) -> None:
        super()._tick()
        cpu = time.thread_time()
        self.longest_cpu, self._last_cpu = max(self.longest_cpu, (cpu - self._last_cpu) * 1000), cpu

    def figures(self, what: str) -> dict[str, float]:
        self.stop()
        longest = round(max(self.delays, default=0.0), 1)
        return {f"{what}_stall_ms": longest, f"{what}_stall_cpu_ms": round(self.longest_cpu, 1)}


def wait_until_drawn(view: TranscriptView) -> float:
    """Return after how many seconds everything was drawn, or the limit."""
    started = time.perf_counter()
    while time.perf_counter() - started < _ENDING_S:
        wait(0.1)
        if all(widget.work is Work.NONE for widget in view.findChildren(MessageWidget)):
            break
    return round(time.perf_counter() - started, 1)


def measure(theme: Theme, text: str) -> dict[str, float]:
    """Open a reply as a whole, then another one that streams in within four seconds."""
    view = TranscriptView(theme)
    view.resize(1000, 680)
    view.show()
    prompt = Message(1, 1, None, Role.USER, "Go on.", MessageStatus.COMPLETE, 0.0)
    reply = Message(2, 1, 1, Role.ASSISTANT, text, MessageStatus.COMPLETE, 0.0)
    view.set_messages([prompt])
    wait(0.3)
    stalls = Stalls()
    view.set_messages([replace(prompt, id=11), replace(reply, id=12, parent_id=11)])
    seconds = wait_until_drawn(view)
    opened = stalls.figures("opening")
    view.set_messages([prompt, replace(reply, text="", status=MessageStatus.STREAMING)])
    wait(0.3)
    stalls, step = Stalls(), max(1, len(text) // round(_STREAMED_S * _BATCHES_A_SECOND))
    for start in range(0, len(text), step):
        view.append_text(2, text[start : start + step])
        wait(1 / _BATCHES_A_SECOND)
    view.update_message(reply)
    wait_until_drawn(view)
    streamed = stalls.figures("streaming")
    view.close()
    view.deleteLater()
    wait(0.1)
    return opened | streamed | {"drawn_after_s": seconds}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default="", help="cases whose name has these characters")
    options = parser.parse_args()
    app = QApplication(sys.argv[:1])
    theme = Theme(app)
    measure(theme, "```python\nx = 1\n```\n\n$x$")  # what is imported once
    report: dict[str, dict[str, float]] = {}
    for name, text in cases().items():
        if options.only in name:
            report[name] = measure(theme, text)
            print(f"{name}: {report[name]}", file=sys.stderr, flush=True)
    started = time.perf_counter()
    split_thoughts("<think>\n" * 125_000)
    report["splitting a megabyte of openers"] = {"ms": round((time.perf_counter() - started) * 1000, 1)}
    print(json.dumps(report, indent=2))


if __name__ == "__main__":
    main()
