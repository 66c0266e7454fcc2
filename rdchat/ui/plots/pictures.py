"""Saves plots as PNG, SVG or PDF. Qt is imported for PNG and PDF only."""

from collections.abc import Sequence
from html import escape
from pathlib import Path

from rdchat.errors import InvalidSettingError
from rdchat.files.atomic_file import atomic_file
from rdchat.ui.plots.drawing import PAPER, Drawing, Measure, Palette, Plot, Shape, Text, rough_width

PICTURE_TYPES = (".png", ".svg", ".pdf")
_WIDTH, _MARGIN = 672.0, 24.0
_ANCHORS = {"left": "start", "center": "middle", "right": "end"}
_FONT = "-apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def drawn(
    plots: Sequence[Plot], width: float = _WIDTH, palette: Palette = PAPER, measure: Measure = rough_width
) -> Drawing:
    """Return plots one below the other; light colours by default, as on paper."""
    drawing = Drawing(width, palette, measure)
    for plot in plots:
        plot.draw(drawing)
    return drawing


def check_picture_name(path: Path) -> None:
    """Refuse a file name that is not that of a picture.

    Raises:
        InvalidSettingError: If it does not end in one of `PICTURE_TYPES`.
    """
    if path.suffix.lower() not in PICTURE_TYPES:
        raise InvalidSettingError(f"{path.name} cannot be drawn: a picture's name ends in .png, .svg or .pdf.")


def save_picture(plots: Sequence[Plot], path: Path) -> None:
    """Draw plots into a file, atomically.

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


def svg(drawing: Drawing, margin: float = 0.0, *, alone: bool = False) -> str:
    """Return a drawing as an `svg` element.

    Args:
        drawing: The background is the palette's `surface`; there is none if that is empty.
        margin: Around the drawing, in pixels.
        alone: Whether the element is a file of its own, not part of an HTML page.
    """
    wide, high = round(drawing.width + 2 * margin), round(drawing.height + 2 * margin)
    ground = f'<path d="M0 0H{wide}V{high}H0Z" fill="{drawing.palette.surface}"/>' if drawing.palette.surface else ""
    parts = "".join(_text(shape) if isinstance(shape, Text) else _path(shape) for shape in drawing.shapes)
    words = escape(" ".join(drawing.words))
    space = ' xmlns="http://www.w3.org/2000/svg"' if alone else ""
    return (
        f'<svg{space} width="{wide}" height="{high}" viewBox="0 0 {wide} {high}" role="img" font-family="{_FONT}">'
        f'<desc>{words}</desc>{ground}<g transform="translate({margin:g} {margin:g})">{parts}</g></svg>'
    )


def _path(shape: Shape) -> str:
    points = "L".join(f"{x:.1f} {y:.1f}" for x, y in shape.points)
    line = f' stroke="{shape.color}" stroke-width="{shape.width:g}"' if shape.color else ""
    pattern = " ".join(f"{part * shape.width:g}" for part in shape.dashes)
    dashes = f' stroke-dasharray="{pattern}"' if pattern else ""
    return f'<path d="M{points}{"Z" * shape.closed}" fill="{shape.fill or "none"}"{line}{dashes}/>'


def _text(text: Text) -> str:
    box, share = text.box, {"left": 0.0, "center": 0.5, "right": 1.0}[text.align]
    weight = ' font-weight="600"' if text.bold else ""
    return (
        f'<text x="{box.x + share * box.width:.1f}" y="{box.middle + 0.35 * text.size:.1f}" fill="{text.color}" '
        f'font-size="{text.size}" text-anchor="{_ANCHORS[text.align]}"{weight}>{escape(text.text)}</text>'
    )
