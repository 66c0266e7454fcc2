"""Checks the file that an export or a backup is to write."""

import argparse
from pathlib import Path

from rdchat import paths
from rdchat.chat.storage.connections import COMPANIONS
from rdchat.errors import InvalidSettingError


def add_force(parser: argparse.ArgumentParser) -> None:
    """Add `--force`."""
    parser.add_argument("--force", action="store_true", help="replace a file that is there already")


def refuse_loss(path: Path, *, force: bool) -> None:
    """Refuse a file that is there already unless `force`, and rdchat's own in any case.

    Raises:
        InvalidSettingError: If it is refused.
    """
    database = paths.database_path()
    beside = [database.with_name(database.name + ending) for ending in (*COMPANIONS, ".lock")]
    own = {each.resolve() for each in (database, paths.settings_path(), *beside)}
    if path.resolve() in own:
        raise InvalidSettingError(f"{path} is a file that rdchat itself needs.", "Name another file.")
    if path.exists() and not force:
        raise InvalidSettingError(f"{path} exists already.", "Name another file, or replace it with --force.")
