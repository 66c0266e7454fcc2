"""`rdchat bench`: measures each drafting mode here against plain decoding and stock mlx-lm."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rdchat import machine, paths
from rdchat.chat.settings import stored_settings
from rdchat.commands.ask_files import read_images
from rdchat.commands.terminal import (
    INTERRUPTED,
    ProgressLine,
    add_hosts,
    add_model,
    check_writable,
    ctrl_c_calls,
    engine_address,
    from_options,
    print_result,
    print_warning,
    table,
    write_errors,
)
from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api import (
    EVERYDAY_PROMPTS,
    FIGURES,
    BenchPlan,
    BenchProgress,
    BenchResult,
    BenchRun,
    BenchRunner,
    CellReport,
    DraftSettings,
    Dtype,
    Engine,
    Figure,
    LoadProgress,
    Mode,
    ModelInfo,
    Prompt,
    Sweep,
    first_of_each_group,
    read_prompts,
    read_replies,
    remote_model,
    require,
)
from rdchat.inference.benchmark.result_files import RunsFile, environment, read_runs, write_csv

# A cell without a value in a table.
_NONE = "-"
# Options that have no effect when a file is shown.
_MEASURING = ("prompts", "modes", "reply_store", "results", "csv")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `bench`."""
    parser.description = (
        "Runs all modes in turns on every prompt, with plain decoding and stock mlx-lm, and reports "
        "ratios of neighbouring runs as medians with quartiles. Lists are separated by commas."
    )
    parser.add_argument(
        "--prompts", metavar="FILE", help="one prompt per line, or JSON lines (default: everyday questions)"
    )
    parser.add_argument(
        "--image",
        "--images",
        action="append",
        default=[],
        metavar="FILE",
        help="show this image with each prompt to a model that sees, without stock mlx-lm; may be repeated",
    )
    parser.add_argument(
        "--per-group", "--limit", type=int, default=0, metavar="N", help="the first N prompts of each group only"
    )
    parser.add_argument("--modes", type=_list_of(Mode), metavar="LIST", help="default: all that the model supports")
    parser.add_argument("--max-tokens", type=int, default=64, metavar="N", help="longest reply (default: 64)")
    parser.add_argument(
        "--trials", type=int, default=3, metavar="T", help="runs of each mode on each prompt (default: 3)"
    )
    add_model(parser, dtype=False)
    add_hosts(parser)
    parser.add_argument("--seed", type=int, default=0, help="seed of the replies (default: 0)")
    parser.add_argument("--no-mlx-lm", action="store_true", help="leave stock mlx-lm out")
    parser.add_argument(
        "--reply-store",
        metavar="FILE",
        help='draft from these earlier replies too: JSON lines such as {"reply": "..."}, newest first',
    )
    parser.add_argument(
        "--results", metavar="FILE", help="store every run in this file, and resume from there next time"
    )
    parser.add_argument("--csv", metavar="FILE", help="also write every run to a file")
    parser.add_argument(
        "--picture",
        action="append",
        default=[],
        metavar="FILE",
        help="also draw the speed-ups as .png or .pdf; may be repeated",
    )
    parser.add_argument(
        "--from",
        dest="source",
        metavar="FILE",
        help="show an earlier benchmark, stored with --results, without measuring",
    )
    _add_sweep_options(parser)


