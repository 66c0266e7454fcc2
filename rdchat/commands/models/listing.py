"""`rdchat models list`, `install-default`, `check-pair`, `verify` and `delete`: models on this machine."""

import argparse
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rdchat.chat.settings import stored_settings
from rdchat.commands import options
from rdchat.commands.terminal import ProgressLine, agreed, table
from rdchat.errors import ModelError, one_line
from rdchat.files.sizes import size_text
from rdchat.hub.cache_layout import repository_of
from rdchat.hub.deleting import NoTrashError
from rdchat.hub.downloads.download_record import records_of
from rdchat.hub.endpoint import Tokens
from rdchat.hub.known_files import download_command
from rdchat.hub.names import is_repository
from rdchat.hub.verifying import Verdict
from rdchat.inference.api.model_facts import ModelCard
from rdchat.inference.models.model_locations import HUB, find_card, listed_name
from rdchat.services.models.file_actions import RemovalQuestion, reason_not_to_delete, reason_not_to_verify, verdict_of


def card_of(args: argparse.Namespace) -> ModelCard:
    """Return the model that the options name by a hub id, a name in the list, or a path.

    A hub id means the model in the hub's cache, complete or not, before any other.

    Raises:
        ModelError: If there is none, or several have this name.
    """
    name = args.model
    revision = args.revision
    card = None
    if is_repository(name):
        repository = repository_of(name)
        snapshot = repository.snapshots / repository.commit_of(revision)
        card = ModelCard(name, name, HUB, snapshot, name, revision)
        if repository.commits() or records_of(repository):
            return card
    card = find_card(name if revision == "main" else f"{name}@{revision}", stored_settings().models_folder) or card
    if card is None:
        raise ModelError(f"There is no model {name}.", "`rdchat models list` shows all models.")
    return card


def list_models(args: argparse.Namespace) -> int:
    """Print the list."""
    from rdchat.inference.library.model_library import library_models  # noqa: PLC0415  slow to import

    models = [_listed(model) for model in library_models(stored_settings().models_folder)]
    names = {model["name"] for model in models if model["kind"] == "model"}
    for model in models:
        if model["kind"] == "drafter" and model["name"] in names:
            model["name"] = model["path"]
    if not models and not args.json:
        print("No models yet. `rdchat models install-default` downloads the default one.", file=sys.stderr)
    options.print_result(args, {"models": models}, table([_row(model) for model in models]))
    return 0


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    parameters = f"{model['parameters'] / 1e6:,.0f}M parameters" if model["parameters"] else ""
    state = "" if model["complete"] else f"incomplete: {model['problem']}"
    family = f"{model['family']} drafter".strip() if model["kind"] == "drafter" else model["family"]
    size = size_text(model["size"])
    verified = f"verifies {model['verification']}" if model["verification"] else ""
    return model["name"], family, parameters, model["quantization"], size, model["place"], verified, state


def _listed(model: ModelCard) -> dict[str, Any]:
    """Return an entry of the list as JSON."""
    sizes = model.sizes
    unfinished = model.is_unfinished
    problem = model.problem
    size = here = model.disk_bytes
    part = "vision" if model.sees else "drafter"
    if unfinished:
        size = model.download_bytes
        command = download_command(model.repository, model.revision, model.gguf)
        problem = f"{here / size:.0%} downloaded; `{command}` resumes."
    return {
        # `--model`, `verify` and `delete` accept this name.
        "name": model.name if unfinished else listed_name(model),
        "place": model.origin,
        "path": "" if unfinished else str(model.path),
        "kind": "" if unfinished else part if model.is_drafter else "model",
        "family": "GGUF" if model.is_gguf else model.family,
        "parameters": sizes.parameters if sizes is not None else None,
        "quantization": model.quantization,
        # Bytes of all its files, as the window has it.
        "size": size,
        # Bytes of these that are on this disk.
        "here": here,
        # What it can verify in one call; None until it was loaded once.
        "verification": model.tried and model.tried.kind.value,
        "complete": not problem,
        "problem": problem,
    }


