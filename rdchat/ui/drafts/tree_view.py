"""The draft tree of one round, drawn from left to right: the root at the left, each further token a column on.

The first part of the module is what the window of drafts shares with the tree: texts about tokens, rounds and trees,
and each drafter's style. In texts for the person a round is a "draft" or a "step".
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from PySide6.QtCore import QRectF, Qt, Signal
from PySide6.QtGui import QKeyEvent, QPainter, QPaintEvent, QPalette, QTextCharFormat
from PySide6.QtWidgets import QFrame, QScrollArea

from rdchat.chat.reply_trace import ReplyTrace, TracedToken
from rdchat.inference.api import EARLIER_REPLIES, NGRAMS, SHAPE, Mode, RoundTree
from rdchat.ui.plots.drawing import Chart, Drawing
from rdchat.ui.style import MEDIUM, Theme, announce, control_font, formatting, paint_focus, set_tip
from rdchat.wording import counted

NO_CHARACTER = "·"
"""Stands for half a character, and for the token that ends a reply."""
LINE_BREAK = "⏎"
_SPELT = str.maketrans({" ": "␣", "\n": LINE_BREAK, "\t": "⇥", "\r": "␍"})
# The description of a tree is read aloud, so it has no more nodes than these.
_MAX_NODES = 24
# Distances in the drawing, in pixels.
_COLUMN = 150.0
_ROW = 34.0
_NODE_HEIGHT = 25.0
_MAX_WIDTH = 126.0
_MIN_WIDTH = 44.0
_PADDING = 9.0
_BEND = 12.0
_REJECTED_OPACITY = 0.55
_STEPS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1}

_Underline = QTextCharFormat.UnderlineStyle


class DrafterStyle(NamedTuple):
    """How the tokens of a drafter are described and drawn.

    Attributes:
        name: The source of its tokens.
        role: Their colour, a field of `Colors`.
        line: Characters that look like its line.
        underline: Its line below a token.
        dashes: Its line in a tree, in widths of the line; empty for a solid one.
    """

    name: str
    role: str
    line: str
    underline: QTextCharFormat.UnderlineStyle
    dashes: tuple[float, ...] = ()


STYLES = {
    "": DrafterStyle("The model itself", "text", "", _Underline.NoUnderline),
    "speculative": DrafterStyle(Mode.SPECULATIVE.label, "speculative", "──", _Underline.SingleUnderline),
    "drafter": DrafterStyle(Mode.DRAFTER.label, "drafter", "╌╌", _Underline.DashUnderline, (3.0, 1.8)),
    "lookup": DrafterStyle(f"{Mode.LOOKUP.label}, this chat", "lookup", "┈┈", _Underline.DotLine, (1.0, 1.4)),
    EARLIER_REPLIES: DrafterStyle(
        f"{Mode.LOOKUP.label}, earlier replies", "replies", "╌┈", _Underline.DashDotLine, (3.0, 1.4, 1.0, 1.4)
    ),
    NGRAMS: DrafterStyle("Common phrases", "phrases", "~~", _Underline.WaveUnderline, (2.0, 1.0, 1.0, 1.0)),
    SHAPE: DrafterStyle("Answer format", "shape", "╍╍", _Underline.DashDotDotLine, (6.0, 2.0)),
}


@dataclass(frozen=True, slots=True)
class Alternative:
    """A token that was drafted at one position.

    Attributes:
        log_prob: Its log probability by the target, before temperature and filters.
        taken: Whether it is the reply's next token.
    """

    text: str
    drafter: str
    log_prob: float
    taken: bool


def spelt(text: str) -> str:
    """Return a token's text with visible spaces and line breaks; a dot if it has no character of its own."""
    return text.translate(_SPELT) or NO_CHARACTER


def probability(log_prob: float | None) -> str:
    """Return a probability such as `62 %`, `3.4 %` or `0.02 %`; a dash for None."""
    if log_prob is None:
        return formatting.NONE
    percent = min(math.exp(log_prob), 1.0) * 100
    unit = "\N{NARROW NO-BREAK SPACE}%"
    if percent < 0.01:
        return f"< 0.01{unit}"
    # One decimal below 10, two below 1: what is rounded up to those has one less.
    decimals = (percent < 9.95) + (percent < 0.95)
    return f"{percent:.{decimals}f}{unit}"


