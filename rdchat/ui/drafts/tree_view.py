"""The prefix tree of one round, drawn from left to right."""

from PySide6.QtCore import QEvent, QPoint, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetricsF,
    QHelpEvent,
    QKeyEvent,
    QNativeGestureEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QWidget

from rdchat.inference.api.events import RoundTree
from rdchat.ui.drafts.drafter_marks import drafter_words, ink, line_pen
from rdchat.ui.drafts.painted_area import PaintedArea
from rdchat.ui.drafts.tree_layout import PlacedNode, place_nodes
from rdchat.ui.drafts.words import probability, spelt
from rdchat.ui.look.focus import paint_focus
from rdchat.ui.look.plain_text import set_tip, show_tip
from rdchat.ui.look.theme import MEDIUM, Theme, control_font

_COLUMN, _ROW, _NODE_HEIGHT = 150.0, 34.0, 25.0
_WIDEST, _NARROWEST = 126.0, 44.0  # of a node
_FIGURE_GAP = 6.0
_MIN_ZOOM, _MAX_ZOOM, _ZOOM_STEP = 0.4, 2.0, 1.2
_REJECTED = 130  # opacity of what was not accepted, of 255


class TreeView(PaintedArea):
    """Draws a `RoundTree`: accepted nodes filled on thick lines, rejected ones in outline, the correction framed twice.

    Arrow keys step through the rounds; Shift with them scrolls, plus and minus zoom.
    """

    step_requested = Signal(int)  # rounds onward, or back where negative

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._tree: RoundTree | None = None
        self._nodes: list[PlacedNode] = []
        self._widths: list[float] = []
        self._words = ""
        self.zoom = 1.0
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Draft tree")
        set_tip(self, "Arrow keys step through the rounds, with Shift they scroll. Plus, minus and 0 zoom.")
        self.setFont(control_font(tabular=True))
        self._metrics = QFontMetricsF(self.font())
        self._small = control_font(-2, tabular=True)
        self.horizontalScrollBar().setSingleStep(round(_COLUMN / 2))
        self.verticalScrollBar().setSingleStep(round(_ROW))
        theme.changed.connect(self.viewport().update)

    def show_tree(self, tree: RoundTree | None, description: str, nothing: str = "") -> None:
        """Show a round's tree and what screen readers say of it, or words where there is none.

        A tree that is shown already stays where the reader scrolled it.
        """
        self._words = nothing
        self.setAccessibleDescription(description)
        self.viewport().update()
        if tree is not None and tree is self._tree:
            return
        self._tree = tree
        self._nodes = place_nodes(tree) if tree and tree.texts else []
        self._widths = [self._node_width(node) for node in self._nodes]
        self._set_ranges()
        self.horizontalScrollBar().setValue(0)
        if self._nodes:
            self._reveal(self._nodes[-1].row)

    def set_zoom(self, zoom: float) -> None:
        self.zoom = min(max(zoom, _MIN_ZOOM), _MAX_ZOOM)
        self._set_ranges()
        self.viewport().update()

    # --- layout

    def sizeHint(self) -> QSize:
        return QSize(480, 240)

    def _node_width(self, node: PlacedNode) -> float:
        wide = self._metrics.horizontalAdvance(spelt(node.text)) + self._figure_width(node) + 20
        return min(max(wide, _NARROWEST), _WIDEST)

    def _figure_width(self, node: PlacedNode) -> float:
        if node.log_prob is None:
            return 0.0
        return QFontMetricsF(self._small).horizontalAdvance(probability(node.log_prob)) + _FIGURE_GAP

    def _set_ranges(self) -> None:
        columns = max((node.column for node in self._nodes), default=0) + 1
        rows = max((node.row for node in self._nodes), default=0.0) + 1
        for bar, needed, room in (
            (self.horizontalScrollBar(), columns * _COLUMN, self.viewport().width()),
            (self.verticalScrollBar(), rows * _ROW, self.viewport().height()),
        ):
            bar.setRange(0, max(0, round(needed * self.zoom + 2 * MEDIUM - room)))
            bar.setPageStep(room)

    def _reveal(self, row: float) -> None:
        middle = row * _ROW * self.zoom + MEDIUM
        bar, room = self.verticalScrollBar(), self.viewport().height()
        if not bar.value() <= middle <= bar.value() + room - _ROW:
            bar.setValue(round(middle - room / 2))

    def _box(self, place: int) -> QRectF:
        node = self._nodes[place]
        return QRectF(
            node.column * _COLUMN, node.row * _ROW + (_ROW - _NODE_HEIGHT) / 2, self._widths[place], _NODE_HEIGHT
        )

    def _origin(self) -> QPointF:
        return QPointF(MEDIUM - self.horizontalScrollBar().value(), MEDIUM - self.verticalScrollBar().value())

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._set_ranges()

    # --- the person's hands

    def keyPressEvent(self, event: QKeyEvent) -> None:
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1}
        zooms = {Qt.Key.Key_Plus: _ZOOM_STEP, Qt.Key.Key_Equal: _ZOOM_STEP, Qt.Key.Key_Minus: 1 / _ZOOM_STEP}
        key = Qt.Key(event.key())
        shift = bool(event.modifiers() & Qt.KeyboardModifier.ShiftModifier)
        if key in steps and not shift:
            self.step_requested.emit(steps[key])
            self.announce()
        elif key in steps:
            across = key in (Qt.Key.Key_Left, Qt.Key.Key_Right)
            bar = self.horizontalScrollBar() if across else self.verticalScrollBar()
            bar.setValue(bar.value() + steps[key] * bar.singleStep())
        elif key in zooms:
            self.set_zoom(self.zoom * zooms[key])
        elif key == Qt.Key.Key_0:
            self.set_zoom(1.0)
        else:
            super().keyPressEvent(event)

    def wheelEvent(self, event: QWheelEvent) -> None:
        if event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            self.set_zoom(self.zoom * _ZOOM_STEP ** (event.angleDelta().y() / 120))
        else:
            super().wheelEvent(event)

    def viewportEvent(self, event: QEvent) -> bool:
        if isinstance(event, QNativeGestureEvent) and event.gestureType() is Qt.NativeGestureType.ZoomNativeGesture:
            self.set_zoom(self.zoom * (1 + event.value()))
            return True
        if isinstance(event, QHelpEvent) and (words := self._tip(event.pos())):
            show_tip(event.globalPos(), words, self)
            return True
        return super().viewportEvent(event)

    def _tip(self, place: QPoint) -> str:
        at = (QPointF(place) - self._origin()) / self.zoom
        for number, node in enumerate(self._nodes):
            if self._box(number).contains(at):
                return _node_words(node)
        return ""

    # --- painting

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self.viewport())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.fillRect(event.rect(), self._theme.colors.surface)
        if not self._nodes:
            painter.setPen(self._theme.colors.muted)
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(self.viewport().rect().adjusted(MEDIUM, 0, -MEDIUM, 0), flags, self._words)
        else:
            self._paint_tree(painter)
        if self.hasFocus():
            painter.resetTransform()
            paint_focus(painter, QRectF(self.viewport().rect()), self._theme)

    def _paint_tree(self, painter: QPainter) -> None:
        painter.translate(self._origin())
        painter.scale(self.zoom, self.zoom)
        for accepted in (False, True):  # the path lies on top
            for place, node in enumerate(self._nodes):
                if node.accepted is accepted and node.parent >= 0:
                    self._paint_edge(painter, place, node)
        for place, node in enumerate(self._nodes):
            self._paint_node(painter, self._box(place), node)

    def _paint_edge(self, painter: QPainter, place: int, node: PlacedNode) -> None:
        above, box = self._box(node.parent), self._box(place)
        start, end = QPointF(above.right(), above.center().y()), QPointF(box.left(), box.center().y())
        bend = (_COLUMN - _WIDEST) * 0.9
        path = QPainterPath(start)
        flat = QPointF(box.left() - bend, start.y())
        path.lineTo(flat)
        path.cubicTo(flat + QPointF(bend / 2, 0), end - QPointF(bend / 2, 0), end)
        pen = line_pen(self._theme, node.drafter, 2.6 if node.accepted else 1.1)
        if not node.accepted:
            pen.setColor(self._faded(pen.color()))
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if node.accepted:
            painter.setPen(QPen(self._theme.colors.surface, pen.widthF() + 1))  # nothing shows between dots and dashes
            painter.drawPath(path)
        painter.setPen(pen)
        painter.drawPath(path)

    def _paint_node(self, painter: QPainter, box: QRectF, node: PlacedNode) -> None:
        colors = self._theme.colors
        color = ink(self._theme, node.drafter)
        filled = node.accepted and not node.correction
        pen = line_pen(self._theme, node.drafter, 1.8 if node.accepted else 1.0)
        if not node.accepted:
            pen.setColor(self._faded(color))
        painter.setPen(Qt.PenStyle.NoPen if filled else pen)
        painter.setBrush(color if filled else colors.surface)
        painter.drawRoundedRect(box, 6, 6)
        if node.correction:
            painter.setPen(QPen(color, 1.0))
            painter.drawRoundedRect(box.adjusted(3, 3, -3, -3), 4, 4)
        text = colors.surface if filled else colors.text if node.accepted else colors.muted
        figure = self._figure_width(node)
        inner = box.adjusted(9, 0, -9, 0)
        words = self._metrics.elidedText(spelt(node.text), Qt.TextElideMode.ElideRight, inner.width() - figure)
        painter.setPen(text)
        painter.setFont(self.font())
        painter.drawText(inner, Qt.AlignmentFlag.AlignVCenter, words)
        if node.log_prob is not None:
            painter.setFont(self._small)
            painter.drawText(
                inner, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, probability(node.log_prob)
            )

    def _faded(self, color: QColor) -> QColor:
        color = QColor(color)
        color.setAlpha(_REJECTED)
        return color


def _node_words(node: PlacedNode) -> str:
    if node.log_prob is None:
        return f"{spelt(node.text)}: the token before this round's draft"
    fate = "added by the model itself" if node.correction else "accepted" if node.accepted else "not accepted"
    who = "" if node.correction else f", {drafter_words(node.drafter)}"
    return f"{spelt(node.text)}: probability {probability(node.log_prob)}{who}, {fate}"
