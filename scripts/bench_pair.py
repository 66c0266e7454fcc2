"""A draft model against mlx-lm's own: the figures of docs/benchmarks.md for a pair of models.

    python scripts/bench_pair.py TARGET DRAFT QUESTIONS --out runs.csv

QUESTIONS is a file in Spec-Bench's format. Of each of its six groups the first prompts under 800 tokens are taken.
1. Greedy, one prompt a group, every depth K: plain decoding, mlx-lm with its draft model, and ours.
2. Greedy, the K at which ours was fastest, on all prompts.
3. Temperature 1 without filters, K 4, on all prompts: tokens per target call.
Measured costs of calls decide how many runner-ups ours verifies; they are measured first, as in the app between
replies. All methods use the same networks in memory and take turns prompt by prompt. Each run is a row of the CSV file;
existing rows are not measured again, so an interrupted benchmark resumes. Let nothing else run.
"""

import argparse
import csv
import statistics
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from pathlib import Path

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from rdchat.inference.api.prompt_files import Prompt, read_prompts
from rdchat.inference.api.requests import ChatMessage, DraftSettings, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.auto.state import AutoState, AvailableDrafters
from rdchat.inference.benchmark.recording import record_events, record_mlx_lm
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafting.draft_model import DraftModel, load_draft_model
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.models.loading import load_model
from rdchat.inference.target.target import LoadedModel

GROUPS = ("mt_bench", "translation", "summarization", "qa", "math_reasoning", "rag")
LONGEST_PROMPT = 800  # tokens
SAMPLED_DEPTH = 4
PLAIN, THEIRS, OURS = "mlx-lm plain", "mlx-lm draft model", "rdchat draft model"


@dataclass(frozen=True)
class Cell:
    """What the methods do in turns: one prompt under one setting."""

    group: str
    question: int
    draft_tokens: int
    temperature: float
    seed: int


@dataclass(frozen=True)
class Run:
    """One method's run. Tokens, calls and seconds count from the first token on or, where the first call gives several
    tokens at one moment, from the last of these.
    """

    group: str
    question: int
    draft_tokens: int
    temperature: float
    seed: int
    method: str
    nodes: int
    prompt_tokens: int
    tokens: int
    target_calls: int
    seconds: float
    token_ids: str

    @property
    def cell(self) -> Cell:
        return Cell(self.group, self.question, self.draft_tokens, self.temperature, self.seed)

    @property
    def tps(self) -> float:
        return self.tokens / self.seconds if self.seconds else 0.0


