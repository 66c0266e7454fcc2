"""`rdchat bench`: how fast each way of drafting is here, beside plain decoding and stock mlx-lm."""

import argparse
import sys
from collections.abc import Callable, Sequence
from contextlib import closing, redirect_stdout, suppress
from pathlib import Path
from typing import Any

from rdchat.commands import options
from rdchat.commands.bench_table import bench_table
from rdchat.commands.interrupt import INTERRUPTED, ctrl_c_calls
from rdchat.commands.progress import ProgressLine
from rdchat.errors import InvalidSettingError, RdchatError
from rdchat.inference.api.bench_plan import BenchPlan
from rdchat.inference.api.bench_results import BenchProgress, BenchRun
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.prompt_files import Prompt, first_of_each_group, read_prompts
from rdchat.inference.api.protocol import Engine
from rdchat.inference.api.requests import DraftSettings, Dtype, Mode, require
from rdchat.inference.benchmark.charts import Charts
from rdchat.inference.benchmark.csv_format import read_csv, write_csv
from rdchat.inference.benchmark.result import BenchResult, environment
from rdchat.inference.benchmark.sweep import EVERYDAY_PROMPTS, Sweep

_MEASURING = ("prompts", "modes", "csv")  # options that mean nothing where a file is shown


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `bench` and its options."""
    parser = subparsers.add_parser(
        "bench",
        help="measure drafting against plain decoding and mlx-lm",
        description="Runs every mode in turns on every prompt, beside plain decoding and stock mlx-lm, and reports "
        "ratios of neighbouring runs as medians with quartiles. Lists are separated by commas.",
    )
    parser.set_defaults(run=run)
    parser.add_argument(
        "--prompts", metavar="FILE", help="a prompt a line, or JSON lines (default: everyday questions)"
    )
    parser.add_argument("--limit", type=int, default=0, metavar="N", help="the first N prompts of each group only")
    parser.add_argument("--modes", type=_list_of(Mode), metavar="LIST", help="default: those the model can have")
    parser.add_argument("--max-tokens", type=int, default=64, metavar="N", help="longest reply (default: 64)")
    parser.add_argument(
        "--trials", type=int, default=3, metavar="T", help="runs of each mode on each prompt (default: 3)"
    )
    options.add_model(parser, dtype=False)
    parser.add_argument("--seed", type=int, default=0, help="of the replies (default: 0)")
    parser.add_argument("--no-mlx-lm", action="store_true", help="leave stock mlx-lm out")
    options.add_json(parser)
    parser.add_argument("--csv", metavar="FILE", help="also write every run to a file")
    parser.add_argument(
        "--picture",
        action="append",
        default=[],
        metavar="FILE",
        help="also draw the speed-ups, as .png, .svg or .pdf; may be given several times",
    )
    parser.add_argument(
        "--from", dest="source", nargs="+", metavar="FILE", help="measure nothing: show a CSV file, ours or Apple's"
    )
    _add_sweep_options(parser)


def _add_sweep_options(parser: argparse.ArgumentParser) -> None:
    defaults = DraftSettings()
    group = parser.add_argument_group("what is swept", "every combination of the lists is measured")
    lists: tuple[tuple[str, Callable[[str], Any], Any, str], ...] = (
        ("--dtype", Dtype, Dtype.AUTO, "precisions"),
        ("--temperature", float, 0.0, "0 is greedy"),
        ("--beam-width", int, defaults.beam_width, "for drafter"),
        ("--beam-length", int, defaults.beam_length, "for drafter"),
        ("--draft-tokens", int, defaults.draft_tokens, "for speculative and lookup"),
    )
    for name, kind, default, words in lists:
        group.add_argument(name, type=_list_of(kind), default=(default,), metavar="LIST", help=words)
    group.add_argument("--draft-model", metavar="MODEL", help="for speculative: a smaller model with the same tokens")
    group.add_argument(
        "--drafter",
        type=_list_of(str),
        metavar="LIST",
        help="for drafter, auto: drafters' names in `rdchat models list`, or folders (default: the model's own)",
    )


def run(args: argparse.Namespace) -> int:
    """Measure, or show what was measured; the exit status is 0, or 130 after Ctrl-C.

    Raises:
        Exception: The error that ended the benchmark, after its results so far are shown.
    """
    _check_pictures(args.picture)
    if args.source:
        if given := [name for name in _MEASURING if getattr(args, name) is not None]:
            raise InvalidSettingError(f"--from shows a file and measures nothing: leave out --{given[0]}.")
        _show(args, read_csv([Path(name) for name in args.source]))
        return 0
    bench = _Bench(args)
    try:
        bench.run()
    except KeyboardInterrupt:  # before or after the measuring itself
        bench.cancelled = True
    except Exception:
        if bench.runs:
            with suppress(RdchatError):  # of several errors the first is told
                _report(args, bench.result)
        raise
    _report(args, bench.result)
    return INTERRUPTED if bench.cancelled else 0


def _report(args: argparse.Namespace, result: BenchResult) -> None:
    """Write the CSV file, if there is one and anything was run, and show the figures even if that fails."""
    try:
        if args.csv and result.runs:
            with Path(args.csv).open("w", encoding="utf-8", newline="") as file:
                write_csv(file, result)
    except OSError as error:
        raise _unwritable(args.csv, error) from error
    finally:
        _show(args, result)


def _show(args: argparse.Namespace, result: BenchResult) -> None:
    if args.json:
        options.print_json(result.as_json())
    else:
        print(bench_table(result))
    if result.runs and args.picture:
        from rdchat.ui.plots.pictures import plots_of, save_picture  # noqa: PLC0415  only for pictures

        for name in args.picture:
            save_picture(plots_of(Charts.of(result)), Path(name))


def _check_pictures(names: Sequence[str]) -> None:
    """Refuse pictures that cannot be written, before anything is measured."""
    if names:
        from rdchat.ui.plots.pictures import check_picture_name  # noqa: PLC0415  only for pictures
    for name in names:
        check_picture_name(Path(name))
        if not Path(name).absolute().parent.is_dir():
            raise RdchatError(f"The picture {name} cannot be written: there is no such folder.", "Name another.")


class _Bench:
    """One benchmark. It checks its arguments and files before any model loads.

    Attributes:
        runs: What was run so far.
        cancelled: Whether Ctrl-C ended it.
    """

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self._prompts = _prompts(args)
        self._plan = self._make_plan(args.modes or tuple(Mode))
        if Mode.SPECULATIVE in (args.modes or ()) and args.draft_model is None:
            raise InvalidSettingError("Mode speculative needs a draft model.", "Name one with --draft-model.")
        _check_files(args)
        self._environment: dict[str, Any] = environment(None)
        self._ended = False
        self.runs: list[BenchRun] = []
        self.cancelled = False

    @property
    def result(self) -> BenchResult:
        """What was run so far."""
        return BenchResult(self._plan, tuple(self.runs), self._environment, self._ended and not self.cancelled)

    def run(self) -> None:
        """Load the model and measure."""
        from rdchat.inference.local_engine import LocalEngine  # noqa: PLC0415  MLX: only once the arguments are right

        args = self._args
        # what libraries have to say, as mlx-lm of large models, is no part of the report
        with redirect_stdout(sys.stderr), ProgressLine(sys.stderr, verbose=True) as progress:
            engine = LocalEngine()
            info = engine.load(args.model, args.dtype[0], progress.show, args.load_anyway)
            options.print_warning(info)
            self._environment = environment(info)
            self._plan = self._make_plan(args.modes or _modes_to_be_had(engine, args))
            with closing(engine.benchmark(self._plan)) as runner, ctrl_c_calls(lambda: self._cancel(runner.cancel)):
                for event in runner:
                    if isinstance(event, BenchProgress):
                        progress.show(_shown(event))
                    else:
                        self.runs.append(event)
        self._ended = True

    def _cancel(self, cancel: Callable[[], None]) -> None:
        self.cancelled = True
        cancel()

    def _make_plan(self, modes: Sequence[Mode]) -> BenchPlan:
        args = self._args
        sweep = Sweep(
            tuple(modes),
            args.beam_width,
            args.beam_length,
            args.draft_tokens,
            args.temperature,
            args.dtype,
            args.draft_model,
            args.drafter or (None,),
        )
        return BenchPlan(
            sweep.cells(), tuple(self._prompts), args.max_tokens, args.trials, args.seed, not args.no_mlx_lm
        )


def _prompts(args: argparse.Namespace) -> Sequence[Prompt]:
    require(args.limit >= 0, "limit", args.limit, "at least 0")
    prompts = read_prompts(Path(args.prompts)) if args.prompts is not None else EVERYDAY_PROMPTS
    return first_of_each_group(prompts, args.limit) if args.limit else prompts


def _check_files(args: argparse.Namespace) -> None:
    from rdchat.inference.drafting.checkpoints.installed_drafters import resolve_drafter  # noqa: PLC0415  slow to import
    from rdchat.inference.models.model_files import check_model_folder, resolve_model  # noqa: PLC0415

    for name in (args.model, args.draft_model):
        if name is not None:
            check_model_folder(resolve_model(name, lambda _: None))
    for name in args.drafter or ():
        if not resolve_drafter(name).is_dir():
            raise RdchatError(f"There is no drafter folder {name}.", "Check its name.")
    if args.csv is not None:
        try:
            Path(args.csv).open("a").close()
        except OSError as error:
            raise _unwritable(args.csv, error) from error


def _unwritable(name: str, error: OSError) -> RdchatError:
    return RdchatError(f"The file {name} cannot be written: {error.strerror}.", "Name another.")


def _modes_to_be_had(engine: Engine, args: argparse.Namespace) -> tuple[Mode, ...]:
    """Return the modes that the loaded model has, and those whose model or drafter the person named."""
    drafter = args.drafter[0] if args.drafter else None
    named = {Mode.SPECULATIVE: args.draft_model, Mode.DRAFTER: args.drafter}
    options = engine.draft_options(DraftSettings(draft_model=args.draft_model, drafter=drafter)).modes
    modes = [option.mode for option in options if option.available or named.get(option.mode)]
    return tuple(sorted(modes, key=lambda mode: mode is not Mode.OFF))  # plain decoding first


def _shown(progress: BenchProgress) -> LoadProgress:
    left = f", {progress.left_words}" if progress.left_words else ""
    return LoadProgress(f"{progress.words}{left}", progress.done / progress.total if progress.total else None)


def _list_of[T](kind: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    """Return a parser of a list with commas."""

    def parse(text: str) -> tuple[T, ...]:
        words = [word.strip() for word in text.split(",")]
        if not all(words):
            raise argparse.ArgumentTypeError("the list is empty, or a place in it is")
        try:
            return tuple(kind(word) for word in words)
        except ValueError as error:
            choices = f": choose from {', '.join(kind)}" if isinstance(kind, type(Mode)) else ""
            raise argparse.ArgumentTypeError(f"{error}{choices}") from error

    return parse
