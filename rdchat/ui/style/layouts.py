"""Parts that all windows are made of: rows, columns, forms, fields, scroll areas, and sheets in front of a window."""

from collections.abc import Callable, Iterable, Sequence
from math import cos, pi
from time import monotonic

from PySide6.QtCore import QCoreApplication, QEvent, QPoint, QRect, QRectF, QSignalBlocker, QSize, Qt, QTimer, Signal
from PySide6.QtGui import (
    QAction,
    QColor,
    QGuiApplication,
    QKeyEvent,
    QPainter,
    QPaintEvent,
    QPalette,
)
from PySide6.QtWidgets import (
    QBoxLayout,
    QComboBox,
    QDialog,
    QFormLayout,
    QFrame,
    QHBoxLayout,
    QLabel,
    QLayout,
    QLineEdit,
    QListView,
    QPlainTextEdit,
    QProgressBar,
    QPushButton,
    QScrollArea,
    QSplitter,
    QTabBar,
    QVBoxLayout,
    QWidget,
)

from rdchat.ui.style.buttons import Action, dialog_buttons, push_button
from rdchat.ui.style.consent_pause import ConsentPause
from rdchat.ui.style.labels import PlainLabel, ThemedLabel, set_tip, single_shot, small_text
from rdchat.ui.style.theme import LARGE, MEDIUM, SMALL, Theme, scaled, show_icon

# A search begins after so long a pause in typing.
_TYPING_MS = 120
# A bar of an unknown share: the time of a frame, the time that its piece takes from left to right, the piece's share of
# the bar, and the opacity of the rest (of 255).
_FRAME_MS = 40
_SWEEP_S = 1.2
_PIECE = 0.3
_GROUND_ALPHA = 40
_MAX_SEARCH_LETTERS = 500
# Alignment of a text by the direction of its first paragraph. Qt would mirror a plain AlignRight where it reads from
# right to left.
_SIDES = {
    Qt.LayoutDirection.LeftToRight: Qt.AlignmentFlag.AlignLeft,
    Qt.LayoutDirection.RightToLeft: Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignAbsolute,
}
Part = QWidget | QLayout | int | None | tuple[QWidget | QLayout, int]
"""A part of a row or column: a widget or layout, perhaps with its stretch; a space in pixels; None for a stretch."""
# Left, top, right and bottom.
_Margins = int | tuple[int, int, int, int]
type Answer = tuple[str, Action]
"""A button: its text, and what it does."""
WIDTH = 440
"""Width of a sheet's parts."""


def row(*parts: Part, within: QWidget | None = None, spacing: int = SMALL, margins: _Margins = 0) -> QHBoxLayout:
    """Return a layout of parts side by side; it becomes the layout of `within`, if that is given."""
    return _filled(QHBoxLayout(), parts, within, spacing, margins)


def column(*parts: Part, within: QWidget | None = None, spacing: int = SMALL, margins: _Margins = 0) -> QVBoxLayout:
    """Return a layout of parts one below the other; it becomes the layout of `within`, if that is given."""
    return _filled(QVBoxLayout(), parts, within, spacing, margins)


def _filled[L: QBoxLayout](
    layout: L, parts: tuple[Part, ...], within: QWidget | None, spacing: int, margins: _Margins
) -> L:
    if within is not None:
        within.setLayout(layout)
    layout.setSpacing(spacing)
    layout.setContentsMargins(*(margins if isinstance(margins, tuple) else (margins,) * 4))
    for part in parts:
        content, stretch = part if isinstance(part, tuple) else (part, 0)
        if content is None:
            layout.addStretch(1)
        elif isinstance(content, int):
            layout.addSpacing(content)
        elif isinstance(content, QLayout):
            layout.addLayout(content, stretch)
        else:
            layout.addWidget(content, stretch)
    return layout


