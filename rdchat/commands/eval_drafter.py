"""`rdchat eval-drafter`: measures by decoding how many tokens a target call brings with a drafter."""

import argparse
import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, nullcontext
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from rdchat import __version__, paths
from rdchat.commands import options
from rdchat.commands.terminal import INTERRUPTED, ProgressLine, ctrl_c_calls
from rdchat.errors import ModelError
from rdchat.inference.api.events import LoadProgress
from rdchat.inference.api.prompt_files import Prompt, by_group, first_of_each_group, read_prompts
from rdchat.inference.api.requests import DraftSettings, Mode, SamplingParams, check_seed, require
from rdchat.inference.benchmark.draft_counts import CountsFile, Result, draft_name, report

if TYPE_CHECKING:
    from rdchat.inference.session import ChatSession
    from rdchat.inference.target.target import LoadedModel

_SAMPLING = {
    "max_tokens": "longest reply",
    "temperature": "0 always takes the most likely token",
    "top_p": "keep the most likely tokens up to this probability",
}


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of `eval-drafter`."""
    parser.description = (
        "Decodes every prompt with every beam width and length, alone and with a branch from prompt "
        "lookup, and by prompt lookup alone; each line is printed as soon as it is measured. Ctrl-C ends it early."
    )
    options.add_model(parser)
    parser.add_argument("--drafter", help=f"{options.NAMED} its folder (default: the one made for the model)")
    parser.add_argument("--prompts", required=True, metavar="FILE", help="one prompt per line, or JSON lines")
    parser.add_argument("--per-group", type=int, default=0, metavar="N", help="the first N prompts of each group only")
    parser.add_argument("--beam-width", type=int, nargs="+", default=[1, 4], metavar="W", help="widths to measure")
    parser.add_argument("--beam-length", type=int, nargs="+", default=[5], metavar="L", help="lengths to measure")
    options.add_fields(parser, SamplingParams(temperature=0.0, max_tokens=128), _SAMPLING)
    parser.add_argument("--seed", type=int, default=0, help="seed of the replies")
    parser.add_argument(
        "--results", metavar="FILE", help="store the result of every reply, and resume from there next time"
    )


def run(args: argparse.Namespace) -> int:
    """Measure every draft on every prompt; the exit status is 0, or 130 after Ctrl-C."""
    sampling = options.chosen(SamplingParams, args)
    require(args.per_group >= 0, "per-group", args.per_group, "at least 0")
    check_seed(args.seed)
    prompts = read_prompts(paths.expanded(args.prompts, "--prompts"))
    if args.per_group:
        prompts = first_of_each_group(prompts, args.per_group)
    drafts = _drafts(args.beam_width, args.beam_length)

    from rdchat.host import keep_awake  # noqa: PLC0415
    from rdchat.inference.benchmark.recording import check_lengths, measure_drafts  # noqa: PLC0415  MLX: only now
    from rdchat.inference.session import ChatSession  # noqa: PLC0415

    with ProgressLine(verbose=True) as progress:
        model = options.load_chosen(args, progress)
        options.print_warning(model.info)
        session = ChatSession(model)
        folder = _load_drafter(args.drafter, session)
        drafts = [replace(draft, drafter=str(folder)) for draft in drafts]
        check_lengths(model, prompts)
        facts = _facts(args, model, folder)
        cancelled = Event()
        results_path = paths.expanded(args.results, "--results") if args.results else None
        counts = closing(CountsFile(results_path, facts)) if results_path else nullcontext()
        with counts as kept, keep_awake(), ctrl_c_calls(cancelled.set):
            if not args.json:
                print(_HEADER, flush=True)
            decode = partial(measure_drafts, session, sampling=sampling, seed=args.seed, kept=kept)
            results = _measure(decode, prompts, drafts, progress, cancelled, printed=not args.json)
    if args.json:
        shown = facts | {"drafter": str(folder), "complete": not cancelled.is_set()}
        options.print_json(shown | {"rows": report(results)})
    return INTERRUPTED if cancelled.is_set() else 0


def _drafts(widths: Sequence[int], lengths: Sequence[int]) -> list[DraftSettings]:
    """Return beams of every width and length, alone and with the lookup branch, and lookup alone."""
    drafts = []
    for length in dict.fromkeys(lengths):
        for width in dict.fromkeys(widths):
            beams = DraftSettings(Mode.DRAFTER, beam_width=width, beam_length=length, lookup_branch=False)
            drafts += [beams, replace(beams, lookup_branch=True)]
        drafts.append(DraftSettings(Mode.LOOKUP, draft_tokens=length - 1))
    return drafts


def _load_drafter(named: str | None, session: "ChatSession") -> Path:
    """Load the named drafter, else the one made for the target; return its folder."""
    from rdchat.inference.drafters import cannot_verify, no_drafter  # noqa: PLC0415

    if problem := cannot_verify(session.model):
        raise ModelError(problem, "Choose another model.")
    folder = session.drafters.drafter_folder(named)
    if folder is None:
        raise ModelError(
            no_drafter(session.model), "Train one with `rdchat train-drafter`, or choose one with --drafter."
        )
    session.drafters.load(DraftSettings(Mode.DRAFTER, drafter=str(folder)))
    return folder


def _facts(args: argparse.Namespace, model: "LoadedModel", folder: Path) -> dict[str, Any]:
    """Return the facts of the measurement as JSON; results with equal facts can be combined."""
    from rdchat.inference.models.model_files import TargetBinding  # noqa: PLC0415

    digest = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):  # a published drafter may have several
        with path.open("rb") as weights:
            hashlib.file_digest(weights, lambda: digest)
    return {
        "version": __version__,
        "model": model.info.name,
        "target_hash": TargetBinding.of(model.info).hash,
        "dtype": model.info.dtype,
        "device": model.info.device,
        "drafter_hash": digest.hexdigest(),
        "temperature": args.temperature,
        "top_p": args.top_p,
        "max_tokens": args.max_tokens,
        "seed": args.seed,
    }


def _measure(
    decode: Callable[[Sequence[Prompt], Sequence[DraftSettings]], Iterator[Result]],
    prompts: Sequence[Prompt],
    drafts: Sequence[DraftSettings],
    progress: ProgressLine,
    cancelled: Event,
    *,
    printed: bool,
) -> list[Result]:
    """Measure each draft on each group of prompts; after cancelling, end with the reply being decoded.

    Each line is `printed` as soon as all its prompts are measured; that of all prompts comes with the last group.
    """
    groups, results = by_group(prompts), list[Result]()
    cells, whole = list(product(drafts, groups)), len(prompts) * len(drafts)
    for number, (draft, group) in enumerate(cells, start=1):
        stage = f"Decoding {number} of {len(cells)}: {draft_name(draft)}{', ' * bool(group)}{group}"
        progress.show(LoadProgress(stage, len(results) / whole))
        for result in decode(groups[group], [draft]):
            results.append(result)
            if cancelled.is_set():
                return results
            progress.show(LoadProgress(stage, len(results) / whole))
        last = group == list(groups)[-1]
        for row in report([each for each in results if each[1] == draft]) if printed else ():
            if row["group"] in {group, "all" if last else group}:
                progress.clear()
                print(_line(row), flush=True)
    return results


_HEADER = f"{'setup':20}{'group':16}{'prompts':>8}{'tokens/step':>12}{'loops':>7}  acceptance by position"


def _line(row: dict[str, Any]) -> str:
    shares = " ".join("   -" if share is None else f"{share:4.0%}" for share in row["acceptance_by_position"])
    figure, loops = row["tokens_per_target_call"], row["repeated_runs"]
    shown, repeated = "-" if figure is None else f"{figure:.2f}", "-" if loops is None else f"{loops:.0%}"
    return f"{row['setup']:20}{row['group']:16}{row['prompts']:8}{shown:>12}{repeated:>7}  {shares}"
