"""`rdchat train-drafter`: trains a drafter for a model, from nothing, on this machine."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING

from rdchat import paths
from rdchat.commands import options
from rdchat.commands.progress import ProgressLine
from rdchat.inference.api.trained_kind import TrainedKind

if TYPE_CHECKING:
    from rdchat.inference.api.training import TrainingProgress
    from rdchat.inference.training.run.training_plan import TrainingPlan, TrainingSettings

_DEFAULT_TOKENS = 1_000_000  # of `TrainingSettings.of_kind`, which is imported late
_LINES_EVERY = 30.0  # seconds between two lines where the output is no terminal


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `train-drafter` and its options."""
    parser = subparsers.add_parser("train-drafter", help="train a drafter for a model")
    parser.set_defaults(run=run)
    options.add_model(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the drafter")
    parser.add_argument(
        "--kind",
        choices=[kind.value for kind in TrainedKind],
        default=TrainedKind.RECURRENT.value,
        help="of its head: a small RNN (recurrent, the default), a layer over the text that drafts token by token "
        "(eagle3), or one that drafts blocks (dspark); the last two are stored as others publish them",
    )
    limits = parser.add_mutually_exclusive_group()
    limits.add_argument("--tokens", type=int, metavar="N", help=f"answer tokens to make (default: {_DEFAULT_TOKENS:,})")
    limits.add_argument("--hours", type=float, metavar="H", help="make as much data as that leaves time for")
    parser.add_argument("--resume", action="store_true", help="continue an interrupted training")
    parser.add_argument("--seed", type=int, default=0, help="the same seed makes the same drafter on a CPU")
    parser.add_argument("--prompts", metavar="FILE", help="questions to mix in: a prompt a line, or JSON lines")
    parser.add_argument("--from-my-chats", action="store_true", help="mix in the questions of your stored chats")
    parser.add_argument("--start-from", metavar="DRAFTER", help="train this recurrent drafter further, not a fresh one")
    parser.add_argument("--epochs", type=int, help="passes over the data")


def run(args: argparse.Namespace) -> int:
    """Train; Ctrl-C at any moment, and --resume goes on."""
    settings = _settings(args)

    from rdchat.host import keep_awake  # noqa: PLC0415
    from rdchat.inference.training.run.training_plan import make_plan  # noqa: PLC0415
    from rdchat.inference.training.run.training_run import DrafterTraining  # noqa: PLC0415

    with ProgressLine(sys.stderr) as progress:
        model = options.load_chosen(args, progress)
    options.print_warning(model.info)
    plan = make_plan(model, settings, args.resume)
    print(_budget(plan, args.resume), file=sys.stderr)
    try:
        with (
            keep_awake(),
            ProgressLine(sys.stderr, verbose=True, repeat_s=_LINES_EVERY, stays=True) as line,
            closing(DrafterTraining(model, plan).run()) as events,
        ):
            accuracy: dict[str, Sequence[float]] = {}  # by phase: the last one that was measured
            for event in events:
                accuracy[event.phase] = event.accuracy or accuracy.get(event.phase, ())
                line.show_text(_text(event, accuracy[event.phase]), event.phase)
    except KeyboardInterrupt:
        print("Interrupted; the same command with --resume goes on.", file=sys.stderr)
        raise
    print(f"The drafter is in {settings.out}. Its data is kept in {plan.folder}.")
    return 0


def _settings(args: argparse.Namespace) -> "TrainingSettings":
    """Read the arguments and the files they name."""
    from rdchat.inference.api.prompt_files import read_prompts  # noqa: PLC0415
    from rdchat.inference.training.run.training_plan import TrainingSettings  # noqa: PLC0415  MLX

    settings = TrainingSettings.of_kind(
        TrainedKind(args.kind),
        paths.expanded(args.out, "--out").absolute(),
        tokens=args.tokens,
        hours=args.hours,
        seed=args.seed,
        start=paths.expanded(args.start_from, "--start-from").absolute() if args.start_from else None,
        anyway=args.load_anyway,
    )
    if args.epochs is not None:
        settings = replace(settings, recipe=replace(settings.recipe, epochs=args.epochs))
    given = [prompt.text for prompt in read_prompts(paths.expanded(args.prompts, "--prompts"))] if args.prompts else []
    return replace(settings, prompts=tuple(given), asked=tuple(_asked_in_chats()) if args.from_my_chats else ())


def _asked_in_chats() -> list[str]:
    from rdchat.chat.asked_questions import asked_questions  # noqa: PLC0415

    return asked_questions(paths.database_path())


def _budget(plan: "TrainingPlan", resume: bool) -> str:
    settings, budget = plan.settings, plan.budget
    limit = f"{settings.tokens:,} answer tokens" if settings.hours is None else f"{settings.hours:g} hours"
    begun = "Going on with" if plan.resumed else "Training"
    text = (
        f"{begun} {_of_kind(settings.kind)} drafter for {plan.binding.name}: {limit}, up to "
        f"{budget.disk_bytes / 1e9:.2f} GB of disk in {plan.folder}, {budget.memory_bytes / 1e9:.1f} GB of memory "
        f"beside the model."
    )
    if resume and not plan.resumed:
        text += " Nothing was begun with these options before."
    if plan.left_out:
        text += f" Left out, as they are too long: {plan.left_out:,} of your questions."
    return text


def _of_kind(kind: TrainedKind) -> str:
    return {"recurrent": "a recurrent", "eagle3": "an EAGLE-3", "dspark": "a DSpark"}[kind]


def _text(event: "TrainingProgress", accuracy: Sequence[float]) -> str:
    parts = [f"{event.phase} {event.fraction or 0:4.0%}"]
    if event.tokens_per_second is not None:
        parts.append(f"{event.tokens_per_second:.0f} tokens/s")
    if event.loss is not None:
        parts.append(f"loss {event.loss:.3f}")
    if accuracy:
        parts.append("right " + " ".join(f"{share:.0%}" for share in accuracy))
    if event.left_s is not None:
        minutes, seconds = divmod(int(event.left_s), 60)
        hours, minutes = divmod(minutes, 60)
        parts.append(f"{hours}:{minutes:02}:{seconds:02} left")
    if event.words:
        parts.append(event.words)
    return "  ".join(parts)