class Bench:
    """Runs cells on one pair and keeps their rows."""

    def __init__(self, target: LoadedModel, draft: DraftModel, args: argparse.Namespace) -> None:
        self._target, self._draft = target, draft
        self._tokens, self._nodes = args.tokens, args.nodes
        self._state = AutoState(target)
        self._state.use_drafters(AvailableDrafters(draft_model=draft))
        while self._state.measure():
            pass  # what calls cost, which decides how many runner-ups are verified
        self._out: Path = args.out
        self.runs = list(_read_runs(self._out))

    def do(self, cell: Cell, prompt: str, methods: tuple[str, ...] = (PLAIN, THEIRS, OURS)) -> None:
        """Run what is missing of a cell: its methods in turns, the first one changing from cell to cell."""
        done = {run.method for run in self.runs if run.cell == cell}
        turn = (cell.question + cell.draft_tokens) % len(methods)
        for method in (*methods[turn:], *methods[:turn]):
            if method not in done:
                run = self.run(cell, prompt, method)
                self._keep(run)
                print(
                    f"{cell.group} {cell.question} K{cell.draft_tokens} T{cell.temperature:g} {method}: {run.tps:.2f}/s"
                )

    def run(self, cell: Cell, prompt: str, method: str) -> Run:
        """Run one method, and keep nothing."""
        sampling = SamplingParams(temperature=cell.temperature, top_p=1.0, max_tokens=self._tokens)
        draft = DraftSettings(Mode.SPECULATIVE, draft_tokens=cell.draft_tokens)
        request = GenerationRequest((ChatMessage(Role.USER, prompt),), sampling, cell.seed, draft=draft)
        nodes = 1 if method == PLAIN else 1 + cell.draft_tokens
        if method == OURS:
            job = ReplyJob.fresh(self._target, self._target.encode_chat(request.messages, False), request)
            job = replace(job, rows_for=partial(self._state.planner.rows_for, Mode.SPECULATIVE))
            if self._nodes is None:
                shape = self._state.draft_shape(self._draft, sampling, cell.draft_tokens, len(job.prompt))
            else:
                shape = DraftShape.of_size(cell.draft_tokens, self._nodes)
            nodes = shape.nodes
            self._draft.cache.reset()
            rounds = RoundIterator(job, self._draft.drafter(job.prompt, request, shape_of=lambda _: shape))
            found = record_events(rounds, time.perf_counter_ns(), never)
        else:
            found = record_mlx_lm(self._target, request, never, self._draft.model.network if method == THEIRS else None)
        assert found is not None
        return Run(
            **asdict(cell),
            method=method,
            nodes=nodes,
            prompt_tokens=found.statistics.prompt_tokens,
            tokens=found.statistics.generated_tokens - 1,
            target_calls=found.statistics.target_calls,
            seconds=round(found.statistics.decode_ms / 1000, 4),
            token_ids=" ".join(map(str, found.token_ids)),
        )

    def _keep(self, run: Run) -> None:
        self.runs.append(run)
        new = not self._out.exists()
        with self._out.open("a", newline="") as file:
            writer = csv.DictWriter(file, [field.name for field in fields(Run)])
            if new:
                writer.writeheader()
            writer.writerow(asdict(run))


def _read_runs(path: Path) -> Iterable[Run]:
    if path.exists():
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                yield Run(**{field.name: field.type(row[field.name]) for field in fields(Run)})  # type: ignore[operator]


def short_prompts(path: Path, target: LoadedModel, count: int) -> list[tuple[int, Prompt]]:
    """Return the first `count` prompts of each group that are short enough, with their places in the file."""
    short = [
        (number, prompt)
        for number, prompt in enumerate(read_prompts(path))
        if len(target.encode_chat((ChatMessage(Role.USER, prompt.text),), False)) < LONGEST_PROMPT
    ]
    return [found for group in GROUPS for found in [each for each in short if each[1].group == group][:count]]


def never() -> bool:
    return False


def best_depth(runs: list[Run], depths: list[int]) -> int:
    """Return the depth at which ours gained most over plain decoding, as the median of ratios in one cell."""
    return max(depths, key=lambda depth: _median(_ratios([r for r in runs if r.draft_tokens == depth], OURS, PLAIN)))


def _ratios(runs: list[Run], method: str, base: str) -> list[float]:
    """Return how many times as fast a method was as another, for every cell in which both ran."""
    by_cell: dict[Cell, dict[str, Run]] = {}
    for run in runs:
        by_cell.setdefault(run.cell, {})[run.method] = run
    pairs = [(found[method], found[base]) for found in by_cell.values() if method in found and base in found]
    return [one.tps / other.tps for one, other in pairs if other.tps]


def _median(values: list[float]) -> float:
    return statistics.median(values) if values else 0.0


def _tokens_per_call(runs: list[Run], method: str) -> float:
    chosen = [run for run in runs if run.method == method]
    return sum(run.tokens for run in chosen) / max(sum(run.target_calls for run in chosen), 1)


