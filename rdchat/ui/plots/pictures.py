"""Saves pictures as PNG, SVG or PDF. Qt is imported for PNG and PDF only."""

from collections.abc import Sequence
from pathlib import Path

from rdchat.errors import InvalidSettingError
from rdchat.files.atomic_file import atomic_file
from rdchat.inference.benchmark.charts import Charts
from rdchat.ui.plots.drawing import PAPER, Drawing, Measure, Palette, Plot, rough_width
from rdchat.ui.plots.heat_map import HeatMapPlot
from rdchat.ui.plots.speed_bars import SpeedBars
from rdchat.ui.plots.svg import svg

PICTURE_TYPES = (".png", ".svg", ".pdf")
_WIDTH, _MARGIN = 672.0, 24.0


def plots_of(charts: Charts) -> list[Plot]:
    """Return everything that a benchmark has to draw, from the top down."""
    maps: list[Plot] = [HeatMapPlot(heat_map) for heat_map in charts.maps]
    return [SpeedBars(charts.bars), *maps] if charts.bars or not maps else maps


def drawn(
    plots: Sequence[Plot], width: float = _WIDTH, palette: Palette = PAPER, measure: Measure = rough_width
) -> Drawing:
    """Return plots one below the other, in light colours, as on paper."""
    drawing = Drawing(width, palette, measure)
    for plot in plots:
        plot.draw(drawing)
    return drawing


def check_picture_name(path: Path) -> None:
    """Refuse a name whose ending is not that of a picture.

    Raises:
        InvalidSettingError: If it is not one of `PICTURE_TYPES`.
    """
    if path.suffix.lower() not in PICTURE_TYPES:
        raise InvalidSettingError(f"{path.name} cannot be drawn: a picture's name ends in .png, .svg or .pdf.")


def save_picture(plots: Sequence[Plot], path: Path) -> None:
    """Draw plots into a file. The file is whole or as it was before.

    Raises:
        InvalidSettingError: If the name does not end in .png, .svg or .pdf.
        StorageError: If the file cannot be written.
    """
    check_picture_name(path)
    kind = path.suffix.lower()
    if kind == ".svg":
        content = svg(drawn(plots), _MARGIN, alone=True).encode()
    else:
        from rdchat.ui.plots.painting import as_file  # noqa: PLC0415  Qt: only for these

        content = as_file(kind, lambda measure: drawn(plots, measure=measure), _MARGIN)
    with atomic_file(path) as file:
        file.write_bytes(content)
