"""What the commands that load a model have in common where memory is tight."""

import argparse
import sys

from rdchat.errors import one_line
from rdchat.inference.api.events import ModelInfo

LOAD_ANYWAY = "--load-anyway"


def add_load_anyway(parser: argparse.ArgumentParser) -> None:
    """Add the option that loads what seems too large for the memory, as `args.load_anyway`."""
    parser.add_argument(LOAD_ANYWAY, action="store_true", help="go on where memory seems too small")


def tell_warning(info: ModelInfo) -> None:
    """Say on standard error that memory is tight, where it is."""
    if info.warning:
        print(f"rdchat: {one_line(info.warning)}", file=sys.stderr)
