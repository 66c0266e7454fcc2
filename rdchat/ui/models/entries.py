"""The texts of the Models window about models, drafters and downloads, and the entries of its lists. Pure functions.

In this order: models and drafters on this machine, downloads, models of the hub, and then `Entry`, one row of a list,
with the functions that make the entries of both pages. Colours are given by their names in
`Colors`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from rdchat.hub import WINDOW_HINTS, HubModel, Lack, Suggestion, suggestions
from rdchat.hub.downloads.download import Download, DownloadFile, DownloadState
from rdchat.inference.api import DraftKind, Fit, ModelCard, ModelPart, ModelSizes
from rdchat.services.models.fit import Machine, Model, pair_bytes, sizes_read, sizes_suggested
from rdchat.services.models.larger_model import for_machine, suggested_fit
from rdchat.ui.models.memory_section import judge
from rdchat.ui.style import MACHINE, NONE, SEES, listed, percent
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
# The mark of a model that does not simply fit, with its colour.
_FIT_MARKS = {Fit.TIGHT: ("Tight", "warning"), Fit.TOO_LARGE: ("Too large", "muted")}


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


@dataclass(frozen=True, slots=True)
class Entry:
    """A model in the list, or a heading.

    Attributes:
        key: Identifies the model, while its figures change; empty for a heading.
        title: The name, or the heading.
        facts: Below the name, at the left.
        use: Below the name, at the right.
        marks: Texts beside the name, at the right, each with the name of its colour.
        color: Colour of the name.
        tip: Its tooltip.
        item: The model or the computer.
    """

    key: str
    title: str
    facts: str = ""
    use: str = ""
    marks: tuple[tuple[str, str], ...] = ()
    color: str = "text"
    tip: str = ""
    item: Any = None

    @property
    def spoken(self) -> str:
        """All of it, for a screen reader."""
        parts = (self.title, *(mark for mark, _ in self.marks), self.facts.replace(DOT, ", "), self.use)
        return ", ".join(part for part in parts if part)


class SortBy(StrEnum):
    """The order of the list."""

    NAME = "Name"
    SIZE = "Size"
    NEWEST = "Newest"


def entries_of(rows: Iterable[ModelCard], searched: str, sort: SortBy, loaded: ModelCard | None) -> list[Entry]:
    """Return the entries of this computer: models, then drafters, that have all words of a search.

    Args:
        rows: The models and drafters on this machine.
        searched: What is typed into the search field.
        sort: The order of the models, and that of the drafters.
        loaded: The loaded model, which gets a mark.
    """
    words = searched.casefold().split()
    matches = [row for row in rows if all(word in _searched(row) for word in words)]
    matches.sort(
        key=lambda row: (row.is_drafter, _order(row, sort), short_name(row.name).casefold(), row.name.casefold())
    )
    models = [row.name for row in matches if not row.is_drafter]
    entries: list[Entry] = []
    for row in matches:
        heading = Entry("", "Drafters" if row.is_drafter else "Models")
        if heading not in entries:
            entries.append(heading)
        entry = Entry(
            key_of(row),
            short_name(drafter_name(row, models) if row.is_drafter else row.name),
            row_line(row),
            marks=(("Loaded", "success"),) if row is loaded else (),
            color="warning" if row.problem or row.is_unfinished else "text",
            tip=row.name,
            item=row,
        )
        entries.append(entry)
    return entries


def downloads_entry(listed: Sequence[Download]) -> Entry:
    """Return the entry of all downloads: how many there are, and how much of those that run is here."""
    going = [each for each in listed if not each.state.has_ended]
    failed = any(each.state is DownloadState.FAILED for each in listed)
    mark = (percent(share(*going) or 0.0), "muted") if going else ("Stopped", "danger")
    facts = totals_text(going) or counted(len(listed), "download")
    return Entry("downloads", "Downloads", facts, marks=(mark,) if going or failed else ())


def key_of(row: ModelCard) -> str:
    """Return a key that stays the same while the row's figures change."""
    return f"{'download' if row.is_unfinished else 'model'} {row.path}"


