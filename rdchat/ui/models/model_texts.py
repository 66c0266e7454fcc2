"""The texts of the Models window about models and drafters on this machine, downloads, and models of the hub.

Colours are given by their names in `Colors`.
"""

from collections.abc import Iterable, Sequence
from datetime import date
from typing import TYPE_CHECKING

from rdchat.hub import WINDOW_HINTS, HubModel, Lack
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.inference.api import DraftKind, ModelCard, ModelPart
from rdchat.services.models.fit import Model
from rdchat.ui.style import NONE, SEES, listed, percent
from rdchat.wording import byte_rate, counted, parameter_text, part_text, size_text, time_left

if TYPE_CHECKING:
    from rdchat.hub.verifying_and_deleting import Verdict

DOT = "  ·  "
_NAMED_FILES = 3
_SUPPORT = {
    DraftKind.TREE: "Fully supported",
    DraftKind.CHAIN: "Supported, one draft per step",
    DraftKind.FED_AGAIN: "Supported, one draft per step; after a wrong token the right ones are computed again",
    DraftKind.NONE: "Not supported",
}
# At a lower speed, in bytes a second, the time left is not shown.
_MIN_SPEED = 1000
# States of a download without figures of their own.
_GOING = {
    DownloadState.WAITING: "Waiting",
    DownloadState.ASKING: "Getting the list of files…",
    DownloadState.CHECKING: "Checking the files…",
}
_STOPPED = {DownloadState.PAUSED: "Paused", DownloadState.FAILED: "Stopped"}
_NBSP = "\N{NO-BREAK SPACE}"
_MAX_LEFT_OUT = 30
_FAMILY = "The architecture, by its name in mlx-lm"
_STORED_AS = "Precision of the weights in the files"
Fact = tuple[str, str, str]
"""A fact of a model: name, value and explanation."""


# Models and drafters on this machine


def short_name(name: str) -> str:
    """Return a name without its publisher."""
    return name.rpartition("/")[2]


def drafter_name(drafter: ModelCard, models: Iterable[str]) -> str:
    """Return a drafter's name; if one of some models has the same short name, `Drafter for MODEL`."""
    name = short_name(drafter.name).casefold()
    for model in map(short_name, models):
        if model.casefold() == name:
            return f"Drafter for {model}"
    return drafter.name


def row_line(row: ModelCard) -> str:
    """Return the second line of a model's entry: sizes, kind, and what is wrong."""
    if row.is_unfinished:
        share = min(row.disk_bytes / row.download_bytes, 0.99)
        return joined("Unfinished", f"{percent(share)} of {size_text(row.download_bytes)}")
    on_disk = size(row.disk_bytes)
    kind = "Vision of a model" if row.sees and row.is_drafter else ""
    if row.problem:
        return joined(on_disk, kind, "cannot be used" if row.is_drafter else "cannot be loaded")
    version = f"version {row.revision[:12]}" if row.repository and row.revision != "main" else ""
    sees = SEES if row.sees and not row.is_drafter else ""
    return joined(on_disk, kind, sees, version)


def joined(*parts: str) -> str:
    """Return the parts that are not empty in one line."""
    return DOT.join(part for part in parts if part)


def drafter_kind(model: ModelCard) -> str:
    """Return what a drafter's card is: "EAGLE-3 drafter", or the vision tower of a model, which has such a card too."""
    drafter = f"{model.family} drafter" if model.family else "Drafter"
    return "Vision of a model" if model.sees else drafter


