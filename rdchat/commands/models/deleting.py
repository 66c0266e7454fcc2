"""`rdchat models delete MODEL`."""

import argparse
from dataclasses import replace
from pathlib import Path

from rdchat import paths
from rdchat.commands import options
from rdchat.commands.models.listing import card_of
from rdchat.commands.terminal import agreed
from rdchat.errors import ModelError
from rdchat.files.sizes import size_text
from rdchat.hub.deleting import NoTrashError
from rdchat.services.models.installed.model_files import (
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
    question = removal_question(replace(card, name=args.model))
    if not agreed(args.yes, _text(args.model, question)):
        return 1
    try:
        remove_model(question, _move_to_trash)
    except NoTrashError as error:
        question = replace(question, has_trash=False)
        if not agreed(args.yes, f"{error} It will be deleted for good."):
            return 1
        remove_model(question, _move_to_trash)
    result = f"{args.model} is deleted." if question.for_good else f"{args.model} is in the Trash."
    options.print_result(args, {"model": args.model, "restorable": not question.for_good}, result)
    return 0


def _move_to_trash(folder: Path) -> None:
    """Move a folder to the system's Trash; see `MoveToTrash`."""
    from send2trash import send2trash  # noqa: PLC0415  it looks for a desktop when imported

    send2trash(folder)


def _text(name: str, question: RemovalQuestion) -> str:
    """Return what deleting a model would do, in sentences."""
    plan = question.plan
    if plan is None and question.model.path.parent == paths.drafters_dir():
        return f"The drafter {name} was trained or put together on this computer."
    if plan is None:
        return f"{name} was converted on this computer; it can be converted again from its source."
    size = size_text(plan.freed_bytes)
    text = f"{name} takes {size} in the Hugging Face cache, which other programs use too."
    if not plan.commit:
        text = f"{name} is an unfinished download; its files will be deleted for good."
    elif not plan.is_complete:
        text += " It shares its folder with other versions, so it will be deleted for good."
    if plan.commit and plan.unfinished:
        text += " Its unfinished download is deleted too."
    return text + "".join(f" Revision {other} shares files with it; those stay." for other in plan.sharing)
