"""`rdchat train-drafter`: trains a drafter for a model on this machine."""

import argparse
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace

from rdchat import paths
from rdchat.chat.reply_tokens import first_questions
from rdchat.commands.preparation import command_begins
from rdchat.commands.terminal import ProgressLine, add_model, from_options, print_warning
from rdchat.inference.api import DEFAULT_TOKENS, Dtype, Recipe, TrainingProgress, TrainingSettings, read_prompts
from rdchat.wording import time_left

# Seconds between two lines if the output is not a terminal.
_LINES_EVERY = 30.0


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `train-drafter`."""
    parser.description = (
        "The model answers questions, and a small network learns to guess its words. It takes hours. Ctrl-C ends it, "
        "and --resume continues."
    )
    add_model(parser)
    parser.add_argument("--out", required=True, metavar="DIR", help="folder of the drafter")
    parser.add_argument(
        "--tokens",
        type=int,
        metavar="N",
        default=DEFAULT_TOKENS,
        help=f"tokens of answers to learn from (default: {DEFAULT_TOKENS:,})",
    )
    parser.add_argument("--resume", action="store_true", help="continue an interrupted training")
    parser.add_argument("--seed", type=int, default=0, help="the same seed gives the same drafter on a CPU")
    parser.add_argument("--prompts", metavar="FILE", help="questions to mix in: one per line, or JSON lines")
    parser.add_argument("--from-my-chats", action="store_true", help="mix in the questions of your stored chats")
    # Without the option `Recipe` has its own default: a suppressed one is not among the arguments (`from_options`).
    parser.add_argument("--epochs", type=int, default=argparse.SUPPRESS, help="passes over the data")


def run(args: argparse.Namespace) -> int:
    """Train. After Ctrl-C, --resume continues."""
    settings = _settings(args)

    from rdchat.inference.training.training_run import DrafterTraining  # noqa: PLC0415  MLX
    from rdchat.machine import keep_awake  # noqa: PLC0415

    with ProgressLine() as progress:
        command_begins()
        training = DrafterTraining.load_planned(
            args.model, Dtype(args.dtype), settings, progress.show_stage, resume=args.resume
        )
    print_warning(training.model.info)
    print(training.plan.description(args.resume), file=sys.stderr)
    try:
        with (
            keep_awake(),
            ProgressLine(verbose=True, repeat_s=_LINES_EVERY) as line,
            closing(training.train()) as events,
        ):
            accuracy: dict[str, Sequence[float]] = {}  # The last measurement, by phase.
            for event in events:
                accuracy[event.phase] = event.accuracy or accuracy.get(event.phase, ())
                line.show_text(_text(event, accuracy[event.phase]), event.phase)
    except KeyboardInterrupt:
        print("Interrupted. Add --resume to the same command to continue.", file=sys.stderr)
        raise
    print(f"The drafter is in {settings.out}. Its data is kept in {training.plan.folder}.")
    return 0


def _settings(args: argparse.Namespace) -> TrainingSettings:
    """Read the arguments and the files they name."""
    recipe = from_options(Recipe, args)
    out = paths.expanded(args.out, "--out").absolute()
    # This checks the numbers before files are read.
    settings = TrainingSettings(out, args.tokens, args.seed, recipe=recipe, anyway=args.load_anyway)
    given = [prompt.text for prompt in read_prompts(paths.expanded(args.prompts, "--prompts"))] if args.prompts else []
    questions = first_questions(paths.database_path()) if args.from_my_chats else []
    return replace(settings, prompts=tuple(given), chat_questions=tuple(questions))


def _text(event: TrainingProgress, accuracy: Sequence[float]) -> str:
    speed = event.tokens_per_second
    loss = event.loss
    parts = (
        f"{event.phase} {event.fraction or 0:4.0%}",
        "" if speed is None else f"{speed:.0f} tokens/s",
        "" if loss is None else f"loss {loss:.3f}",
        "right " + " ".join(f"{share:.0%}" for share in accuracy) if accuracy else "",
        "" if event.left_s is None else time_left(event.left_s),
        event.text,
    )
    return "  ".join(filter(None, parts))