def form_layout(
    within: QWidget | None = None,
    *,
    spacing: tuple[int, int] = (SMALL, SMALL),
    align: Qt.AlignmentFlag = Qt.AlignmentFlag.AlignRight,
) -> QFormLayout:
    """Return an empty form.

    Args:
        within: The widget that gets the form as its layout.
        spacing: Space between label and field, and between rows.
        align: Where the labels stand.
    """
    form = QFormLayout(within, horizontalSpacing=spacing[0], verticalSpacing=spacing[1], labelAlignment=align)
    form.setContentsMargins(0, 0, 0, 0)
    form.setFieldGrowthPolicy(QFormLayout.FieldGrowthPolicy.ExpandingFieldsGrow)
    return form


def add_row(form: QFormLayout, name: str, field: QWidget, explanation: str, line: QLayout | None = None) -> None:
    """Add a field with its label.

    Args:
        form: The form.
        name: The label, and the field's name for screen readers.
        field: The field.
        explanation: The tooltip of both, and the field's description for screen readers.
        line: What the row shows in place of the field alone.
    """
    label = PlainLabel(name)
    # Screen readers read a label's own text.
    if not isinstance(field, QLabel):
        label.setBuddy(field)
        field.setAccessibleName(name)
        field.setAccessibleDescription(explanation)
    for part in (label, field):
        set_tip(part, explanation)
    form.addRow(label, line or field)


def keep_room(widget: QWidget, keeps: bool = True) -> None:
    """Keep a widget's room while it is hidden, so that what is around it does not move."""
    policy = widget.sizePolicy()
    policy.setRetainSizeWhenHidden(keeps)
    widget.setSizePolicy(policy)


def lay_out_later(widget: QWidget) -> None:
    """Send a widget a `LayoutRequest` before it is painted; Qt sends one for several.

    A widget that sets its own height while it is resized would be laid out within its layout, perhaps without end.
    """
    QCoreApplication.postEvent(widget, QEvent(QEvent.Type.LayoutRequest))


def in_reading_order(widgets: Iterable[QWidget]) -> list[QWidget]:
    """Sort widgets of one window by lines, and within a line from left to right."""
    areas = {widget: QRect(widget.mapTo(widget.window(), QPoint()), widget.size()) for widget in widgets}
    lines: list[list[QWidget]] = []
    for widget in sorted(areas, key=lambda each: areas[each].top()):
        if lines and areas[widget].top() < areas[lines[-1][0]].center().y():
            lines[-1].append(widget)
        else:
            lines.append([widget])
    return [widget for line in lines for widget in sorted(line, key=lambda each: areas[each].left())]


def discard(*widgets: QWidget) -> None:
    """Hide widgets at once, and delete them soon."""
    for widget in widgets:
        widget.hide()
        widget.deleteLater()