def position_text(token: TracedToken) -> str:
    """Return the position of a token in its round."""
    if token.position:
        return f"{token.position} of the draft"
    return "After the draft" if token.round else formatting.NONE


def token_text(trace: ReplyTrace, index: int) -> str:
    """Describe one token in a sentence, for screen readers."""
    token = trace.tokens[index]
    parts = [f"Token {index + 1} of {len(trace.tokens)}, {token.text.strip() or spelt(token.text)}"]
    if token.log_prob is not None:
        parts.append(f"probability {probability(token.log_prob)}")
    parts.append(f"{STYLES[token.drafter].name}, position {token.position}" if token.drafter else STYLES[""].name)
    if token.round:
        parts.append(f"draft {token.round} of {len(trace.rounds)}")
    return ", ".join(parts)


def round_text(trace: ReplyTrace, number: int) -> str:
    """Return `Draft 12 of 60: 3 of 4 drafted tokens kept`.

    If the tree was not recorded, only how many were kept is known. For an empty draft it says why, and for a tree with
    alternatives also how deep it was.
    """
    traced = trace.rounds[number - 1]
    accepted = sum(token.position > 0 for token in trace.tokens[traced.first : traced.first + traced.count])
    head = f"Draft {number} of {len(trace.rounds)}"
    if traced.tree is None:
        return f"{head}: {counted(accepted, 'drafted token')} kept"
    depth = max(depths(traced.tree.parents))
    if not depth:
        return f"{head}: {_empty_text(trace).lower().rstrip('.')}"
    nodes = len(traced.tree.tokens) - 1
    if nodes == depth:
        return f"{head}: {accepted} of {counted(depth, 'drafted token')} kept"
    return f"{head}: {counted(accepted, 'token')} kept; the longest branch had {depth}, the tree {nodes}"


def _empty_text(trace: ReplyTrace) -> str:
    """Return why a step has no draft: prompt lookup is the one drafter that may find nothing."""
    others = {drafter for each in trace.rounds if each.tree for drafter in each.tree.drafters}
    others -= {"", Mode.LOOKUP.value, EARLIER_REPLIES, NGRAMS, SHAPE}
    return "Nothing was drafted." if others else "No earlier text to copy from."


def alternatives(trace: ReplyTrace, index: int) -> list[Alternative]:
    """Return the tokens drafted at the position of a token, the likeliest first, and the token itself.

    They are the children of the node before the token on the accepted path. The round's last token, which the target
    chose behind that path, is compared with the children of the path's last node. A token that was not drafted is added
    as the model's own.

    Of a round that drafted `b` or `x` behind the root, and `c` behind `b`, and in which the target chose `b` and then
    `d`: for `b`, they are `b` and `x`; for `d`, they are `c` and `d`.
    """
    token = trace.tokens[index]
    traced = trace.round_of(index)
    if traced is None or traced.tree is None:
        return []
    tree = traced.tree
    before = tree.path[min(index - traced.first, len(tree.path) - 1)]
    drafted = [
        Alternative(tree.texts[node], tree.drafters[node], tree.log_probs[node], tree.tokens[node] == token.token_id)
        for node, parent in enumerate(tree.parents)
        if parent == before
    ]
    was_drafted = any(each.taken for each in drafted)
    if drafted and not was_drafted and token.log_prob is not None:
        text = tree.correction_text if token.token_id == tree.correction else token.text
        drafted.append(Alternative(text, "", token.log_prob, True))
    return sorted(drafted, key=lambda each: -each.log_prob)


def tree_text(trace: ReplyTrace, number: int) -> str:
    """Describe a round's tree for screen readers: which tokens were accepted, which were not."""
    tree = trace.rounds[number - 1].tree
    if tree is None:
        return round_text(trace, number)
    on_path = set(tree.path)
    nodes = [
        f"{spelt(tree.texts[node])}, {probability(tree.log_probs[node])}, "
        f"{STYLES[tree.drafters[node]].name}, {'accepted' if node in on_path else 'rejected'}"
        for node in range(1, len(tree.tokens))
    ]
    own = f"then from the model itself: {spelt(tree.correction_text)}, {probability(tree.correction_log_prob)}"
    return f"{round_text(trace, number)}. {formatting.listed(nodes, _MAX_NODES, '; ')}; {own}."


