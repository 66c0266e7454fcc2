"""How far a target follows its drafter head, measured once after training and kept beside the drafter's weights.

Without it the automatic mode learns the same from its first drafts, of which single ones say little.
"""

from pathlib import Path

import numpy as np

from rdchat.errors import ModelError
from rdchat.files.atomic_file import write_json
from rdchat.files.foreign_files import read_json
from rdchat.inference.auto.acceptance import Acceptance
from rdchat.inference.auto.plan import LENGTHS, LONGEST, MOST_ROWS, WIDTHS
from rdchat.inference.drafting.checkpoints.drafter_files import ACCEPTANCE

_FORMAT = 1
_MOST_BYTES = 2**20


def write_acceptance(folder: Path, acceptance: Acceptance) -> None:
    """Write it beside a drafter.

    Raises:
        StorageFullError: If the disk is full.
        StorageError: If it cannot be written.
    """
    values = [[np.round(nodes, 3).tolist() for nodes in lengths] for lengths in acceptance.values]
    shapes = {"widths": WIDTHS, "lengths": LENGTHS}
    rates = [round(rate, 3) for rate in acceptance.rates]
    write_json(folder / ACCEPTANCE, {"format": _FORMAT, **shapes, "rates": rates, "values": values})


def read_acceptance(folder: Path) -> Acceptance | None:
    """Return what is known of a drafter; None where nothing is, or what cannot be used."""
    try:
        data = read_json(folder / ACCEPTANCE, most=_MOST_BYTES)
        rates, values = np.array(data["rates"], dtype=np.float64), np.array(data["values"], dtype=np.float64)
        shapes = data["format"], tuple(data["widths"]), tuple(data["lengths"])
    except (ModelError, ValueError, TypeError, KeyError, IndexError, OverflowError):
        return None
    fits = shapes == (_FORMAT, WIDTHS, LENGTHS) and values.shape == (len(WIDTHS), len(LENGTHS), MOST_ROWS + 1)
    sane = rates.ndim == 1 and (rates > 0).all() and (rates < LONGEST).all()
    if not (fits and sane and ((values >= 0) & (values < LONGEST)).all()):
        return None
    return Acceptance(tuple(rates.tolist()), values)