class ThinBar(QProgressBar):
    """A bar of progress without text, from 0 to 1000; with a maximum of 0, a short piece moves to and fro.

    It paints itself: Fusion paints a thin bar that knows nothing as a full one.
    """

    def __init__(self, name: str, height: int = 6) -> None:
        super().__init__(textVisible=False, maximum=1000)
        self.setFixedHeight(height)
        self.setAccessibleName(name)
        # Each painting of an unknown share asks for the next one, so nothing runs for a bar that is not seen.
        self._next_frame = single_shot(self, _FRAME_MS, self.update)

    def paintEvent(self, event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setPen(Qt.PenStyle.NoPen)
        ground = QColor(self.palette().color(QPalette.ColorRole.WindowText))
        ground.setAlpha(_GROUND_ALPHA)
        area = QRectF(self.rect())
        radius = area.height() / 2
        painter.setBrush(ground)
        painter.drawRoundedRect(area, radius, radius)
        if self.maximum():
            area.setWidth(area.width() * self.value() / self.maximum())
        else:
            at = (1 - cos(pi * monotonic() / _SWEEP_S)) / 2
            piece = area.width() * _PIECE
            area = QRectF((area.width() - piece) * at, 0, piece, area.height())
            self._next_frame.start()
        painter.setBrush(self.palette().color(QPalette.ColorRole.Accent))
        painter.drawRoundedRect(area, radius, radius)


def show_share(bar: ThinBar, share: float | None) -> None:
    """Show a share from 0 to 1; None, an unknown share, moves to and fro, unless motion is reduced."""
    motion = QGuiApplication.styleHints().accessibility().motionPreference()
    bar.setMaximum(0 if share is None and motion is not Qt.MotionPreference.ReducedMotion else 1000)
    bar.setValue(round(1000 * (share or 0)))


class PlainField(QPlainTextEdit):
    """A field of several lines that Tab leaves, aligned as its first paragraph is read.

    Its placeholder goes while an input method composes: Qt draws both over each other.
    """

    def __init__(self, placeholder: str = "", *, read_only: bool = False) -> None:
        super().__init__(tabChangesFocus=True, readOnly=read_only)
        self._placeholder = placeholder
        # The owner of a message's field sets it. A call undoes the last change of the message's files, and returns the
        # text to insert in their place, perhaps an empty one. It returns None if there is no such change to undo.
        self.take_back: Callable[[], str | None] = lambda: None
        self.textChanged.connect(self._show_placeholder)
        self.textChanged.connect(self._align)
        self._show_placeholder()

    @property
    def composing(self) -> bool:
        """Whether an input method composes a text here, which is no part of the field's text yet."""
        return bool(self.textCursor().block().layout().preeditAreaText())

    def undo(self) -> None:
        """Undo what was done last: a change of the message's files (`take_back`), or else of the text.

        A change of the files sets the document unmodified. If the document is modified, something was typed since, and
        the text is undone.
        """
        text = None if self.document().isModified() else self.take_back()
        if text is None:
            super().undo()
        elif text:
            self.textCursor().insertText(text)
            self.ensureCursorVisible()

    def setPlaceholderText(self, text: str) -> None:
        self._placeholder = text
        self._show_placeholder()

    def _align(self) -> None:
        side = _SIDES[self.document().firstBlock().textDirection()]
        option = self.document().defaultTextOption()
        if option.alignment() != side:
            option.setAlignment(side)
            self.document().setDefaultTextOption(option)

    def _show_placeholder(self) -> None:
        super().setPlaceholderText("" if self.composing else self._placeholder)


def text_field(
    lines: int, placeholder: str, name: str = "", tip: str = "", *, read_only: bool = False
) -> QPlainTextEdit:
    """Return a plain text field of some lines, with a name for screen readers and a tooltip."""
    field = PlainField(placeholder, read_only=read_only)
    field.setAccessibleName(name)
    set_tip(field, tip)
    field.setFixedHeight(field.fontMetrics().lineSpacing() * lines + 12)
    return field


def replace_text(field: QPlainTextEdit, text: str) -> None:
    """Show another text in a field. It reports no change; without one, its cursor and selection stay."""
    if field.toPlainText() != text:
        with QSignalBlocker(field):
            field.setPlainText(text)


class SearchField(QLineEdit):
    """A field with a lens. Down goes to the results, Escape clears it.

    Attributes:
        typing: Times out after a pause in typing.
        results_requested: Emitted by Down.
        previous_requested: Emitted by Shift-Return, for the hit before; Return alone emits `returnPressed`.
    """

    results_requested = Signal()
    previous_requested = Signal()

    def __init__(self, theme: Theme, placeholder: str, name: str, *, escape_clears: bool = True) -> None:
        super().__init__(placeholderText=placeholder, clearButtonEnabled=True, maxLength=_MAX_SEARCH_LETTERS)
        self._escape_clears = escape_clears
        self.setAccessibleName(name)
        # Screen readers find a button there.
        icon = QAction(name, self)
        icon.triggered.connect(self.setFocus)
        show_icon(icon, "search", theme, size=16)
        self.addAction(icon, QLineEdit.ActionPosition.LeadingPosition)
        self.typing = QTimer(self, interval=_TYPING_MS, singleShot=True)
        self.textChanged.connect(self.typing.start)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        # Return is handled here: a dialog would press a button.
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter):
            backwards = event.modifiers() & Qt.KeyboardModifier.ShiftModifier
            (self.previous_requested if backwards else self.returnPressed).emit()
        elif event.key() == Qt.Key.Key_Down:
            self.results_requested.emit()
        elif event.key() == Qt.Key.Key_Escape and self._escape_clears and self.text():
            self.clear()
        else:
            super().keyPressEvent(event)


