"""The prefix tree of one round, drawn from left to right: the root at the left, each further token a column on."""

from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QBrush,
    QColor,
    QFontMetricsF,
    QKeyEvent,
    QNativeGestureEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QWheelEvent,
)
from PySide6.QtWidgets import QFrame, QGraphicsPathItem, QGraphicsScene, QGraphicsSimpleTextItem, QGraphicsView

from rdchat.inference.api.events import RoundTree
from rdchat.ui.drafts.words import drafter_words, ink, line_pen, probability, spelt
from rdchat.ui.look.opening import announce
from rdchat.ui.look.painting import paint_focus
from rdchat.ui.look.plain_text import set_tip
from rdchat.ui.look.theme import MEDIUM, Theme, control_font

_COLUMN, _ROW, _NODE_HEIGHT = 150.0, 34.0, 25.0
_WIDEST, _NARROWEST, _PADDING = 126.0, 44.0, 9.0  # of a node
_FIGURE_GAP = 6.0
_MIN_ZOOM, _MAX_ZOOM, _ZOOM_STEP = 0.4, 2.0, 1.2
_REJECTED = 130  # opacity of rejected nodes, of 255
_STEPS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1}
_ZOOMS = {Qt.Key.Key_Plus: _ZOOM_STEP, Qt.Key.Key_Equal: _ZOOM_STEP, Qt.Key.Key_Minus: 1 / _ZOOM_STEP}


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node to be drawn."""

    text: str
    log_prob: float | None  # by the target; None for the root
    drafter: str  # empty for the root and the correction
    parent: int  # place of the parent among the placed nodes; -1 for the root
    column: int  # distance from the root
    row: float  # from the top; between two rows if the node has an even number of children
    accepted: bool  # whether the node is on the accepted path
    correction: bool  # whether it is the token that the target itself added after that path


def place_nodes(tree: RoundTree) -> list[PlacedNode]:
    """Place the nodes and, behind the accepted path, the correction; leaves take a row each, from the top down.

    A parent stands at the middle of its first and last child. The accepted child comes first, so that the accepted path
    is the top row, which is in view however wide the tree.
    """
    count = len(tree.tokens)  # the place of the correction
    path = {*tree.path, count}
    texts, drafters = [*tree.texts, tree.correction_text], [*tree.drafters, ""]
    log_probs = [None, *tree.log_probs[1:], tree.correction_log_prob]
    parents = [*tree.parents, tree.path[-1]]
    children: list[list[int]] = [[] for _ in parents]
    columns: list[int] = []
    for node, parent in enumerate(parents):
        columns.append(0 if parent < 0 else columns[parent] + 1)
        if parent >= 0:
            children[parent].append(node)
    for node in tree.path:
        children[node].sort(key=lambda child: child not in path)
    rows = _rows(children, path)
    fields = zip(texts, log_probs, drafters, parents, columns, rows, strict=True)
    return [
        PlacedNode(text, log_prob, drafter, parent, column, row, node in path, node == count)
        for node, (text, log_prob, drafter, parent, column, row) in enumerate(fields)
    ]


def _rows(children: list[list[int]], on_path: set[int]) -> list[float]:
    """Return each node's row; without recursion, since trees may be 64 deep."""
    rows = [0.0] * len(children)
    leaves = 0
    stack = [(0, False)]
    while stack:
        node, is_done = stack.pop()
        if not children[node]:
            rows[node], leaves = float(leaves), leaves + 1
        elif is_done:
            last = 0 if node in on_path else -1
            rows[node] = (rows[children[node][0]] + rows[children[node][last]]) / 2
        else:
            stack.append((node, True))
            stack += [(child, False) for child in reversed(children[node])]
    return rows


