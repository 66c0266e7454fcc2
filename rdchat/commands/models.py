"""`rdchat models`: lists, verifies and deletes the models on this machine, and gets others from the hub."""

import argparse
import getpass
import queue
import shlex
import sys
from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rdchat.chat.settings import stored_settings
from rdchat.commands.terminal import INTERRUPTED, ProgressLine, agreed, ctrl_c_calls, print_result, table
from rdchat.errors import InvalidSettingError, ModelError, NetworkError, RdchatError, one_line
from rdchat.hub import (
    SortBy,
    Token,
    Tokens,
    check_names,
    download_command,
    downloaded_with,
    find_endpoint,
    snapshot_of,
    stored_suggestions,
    suggestions,
)
from rdchat.hub.downloads.download import Download, DownloadState
from rdchat.hub.downloads.download_process import DownloadProcess
from rdchat.hub.downloads.download_record import begin_drafter
from rdchat.hub.hub_api import HubApi
from rdchat.hub.verifying_and_deleting import NoTrashError, Verdict
from rdchat.inference.api import NO_VISION, ModelCard, ModelPart
from rdchat.inference.library.local_models import named_card
from rdchat.services.models.deletion_and_verification import (
    RemovalQuestion,
    reason_not_to_delete,
    reason_not_to_verify,
    verdict_of,
)
from rdchat.wording import byte_rate, parameter_text, size_text, time_left

# Most results of a search.
_MAX = 100
_POLL_S = 0.2
# Fields of a search result in its JSON.
_PRINTED = (
    "repository", "downloads", "likes", "changed", "gated", "licence", "family", "quantization", "weight_bytes",
    "float_bits", "quantized_from",
)  # fmt: skip


def _card_of(args: argparse.Namespace) -> ModelCard:
    """Return the model that the options name; see `named_card`."""
    return named_card(args.model, args.revision, stored_settings().models_folder)


def list_models(args: argparse.Namespace) -> int:
    """Print the list."""
    from rdchat.inference.library.model_library import library_models  # noqa: PLC0415  slow to import

    models = [_listed(model) for model in library_models(stored_settings().models_folder)]
    names = {model["name"] for model in models if model["kind"] == "model"}
    # A name means one thing: a drafter with the name of a model is listed by its path.
    for model in models:
        if model["kind"] == "drafter" and model["name"] in names:
            model["name"] = model["path"]
    if not models and not args.json:
        print("No models yet. `rdchat models install-default` downloads the default one.", file=sys.stderr)
    print_result(args, {"models": models}, table([_row(model) for model in models]))
    return 0


