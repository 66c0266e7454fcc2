"""Drawings: pictures of lines, areas and texts, painted with Qt from the top down, in pixels.

A `Plot` adds itself to a `Drawing`. Plots are saved as PNG or PDF files, without a display, or shown in a `PlotView`; a
`Chart` is a widget with a drawing of its own. Parts of a drawing, its marks, have tooltips.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from PySide6.QtCore import (
    QBuffer,
    QByteArray,
    QEvent,
    QIODevice,
    QMarginsF,
    QPoint,
    QPointF,
    QRect,
    QRectF,
    QSize,
    QSizeF,
    Qt,
    Signal,
)
from PySide6.QtGui import (
    QColor,
    QFont,
    QFontDatabase,
    QFontMetricsF,
    QGuiApplication,
    QHelpEvent,
    QImage,
    QImageWriter,
    QKeyEvent,
    QPageSize,
    QPainter,
    QPaintEvent,
    QPdfWriter,
    QPen,
    QPolygonF,
)
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from rdchat.errors import InvalidSettingError
from rdchat.files import chosen_file
from rdchat.ui.style import ALIGNMENTS, LARGE, LIGHT, Colors, Theme, paint_focus, show_tip

PICTURE_TYPES = (".png", ".pdf")
_WIDTH = 672.0
_MARGIN = 24.0
_PNG_SCALE = 2
_TITLE_HEIGHT = 22.0
_LINE_HEIGHT = 18.0
# Distance between pictures.
_GAP = 28.0
# Lengths of dash and gap, in widths of the line.
DASHED = (4.0, 2.0)
_STEPS = {Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1, Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1}
_WIDEST = 760


class Mark(NamedTuple):
    """A part of a picture with a tooltip."""

    box: QRectF
    text: str


class Drawing:
    """A picture that plots add to. Colours are names of `Colors`, or colours as Qt reads them.

    Its height is known only after everything was added, so a file's picture is drawn twice: first without a painter.

    Args:
        width: Plots fill it.
        colors: The colours of the appearance.
        font: The font of all texts; sizes are chosen here.
        painter: Paints the picture. None: the picture is only measured.

    Attributes:
        height: Height so far; the next plot begins here.
        marks: Parts with a tooltip.
        size: Font size of values and labels, in pixels.
        descriptions: A description of each plot for screen readers.
    """

    def __init__(self, width: float, colors: Colors, font: QFont, painter: QPainter | None = None) -> None:
        self.width = width
        self.height = 0.0
        self.size = 13
        self.colors = colors
        self.marks: list[Mark] = []
        self.descriptions: list[str] = []
        self._font = font
        self._painter = painter
        if painter is not None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)

    def width_of(self, text: str, *, more: int = 0, bold: bool = False) -> float:
        """Return the width of a text; see `write_text`."""
        return QFontMetricsF(self._sized(more, bold)).horizontalAdvance(text)

    def heading(self, title: str, *lines: str) -> None:
        """Begin a plot with a title and smaller lines below it; `height` is then the top of the plot."""
        # Each plot ends by adding its description, so without one this is the first.
        top = self.height + (_GAP if self.descriptions else 0)
        self.write_text(QRectF(0, top, self.width, _TITLE_HEIGHT), title, more=2, bold=True)
        top += _TITLE_HEIGHT
        for line in lines:
            self.write_text(QRectF(0, top, self.width, _LINE_HEIGHT), line, "muted", more=-1)
            top += _LINE_HEIGHT
        self.height = top + 8

    def write_text(
        self, box: QRectF, text: str, color: str = "text", *, more: int = 0, bold: bool = False, align: str = "left"
    ) -> None:
        """Write one line, cut with an ellipsis where it does not fit.

        Args:
            box: The text is centred vertically in it.
            text: One line.
            color: The colour.
            more: Added to the font size `size`, in pixels.
            bold: Whether the text is bold.
            align: `left`, `center` or `right`.
        """
        if self._painter is not None:
            font = self._sized(more, bold)
            elided = QFontMetricsF(font).elidedText(text, Qt.TextElideMode.ElideRight, box.width() + 1)
            self._painter.setFont(font)
            self._painter.setPen(self._color(color))
            self._painter.drawText(box, ALIGNMENTS[align] | Qt.AlignmentFlag.AlignVCenter, elided)

    def line(
        self,
        points: Sequence[tuple[float, float]],
        color: str = "border",
        width: float = 1.0,
        dashes: Sequence[float] = (),
    ) -> None:
        """Draw a line through points; `dashes` are lengths of dash and gap, in widths of the line."""
        if self._painter is not None:
            self._prepared(self._painter, color, width, dashes).drawPolyline(_polygon(points))

    def area(
        self,
        box: QRectF,
        fill: str = "",
        color: str = "",
        width: float = 1.0,
        dashes: Sequence[float] = (),
        *,
        opacity: float = 1.0,
        radius: float = 0.0,
    ) -> None:
        """Draw a rectangle with the colour `fill`, framed by the colour `color`, or both; an empty one is left out."""
        if self._painter is not None:
            self._prepared(self._painter, color, width, dashes, fill=fill, opacity=opacity).drawRoundedRect(
                box, radius, radius
            )

    def polygon(self, points: Sequence[tuple[float, float]], fill: str, opacity: float) -> None:
        """Fill the area between points."""
        if self._painter is not None:
            self._prepared(self._painter, fill=fill, opacity=opacity).drawPolygon(_polygon(points))

    def fade(self, opacity: float) -> None:
        """Draw what follows with an opacity from 0 to 1."""
        if self._painter is not None:
            self._painter.setOpacity(opacity)

    def add_tooltip(self, box: QRectF, text: str) -> None:
        """Give a part of the picture a tooltip."""
        self.marks.append(Mark(box, text))

    def _prepared(
        self,
        painter: QPainter,
        color: str = "",
        width: float = 1.0,
        dashes: Sequence[float] = (),
        *,
        fill: str = "",
        opacity: float = 1.0,
    ) -> QPainter:
        """Give a painter its pen and its brush; without a colour there is none."""
        pen = QPen(self._color(color), width)
        if dashes:
            pen.setDashPattern(dashes)
            pen.setCapStyle(Qt.PenCapStyle.FlatCap)
        painter.setPen(pen if color else Qt.PenStyle.NoPen)
        ground = self._color(fill)
        ground.setAlphaF(opacity)
        painter.setBrush(ground if fill else Qt.BrushStyle.NoBrush)
        return painter

    def _color(self, name: str) -> QColor:
        return QColor(getattr(self.colors, name, name))

    def _sized(self, more: int, bold: bool) -> QFont:
        font = QFont(self._font)
        font.setPixelSize(self.size + more)
        font.setWeight(QFont.Weight.DemiBold if bold else QFont.Weight.Normal)
        font.setHintingPreference(QFont.HintingPreference.PreferNoHinting)
        return font


class Plot(Protocol):
    """Adds itself below the earlier plots of a drawing."""

    def draw_plot(self, drawing: Drawing) -> None: ...


def _polygon(points: Sequence[tuple[float, float]]) -> QPolygonF:
    return QPolygonF([QPointF(x, y) for x, y in points])


def check_picture_name(path: Path) -> None:
    """Refuse a file name that is not that of a picture.

    Raises:
        InvalidSettingError: If it does not end in one of `PICTURE_TYPES`.
    """
    if path.suffix.lower() not in PICTURE_TYPES:
        raise InvalidSettingError(f"{path.name} cannot be drawn: a picture's name ends in .png or .pdf.")


def save_picture(plots: Sequence[Plot], path: Path) -> None:
    """Draw plots into a file, atomically, one below the other and in light colours as on paper.

    Raises:
        InvalidSettingError: If the name does not end in .png or .pdf.
        StorageError: If the file cannot be written.
    """
    check_picture_name(path)
    content = _picture(plots, path.suffix.lower())
    with chosen_file(path) as file:
        file.write_bytes(content)


def _picture(plots: Sequence[Plot], kind: str) -> bytes:
    # Fonts need an application. One that is made here lives as long as this name.
    app = QGuiApplication.instance() or QGuiApplication(["rdchat", "-platform", "offscreen"])
    font = QFontDatabase.systemFont(QFontDatabase.SystemFont.GeneralFont)
    drawing = _draw(plots, Drawing(_WIDTH, LIGHT, font))
    size = QSizeF(_WIDTH + 2 * _MARGIN, drawing.height + 2 * _MARGIN)
    content = QByteArray()
    buffer = QBuffer(content)
    buffer.open(QIODevice.OpenModeFlag.WriteOnly)
    device: QImage | QPdfWriter
    if kind == ".png":
        device = QImage((size * _PNG_SCALE).toSize(), QImage.Format.Format_RGB32)
        device.setDevicePixelRatio(_PNG_SCALE)
    else:
        device = QPdfWriter(buffer)
        device.setResolution(72)  # Units are points.
        device.setPageSize(QPageSize(size, QPageSize.Unit.Point))
        device.setPageMargins(QMarginsF())
        device.setTitle("rdchat benchmark")
    painter = QPainter(device)
    painter.fillRect(QRectF(QPointF(), size), LIGHT.surface)
    painter.translate(_MARGIN, _MARGIN)
    _draw(plots, Drawing(_WIDTH, LIGHT, font, painter))
    painter.end()  # Before the content is taken, so that nothing is lost.
    if isinstance(device, QImage):
        QImageWriter(buffer, b"png").write(device)
    del app
    return bytes(content.data())


def _draw(plots: Sequence[Plot], drawing: Drawing) -> Drawing:
    for plot in plots:
        plot.draw_plot(drawing)
    return drawing


class Chart(QWidget):
    """A widget that is a drawing: a subclass implements `draw`, and the height follows from the width.

    Attributes:
        margin: Margin around the drawing, in pixels.
    """

    margin = 0

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__()
        self.theme = theme
        self._height = 0
        self.setAccessibleName(name)
        policy = QSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        policy.setHeightForWidth(True)
        self.setSizePolicy(policy)
        theme.changed.connect(self.update)

    def draw(self, drawing: Drawing) -> None:
        """Fill the drawing and set its height."""
        raise NotImplementedError

    def redraw(self, description: str) -> None:
        """Show new content, and describe it to screen readers."""
        self.setAccessibleDescription(description)
        before = self._height
        self._height = self.heightForWidth(self.width())
        if self._height != before:
            self.updateGeometry()
        self.update()

    @property
    def drawing(self) -> Drawing:
        """The drawing at the present width."""
        return self._drawing(self.width())

    def _drawing(self, width: int, painter: QPainter | None = None) -> Drawing:
        drawing = Drawing(width - 2 * self.margin, self.theme.colors, self.font(), painter)
        self.draw(drawing)
        return drawing

    def heightForWidth(self, width: int) -> int:
        return round(self._drawing(width).height + 2 * self.margin)

    def sizeHint(self) -> QSize:
        return QSize(120, self.heightForWidth(self.width()))

    def area_of(self, mark: Mark) -> QRectF:
        """Return where a part is in the widget."""
        return mark.box.translated(self.margin, self.margin)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() is QEvent.Type.ToolTip:
            position = QPointF(event.pos())
            mark = next((mark for mark in self.drawing.marks if self.area_of(mark).contains(position)), None)
            if mark is not None:
                show_tip(event.globalPos(), mark.text, self, self.area_of(mark).toRect())
                return True
            QToolTip.hideText()
        return super().event(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.translate(self.margin, self.margin)
        self._drawing(self.width(), painter)


class PlotView(Chart):
    """Shows plots. The arrow keys go from part to part and show its tooltip, which screen readers read too.

    `part_reached` follows; the part may be out of view.
    """

    part_reached = Signal(QRect)
    margin = LARGE

    def __init__(self, theme: Theme, name: str) -> None:
        super().__init__(theme, name)
        self._plots: Sequence[Plot] = ()
        # The mark that the keys have reached; None without one, and whenever the focus comes or goes.
        self._current: int | None = None
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMinimumWidth(280)
        self.setMaximumWidth(_WIDEST)

    @property
    def description(self) -> str:
        return " ".join(self.drawing.descriptions)

    def draw(self, drawing: Drawing) -> None:
        _draw(self._plots, drawing)

    def show_plots(self, plots: Sequence[Plot]) -> None:
        before = len(self.drawing.marks)
        self._plots = plots
        if len(self.drawing.marks) != before:
            self._current = None  # With as many marks as before it is the same picture, with other figures.
        self.redraw(self.description if self._current is None else self.accessibleDescription())

    def sizeHint(self) -> QSize:
        return QSize(_WIDEST, self.heightForWidth(_WIDEST))

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), self.theme.colors.surface)
        painter.end()
        super().paintEvent(event)
        if self.hasFocus():
            framed = None if self._current is None else self.area_of(self.drawing.marks[self._current])
            paint_focus(QPainter(self), framed or QRectF(self.rect()), self.theme.colors.accent)

    def event(self, event: QEvent) -> bool:
        if event.type() in {QEvent.Type.FocusIn, QEvent.Type.FocusOut}:
            self._current = None
            self.setAccessibleDescription(self.description)
            self.update()
        return super().event(event)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = _STEPS.get(Qt.Key(event.key()))
        last = len(self.drawing.marks) - 1
        if step is None or last < 0:
            super().keyPressEvent(event)
            return
        first = 0 if step > 0 else last
        self._current = first if self._current is None else min(max(self._current + step, 0), last)
        mark = self.drawing.marks[self._current]
        area = self.area_of(mark)
        self.setAccessibleDescription(mark.text)
        self.part_reached.emit(area.toAlignedRect())
        show_tip(self.mapToGlobal(area.bottomLeft().toPoint() + QPoint(24, -8)), mark.text, self)
        self.update()