class TreeView(QGraphicsView):
    """Draws a `RoundTree`: accepted nodes filled on thick lines, rejected ones in outline, the correction framed twice.

    Arrow keys step through the rounds; Shift with them scrolls, plus and minus zoom.
    """

    step_requested = Signal(int)  # rounds forward, or back if negative

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self._tree: RoundTree | None = None
        self._nothing = ""
        self.zoom = 1.0
        self.setScene(QGraphicsScene(self))
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setRenderHint(QPainter.RenderHint.Antialiasing)
        self.setAlignment(Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignTop)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Draft tree")
        set_tip(self, "Arrow keys step through the rounds, with Shift they scroll. Plus, minus and 0 zoom.")
        self._font, self._small = control_font(tabular=True), control_font(-2, tabular=True)
        self.horizontalScrollBar().setSingleStep(round(_COLUMN / 2))
        self.verticalScrollBar().setSingleStep(round(_ROW))
        theme.changed.connect(self._draw)
        self._draw()

    def show_tree(self, tree: RoundTree | None, description: str, nothing: str = "") -> None:
        """Show a round's tree, or the words `nothing`; a tree that is already shown keeps its scroll position."""
        self.setAccessibleDescription(description)
        self._nothing = nothing
        if tree is None or tree is not self._tree:
            self._tree = tree
            self._draw()
            for bar in (self.horizontalScrollBar(), self.verticalScrollBar()):
                bar.setValue(bar.minimum())  # the accepted path runs along the top
        self.viewport().update()

    def set_zoom(self, zoom: float) -> None:
        self.zoom = min(max(zoom, _MIN_ZOOM), _MAX_ZOOM)
        self.resetTransform()
        self.scale(self.zoom, self.zoom)

    # --- the scene

    def _draw(self) -> None:
        self.setBackgroundBrush(self._theme.colors.surface)
        self.scene().clear()
        nodes = place_nodes(self._tree) if self._tree and self._tree.texts else []
        boxes = [self._box(node) for node in nodes]
        for node, box in zip(nodes, boxes, strict=True):
            if node.parent >= 0:
                self._add_edge(node, boxes[node.parent], box)
        for node, box in zip(nodes, boxes, strict=True):
            self._add_node(node, box)
        columns, rows = (max((getattr(node, side) for node in nodes), default=0) + 1 for side in ("column", "row"))
        margin = QPointF(MEDIUM, MEDIUM)
        self.setSceneRect(QRectF(-margin, QPointF(columns * _COLUMN, rows * _ROW) + margin))

    def _box(self, node: PlacedNode) -> QRectF:
        text = QFontMetricsF(self._font).horizontalAdvance(spelt(node.text))
        width = min(max(text + self._figure_width(node) + 2 * _PADDING + 2, _NARROWEST), _WIDEST)
        return QRectF(node.column * _COLUMN, node.row * _ROW + (_ROW - _NODE_HEIGHT) / 2, width, _NODE_HEIGHT)

    def _figure_width(self, node: PlacedNode) -> float:
        if node.log_prob is None:
            return 0.0
        return QFontMetricsF(self._small).horizontalAdvance(probability(node.log_prob)) + _FIGURE_GAP

    def _add_edge(self, node: PlacedNode, above: QRectF, box: QRectF) -> None:
        start, end = QPointF(above.right(), above.center().y()), QPointF(box.left(), box.center().y())
        bend = (_COLUMN - _WIDEST) * 0.9
        path = QPainterPath(start)
        flat = QPointF(box.left() - bend, start.y())
        path.lineTo(flat)
        path.cubicTo(flat + QPointF(bend / 2, 0), end - QPointF(bend / 2, 0), end)
        pen = self._pen(node, 2.6, 1.1)
        if node.accepted:  # on top, and nothing shows between its dots and dashes
            self.scene().addPath(path, QPen(self._theme.colors.surface, pen.widthF() + 1)).setZValue(1)
        self.scene().addPath(path, pen).setZValue(node.accepted)

    def _add_node(self, node: PlacedNode, box: QRectF) -> None:
        colors, color = self._theme.colors, ink(self._theme, node.drafter)
        filled = node.accepted and not node.correction
        pen = QPen(Qt.PenStyle.NoPen) if filled else self._pen(node, 1.8, 1.0)
        item = QGraphicsPathItem(_rounded(box, 6))
        item.setPen(pen)
        item.setBrush(color if filled else colors.surface)
        item.setZValue(2)
        set_tip(item, _node_words(node))
        self.scene().addItem(item)
        if node.correction:
            QGraphicsPathItem(_rounded(box.adjusted(3, 3, -3, -3), 4), item).setPen(QPen(color, 1.0))
        brush = QBrush(colors.surface if filled else colors.text if node.accepted else colors.muted)
        room = box.width() - 2 * _PADDING - self._figure_width(node)
        text = QFontMetricsF(self._font).elidedText(spelt(node.text), Qt.TextElideMode.ElideRight, room)
        for words, font in ((text, self._font), (probability(node.log_prob), self._small)):
            if font is self._font or node.log_prob is not None:
                label = QGraphicsSimpleTextItem(words, item)
                label.setFont(font)
                label.setBrush(brush)
                size = label.boundingRect()
                left = box.left() + _PADDING if font is self._font else box.right() - _PADDING - size.width()
                label.setPos(left, box.center().y() - size.height() / 2)

    def _pen(self, node: PlacedNode, accepted: float, rejected: float) -> QPen:
        pen = line_pen(self._theme, node.drafter, accepted if node.accepted else rejected)
        if not node.accepted:
            faded = QColor(pen.color())
            faded.setAlpha(_REJECTED)
            pen.setColor(faded)
        return pen

    # --- input

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        if key in _STEPS and event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            across = key in (Qt.Key.Key_Left, Qt.Key.Key_Right)
            bar = self.horizontalScrollBar() if across else self.verticalScrollBar()
            bar.setValue(bar.value() + _STEPS[key] * bar.singleStep())
        elif key in _STEPS:
            self.step_requested.emit(_STEPS[key])
            announce(self)
        elif key in _ZOOMS:
            self.set_zoom(self.zoom * _ZOOMS[key])
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
        return super().viewportEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        painter = QPainter(self.viewport())
        area = self.viewport().rect()
        if self._tree is None or not self._tree.texts:
            painter.setPen(self._theme.colors.muted)
            flags = Qt.AlignmentFlag.AlignCenter | Qt.TextFlag.TextWordWrap
            painter.drawText(area.adjusted(MEDIUM, 0, -MEDIUM, 0), flags, self._nothing)
        if self.hasFocus():
            paint_focus(painter, QRectF(area), self._theme)


def _rounded(box: QRectF, radius: float) -> QPainterPath:
    path = QPainterPath()
    path.addRoundedRect(box, radius, radius)
    return path


def _node_words(node: PlacedNode) -> str:
    if node.log_prob is None:
        return f"{spelt(node.text)}: the token before this round's draft"
    fate = "added by the model itself" if node.correction else "accepted" if node.accepted else "not accepted"
    who = "" if node.correction else f", {drafter_words(node.drafter)}"
    return f"{spelt(node.text)}: probability {probability(node.log_prob)}{who}, {fate}"
