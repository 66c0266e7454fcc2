"""A benchmark as files: CSV, JSON, or a picture."""

import json
from pathlib import Path

from rdchat.errors import InvalidSettingError, StorageError
from rdchat.inference.api.bench_results import BenchRecord
from rdchat.inference.benchmark.csv_format import write_csv
from rdchat.inference.benchmark.picture_data import picture_data
from rdchat.inference.benchmark.report import as_json
from rdchat.ui.plots.picture_files import PICTURE_TYPES, plot_of, save_picture

EXPORT_TYPES = (".csv", ".json", *PICTURE_TYPES)


def export(record: BenchRecord, path: Path) -> None:
    """Write a benchmark in the format that the file's name ends in.

    Raises:
        RdchatError: If the name ends in another one, or the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in EXPORT_TYPES:
        *others, last = EXPORT_TYPES
        ends = f"{', '.join(others)} or {last}"
        raise InvalidSettingError(f"{path.name} cannot be exported: its name must end in {ends}.")
    if kind not in {".csv", ".json"}:
        save_picture(plot_of(picture_data(record.plan, record.runs)), path)
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            if kind == ".csv":
                write_csv(file, record)
            else:
                json.dump(as_json(record), file, ensure_ascii=False, indent=2)
    except OSError as error:
        raise StorageError(f"The file {path} cannot be written: {error.strerror}.", "Choose another place.") from error