def _row(model: dict[str, Any]) -> tuple[str, ...]:
    parameters = f"{parameter_text(model['parameters'])} parameters" if model["parameters"] else ""
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
    here = model.disk_bytes
    size = here
    part = "vision" if model.sees else "drafter"
    kind = part if model.is_drafter else "model"
    if unfinished:
        size = model.download_bytes
        command = download_command(model.repository, model.revision)
        problem = f"{here / size:.0%} downloaded; `{command}` resumes."
    return {
        # `--model`, `verify` and `delete` accept this name.
        "name": model.name if unfinished else model.listed_name,
        "place": model.origin,
        "path": "" if unfinished else str(model.path),
        "kind": "" if unfinished else kind,
        "family": model.family,
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
    from rdchat.inference.library.model_library import default_model  # noqa: PLC0415  slow to import

    with ProgressLine(verbose=True) as progress:
        folder = default_model(progress.show_stage)
    print(folder)
    return 0


def add_check_pair(parser: argparse.ArgumentParser) -> None:
    """Add the options of `check-pair`."""
    parser.add_argument("target", metavar="TARGET", help="name or path of the model")
    parser.add_argument("draft", metavar="DRAFT", help="name or path of the smaller draft model")


def check_pair(args: argparse.Namespace) -> int:
    """Print whether one model can draft for another; the exit status is 1 if it cannot."""
    from rdchat.inference.library.model_library import check_pair as compare  # noqa: PLC0415  slow to import

    verdict = compare(args.target, args.draft)
    print_result(args, {**asdict(verdict), "compatible": verdict.compatible}, str(verdict))
    return 0 if verdict.compatible else 1


def verify(args: argparse.Namespace) -> int:
    """Verify a model; the exit status is 1 if it is damaged or incomplete."""
    name = args.model
    card = _card_of(args)
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
    print_result(args, report, _verdict_lines(verdict))
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
        repair = download_command(verdict.name, verdict.commit)
        lines.append(f"{verdict.name} is damaged or incomplete. `{repair}` repairs it.")
    else:
        lines.append(f"{verdict.name} is damaged or incomplete. Download it again in LM Studio.")
    return [*lines, *filter(None, [verdict.version_text])]


def delete(args: argparse.Namespace) -> int:
    """Delete a model; the exit status is 1 if the person refuses."""
    card = _card_of(args)
    if reason := reason_not_to_delete(card):
        raise ModelError(f"rdchat cannot delete {args.model}.", reason)
    question = RemovalQuestion.for_model(replace(card, name=args.model))
    # Here the vision tower that was fetched for a model stays. It is a model of its own in the list.
    tower = question.tower
    question = replace(question, tower=None)
    if not agreed(args.yes, f"{args.model}: {question.question_text()}"):
        return 1
    try:
        question.delete_model(_move_to_trash)
    except NoTrashError as error:
        question = replace(question, has_trash=False)
        if not agreed(args.yes, f"{error} It will be deleted for good."):
            return 1
        question.delete_model(_move_to_trash)
    result = f"{args.model} is deleted." if question.for_good else f"{args.model} is in the Trash."
    result += f" Its vision stays; `rdchat models delete {tower.model.name}` deletes it." if tower else ""
    print_result(args, {"model": args.model, "restorable": not question.for_good}, result)
    return 0


def _move_to_trash(folder: Path) -> None:
    """Move a folder to the system's Trash; see `MoveToTrash`."""
    from send2trash import send2trash  # noqa: PLC0415  it looks for a desktop when imported

    send2trash(folder)


def _number(text: str) -> int:
    number = int(text)
    if not 1 <= number <= _MAX:
        raise argparse.ArgumentTypeError(f"give a number from 1 to {_MAX}")
    return number


def add_search(parser: argparse.ArgumentParser) -> None:
    """Add the options of `search`."""
    parser.add_argument("query", metavar="QUERY", help="words in the name")
    parser.add_argument("--sort", choices=("downloads", "likes", "date"), default="downloads", help="sort order")
    parser.add_argument("--limit", type=_number, default=20, metavar="N", help=f"most results, up to {_MAX}")
    parser.add_argument("--all", action="store_true", help="also models not marked as MLX")


def search(args: argparse.Namespace) -> int:
    """Print the models that the hub finds."""
    api = HubApi(Tokens().access(find_endpoint()))
    sort: SortBy = "last_modified" if args.sort == "date" else args.sort
    results = api.search_models(args.query, sort=sort, limit=args.limit, tag="" if args.all else "mlx")
    if not results and not args.json:
        print("No model found. `--all` also finds models not marked as MLX.", file=sys.stderr)
    rows = [
        (
            model.repository,
            model.family,
            model.quantization,
            size_text(model.weight_bytes) if model.weight_bytes is not None else "",
            model.licence,
            f"{model.downloads:,} downloads",
            f"{model.likes:,} likes",
            model.changed,
            "gated" if model.gated else "",
        )
        for model in results
    ]
    models = [{name: getattr(model, name) for name in _PRINTED} for model in results]
    print_result(args, {"models": models}, table(rows))
    return 0


def suggested(args: argparse.Namespace) -> int:
    """Print the models for newcomers, each with its drafter, by the memory that they need."""
    rows = []
    for each in suggestions():
        own = each.drafter
        size = size_text(each.weight_bytes + own.weight_bytes)
        sees = "for images" if each.sees else ""
        rows.append(
            (f"{each.memory_gb} GB", each.repository, size, f"with {own.repository}", own.kind, each.licence, sees)
        )
    print_result(args, {"models": stored_suggestions()}, table(rows))
    return 0


def add_download(parser: argparse.ArgumentParser) -> None:
    """Add the options of `download`."""
    parser.add_argument("repository", metavar="REPO", help="hub id, such as mlx-community/SmolLM2-135M-Instruct")
    parser.add_argument("--revision", default="main", metavar="R", help="a branch, tag or commit")
    help_text = "leave out its suggested drafter, for this command only: the app gets both when it resumes the download"
    parser.add_argument("--no-drafter", action="store_true", help=help_text)


def download(args: argparse.Namespace) -> int:
    """Download a model with its suggested drafter; Ctrl-C pauses, and the same command resumes."""
    check_names(args.repository, args.revision)
    find_endpoint()
    named = args.repository, args.revision
    request = Download(*named)
    command = f"{download_command(*named)}{' --no-drafter' * args.no_drafter}"
    ended = run_download(request, command)
    if ended is None:
        return INTERRUPTED
    drafter = None if args.no_drafter else downloaded_with(*named)
    if drafter is not None and snapshot_of(drafter.repository) is None:
        try:
            if run_download(Download(drafter.repository, is_model=False), command) is None:
                return INTERRUPTED
        except NetworkError as error:
            text = f"Its drafter could not be downloaded. {error} The model works without it."
            print(f"{text} `{download_command(drafter.repository)}` gets it later.", file=sys.stderr)
            drafter = None
    report = {name: getattr(ended, name) for name in ("repository", "revision", "commit", "folder")}
    report["drafter"] = drafter.repository if drafter is not None else ""
    report |= {"bytes": ended.total_bytes, "fetched_bytes": ended.fetched_bytes, "files_left_out": ended.left_out}
    print_result(args, report, ended.folder)
    return 0


def run_download(download: Download, command: str) -> Download | None:
    """Run a download, and show its progress.

    Args:
        download: The download.
        command: The command that resumes it.

    Returns:
        The finished download; None if Ctrl-C paused it.

    Raises:
        NetworkError: If it fails.
    """
    records: queue.SimpleQueue[Download] = queue.SimpleQueue()
    with closing(DownloadProcess(Tokens())) as process:
        job = process.start_download(download, records.put)
        with ProgressLine(verbose=True) as line, ctrl_c_calls(job.cancel):
            ended = _watch(records, line)
    if ended.state is DownloadState.PAUSED:
        here = f"{ended.done_bytes / ended.total_bytes:.0%} downloaded. " if ended.total_bytes else ""
        print(f"Paused: {here}`{command}` resumes it.", file=sys.stderr)
        return None
    if ended.state is not DownloadState.FINISHED:
        raise NetworkError(ended.problem, ended.hint)
    return ended


def _watch(records: queue.SimpleQueue[Download], line: ProgressLine) -> Download:
    """Show progress until the download ends; return its last record."""
    notes: tuple[str, ...] = ()
    while True:
        try:
            # The limit lets Ctrl-C be noticed.
            progress = records.get(timeout=_POLL_S)
        except queue.Empty:
            continue
        if progress.state.has_ended:
            return progress
        # A log gets only one line while the hub has not answered.
        if progress.files or sys.stderr.isatty():
            line.show_text(_progress_text(progress), stage=progress.state.value)
        if progress.notes and progress.notes != notes:
            line.print_line(progress.notes[0])
        notes = progress.notes


def _progress_text(progress: Download) -> str:
    name = progress.repository
    if not progress.total_bytes or progress.state.value == "asking":
        return f"{name}: asking the hub"
    share = progress.done_bytes / progress.total_bytes
    text = f"{name}: {progress.state.value} {share:4.0%} of {size_text(progress.total_bytes)}"
    if progress.bytes_per_second and progress.seconds_left is not None:
        text += f", {byte_rate(progress.bytes_per_second)}, {time_left(progress.seconds_left)}"
    return text


def add_token(parser: argparse.ArgumentParser) -> None:
    """Add the options of `token`."""
    parser.add_argument("--forget", action="store_true", help="remove the token")


def token(args: argparse.Namespace) -> int:
    """Store the hub's token in the system's keychain, or remove it."""
    endpoint = find_endpoint()
    tokens = Tokens()
    if args.forget:
        text = "was removed" if tokens.forget_token(endpoint) else "was not stored"
        print(f"The token for {endpoint.host} {text}.")
        return 0
    if sys.stdin is None:
        raise InvalidSettingError("Standard input is closed.", "Pipe the token into the command.")
    question = f"Token for {endpoint.host} (from {endpoint.token_page}; it is not shown): "
    text = getpass.getpass(question) if sys.stdin.isatty() else sys.stdin.readline()
    if not tokens.remember(Token(text.strip()), endpoint):
        raise RdchatError("This computer has no keychain for the token.", "Set HF_TOKEN instead.")
    print(f"The token for {endpoint.host} is stored in the keychain.")
    return 0


def add_mtp(parser: argparse.ArgumentParser) -> None:
    """Add the options of `mtp`."""
    text = "hub id of the model's original, if the model's card does not name it"
    parser.add_argument("--from", dest="original", default="", metavar="ORG/NAME", help=text)


add_vision = add_mtp


def vision(args: argparse.Namespace) -> int:
    """Get the vision tower of a copy that has none; see `mtp`."""
    return mtp(args, ModelPart.VISION)


def mtp(args: argparse.Namespace, part: ModelPart = ModelPart.MTP) -> int:
    """Get MTP layers, or another part, or resume; Ctrl-C pauses. The exit status is 1 if the person refuses."""
    # The other commands need neither MLX nor NumPy.
    from rdchat.inference.library.model_library import check_fetched_layers, find_part  # noqa: PLC0415

    api = HubApi(Tokens().access(find_endpoint()))
    with ProgressLine() as line:
        line.show_text(f"{args.model}: looking for its {part}", "asking")
        plan = find_part(api, _card_of(args), args.original, part)
    if plan is None:
        text = f"Neither the hub nor the card of {args.model} says which model it was quantised from."
        raise ModelError(text, "Name its original: --from ORG/NAME.")
    what = f"{NO_VISION} Its original has" if part is ModelPart.VISION else f"MTP layers for {args.model}"
    text = f"{what}: {size_text(plan.size)} to download from {plan.repository}. Only that part is kept."
    if not agreed(args.yes, text):
        return 1
    command = ["rdchat", "models", part.name.lower(), args.model, "--yes"]
    command += ["--revision", args.revision] if args.revision != "main" else []
    ended = run_download(begin_drafter(plan), shlex.join(command))
    if ended is None:
        return INTERRUPTED
    if part is ModelPart.MTP:
        check_fetched_layers(Path(ended.folder))
    report = {name: getattr(ended, name) for name in ("repository", "commit", "folder", "fetched_bytes")}
    print_result(args, {"model": args.model, **report, "bytes": plan.size}, ended.folder)
    return 0