def splitter(orientation: Qt.Orientation, *parts: tuple[QWidget, int]) -> QSplitter:
    """Return widgets, each with its first size, with hairlines between them that move."""
    splitter_ = QSplitter(orientation, childrenCollapsible=False, handleWidth=1)
    for widget, _ in parts:
        splitter_.addWidget(widget)
    splitter_.setSizes([size for _, size in parts])
    return splitter_


class TabBar(QTabBar):
    """Tabs with a line below the chosen one, which Qt's Fusion style hardly marks in the dark."""

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        line = self.tabRect(self.currentIndex())
        line.setTop(line.bottom() - 1)
        QPainter(self).fillRect(line, self.palette().accent())


def choice_box(name: str, tip: str, entries: Iterable[tuple[str, object]] = (), letters: int = 7) -> QComboBox:
    """Return a combo box.

    Args:
        name: For a screen reader.
        tip: Its tooltip.
        entries: Text and value of each choice.
        letters: Its least width, in letters.
    """
    box = QComboBox()
    box.setAccessibleName(name)
    set_tip(box, tip)
    box.setMinimumContentsLength(letters)
    fill_box(box, entries)
    box.setCurrentIndex(0)
    return box


def fill_box(box: QComboBox, entries: Iterable[tuple[str, object]], chosen: object = None) -> None:
    """Offer other choices in a combo box, texts with values, and choose one, without a signal; the same ones stay."""
    offered = list(entries)
    with QSignalBlocker(box):
        if offered != [(box.itemText(index), box.itemData(index)) for index in range(box.count())]:
            box.clear()
            for text, value in offered:
                box.addItem(text, value)
        box.setCurrentIndex(next((index for index, (_, value) in enumerate(offered) if value == chosen), -1))


def scrolled(content: QWidget, area: QScrollArea | None = None) -> QScrollArea:
    """Return a frameless area that scrolls its content vertically and takes no keyboard focus itself."""
    area = area or QScrollArea()
    area.setWidgetResizable(True)
    area.setFrameShape(QFrame.Shape.NoFrame)
    area.setFocusPolicy(Qt.FocusPolicy.NoFocus)
    area.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    area.setWidget(content)
    return area


class WholeArea(QScrollArea):
    """A scroll area that asks for the room of its whole content, as far as its limit and the screen have it."""

    def event(self, event: QEvent) -> bool:
        if event.type() is QEvent.Type.LayoutRequest:
            self.updateGeometry()
        return super().event(event)

    def sizeHint(self) -> QSize:
        size = self.viewportSizeHint()
        highest = min(self.maximumHeight(), self.screen().availableGeometry().height() - 2 * SMALL)
        if size.height() > highest:
            return QSize(size.width() + self.verticalScrollBar().sizeHint().width(), highest)
        return size

    def minimumSizeHint(self) -> QSize:
        # It scrolls down only, so nothing may be cut at its side.
        size = super().minimumSizeHint()
        content = self.widget()
        if content is not None:
            size.setWidth(content.minimumSizeHint().width() + self.verticalScrollBar().sizeHint().width())
        return size


def plain_list(view: QListView, name: str) -> None:
    """Let a list stand on its window's ground, scroll smoothly, and know the row below the mouse; it has a name."""
    view.setAccessibleName(name)
    view.setFrameShape(QFrame.Shape.NoFrame)
    view.viewport().setAutoFillBackground(False)
    # Qt reports a hovered row only then.
    view.setMouseTracking(True)
    view.setVerticalScrollMode(QListView.ScrollMode.ScrollPerPixel)
    view.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
    view.setContextMenuPolicy(Qt.ContextMenuPolicy.CustomContextMenu)


