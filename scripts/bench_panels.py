"""Measures the cost of the speed panel and the side windows to the main thread while a drafted reply streams in.

The whole app writes a reply of about 2,000 tokens, drafted in rounds with their trees, at 150 tokens a second: once
with the panel closed, and once with the panel, the time ledger and the reply's tokens open.
"""

import argparse
import itertools
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

from bench_transcript import Meter, Smoothness, synthetic_reply, wait
from PySide6.QtCore import QEventLoop
from stand_in_app import own_folder, running_app
from stand_in_engine import StandInReply

from rdchat.inference.api.events import FinishReason, GenerationEvent, ReplyEnd, RoundTree, TokenEvent
from rdchat.inference.api.reply_statistics import LedgerEntry, RoundStatistics, Statistics
from rdchat.services.engine.engine_events import EngineState
from rdchat.ui.look.opening import show_in_front

TOKENS_PER_SECOND = 150
PER_ROUND, NODES = 3, 16
_STAGES = (
    "draft",
    "draft/beam search",
    "draft/select nodes",
    "verify",
    "choose",
    "accept",
    "accept/detokenize",
    "commit",
)


class DraftedReply(StandInReply):
    """A reply in rounds of three tokens, at a steady pace."""

    def __init__(self, request_id: int) -> None:
        super().__init__(request_id)
        self._made = 0
        self._began = time.perf_counter()

    def _make(self, request_id: int) -> Iterator[GenerationEvent]:
        texts = synthetic_reply()
        for number, batch in enumerate(itertools.batched(texts, PER_ROUND), start=1):
            self._device.wait(max(0.0, self._began + self._made / TOKENS_PER_SECOND - time.perf_counter()))
            for place, text in enumerate(batch, start=1):
                last = place == len(batch)
                yield TokenEvent(
                    request_id,
                    self._made,
                    self._made,
                    text,
                    drafter="" if last else "drafter",
                    position=0 if last else place,
                    round=RoundStatistics(number, 4, len(batch) - 1, len(batch), NODES) if last else None,
                    tree=_tree(batch) if last else None,
                    log_prob=-0.5,
                )
                self._made += 1
        yield ReplyEnd(request_id, "".join(texts), tuple(range(len(texts))), "", FinishReason.EOS, self.statistics)

    @property
    def statistics(self) -> Statistics:
        rounds, ms = max(self._made // PER_ROUND, 1), (time.perf_counter() - self._began) * 1000
        stages = [LedgerEntry("round", "", rounds, ms)]
        for number, path in enumerate(_STAGES, start=2):
            parent, _, name = f"round/{path}".rpartition("/")
            stages.append(LedgerEntry(name, parent, rounds, ms / number))
        return Statistics(
            prompt_tokens=20,
            generated_tokens=self._made,
            prefill_ms=50.0,
            ttft_ms=52.0,
            decode_ms=ms,
            rounds=rounds,
            drafted=4 * rounds,
            accepted=2 * rounds,
            target_calls=rounds,
            verified_nodes=NODES * rounds,
            host_syncs=rounds,
            drafted_lengths=(0, 0, 0, 0, rounds),
            accepted_lengths=(rounds // 4, rounds // 4, rounds - 2 * (rounds // 4)),
            peak_memory_bytes=10**9,
            context_tokens=20 + self._made,
            ledger=tuple(stages),
            plain_step_ms=12.0,
        )


def _tree(batch: tuple[str, ...]) -> RoundTree:
    path = tuple(range(len(batch)))
    parents = (-1, *(max(node - 2, 0) if node > len(batch) else node - 1 for node in range(1, NODES)))
    texts = tuple(batch[node % len(batch)] for node in range(NODES))
    drafters = ("", *["drafter"] * (NODES - 1))
    return RoundTree(
        tuple(range(NODES)), parents, drafters, (0.0, *[-1.0] * (NODES - 1)), path, 1, texts, batch[-1], -0.2
    )


def measure(qt: Meter, panels: bool) -> Smoothness:
    """Write one reply in the app, in a fresh folder."""
    with own_folder(), running_app(qt, DraftedReply) as app:
        wait(2.0)
        controller, window = app.controller, app.window
        assert controller.replies.state is EngineState.IDLE
        window.resize(1280, 800)
        if window.panel.isVisible() != panels:
            window.actions_.panel.trigger()
        controller.send("How does a hash table work?")
        if panels:
            window.windows.show_tokens(controller.chat.path[-1].id)
            show_in_front(window.windows.ledger)
        wait(1.0)  # the windows are built, the first code is highlighted
        loop = QEventLoop()
        controller.replies.state_changed.connect(
            lambda: loop.quit() if controller.replies.state is EngineState.IDLE else None
        )
        return qt.measure(loop)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2, help="of each kind, alternating; the best counts")
    options = parser.parse_args()
    qt = Meter(sys.argv[:1])
    runs: dict[str, list[Smoothness]] = {"closed": [], "open": []}
    for _ in range(options.runs):
        for kind, made in runs.items():
            made.append(measure(qt, panels=kind == "open"))
    best = {kind: asdict(min(made, key=lambda run: run.delay_p999_ms)) for kind, made in runs.items()}
    print(json.dumps(best, indent=2))


if __name__ == "__main__":
    main()