def _add_sweep_options(parser: argparse.ArgumentParser) -> None:
    usual = Sweep(())
    group = parser.add_argument_group("settings to compare", "every combination of these lists is measured")
    # Option, field of `Sweep`, type and help.
    lists: tuple[tuple[str, str, Callable[[str], Any], str], ...] = (
        ("--dtype", "dtypes", Dtype, "precisions"),
        ("--temperature", "temperatures", float, "0 is greedy"),
        ("--beam-width", "beam_widths", int, "for drafter"),
        ("--beam-length", "beam_lengths", int, "for drafter"),
        ("--draft-tokens", "draft_tokens", int, "for draft-model and prompt-lookup"),
        (
            "--lookup-branch",
            "lookup_branches",
            _switch,
            "for drafter: on or off; on adds a draft from prompt lookup (default: on)",
        ),
        (
            "--drafter",
            "drafters",
            str,
            "for drafter, auto: drafters' names in `rdchat models list`, or folders (default: the model's own)",
        ),
    )
    for option, name, kind, explanation in lists:
        default = getattr(usual, name)
        group.add_argument(option, dest=name, type=_list_of(kind), default=default, metavar="LIST", help=explanation)
    group.add_argument(
        "--draft-model", metavar="MODEL", help="for draft-model: a smaller model with the same tokenizer"
    )


def run(args: argparse.Namespace) -> int:
    """Measure, or show a file; the exit status is 0, or 130 after Ctrl-C.

    Raises:
        Exception: The error that ended the benchmark, after its results so far are shown.
    """
    _check_pictures(args.picture)
    if args.source:
        if given := [name for name in _MEASURING if getattr(args, name) is not None]:
            raise InvalidSettingError(f"--from only shows a file: leave out --{given[0].replace('_', '-')}.")
        _show(args, read_runs(Path(args.source)))
        return 0
    if remote_model(args.model):
        raise InvalidSettingError("A remote model cannot be measured from here.", "Measure it on its own computer.")
    images = read_images(args)
    prompts = [replace(prompt, images=images) for prompt in _prompts(args)]
    replies = read_replies(Path(args.reply_store)) if args.reply_store is not None else []
    # This plan checks the options; `_measure` makes the one that runs, with the modes of the loaded model.
    measurement = _Measurement(_plan(args, prompts, args.modes or tuple(Mode)))
    if Mode.SPECULATIVE in (args.modes or ()) and args.draft_model is None:
        raise InvalidSettingError("Mode draft-model needs a draft model.", "Choose one with --draft-model.")
    _check_files(args)
    try:
        _measure(args, prompts, replies, measurement)
    except KeyboardInterrupt:  # Before or after the measuring itself.
        measurement.cancelled = True
    except Exception:
        if measurement.runs:
            with suppress(RdchatError):  # The first of several errors is shown.
                _report(args, measurement.result)
        raise
    _report(args, measurement.result)
    return INTERRUPTED if measurement.cancelled else 0


def _report(args: argparse.Namespace, result: BenchResult) -> None:
    """Write the CSV file, if one was named and anything was run, and show the figures even if that fails."""
    try:
        if args.csv and result.runs:
            path = Path(args.csv)
            with write_errors(path), path.open("w", encoding="utf-8", newline="") as file:
                write_csv(file, result)
    finally:
        _show(args, result)


def _show(args: argparse.Namespace, result: BenchResult) -> None:
    print_result(args, result.as_json(), bench_table(result))
    if result.runs and args.picture:
        from rdchat.ui.plots.drawing import save_picture  # noqa: PLC0415  only for pictures
        from rdchat.ui.plots.measured_plots import speed_bars  # noqa: PLC0415

        for name in args.picture:
            save_picture([speed_bars(result)], Path(name))


def _check_pictures(names: Sequence[str]) -> None:
    """Check before measuring that the pictures can be written."""
    if names:
        from rdchat.ui.plots.drawing import check_picture_name  # noqa: PLC0415  only for pictures
    for name in names:
        check_picture_name(Path(name))
        check_writable(Path(name))


@dataclass(slots=True)
class _Measurement:
    """A running benchmark.

    Attributes:
        plan: What is run.
        environment: Facts about the machine and the model.
        runs: The runs so far, with those of the results file.
        complete: Whether all of the plan was run.
        cancelled: Whether Ctrl-C ended it.
    """

    plan: BenchPlan
    environment: dict[str, Any] = field(default_factory=lambda: environment(None))
    runs: list[BenchRun] = field(default_factory=list)
    complete: bool = False
    cancelled: bool = False

    @property
    def result(self) -> BenchResult:
        """The runs so far."""
        return BenchResult(self.plan, tuple(self.runs), self.environment, self.complete)

    def stop_measuring(self, runner: BenchRunner) -> None:
        self.cancelled = True
        runner.cancel()


