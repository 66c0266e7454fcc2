"""Prints how many lines of rdchat's Python run for each token of a reply, by mode and module.

    python -m scripts.count_lines off lookup auto

The model is the first two layers of the default one, at temperature 0. A line in a loop counts as often as it runs;
the prompt, the first tokens and the reply's end do not count. What `auto` drafts depends on the machine, and so does
its figure.
"""

import sys
from collections import Counter
from pathlib import Path
from types import CodeType

import rdchat.inference.blas

# isort: split
from rdchat import paths
from rdchat.inference.api import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams, TokenEvent
from rdchat.inference.drafters import Drafters
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession

QUESTION = "Write a Python function that reverses a list. Explain it, and show how it is used."
PACKAGE = Path(rdchat.__file__).parent
SKIPPED = 8
LAYERS = 2


def count_lines(mode: Mode, tokens: int = 200) -> Counter[str]:
    """Return the lines that each module runs for a token."""
    lines = Counter[str]()

    def note(code: CodeType, _line: int) -> None:
        lines[code.co_filename] += 1

    draft = DraftSettings(mode)
    sampling = SamplingParams(temperature=0, max_tokens=tokens)
    request = GenerationRequest((ChatMessage(Role.USER, QUESTION),), sampling, draft=draft)
    loaded = load_model(paths.default_model_dir())
    loaded.network.model.layers = loaded.network.model.layers[:LAYERS]
    session = ChatSession(loaded, Drafters(loaded, False))
    session.drafters.load_drafters(draft, strict=True)
    session.prepare(draft, lambda _: None)
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
