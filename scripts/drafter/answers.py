"""Has the target finish questions and answer them."""

import argparse
import random
import time
from collections import Counter, deque
from typing import Any

import numpy as np
import torch

from scripts.drafter.common import DEVICE, note
from scripts.drafter.slots import Slots
from scripts.drafter.target import Target

LOOP_RUN = 8
LOOP_LENGTH = 8


class Template:
    """The chat template's token ids; see `data_maker.Template`."""

    def __init__(self, tokenizer: Any) -> None:

        def encode(text: Any) -> Any:
            return tokenizer.encode(text, add_special_tokens=False).ids

        system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        self.before = encode(f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n")
        self.after = encode("<|im_end|>\n<|im_start|>assistant\n")
        self.again = encode("\n<|im_start|>user\n")
        self.ends = {0, 2}


def loop_end(answer: list[int]) -> int:
    """Return how many tokens of an answer stay: it ends where `LOOP_LENGTH` runs of `LOOP_RUN` tokens were seen."""
    runs = max(len(answer) - LOOP_RUN + 1, 0)
    if runs - len(set(zip(*(answer[first:] for first in range(LOOP_RUN)), strict=False))) < LOOP_LENGTH:
        return len(answer)
    seen = set()
    repeats = 0
    for end in range(LOOP_RUN, len(answer) + 1):
        run = tuple(answer[end - LOOP_RUN : end])
        repeats = repeats + 1 if run in seen else 0
        seen.add(run)
        if repeats >= LOOP_LENGTH:
            return end
    return len(answer)


class Conversations:
    """Makes conversations from prompts: questions that the target finishes, answers, and some second turns."""

    def __init__(self, options: argparse.Namespace, template: Template, prompts: dict[bool, list[Any]]) -> None:
        self.options = options
        self.template = template
        self.draw = random.Random(options.seed)
        self.next = deque[tuple[Any, ...]]()
        self.sources = {held: iter(rows) for held, rows in prompts.items()}
        self.asked = set[int]()
        self.made = list[tuple[np.ndarray, int, bool, float]]()
        self.tokens = 0
        self.kinds = Counter[str]()
        self.dropped = Counter[str]()

    def job(self) -> tuple[Any, ...] | None:
        """Return the next (tokens, limit, temperature, what) to decode; None when the prompts are used up."""
        while True:
            if self.next:
                return self.next.popleft()
            for held in (True, False):
                if row := next(self.sources[held], None):
                    break
            else:
                return None
            ids, more, kind = row
            room = self.options.length - self.options.answer - len(self.template.before) - len(self.template.after) - 1
            start = [*self.template.before, *ids[: max(room - more, 1)]]
            if more:
                warmth = 1.0 if kind == "magpie" else 0.8
                return start, len(start) + more, warmth, ("question", held, kind, len(start), 0)
            self.ask(start, held, kind, 0)

    def ask(self, question: list[int], held: bool, kind: str, turn: int) -> None:
        """Queue the answer to a complete question."""
        warm = not held and self.draw.random() < 0.5
        key = hash(tuple(question))
        if not warm and key in self.asked:
            if held:
                return
            warm = True
        self.asked.add(key)
        start = [*question, *self.template.after]
        if len(start) + self.options.answer > self.options.length:
            self.dropped["too long"] += 1
            return
        what = ("answer", held, kind, len(start), turn)
        self.next.append((start, len(start) + self.options.answer, 0.7 if warm else 0.0, what))

    def take(self, row: list[int], warmth: float, what: tuple[Any, ...]) -> None:
        """Take a finished sequence: the tokens of its slot."""
        phase, held, kind, start, turn = what
        ended = row[-1] in self.template.ends
        if phase == "question":
            question = row[:-1] if ended else row
            written = len(question) - start
            if (
                (kind == "magpie" and (not ended or written < 4))
                or written < 1
                or self.template.after[0] in row[start:-1]
            ):
                self.dropped[kind] += 1
                return
            self.ask(question, held, kind, turn)
            return
        stays = loop_end(row[start:])
        row = row[: start + stays]
        if stays < 2:
            self.dropped["short"] += 1
            return
        self.made.append((np.array(row, np.uint16), start, held, warmth))
        self.tokens += stays
        self.kinds[kind] += 1
        if ended and not held and turn < 2 and self.draw.random() < 0.25:
            begin = [*row, *self.template.again]
            if len(begin) + 60 + self.options.answer + 8 < self.options.length:
                self.next.append((begin, len(begin) + 60, 1.0, ("question", held, "next turn", len(begin), turn + 1)))


@torch.no_grad()
def make_answers(
    options: argparse.Namespace, target: Target, template: Template, prompts: dict[bool, list[Any]]
) -> tuple[np.ndarray, np.ndarray]:
    path = options.work / "answers.npz"
    if path.exists():
        with np.load(path) as stored:
            return stored["tokens"], stored["facts"]
    began = shown = time.monotonic()
    maker = Conversations(options, template, prompts)
    slots = Slots(target, options.slots, options.length, template.ends)
    slots.record()
    running = dict[int, tuple[float, tuple[Any, ...]]]()
    pending = list[tuple[Any, ...]]()
    free = list(range(options.slots))
    steps = 0
    spent = dict.fromkeys(("fill", "host", "step"), 0.0)
    while time.monotonic() - began < options.answer_seconds and maker.tokens < options.tokens:
        mark = time.monotonic()
        jobs = list[tuple[Any, ...]]()
        while len(jobs) < len(free) and (job := maker.job()) is not None:
            jobs.append(job)
        if jobs:
            used = free[: len(jobs)]
            free = free[len(jobs) :]
            rows, limits, warmth, what = zip(*jobs, strict=True)
            slots.fill(used, rows, limits, warmth, options.call_tokens)
            for slot, heat, facts in zip(used, warmth, what, strict=True):
                running[slot] = heat, facts
        elif not running and not pending:
            break
        spent["fill"] += time.monotonic() - mark
        mark = time.monotonic()
        slots.run(options.stride)
        steps += options.stride
        for row, warmth, what in pending:  # While the GPU works.
            maker.take(row, warmth, what)
        spent["host"] += time.monotonic() - mark
        mark = time.monotonic()
        active = slots.active.cpu().numpy()
        positions = slots.positions.cpu().numpy()
        spent["step"] += time.monotonic() - mark
        done = [slot for slot in running if not active[slot]]
        rows = slots.tokens[torch.tensor(done, dtype=torch.int64, device=DEVICE)].cpu().numpy()
        pending = [
            (row[: positions[slot] + 1].tolist(), *running.pop(slot)) for slot, row in zip(done, rows, strict=True)
        ]
        free += done
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            rate = maker.tokens / (shown - began)
            note(f"answers {len(maker.made):,}, {maker.tokens:,} tokens, {rate:,.0f} a second, {steps} steps", spent)
    note(f"answers {len(maker.made):,}, {maker.tokens:,} tokens, {steps} steps in {time.monotonic() - began:.1f} s")
    note("kinds", maker.kinds.most_common(40), "dropped", maker.dropped.most_common(10), "seconds", spent)
    tokens = np.concatenate([row for row, *_ in maker.made])
    facts = np.array([[len(row), start, held, round(100 * heat)] for row, start, held, heat in maker.made], np.int32)
    np.savez(path, tokens=tokens, facts=facts)
    return tokens, facts
