"""`rdchat models delete MODEL`, `restore MODEL` and `empty-trash`."""

import argparse
import shlex
import sys
from dataclasses import replace

from rdchat import paths
from rdchat.commands import options
from rdchat.commands.models.listing import card_named, card_of
from rdchat.commands.terminal import agreed
from rdchat.errors import ModelError
from rdchat.files.sizes import size_words
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.deleting import all_trashed, trash_places
from rdchat.hub.trash import empty, restore
from rdchat.services.models.installed.removal import (
    RemovalQuestion,
    reason_not_to_delete,
    removal_question,
    remove_model,
)


def delete(args: argparse.Namespace) -> int:
    """Delete a model; the exit status is 1 if the person says no."""
    card = card_of(args)
    if reason := reason_not_to_delete(card):
        raise ModelError(f"rdchat cannot delete {args.model}.", reason)
    question = removal_question(replace(card, name=args.model))  # `restore` takes the same name
    if not agreed(args.yes, _words(args.model, question)):
        return 1
    trashed = remove_model(question)
    words = f"{args.model} is deleted."
    if trashed is not None:
        own, command = trashed.place is None, shlex.join(["rdchat", "models", "restore", trashed.name])
        words = (
            f"{args.model} is in {"rdchat's trash" if own else 'the Trash'}. `{command}` restores it;\n"
            f"{'`rdchat models empty-trash`' if own else 'emptying the Trash'} frees its space."
        )
    options.print_result(args, {"model": args.model, "restorable": trashed is not None}, words)
    return 0


def _words(name: str, question: RemovalQuestion) -> str:
    """Return what deleting a model would do, in sentences."""
    plan = question.plan
    if plan is None and question.model.path.parent == paths.drafters_dir():
        return f"The drafter {name} was trained or put together on this computer."
    if plan is None:
        return f"{name} was converted on this computer; it can be converted again from its source."
    size = size_words(plan.freed_bytes)
    words = f"{name} takes {size} in the Hugging Face cache, which other programs use too."
    if not plan.commit:
        words = f"{name} is an unfinished download; its files will be deleted for good."
    elif plan.unfinished:
        words += " Files of its unfinished download will be deleted for good."
    return words + "".join(f" Revision {other} shares files with it; those stay." for other in plan.sharing)


def restore_model(args: argparse.Namespace) -> int:
    """Restore a deleted model."""
    trashed = all_trashed()
    found = [model for model in trashed if model.name == args.model]
    if not found and _is_here(args.model):
        print(f"{args.model} is already here.")
        return 0
    if not found:
        names = ", ".join(sorted({model.name for model in trashed})) or "nothing"
        raise ModelError(f"{args.model} is not in the trash.", f"In the trash: {names}.")
    restore(found[0])
    print(f"{args.model} was restored.")
    return 0


def empty_trash(args: argparse.Namespace) -> int:
    """Empty rdchat's own trash; the exit status is 1 if the person says no."""
    trashed = all_trashed()
    models = [model for model in trashed if model.place is None]
    if elsewhere := ", ".join(model.name for model in trashed if model.place is not None):
        print(f"In the system's Trash, which you empty there: {elsewhere}.", file=sys.stderr)
    if not models:
        print("rdchat's trash is empty.")
        return 0
    names = ", ".join(model.name for model in models)
    if not agreed(args.yes, f"{names}: {size_words(sum(model.size for model in models))}, to be deleted for good."):
        return 1
    freed = sum(empty(place) for place in trash_places())
    print(f"{size_words(freed)} freed.")
    return 0


def _is_here(name: str) -> bool:
    card = card_named(name)
    return card is not None and (not card.repository or bool(repository_of(card.repository).commits()))