def report_greedy(runs: list[Run], depths: list[int]) -> None:
    """Print medians of the ratios of tokens/s within a cell, and how many texts are plain decoding's."""
    print("\nGreedy; tokens/s as ratios, medians over prompts\n")
    print(
        "| K | group | prompts | rdchat / plain | mlx-lm / plain | rdchat / mlx-lm | lowest | tokens per call, both |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for depth in depths:
        for group in ("all", *GROUPS):
            chosen = [run for run in runs if run.draft_tokens == depth and group in ("all", run.group)]
            against = _ratios(chosen, OURS, THEIRS)
            if against:
                medians = (_median(_ratios(chosen, OURS, PLAIN)), _median(_ratios(chosen, THEIRS, PLAIN)))
                figures = " | ".join(f"{value:.2f}" for value in (*medians, _median(against), min(against)))
                calls = f"{_tokens_per_call(chosen, OURS):.2f}, {_tokens_per_call(chosen, THEIRS):.2f}"
                print(f"| {depth} | {group} | {len(against)} | {figures} | {calls} |")
    texts = {(run.cell, run.method): run.token_ids for run in runs}
    both = [cell for cell, method in texts if method == PLAIN and (cell, OURS) in texts]
    same = sum(texts[cell, OURS] == texts[cell, PLAIN] for cell in both)
    print(f"\n{same} of {len(both)} texts equal mlx-lm's plain decoding, token by token.")


def report_sampled(runs: list[Run]) -> None:
    """Print tokens per target call of each group."""
    print(f"\nTemperature 1, K {SAMPLED_DEPTH}, no filters: tokens per target call\n")
    print("| group | runs | rdchat | mlx-lm | ratio |\n|---|---|---|---|---|")
    ratios = []
    for group in GROUPS:
        chosen = [run for run in runs if run.group == group]
        if chosen:
            ours, theirs = _tokens_per_call(chosen, OURS), _tokens_per_call(chosen, THEIRS)
            ratios.append(ours / theirs)
            print(f"| {group} | {len(chosen) // 2} | {ours:.2f} | {theirs:.2f} | {ours / theirs:.2f} |")
    if ratios:
        print(f"\nMean of the groups' ratios: {statistics.mean(ratios):.2f}")


def report(runs: list[Run], depths: list[int]) -> None:
    """Print the summary."""
    report_greedy([run for run in runs if run.temperature == 0], depths)
    report_sampled([run for run in runs if run.temperature > 0])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("target", metavar="TARGET")
    parser.add_argument("draft", metavar="DRAFT")
    parser.add_argument("questions", metavar="QUESTIONS", type=Path)
    parser.add_argument("--out", type=Path, required=True, metavar="CSV")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--tokens", type=int, default=48)
    parser.add_argument("--prompts", type=int, default=3, help="prompts of each group")
    parser.add_argument("--depths", type=int, nargs="+", default=[2, 4, 6])
    parser.add_argument(
        "--nodes", type=int, help="nodes of a draft with its runner-ups (0: a chain; default: as rdchat)"
    )
    parser.add_argument("--seeds", type=int, default=1, help="sampled runs of each prompt")
    parser.add_argument("--report", action="store_true", help="only print the summary of the rows that are there")
    args = parser.parse_args()
    if args.report:
        report(list(_read_runs(args.out)), args.depths)
        return
    target = load_model(args.target, args.dtype)
    bench = Bench(target, load_draft_model(args.draft, target, args.dtype), args)
    prompts = short_prompts(args.questions, target, args.prompts)
    for method in (PLAIN, THEIRS, OURS):  # kernels are compiled now
        bench.run(Cell("", 0, 2, 0.0, 0), "Say hello.", method)
    firsts: dict[str, tuple[int, Prompt]] = {}
    for number, prompt in prompts:
        firsts.setdefault(prompt.group, (number, prompt))
    for number, prompt in firsts.values():
        for depth in args.depths:
            bench.do(Cell(prompt.group, number, depth, 0.0, 0), prompt.text)
    best = best_depth([run for run in bench.runs if run.temperature == 0], args.depths)
    print(f"K {best} is the fastest.")
    for number, prompt in prompts:
        bench.do(Cell(prompt.group, number, best, 0.0, 0), prompt.text)
    for seed in range(args.seeds):
        for number, prompt in prompts:
            bench.do(Cell(prompt.group, number, SAMPLED_DEPTH, 1.0, seed), prompt.text, (THEIRS, OURS))
    report(bench.runs, args.depths)


if __name__ == "__main__":
    main()