def depths(parents: Sequence[int]) -> list[int]:
    """Return each node's distance from the root, whose parent is -1."""
    distances: list[int] = []
    for parent in parents:
        distances.append(0 if parent < 0 else distances[parent] + 1)
    return distances


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node to be drawn.

    Attributes:
        log_prob: Its log probability by the target; None for the root.
        drafter: Empty for the root and the correction.
        parent: The index of its parent among the nodes; -1 for the root.
        column: Its distance from the root.
        row: Its row from the top; between two rows if the node has an even number of children.
        accepted: Whether it is on the accepted path.
        correction: Whether it is the token that the target itself added after that path.
    """

    text: str
    log_prob: float | None
    drafter: str
    parent: int
    column: int
    row: float
    accepted: bool
    correction: bool


def lay_out_nodes(tree: RoundTree) -> list[PlacedNode]:
    """Return the nodes of a tree with their places; the correction is the last one, behind the accepted path."""
    correction = len(tree.tokens)
    path = {*tree.path, correction}
    texts = [*tree.texts, tree.correction_text]
    drafters = [*tree.drafters, ""]
    log_probs = [None, *tree.log_probs[1:], tree.correction_log_prob]
    parents = [*tree.parents, tree.path[-1]]
    fields = zip(texts, log_probs, drafters, parents, depths(parents), _rows(parents, path), strict=True)
    return [
        PlacedNode(text, log_prob, drafter, parent, column, row, node in path, node == correction)
        for node, (text, log_prob, drafter, parent, column, row) in enumerate(fields)
    ]


def _rows(parents: Sequence[int], path: Collection[int]) -> list[float]:
    """Return each node's row: leaves take a row each, from the top down, and a parent stands between its children.

    Of the accepted `path` each child comes first, and its parent stands in its row, so that the path is the top row,
    which is in view however wide the tree. For the parents `(-1, 0, 0, 1)` and the path `{0, 2}`, the rows are
    `[0, 1, 0, 1]`.
    """
    children: list[list[int]] = [[] for _ in parents]
    for node, parent in enumerate(parents[1:], start=1):  # The first one is the root.
        children[parent].append(node)
    for siblings in children:
        siblings.sort(key=lambda node: node not in path)
    # A walk from the root, depth first. It is no recursion, since a stored tree may be deep.
    order = list[int]()
    waiting = [0]
    while waiting:
        order.append(node := waiting.pop())
        waiting += reversed(children[node])
    rows = [0.0] * len(parents)
    for row, leaf in enumerate(node for node in order if not children[node]):
        rows[leaf] = float(row)
    # Children come before their parents.
    for node in reversed(order):
        if below := children[node]:
            last = below[0] if node in path else below[-1]
            rows[node] = (rows[below[0]] + rows[last]) / 2
    return rows


class TreeChart(Chart):
    """Draws nodes: accepted ones filled on thick lines, rejected ones in outline, the correction framed twice."""

    margin = MEDIUM

    def __init__(self, theme: Theme) -> None:
        super().__init__(theme, "Draft tree")
        self._nodes: list[PlacedNode] = []
        self._nothing = ""
        self.setFont(control_font(tabular=True))

    def show_nodes(self, nodes: list[PlacedNode], nothing: str) -> None:
        """Show nodes, or the text `nothing` where there are none."""
        self._nodes = nodes
        self._nothing = nothing
        columns = max((node.column for node in nodes), default=2) + 1
        rows = max((node.row for node in nodes), default=2) + 1
        self.setFixedSize(round(columns * _COLUMN) + 2 * self.margin, round(rows * _ROW) + 2 * self.margin)
        self.update()

    def draw(self, drawing: Drawing) -> None:
        """Draw all lines, then all nodes."""
        boxes = [self._box(drawing, node) for node in self._nodes]
        # Accepted nodes are drawn on top.
        placed = sorted(zip(self._nodes, boxes, strict=True), key=lambda each: each[0].accepted)
        for node, box in placed:
            if node.parent >= 0:
                above = boxes[node.parent]
                bend = box.x() - _BEND
                start = above.center().y()
                end = box.center().y()
                points = (above.right(), start), (bend, start), (bend, end), (box.x(), end)
                drawing.fade(1)
                # Nothing shows between the dots and dashes of an accepted line.
                if node.accepted:
                    drawing.line(points, "surface", 4.0)
                drawing.fade(1 if node.accepted else _REJECTED_OPACITY)
                style = STYLES[node.drafter]
                drawing.line(points, style.role, 2.6 if node.accepted else 1.0, style.dashes)
        for node, box in placed:
            self._draw_node(drawing, node, box)
        if not self._nodes:
            drawing.write_text(QRectF(0, 0, drawing.width, _ROW), self._nothing, "muted")

    def _box(self, drawing: Drawing, node: PlacedNode) -> QRectF:
        text = drawing.width_of(spelt(node.text)) + drawing.width_of(_figure(node), more=-2) + 2 * _PADDING + 2
        top = node.row * _ROW + (_ROW - _NODE_HEIGHT) / 2
        return QRectF(node.column * _COLUMN, top, min(max(text, _MIN_WIDTH), _MAX_WIDTH), _NODE_HEIGHT)

    def _draw_node(self, drawing: Drawing, node: PlacedNode, box: QRectF) -> None:
        """Draw a box with the text of a node, and its probability at the right."""
        style = STYLES[node.drafter]
        filled = node.accepted and not node.correction
        color = style.role
        dashes = () if filled else style.dashes
        drawing.fade(1 if node.accepted else _REJECTED_OPACITY)
        drawing.area(box, color if filled else "surface", color, 1.8 if node.accepted else 1.0, dashes, radius=6)
        drawing.fade(1)
        if node.correction:
            drawing.area(box.adjusted(3, 3, -3, -3), "", color, radius=4)
        ink = "surface" if filled else "text" if node.accepted else "muted"
        inside = box.adjusted(_PADDING, 0, -_PADDING, 0)
        figure = _figure(node)
        beside_figure = inside.adjusted(0, 0, -drawing.width_of(figure, more=-2), 0)
        drawing.write_text(beside_figure, spelt(node.text), ink)
        drawing.write_text(inside, figure, ink, more=-2, align="right")
        drawing.add_tooltip(box, _node_text(node))


class TreeView(QScrollArea):
    """Scrolls a `TreeChart`. Arrow keys step through the rounds; Shift with them scrolls."""

    # The person steps some rounds forward, or back if negative.
    step_requested = Signal(int)

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setAccessibleName("Draft tree")
        self._theme = theme
        self._tree: RoundTree | None = None
        self.chart = TreeChart(theme)
        self.setWidget(self.chart)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setBackgroundRole(QPalette.ColorRole.Base)
        set_tip(self, "Arrow keys go from step to step; with Shift they scroll.")

    def show_tree(self, tree: RoundTree | None, description: str, nothing: str) -> None:
        """Show a round's tree, or the text `nothing`; a tree that is already shown keeps its scroll position."""
        self.setAccessibleDescription(description)
        if tree is None or tree is not self._tree:
            self._tree = tree
            self.chart.show_nodes(lay_out_nodes(tree) if tree and tree.texts else [], nothing)
            for bar in (self.horizontalScrollBar(), self.verticalScrollBar()):
                # The accepted path runs along the top.
                bar.setValue(bar.minimum())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        key = Qt.Key(event.key())
        if key in _STEPS and not event.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self.step_requested.emit(_STEPS[key])
            announce(self)
        else:
            super().keyPressEvent(event)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.hasFocus():
            paint_focus(QPainter(self.viewport()), QRectF(self.viewport().rect()), self._theme.colors.accent)


def _figure(node: PlacedNode) -> str:
    """Return a node's probability, behind a gap; the root has none."""
    return "" if node.log_prob is None else f"  {probability(node.log_prob)}"


def _node_text(node: PlacedNode) -> str:
    if node.log_prob is None:
        return f"{spelt(node.text)}: the token before this draft"
    fate = "added by the model itself" if node.correction else "accepted" if node.accepted else "not accepted"
    who = "" if node.correction else f", {STYLES[node.drafter].name}"
    return f"{spelt(node.text)}: probability {probability(node.log_prob)}{who}, {fate}"