def _measure(
    args: argparse.Namespace, prompts: Sequence[Prompt], replies: Sequence[str], measurement: _Measurement
) -> None:
    """Load the model and measure."""
    from rdchat.inference.drafting.reply_index import reply_tokens  # noqa: PLC0415  loads OpenBLAS
    from rdchat.inference.engines import EnginesByAddress  # noqa: PLC0415  MLX: only once the arguments are right

    # Output of libraries, such as mlx-lm's about large models, does not belong to the report.
    with (
        redirect_stdout(sys.stderr),
        ProgressLine(verbose=True) as progress,
    ):
        engines = EnginesByAddress(hosts=lambda: stored_settings().hosts)
        info = engines.load(engine_address(args), args.dtypes[0], progress.show_stage, args.load_anyway)
        print_warning(info)
        measurement.environment = environment(info)
        plan = _plan(args, prompts, args.modes or _available_modes(engines.chosen, args))
        plan = replace(plan, earlier_replies=reply_tokens(info, replies))
        with closing(_runs_file(args, plan, info)) if args.results else nullcontext() as stored:
            measurement.runs += stored.runs if stored else ()
            measurement.plan = replace(plan, finished=frozenset(run.turn for run in measurement.runs))
            _follow(engines.chosen, measurement, progress, stored)
    measurement.complete = not measurement.cancelled


def _runs_file(args: argparse.Namespace, plan: BenchPlan, info: ModelInfo) -> RunsFile:
    """Open the file of `--results`."""
    from rdchat.inference.library.model_library import drafter_folders  # noqa: PLC0415  slow to import

    drafters = dict.fromkeys(cell.draft.drafter for cell in plan.cells)
    return RunsFile(Path(args.results), plan, info, drafter_folders(drafters, info.path))


def _follow(engine: Engine, measurement: _Measurement, progress: ProgressLine, stored: RunsFile | None) -> None:
    """Run the benchmark; store each turn when it is complete."""
    with (
        closing(engine.benchmark(measurement.plan)) as runner,
        machine.keep_awake(),
        ctrl_c_calls(lambda: measurement.stop_measuring(runner)),
    ):
        for event in runner:
            if isinstance(event, BenchProgress):
                share = event.done / event.total if event.total else None
                progress.show_stage(LoadProgress(f"{event.text}{event.left_text}", share))
                # The runs of a turn come together, and progress only before or after them.
                if stored:
                    stored.end_turn()
            elif isinstance(event, BenchRun):
                measurement.runs.append(event)
                if stored:
                    stored.add_run(event)
        if stored and not measurement.cancelled:
            stored.end_turn()


def _plan(args: argparse.Namespace, prompts: Sequence[Prompt], modes: Sequence[Mode]) -> BenchPlan:
    cells = from_options(Sweep, args, modes=tuple(modes)).cells()
    # Stock mlx-lm sees no images, and rounds are measured again with text alone.
    text = not args.image
    mlx_lm = text and not args.no_mlx_lm
    return from_options(BenchPlan, args, cells=cells, prompts=tuple(prompts), mlx_lm=mlx_lm, overhead=text)


def _prompts(args: argparse.Namespace) -> Sequence[Prompt]:
    require(args.per_group >= 0, "per-group", args.per_group, "at least 0")
    prompts = read_prompts(paths.expanded(args.prompts, "--prompts")) if args.prompts is not None else EVERYDAY_PROMPTS
    return first_of_each_group(prompts, args.per_group) if args.per_group else prompts


