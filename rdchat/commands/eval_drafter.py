"""`rdchat eval-drafter`: how many tokens a target call brings with a drafter, measured by decoding."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat.commands.progress import ProgressLine
from rdchat.errors import InvalidSettingError, ModelError
from rdchat.inference.events import LoadProgress
from rdchat.inference.requests import Dtype, SamplingParams

if TYPE_CHECKING:
    from rdchat.inference.training.evaluate import Setup


def add_parser(subparsers: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `eval-drafter` and its options."""
    parser = subparsers.add_parser("eval-drafter", help="measure a recurrent drafter on a file of prompts")
    parser.set_defaults(run=run)
    parser.add_argument("--model", help="model folder, or hub id in the hub's cache (default: SmolLM2-135M-Instruct)")
    parser.add_argument("--drafter", help="drafter folder (default: the one made for the model)")
    parser.add_argument("--prompts", required=True, metavar="FILE", help="a prompt a line, or JSON lines")
    parser.add_argument("--per-group", type=int, default=0, metavar="N", help="the first N prompts of each group only")
    parser.add_argument("--dtype", choices=[d.value for d in Dtype], default="auto", help="precision of the weights")
    parser.add_argument("--beam-width", type=int, nargs="+", default=[1, 4], metavar="W", help="widths to measure")
    parser.add_argument("--beam-length", type=int, nargs="+", default=[5], metavar="L", help="lengths to measure")
    parser.add_argument("--max-tokens", type=int, default=128, help="longest reply")
    parser.add_argument("--temperature", type=float, default=0.0, help="0 takes the likeliest token")
    parser.add_argument("--top-p", type=float, default=SamplingParams().top_p, help="keep this much probability")
    parser.add_argument("--seed", type=int, default=0, help="of the replies")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def run(args: argparse.Namespace) -> int:
    """Measure every setup on every prompt and print the pooled figures."""
    from rdchat.inference.prompt_files import first_of_each_group, read_prompts  # noqa: PLC0415  NumPy

    sampling = SamplingParams(temperature=args.temperature, top_p=args.top_p, max_tokens=args.max_tokens)
    if args.per_group < 0:
        raise InvalidSettingError(f"per-group {args.per_group} is out of range: it must be at least 0.")
    prompts = read_prompts(Path(args.prompts))
    if args.per_group:
        prompts = first_of_each_group(prompts, args.per_group)
    setups = _setups(args.beam_width, args.beam_length)

    from rdchat.inference.drafter_folder import find_drafter, load_drafter  # noqa: PLC0415  MLX: only once all is right
    from rdchat.inference.loading import load_model  # noqa: PLC0415
    from rdchat.inference.training.evaluate import Evaluation, report  # noqa: PLC0415

    with ProgressLine(sys.stderr) as progress:
        model = load_model(args.model, Dtype(args.dtype), progress.show)
        folder = Path(args.drafter) if args.drafter else find_drafter(model)
        if folder is None:
            raise ModelError(
                f"There is no drafter for {model.info.name}.", "Train one with `rdchat train-drafter`, or name one."
            )
        evaluation = Evaluation(model, load_drafter(folder, model), sampling, args.seed)
        results = []
        for result in evaluation.run(prompts, setups):
            results.append(result)
            progress.show(LoadProgress("Decoding", len(results) / (len(prompts) * len(setups))))
    rows = report(results)
    if args.json:
        facts = {"model": model.info.name, "dtype": model.info.dtype, "device": model.info.device}
        print(json.dumps({**facts, "drafter": str(folder), "temperature": args.temperature, "rows": rows}))
    else:
        print(_table(rows))
    return 0


def _setups(widths: list[int], lengths: list[int]) -> "list[Setup]":
    """Return every width and length, alone and with the lookup branch, and lookup alone."""
    from rdchat.inference.recurrent_beam import BeamShape  # noqa: PLC0415  MLX
    from rdchat.inference.training.evaluate import Setup  # noqa: PLC0415

    setups = []
    for length in lengths:
        for width in widths:
            BeamShape(width, length)  # refuses what cannot be
            setups += [Setup(width, length), Setup(width, length, lookup_branch=True)]
        setups.append(Setup(0, length))
    return setups


def _table(rows: list[dict[str, Any]]) -> str:
    lines = [f"{'setup':20}{'group':16}{'prompts':>8}{'tokens/call':>12}  accepted by position"]
    for row in rows:
        shares = " ".join("   -" if share is None else f"{share:4.0%}" for share in row["acceptance_by_position"])
        figure = row["tokens_per_target_call"]
        shown = "-" if figure is None else f"{figure:.2f}"
        lines.append(f"{row['setup']:20}{row['group']:16}{row['prompts']:8}{shown:>12}  {shares}")
    return "\n".join(lines)
