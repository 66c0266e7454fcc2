"""A benchmark as files: CSV, JSON, or a picture."""

import json
from pathlib import Path

from rdchat.errors import StorageError
from rdchat.inference.benchmark.csv_format import write_csv
from rdchat.inference.benchmark.picture_data import picture_data
from rdchat.inference.benchmark.report import as_json, summarise
from rdchat.inference.benchmark.results import BenchRecord
from rdchat.ui.plots.picture_files import PICTURE_TYPES, plot_of, save_picture

EXPORT_TYPES = (".csv", ".json", *PICTURE_TYPES)


def export(record: BenchRecord, path: Path) -> None:
    """Write a benchmark in the format that the file's name ends in.

    Raises:
        RdchatError: If the name ends in another one, or the file cannot be written.
    """
    kind = path.suffix.lower()
    if kind not in {".csv", ".json"}:
        save_picture(plot_of(picture_data(record.plan, record.runs)), path)
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            if kind == ".csv":
                write_csv(file, record)
            else:
                report = as_json(record.environment, record.plan, summarise(record.plan, record.runs))
                json.dump(report, file, ensure_ascii=False, indent=2)
    except OSError as error:
        raise StorageError(f"The file {path} cannot be written: {error.strerror}.", "Choose another place.") from error