def facts_of(model: ModelCard, draft_models: Iterable[ModelCard] = ()) -> list[Fact]:
    """Return the facts of a model on this machine, for which some smaller models can draft."""
    sizes = model.sizes
    if model.is_unfinished:
        here = f"{size_text(model.disk_bytes)} of {size_text(model.download_bytes)}"
        return [("On disk", here, "Downloaded so far"), ("Version", model.revision, "Branch or commit")]
    on_disk = ("On disk", size_text(model.disk_bytes), "Size of all its files")
    if model.is_drafter:
        facts = [("Kind", drafter_kind(model), "What it does for a model"), on_disk]
    else:
        facts = [
            ("Family", model.family or "Unknown", _FAMILY),
            ("Parameters", parameter_text(sizes.parameters) if sizes else NONE, "Number of weights"),
            ("Stored as", model.quantization or NONE, _STORED_AS),
            on_disk,
        ]
        if model.sees:
            facts.append(("Images", "Sees them", "It takes images of a chat"))
    if sizes is not None:
        facts.append(("Context", f"{sizes.context_length:,} tokens", "Limit for prompt and reply together"))
    if model.repository and model.revision != "main":
        facts.append(("Version", model.revision, "Branch or commit in the Hugging Face cache"))
    if model.can_be_loaded:
        support, reason = support_text(model)
        smaller = "\n".join(short_name(other.name) for other in draft_models) or "None on this machine"
        facts += [
            ("Drafting", f"{support}\n{reason}" if model.tried and reason else support, reason),
            ("Draft models", smaller, "Smaller models with the same tokenizer"),
        ]
    return facts


def support_text(model: ModelCard) -> tuple[str, str]:
    """Return how far drafting works with a model, and what limits it."""
    if model.tried is None:
        return "Tested when loaded", "rdchat tests drafting when it loads the model."
    reason = f"Reason: {model.tried.reason}." if model.tried.reason else ""
    return _SUPPORT[model.tried.kind], reason


def verdict_text(verdict: "Verdict") -> tuple[str, str]:
    """Return the result of a verification in words, and the name of its colour."""
    problem = f" {verdict.hub_problem}" if verdict.hub_problem else ""
    version = f" {verdict.version_text}" if verdict.version_text else ""
    if verdict.is_intact:
        files = counted(len(verdict.intact), "file")
        summary = "The local files are intact." if problem else f"Verified: {files} intact."
        return f"{summary}{version}{problem}", "warning" if problem else "success"
    wrong = {"damaged": verdict.damaged, "missing": verdict.missing, "outside its folder": verdict.astray}
    parts = [f"{text}: {listed(names, _NAMED_FILES)}" for text, names in wrong.items() if names]
    summary = "; ".join(parts) or "Hugging Face has none of its files"
    return f"Not intact. {summary[:1].upper()}{summary[1:]}.{version}{problem}", "danger"


def drafter_facts(model: Model) -> str:
    """Return the facts of a drafter in one line: its kind, whether it fits, its size and where it is from.

    They come from its card if it is on this machine, without its kind, else from the hub.
    """
    card = model.card
    hub = model.hub
    if card is not None:
        match = "" if card.match is None else "built for this model" if card.match.sure else "may fit"
        return joined(match, size(card.disk_bytes), card.origin)
    if hub is not None:
        tokenizer = "same tokenizer" if hub.same_tokenizer else ""
        gated = "gated" if hub.gated else ""
        kind = hub.kind.value if hub.kind else ""
        downloads = counted(hub.downloads, "download") if hub.downloads else ""
        return joined(kind, size(hub.download_bytes), tokenizer, hub.licence, gated, downloads)
    return ""


def drafter_problem(model: Model, problem: str) -> str:
    """Return why a drafter cannot be used, or why that is not sure; `problem` is what the engine says, if anything."""
    if model.card is not None and model.card.match is not None and not model.card.match.sure:
        return problem or model.card.match.text
    return problem or (model.hub.problem if model.hub is not None else "")


# Downloads


def download_title(progress: Download) -> str:
    """Return the name of the download, with the revision that was asked for."""
    if progress.drafter:
        return joined(progress.repository, ModelPart.in_folder(progress.drafter))
    revision = progress.revision if progress.revision != "main" else ""
    pair = progress.companion
    return joined(progress.repository, revision, "with its drafter" if pair else "")


