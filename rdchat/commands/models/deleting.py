"""`rdchat models delete MODEL`, `restore MODEL` and `empty-trash`."""

import argparse
import json
import shlex
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from rdchat import paths
from rdchat.commands.models.listing import card_named
from rdchat.commands.models.table import size_words
from rdchat.errors import InvalidSettingError, ModelError

if TYPE_CHECKING:
    from rdchat.hub.trash import TrashedModel
    from rdchat.services.models.installed.removal import RemovalQuestion


def add_actions(actions: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add `delete`, `restore` and `empty-trash`."""
    parser = actions.add_parser(
        "delete", help="move a model or drafter of the Hugging Face cache or of rdchat's own to the Trash"
    )
    parser.add_argument("model", metavar="MODEL", help="a name that `rdchat models list` gives")
    parser.add_argument("--revision", default="main", metavar="R", help="a branch, tag or commit, of the hub's cache")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.set_defaults(act=_delete)
    parser = actions.add_parser("restore", help="put a deleted model back")
    parser.add_argument("model", metavar="MODEL", help="its name")
    parser.set_defaults(act=_restore)
    parser = actions.add_parser("empty-trash", help="delete for good what is in rdchat's own trash, and free its space")
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.set_defaults(act=_empty_trash)


def _delete(args: argparse.Namespace) -> int:
    from rdchat.services.models.installed.removal import (  # noqa: PLC0415  slow to import, as all of these
        reason_not_to_delete,
        removal_question,
        remove_model,
    )

    card = card_named(args.model, args.revision)
    if card is None:
        raise ModelError(f"rdchat has no model {args.model}.", "`rdchat models list` shows what there is.")
    if reason := reason_not_to_delete(card):
        raise ModelError(f"rdchat does not delete {args.model}.", reason)
    question = removal_question(replace(card, name=args.model))  # `restore` takes the same name
    if not _agreed(args.yes, _words(args.model, question)):
        return 1
    trashed = remove_model(question)
    if args.json:
        print(json.dumps({"model": args.model, "restorable": trashed is not None}, ensure_ascii=False))
    elif trashed is None:
        print(f"{args.model} is deleted.")
    else:
        own, restore = trashed.place is None, shlex.join(["rdchat", "models", "restore", trashed.name])
        print(f"{args.model} is in {"rdchat's trash" if own else 'the Trash'}. `{restore}` puts it back;")
        print(f"{'`rdchat models empty-trash`' if own else 'emptying the Trash'} frees its space.")
    return 0


def _words(name: str, question: "RemovalQuestion") -> str:
    """Return what deleting a model would do, in sentences."""
    plan = question.plan
    if plan is None and question.model.path.parent == paths.drafters_dir():
        return f"The drafter {name} was trained on this machine."
    if plan is None:
        return f"{name} was converted on this machine; it can be made again from what it was made from."
    words = f"{name} takes {size_words(plan.freed_bytes)} of the Hugging Face cache, which other programs use as well."
    if not plan.commit:
        words = f"{name} is not downloaded whole; what is here of it is deleted for good."
    elif plan.unfinished:
        words += " What is here of its unfinished download is deleted for good."
    return words + "".join(f" Revision {other} shares files with it; these stay." for other in plan.sharing)


def _restore(args: argparse.Namespace) -> int:
    from rdchat.hub.trash import restore  # noqa: PLC0415  slow to import

    found = [model for model in _trashed() if model.name == args.model]
    if not found and _is_here(args.model):
        print(f"{args.model} is here already.")
        return 0
    if not found:
        names = ", ".join(sorted({model.name for model in _trashed()})) or "nothing"
        raise ModelError(f"{args.model} is not in the trash.", f"There is: {names}.")
    restore(found[0])
    print(f"{args.model} is back.")
    return 0


def _empty_trash(args: argparse.Namespace) -> int:
    from rdchat.hub.deleting import trash_places  # noqa: PLC0415  slow to import
    from rdchat.hub.trash import empty  # noqa: PLC0415

    trashed = _trashed()
    models = [model for model in trashed if model.place is None]
    if elsewhere := ", ".join(model.name for model in trashed if model.place is not None):
        print(f"In the system's Trash, which is emptied there: {elsewhere}.", file=sys.stderr)
    if not models:
        print("rdchat's trash is empty.")
        return 0
    names = ", ".join(model.name for model in models)
    if not _agreed(args.yes, f"{names}: {size_words(sum(model.size for model in models))}, deleted for good."):
        return 1
    freed = sum(empty(place) for place in trash_places())
    print(f"{size_words(freed)} freed.")
    return 0


def _is_here(name: str) -> bool:
    from rdchat.hub.cache_layout import repository_of  # noqa: PLC0415  slow to import

    card = card_named(name)
    return card is not None and (not card.repository or bool(repository_of(card.repository).commits()))


def _trashed() -> "tuple[TrashedModel, ...]":
    from rdchat.hub.deleting import all_trashed  # noqa: PLC0415  slow to import

    return all_trashed()


def _agreed(yes: bool, words: str) -> bool:
    """Print what will be deleted, and ask unless `--yes` was given."""
    print(words, file=sys.stderr)
    if yes:
        return True
    if sys.stdin is None or not sys.stdin.isatty():
        raise InvalidSettingError("Nobody is there to be asked.", "Add --yes.")
    print("Go on? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}
