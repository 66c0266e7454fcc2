"""A benchmark as files: CSV, JSON, or a picture."""

import json
from pathlib import Path

from rdchat.errors import InvalidSettingError, StorageError
from rdchat.inference.benchmark.charts import Charts
from rdchat.inference.benchmark.csv_format import write_csv
from rdchat.inference.benchmark.result import BenchResult
from rdchat.ui.plots.pictures import PICTURE_TYPES, plots_of, save_picture

EXPORT_TYPES = (".csv", ".json", *PICTURE_TYPES)


def export(result: BenchResult, path: Path) -> None:
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
        save_picture(plots_of(Charts.of(result)), path)
        return
    try:
        with path.open("w", encoding="utf-8", newline="") as file:
            if kind == ".csv":
                write_csv(file, result)
            else:
                json.dump(result.as_json(), file, ensure_ascii=False, indent=2)
    except OSError as error:
        raise StorageError(f"The file {path} cannot be written: {error.strerror}.", "Choose another place.") from error