def state_text(progress: Download) -> str:
    """Return the state of a download in one line.

    In this order: it is complete, stopped, waits or asks, has all bytes and is checked, or how much is here, how fast.
    """
    done = progress.done_bytes
    total = progress.total_bytes
    here = part_text(done, total) if total else ""
    if progress.state is DownloadState.FINISHED:
        return f"{size_text(total)}{DOT}complete{'' if progress.drafter else ' and checked'}"
    if stopped := _STOPPED.get(progress.state):
        return f"{stopped}{DOT}{f'{here} downloaded' if done else 'nothing downloaded yet'}"
    if going := _GOING.get(progress.state):
        return f"{going}{DOT}{here}" if here and progress.state is DownloadState.WAITING else going
    if done == total:
        return f"{size_text(total)} downloaded{DOT}checking…"
    return _progress_text(here, progress.bytes_per_second, progress.seconds_left)


def share(*downloads: Download) -> float | None:
    """Return the downloaded share of downloads, from 0 to 1; None before the hub has named a file."""
    total = sum(download.total_bytes for download in downloads)
    return sum(download.done_bytes for download in downloads) / total if total else None


def file_text(file: DownloadFile) -> str:
    """Return the downloaded part of a file; only the size of a complete file."""
    return size_text(file.size) if file.done_bytes >= file.size else part_text(file.done_bytes, file.size)


def _progress_text(here: str, speed: float | None, left: float | None) -> str:
    if not speed or speed < _MIN_SPEED:
        return here
    return joined(here, byte_rate(speed), time_left(left) if left is not None else "")


def note_text(progress: Download) -> str:
    """Return the connection problem of a running download; empty without one."""
    notes = list(dict.fromkeys(progress.notes))
    if not notes:
        return ""
    return notes[0] if len(progress.notes) == 1 else f"{notes[0]} ({len(progress.notes)} files)"


def problem_text(progress: Download) -> tuple[str, str]:
    """Return why a download failed, and what to do about it."""
    return progress.problem, WINDOW_HINTS[Lack(progress.lack)] if progress.lack else progress.hint


def totals_text(going: Sequence[Download]) -> str:
    """Return the sums of the running downloads in one line; empty for none.

    The time left is that of all bytes at the present speed, but no shorter than that of any one download.
    """
    if not going:
        return ""
    done = sum(each.done_bytes for each in going)
    total = sum(each.total_bytes for each in going)
    speed = sum(each.bytes_per_second or 0.0 for each in going)
    left = max([(total - done) / speed, *(each.seconds_left or 0.0 for each in going)]) if speed else None
    here = part_text(done, total) if total else ""
    return joined(counted(len(going), "download"), _progress_text(here, speed, left))


# Models of the hub


def compact(number: int) -> str:
    """Return a number with two or three figures: `987`, `1.4 K`, `32 K` or `1.4 M`."""
    if number < 1000:
        return str(number)
    if number < 999_500:
        return f"{number / 1e3:.{1 if number < 9_950 else 0}f} K"
    return f"{number / 1e6:.{1 if number < 9.95e6 else 0}f} M"


def size(count: int | None) -> str:
    """Return `4.61 GB`; empty where it is not known."""
    return size_text(count) if count else ""


def day(changed: str) -> str:
    """Return `1 Nov 2026` for `2026-11-01`; empty where it is no day."""
    try:
        then = date.fromisoformat(changed)
    except ValueError:
        return ""
    return f"{then.day}{_NBSP}{then:%b}{_NBSP}{then.year}"


def hub_facts(model: HubModel) -> list[Fact]:
    """Return the facts of a model of the hub."""
    used = f"{counted(model.downloads, 'download')} last month, {counted(model.likes, 'like')}"
    return [
        ("Family", model.family or "Unknown", _FAMILY),
        ("Stored as", model.quantization or NONE, _STORED_AS),
        ("Weights", size(model.weight_bytes) or "Unknown", "Size of the weights"),
        ("Licence", model.licence or "None given", "As its authors call it"),
        ("Used", used, "On Hugging Face"),
        ("Changed", day(model.changed) or "Unknown", "The day of the last change"),
    ]


def left_out_text(names: tuple[str, ...]) -> str:
    """Return which files of a repository are not downloaded; empty for none."""
    if not names:
        return ""
    return f"Not downloaded, as rdchat never reads code or pickles: {listed(names, _MAX_LEFT_OUT)}."
