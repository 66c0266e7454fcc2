"""Writes a drawing as SVG. No Qt here."""

from html import escape

from rdchat.ui.plots.drawing import Drawing, Shape, Text

_ANCHORS = {"left": "start", "center": "middle", "right": "end"}
_FONT = "-apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif"


def svg(drawing: Drawing, margin: float = 0.0, *, alone: bool = False) -> str:
    """Return an `svg` element.

    Args:
        drawing: What is written; its ground is the palette's, none where that is empty.
        margin: Around it, in pixels.
        alone: Whether it is a file of its own; else it stands in a page of HTML.
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
    dashes = ' stroke-dasharray="4 3"' if shape.dashed else ""
    return f'<path d="M{points}{"Z" * shape.closed}" fill="{shape.fill or "none"}"{line}{dashes}/>'


def _text(text: Text) -> str:
    box, share = text.box, {"left": 0.0, "center": 0.5, "right": 1.0}[text.align]
    weight = ' font-weight="600"' if text.bold else ""
    return (
        f'<text x="{box.x + share * box.width:.1f}" y="{box.middle + 0.35 * text.size:.1f}" fill="{text.color}" '
        f'font-size="{text.size}" text-anchor="{_ANCHORS[text.align]}"{weight}>{escape(text.text)}</text>'
    )
