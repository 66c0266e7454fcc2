"""`rdchat models search QUERY`."""

import argparse
import json
import sys
from dataclasses import asdict

from rdchat.commands.models.table import print_table, size_words

_MOST = 100


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `search`."""
    parser = actions.add_parser("search", help="search the Hugging Face hub for models")
    parser.add_argument("query", metavar="QUERY", help="words of the name")
    parser.add_argument("--sort", choices=("downloads", "likes", "date"), default="downloads", help="what comes first")
    parser.add_argument("--limit", type=_number, default=20, metavar="N", help=f"so many at most, up to {_MOST}")
    parser.add_argument("--all", action="store_true", help="not only models that are marked as MLX's")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_search)


def _number(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MOST:
        raise argparse.ArgumentTypeError(f"give a number from 1 to {_MOST}")
    return number


def _search(args: argparse.Namespace) -> int:
    from rdchat.hub.endpoint import find_endpoint  # noqa: PLC0415  slow to import, as all of these rooms
    from rdchat.hub.found_models import SortBy  # noqa: PLC0415
    from rdchat.hub.hub_api import HubApi  # noqa: PLC0415
    from rdchat.hub.tokens import Tokens  # noqa: PLC0415

    api = HubApi(Tokens().access(find_endpoint()))
    sort: SortBy = "last_modified" if args.sort == "date" else args.sort
    found = api.search(args.query, sort=sort, limit=args.limit, mlx_only=not args.all)
    if args.json:
        print(json.dumps({"models": [asdict(model) for model in found]}, ensure_ascii=False))
        return 0
    if not found:
        print("The hub has no such model. `--all` also finds those that are not marked as MLX's.", file=sys.stderr)
    print_table(
        [
            (
                model.repository,
                model.family,
                model.quantization,
                size_words(model.weight_bytes) if model.weight_bytes is not None else "",
                model.licence,
                f"{model.downloads:,} downloads",
                f"{model.likes:,} likes",
                model.changed,
                "gated" if model.gated else "",
            )
            for model in found
        ]
    )
    return 0