def nothing() -> None:
    """Do nothing: the action of a button that only closes its sheet."""


class Sheet(QDialog):
    """A dialog in front of a window: a title, a text, widgets, and a row of buttons that close it.

    Escape presses the first button, Return the last. Presses count after a pause for reading.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        title: The subject, or a question.
        text: Shown below the title.
        answers: The buttons: one, or one to leave and one to go on.
        parts: Shown below the text.
        left: A button at the left end of the row.
        stays: Whether the sheet stays open when a button acts; one without an action closes it.
    """

    def __init__(
        self,
        window: QWidget,
        theme: Theme,
        title: str,
        text: str,
        answers: Sequence[Answer],
        *,
        parts: Sequence[Part] = (),
        left: Answer | None = None,
        stays: bool = False,
    ) -> None:
        super().__init__(window, Qt.WindowType.Sheet)
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setWindowTitle(title)
        self.setAccessibleName(title)
        self.setAccessibleDescription(text)
        self.text = text
        self._escape = answers[0][1]
        self._stays = stays
        self.title = ThemedLabel(theme, title, points_more=2, bold=True, wraps=True)
        head: list[Part] = [self.title]
        if text:
            head.append(ThemedLabel(theme, text, "muted", wraps=True, selectable=True))
        self.buttons = [self._button(answer) for answer in answers]
        roles = {"action": self._button(left)} if left else {}
        roles |= zip(("reject", "accept"), self.buttons, strict=False)  # a sheet may have one button only
        line = dialog_buttons(**roles)
        self.buttons[-1].setDefault(True)
        self._column = column(*head, *parts, MEDIUM, line, within=self, margins=LARGE)
        self.fit()
        ConsentPause(self)

    def fit(self) -> None:
        """Take the height that the parts need."""
        self._column.activate()
        width = scaled(WIDTH + 2 * LARGE)
        self.setFixedSize(width, self._column.totalHeightForWidth(width))

    def _button(self, answer: Answer) -> QPushButton:
        return push_button(answer[0], "", lambda: self.answer(answer[1]))

    def answer(self, act: Action) -> None:
        """Do what a button does, and close the sheet first unless it stays; a button that does `nothing` closes it."""
        if act is nothing or not self._stays:
            self.done(0)
        act()

    def reject(self) -> None:
        self.answer(self._escape)


class FormSheet(Sheet):
    """A form in a sheet that stays open, with the reason, while what the form says cannot be done.

    Args:
        window: The sheet stands in front of it.
        theme: The appearance to follow.
        texts: The sheet's title and text.
        fields: Name, field and explanation of each row.
        notes: Shown below the form.
        accept: The text of the button that submits the form.

    Attributes:
        status: Says why nothing was done, or what is in progress.
    """

    def __init__(
        self,
        window: QWidget,
        theme: Theme,
        texts: tuple[str, str],
        fields: Sequence[tuple[str, QWidget, str]],
        *notes: Part,
        accept: str = "Add",
    ) -> None:
        form = form_layout()
        for each in fields:
            add_row(form, *each)
        self.status = small_text(theme, selectable=True)
        self.status.hide()
        answers = (("Cancel", nothing), (accept, self.submit_form))
        super().__init__(window, theme, *texts, answers, parts=(SMALL, form, *notes, self.status), stays=True)
        fields[0][1].setFocus()

    def submit_form(self) -> None:
        """Do what the fields say."""
        raise NotImplementedError

    def show_status(self, text: str, color: str = "danger") -> None:
        """Show why nothing was done, in the colour `danger`, or what is in progress, in any other colour.

        While something is in progress the form cannot be submitted.
        """
        self.status.show_text(text, color)
        self.buttons[-1].setEnabled(color == "danger")
        self.fit()