def _check_files(args: argparse.Namespace) -> None:
    from rdchat.inference.library.model_library import check_named  # noqa: PLC0415  slow to import

    check_named(filter(None, (args.model, args.draft_model)), filter(None, args.drafters))
    for name in (args.csv, args.results):
        if name is not None:
            check_writable(Path(name))


def _available_modes(engine: Engine, args: argparse.Namespace) -> tuple[Mode, ...]:
    """Return the modes that the loaded model supports, and those whose model or drafter the person named."""
    draft = DraftSettings(draft_model=args.draft_model, drafter=args.drafters[0])
    modes = [each.mode for each in engine.draft_options(draft).modes if each.available or draft.named(each.mode)]
    return tuple(sorted(modes, key=lambda mode: mode is not Mode.OFF))  # Plain decoding first.


def _switch(text: str) -> bool:
    if text not in {"on", "off"}:
        raise ValueError(f"{text!r} is neither on nor off")
    return text == "on"


def _list_of[T](kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a parser for a list with commas."""

    def parse(text: str) -> tuple[T, ...]:
        items = [item.strip() for item in text.split(",")]
        if not all(items):
            raise argparse.ArgumentTypeError("the list, or one of its items, is empty")
        try:
            return tuple(kind(item) for item in items)
        except ValueError as error:
            names = [getattr(each, "option", each) for each in kind] if isinstance(kind, type(Mode)) else []
            choices = f": choose from {', '.join(names)}" if names else ""
            raise argparse.ArgumentTypeError(f"{error}{choices}") from error

    return parse


def bench_table(result: BenchResult) -> str:
    """Return the tables of a benchmark."""
    environment = result.environment
    reports = result.reports
    facts = [str(environment[name]) for name in ("model", "dtype", "device") if environment.get(name)]
    versions = [
        f"{name.replace('_', '-')} {environment[name]}" for name in ("rdchat", "mlx", "mlx_lm") if name in environment
    ]
    header = ["", *(kind.title.lower() for kind in FIGURES.values()), "same text"]
    lines = [", ".join([*facts, *versions]), "", *table([header, *(_row(report) for report in reports)])]
    if groups := list(dict.fromkeys(group for report in reports for group in report.groups)):
        speed_ups = [["", *groups], *(_speed_ups(report, groups) for report in reports)]
        lines += ["", "Speed-up over plain decoding, by group of prompts:", "", *table(speed_ups)]
        pooled = [["", *groups, "all"], *(_pooled_tokens(report, [*groups, "all"]) for report in reports)]
        lines += ["", "Tokens per step, by group of prompts: all tokens over all steps.", "", *table(pooled)]
    notes = [f"{report.name}: {report.note}" for report in reports if report.note]
    notes += filter(None, [result.load_note, result.seeing_note])
    lines += ["", "Medians, with quartiles in brackets. Ratios compare neighbouring runs of the same prompt.", *notes]
    return "\n".join(lines)


def _row(report: CellReport) -> list[str]:
    figures = (_figure_text(report.figures[name], kind.digits) for name, kind in FIGURES.items())
    return [report.name, *figures, report.same_text.lower() or _NONE]


def _speed_ups(report: CellReport, groups: Sequence[str]) -> list[str]:
    return [report.name, *(_figure_text(report.groups.get(group, {}).get("ratio_to_plain"), 2) for group in groups)]


def _pooled_tokens(report: CellReport, groups: Sequence[str]) -> list[str]:
    figures = (report.pooled.get(group) for group in groups)
    return [report.name, *(_NONE if figure is None else f"{figure:.2f}" for figure in figures)]


def _figure_text(figure: Figure | None, digits: int) -> str:
    if figure is None:
        return _NONE
    if figure.low == figure.high:
        return f"{figure.median:.{digits}f}"
    return f"{figure.median:.{digits}f} ({figure.low:.{digits}f}-{figure.high:.{digits}f})"
