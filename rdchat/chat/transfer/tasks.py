"""The long tasks, each from plain JSON to plain JSON, so that a child process can do it for a window."""

from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rdchat.chat.backup.backup_file import back_up
from rdchat.chat.backup.restore import prepare
from rdchat.chat.plain_data import from_plain
from rdchat.chat.transfer.chat_reader import visible_ids
from rdchat.chat.transfer.chat_writer import hide_chats
from rdchat.chat.transfer.connections import reading, writing
from rdchat.chat.transfer.exporting import Export
from rdchat.chat.transfer.importing import Import
from rdchat.chat.transfer.reports import Progress
from rdchat.inference.api.requests import SamplingParams

type Tell = Callable[[Progress], object]
type Check = Callable[[], object]
type Task = dict[str, Any]


def import_task(database: Path, paths: list[Path], *, considerate: bool) -> Task:
    """Import files into the store; the result is an `ImportReport`."""
    return {"do": "import", "database": str(database), "paths": [str(path.absolute()) for path in paths],
            "considerate": considerate}  # fmt: skip


def export_task(
    database: Path,
    path: Path,
    kind: str,
    chats: list[int] | None,
    *,
    details: bool,
    system_prompt: str,
    sampling: SamplingParams,
) -> Task:
    """Export chats; the result is an `ExportReport`.

    Args:
        database: The store's file.
        path: What is to be written.
        kind: `json`; `markdown` for a file of one chat; `folder` for a folder with a file of Markdown each.
        chats: Their ids; None for all.
        details: Whether Markdown has settings and statistics.
        system_prompt: Of the preferences.
        sampling: Likewise.
    """
    preferences = {"system_prompt": system_prompt, "sampling": asdict(sampling)}
    return {"do": "export", "database": str(database), "path": str(path.absolute()), "kind": kind, "chats": chats,
            "details": details} | preferences  # fmt: skip


def backup_task(database: Path, settings: Path, path: Path) -> Task:
    """Back the whole store up into a file; the result is the `BackupFacts`."""
    return {"do": "backup", "database": str(database), "settings": str(settings), "path": str(path.absolute())}


def prepare_task(source: Path, data: Path, settings: Path | None = None) -> Task:
    """Prepare a restore (`backup.restore`); the result is the `BackupFacts`."""
    return {"do": "prepare", "source": str(source.absolute()), "data": str(data),
            "settings": None if settings is None else str(settings)}  # fmt: skip


def hide_task(database: Path, chats: list[int]) -> Task:
    """Delete chats, as it can be undone."""
    return {"do": "hide", "database": str(database), "chats": chats}


def run_task(task: Task, tell: Tell, check: Check) -> dict[str, Any]:
    """Do a task and return its result.

    Args:
        task: One of those above.
        tell: Called with where it stands.
        check: Called often; raises `CancelledError` to stop.

    Raises:
        StorageError: If it cannot be done.
    """
    return _TASKS[task["do"]](task, tell, check)


def _import(task: Task, tell: Tell, check: Check) -> dict[str, Any]:
    importing = Import(Path(task["database"]), tell, check, considerate=task["considerate"])
    return importing.run([Path(path) for path in task["paths"]]).to_json()


def _export(task: Task, tell: Tell, check: Check) -> dict[str, Any]:
    sampling = from_plain(SamplingParams(), task["sampling"])[0]
    path = Path(task["path"])
    with reading(Path(task["database"])) as connection:
        export = Export(connection, tell, check, system_prompt=task["system_prompt"], sampling=sampling)
        chats = visible_ids(connection) if task["chats"] is None else task["chats"]
        if task["kind"] == "json":
            report = export.as_json(path, chats)
        elif task["kind"] == "markdown":
            report = export.as_markdown(path, chats[0], details=task["details"])
        else:
            report = export.as_folder(path, chats, details=task["details"])
    return asdict(report)


def _backup(task: Task, tell: Tell, check: Check) -> dict[str, Any]:
    with reading(Path(task["database"])) as connection:
        return asdict(back_up(connection, Path(task["settings"]), Path(task["path"]), tell, check))


def _prepare(task: Task, tell: Tell, check: Check) -> dict[str, Any]:
    settings = None if task["settings"] is None else Path(task["settings"])
    return asdict(prepare(Path(task["source"]), Path(task["data"]), tell, check, settings))


def _hide(task: Task, _tell: Tell, _check: Check) -> dict[str, Any]:
    with writing(Path(task["database"])) as connection:
        hide_chats(connection, task["chats"])
    return {"chats": len(task["chats"])}


_TASKS: Mapping[str, Callable[[Task, Tell, Check], dict[str, Any]]] = {
    "import": _import, "export": _export, "backup": _backup, "prepare": _prepare, "hide": _hide,
}  # fmt: skip