def _searched(row: ModelCard) -> str:
    """Return the text in which a search looks for its words."""
    kind = "drafter" if row.is_drafter else ""
    return f"{row.name} {row.family} {kind} {row.quantization} {row.origin}".casefold()


def _order(row: ModelCard, sort: SortBy) -> float:
    if sort is SortBy.SIZE:
        return -row.disk_bytes
    if sort is SortBy.NEWEST:
        return -row.changed
    return 0.0


def results_listed(models: Sequence[HubModel], machine: Machine | None, here: frozenset[str]) -> list[Entry]:
    """Return an entry of the page Find for each model that a search found, in the same order.

    Args:
        models: The models.
        machine: Decides whether they fit; None while its memory is unknown.
        here: Hub ids of the models on this machine.
    """
    entries = []
    for model in models:
        publisher, _, name = model.repository.partition("/")
        facts = joined(publisher, model.quantization, size(model.weight_bytes))
        entry = Entry(model.repository, name, facts, f"{compact(model.downloads)} downloads", item=model)
        entries.append(_with_fit(entry, sizes_read(model), machine, here, gated=model.gated))
    return entries


def newcomer_entries(machine: Machine | None, here: frozenset[str]) -> list[Entry]:
    """Return the suggested models by the memory that they are for, which the page Find lists before a search.

    The group that fits this machine best comes first, and those that are too large come last. What a suggestion is for
    counts only where the machine is unknown: on a CPU a model needs more.
    """
    fitting = for_machine(machine) if machine is not None else ()
    best = fitting[0].memory_gb if fitting else 0

    def rank(each: Suggestion) -> tuple[bool, bool, int]:
        too_large = machine is not None and suggested_fit(each, machine) is Fit.TOO_LARGE
        return too_large, each.memory_gb != best, each.memory_gb

    entries: list[Entry] = []
    for each in sorted(suggestions(), key=rank):
        too_large, is_other, memory = rank(each)
        heading = f"For {memory} GB of memory"
        if too_large:
            heading = f"Too large for {MACHINE}"
        elif machine is not None:
            heading = f"{'Also fits' if is_other else 'Best for'} {MACHINE}"
        if Entry("", heading) not in entries:
            entries.append(Entry("", heading))
        both = size(each.weight_bytes + each.drafter.weight_bytes)
        marks = (("For images", "muted"),) if each.sees else ()
        entry = Entry(each.repository, each.name, f"{both} with its drafter", marks=marks)
        entries.append(_with_fit(entry, sizes_suggested(each), machine, here, gated=False))
    return entries


def _with_fit(
    entry: Entry, sizes: ModelSizes | None, machine: Machine | None, here: frozenset[str], *, gated: bool
) -> Entry:
    """Return the entry of a hub model, whose key is its hub id, with what depends on this machine.

    That is marks for an installed, gated, tight or too large one, its id and verdict as the tooltip, and the memory
    that it needs in place of its downloads if it is too large. It is judged by the whole memory; see `Machine.fit`.
    """
    marks = list(entry.marks)
    use = entry.use
    tip = entry.key
    if entry.key in here:
        marks.append(("Installed", "success"))
    if gated:
        marks.append(("Gated", "muted"))
    if machine is not None and sizes is not None:
        need = machine.need(sizes, pair_bytes(entry.key))
        memory = machine.when_idle.memory
        fit = need.fit(memory.room)
        if fit in _FIT_MARKS:
            marks.append(_FIT_MARKS[fit])
            # Twice the same need: no context is chosen here.
            tip += f"\n{judge(need, need, memory)[0]}"
        if fit is Fit.TOO_LARGE:
            use = f"needs {size_text(need.total_bytes)}"
    return replace(entry, use=use, marks=tuple(marks), tip=tip)
