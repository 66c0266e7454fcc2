"""Prints how many lines of rdchat's Python run for each token of a reply, by mode and module.

    python -m scripts.count_lines off lookup auto

The model is a tiny network with random weights (`tests.inference.fakes`), so the figures do not depend on a machine. A
line in a loop counts as often as it runs; the prompt, the first tokens and the reply's end do not count. `auto` plans
by made-up costs at random, so that it makes every kind of draft (`tests.inference.ready_drafters`).
"""

import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import CodeType

import rdchat.inference.blas

# isort: split
from rdchat.inference.api.events import TokenEvent
from rdchat.inference.api.requests import Mode
from tests.inference.fakes import ask, shared_llama
from tests.inference.ready_drafters import ready_session, settings_of

PACKAGE = Path(rdchat.__file__).parent
SKIPPED = 8


def count_lines(mode: Mode, tokens: int = 200) -> Counter[str]:
    """Return the lines that each module runs for a token."""
    lines = Counter[str]()

    def note(code: CodeType, _line: int) -> None:
        lines[code.co_filename] += 1

    request = replace(ask("hello there hello there", max_tokens=tokens, temperature=0), draft=settings_of(mode))
    session = ready_session(shared_llama())
    taken = 0
    for event in session.generate(request):
        taken += isinstance(event, TokenEvent)
        if taken == SKIPPED and not lines:
            sys.monitoring.use_tool_id(sys.monitoring.PROFILER_ID, "lines")
            sys.monitoring.register_callback(sys.monitoring.PROFILER_ID, sys.monitoring.events.LINE, note)
            sys.monitoring.set_events(sys.monitoring.PROFILER_ID, sys.monitoring.events.LINE)
        if taken == tokens - 1:
            break
    sys.monitoring.set_events(sys.monitoring.PROFILER_ID, 0)
    sys.monitoring.free_tool_id(sys.monitoring.PROFILER_ID)
    own = {Path(name): count for name, count in lines.items() if Path(name).is_relative_to(PACKAGE)}
    return Counter({str(path.relative_to(PACKAGE)): count / (taken - SKIPPED) for path, count in own.items()})


if __name__ == "__main__":
    for mode in map(Mode, sys.argv[1:] or ["off"]):
        counts = count_lines(mode)
        print(f"{mode}: {sum(counts.values()):.0f} lines a token")
        for name, count in counts.most_common():
            print(f"  {count:6.1f}  {name}")