def install(_args: argparse.Namespace) -> int:
    """Download and convert the default model, and print its folder."""
    from rdchat.inference.models.default_model import ensure_default_model  # noqa: PLC0415  slow to import

    with ProgressLine(verbose=True) as progress:
        folder = ensure_default_model(progress.show)
    print(folder)
    return 0


def add_check_pair(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check-pair`."""
    parser.add_argument("target", metavar="TARGET", help="name or path of the model")
    parser.add_argument("draft", metavar="DRAFT", help="name or path of the smaller draft model")


def check_pair(args: argparse.Namespace) -> int:
    """Print whether one model can draft for another; the exit status is 1 if it cannot."""
    from rdchat.inference.models import vocabularies  # noqa: PLC0415  slow to import

    verdict = vocabularies.check_pair(args.target, args.draft)
    options.print_result(args, {**asdict(verdict), "compatible": verdict.compatible}, str(verdict))
    return 0 if verdict.compatible else 1


def verify(args: argparse.Namespace) -> int:
    """Verify a model; the exit status is 1 if it is damaged or incomplete."""
    name = args.model
    card = card_of(args)
    done = 0
    if reason := reason_not_to_verify(card):
        raise ModelError(f"{name} cannot be verified. {reason}")
    with ProgressLine() as line:

        def count(read: int) -> None:
            nonlocal done
            done += read
            line.show_text(f"{name}: checked {size_text(done)}", "checking")

        verdict = verdict_of(card, Tokens(), count)
    if verdict.hub_problem and not args.json:
        print(f"{verdict.hub_problem} Missing files cannot be detected.", file=sys.stderr)
    report = {**asdict(verdict), "whole": verdict.is_intact}
    options.print_result(args, report, _verdict_lines(verdict))
    return 0 if verdict.is_intact else 1


def _verdict_lines(verdict: Verdict) -> list[str]:
    lists = {
        "damaged": verdict.damaged,
        "missing": verdict.missing,
        "links outside its own folder": verdict.astray,
        "not on Hugging Face": verdict.unknown,
    }
    lines = [f"{one_line(name)}: {label}" for label, names in lists.items() for name in names]
    if verdict.is_intact:
        lines.append(f"{verdict.name}: {len(verdict.intact)} files match Hugging Face's checksums.")
    elif verdict.in_cache:
        seen = (*verdict.damaged, *verdict.astray)
        gguf = next((name for name in seen if name.lower().endswith(".gguf")), "")
        repair = download_command(verdict.name, verdict.commit, gguf)
        lines.append(f"{verdict.name} is damaged or incomplete. `{repair}` repairs it.")
    else:
        lines.append(f"{verdict.name} is damaged or incomplete. Download it again in LM Studio.")
    return [*lines, *filter(None, [verdict.version_text])]


def delete(args: argparse.Namespace) -> int:
    """Delete a model; the exit status is 1 if the person refuses."""
    card = card_of(args)
    if reason := reason_not_to_delete(card):
        raise ModelError(f"rdchat cannot delete {args.model}.", reason)
    question = RemovalQuestion.of(replace(card, name=args.model))
    if not agreed(args.yes, f"{args.model}: {question.text()}"):
        return 1
    try:
        question.remove(_move_to_trash)
    except NoTrashError as error:
        question = replace(question, has_trash=False)
        if not agreed(args.yes, f"{error} It will be deleted for good."):
            return 1
        question.remove(_move_to_trash)
    result = f"{args.model} is deleted." if question.for_good else f"{args.model} is in the Trash."
    options.print_result(args, {"model": args.model, "restorable": not question.for_good}, result)
    return 0


def _move_to_trash(folder: Path) -> None:
    """Move a folder to the system's Trash; see `MoveToTrash`."""
    from send2trash import send2trash  # noqa: PLC0415  it looks for a desktop when imported

    send2trash(folder)
