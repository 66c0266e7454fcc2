"""Two alternatives of one message beside each other, with the words that differ marked."""

from functools import partial

from PySide6.QtCore import Qt
from PySide6.QtGui import QHideEvent, QPalette
from PySide6.QtWidgets import QCheckBox, QSplitter, QWidget

from rdchat.chat.conversation import Message
from rdchat.services.background.background_work import BackgroundWork
from rdchat.services.chat_controller import ChatController
from rdchat.ui.alternatives.differences import Differences, differences
from rdchat.ui.alternatives.pane import AlternativePane
from rdchat.ui.look.labels import ThemedLabel
from rdchat.ui.look.layouts import column, row
from rdchat.ui.look.opening import SideWindow, show_in_front
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme
from rdchat.ui.transcript.markdown.code_highlighter import preload_lexers


class AlternativesWindow(SideWindow):
    """Follows the alternatives of one message of the open chat; it closes with that chat.

    Args:
        controller: Has the alternatives, and shows the one that is chosen.
        message: One of them.
        theme: The appearance to follow.
        parent: The window in front of which it stands.
    """

    def __init__(
        self, controller: ChatController, message: Message, theme: Theme, parent: QWidget | None = None
    ) -> None:
        super().__init__("Alternatives", (1000, 680), (560, 360), parent)
        self._controller, self._theme = controller, theme
        self._all: list[Message] = []
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setAutoFillBackground(True)
        preload_lexers()
        self.panes = tuple(AlternativePane(message.role, theme, side) for side in ("left", "right"))
        self._ids = [message.id, message.id]
        self.together = QCheckBox("Scroll together")
        self.together.setChecked(True)
        self.note = ThemedLabel(theme, "", "muted", -1)
        self._comparison = BackgroundWork("compare", self)
        self._scrolling = False
        self._lay_out()
        for place, pane in enumerate(self.panes):
            pane.step_requested.connect(partial(self._step, place))
            pane.use_requested.connect(self._use)
            pane.area.drawn.connect(self._compare)
            bar = pane.area.verticalScrollBar()
            bar.valueChanged.connect(lambda _value, place=place: self._scroll_other(place))
        for changed in (controller.chat.path_changed, controller.chat.message_changed):
            changed.connect(self._refresh)
        controller.chat.opened.connect(self.close)
        theme.changed.connect(self._restyle)
        self._restyle()
        self._begin_with(message)

    def open_in_front(self) -> None:
        """Show the window, where there are two alternatives to show."""
        if len(self._all) > 1:
            show_in_front(self)
        else:
            self.close()

    def _lay_out(self) -> None:
        split = QSplitter(Qt.Orientation.Horizontal)
        split.setHandleWidth(1)
        split.setChildrenCollapsible(False)
        for pane in self.panes:
            split.addWidget(pane)
        foot = row(self.together, None, self.note, margins=(MEDIUM, SMALL, MEDIUM, SMALL))
        column((split, 1), foot, within=self, spacing=0)

    def _begin_with(self, message: Message) -> None:
        """Show a message at the right, and the alternative before it, or else after it, at the left."""
        self._all = self._controller.chat.alternatives(message.id)
        places = [place for place, each in enumerate(self._all) if each.id == message.id]
        if len(self._all) > 1 and places:
            right = max(places[0], 1)
            self._ids = [self._all[right - 1].id, self._all[right].id]
            self._show()

    def _refresh(self) -> None:
        """Show what there is now; an alternative may have been deleted, or written on."""
        before = self._all
        found = {each: self._controller.chat.alternatives(each) for each in self._ids}
        left = (all_ for each, all_ in found.items() if any(other.id == each for other in all_))
        self._all = next(left, [])
        if len(self._all) < 2:
            self.close()
            return
        if self._all == before:
            return
        known = {each.id for each in self._all}
        for place, each in enumerate(self._ids):
            if each not in known:
                self._ids[place] = next(other.id for other in self._all if other.id != self._ids[1 - place])
                self._ids.sort()  # the older one at the left
        self._show()

    def _show(self) -> None:
        self.note.setText("")
        self._comparison.forget()
        in_use = set(self._controller.chat.path.ids)
        for pane, message_id in zip(self.panes, self._ids, strict=True):
            message = next(each for each in self._all if each.id == message_id)
            pane.show_message(message, in_use=message.id in in_use)

    def _step(self, place: int, step: int) -> None:
        ids = [each.id for each in self._all]
        self._ids[place] = ids[max(0, min(ids.index(self._ids[place]) + step, len(ids) - 1))]
        self._show()

    def _use(self, message_id: int) -> None:
        self.close()
        self._controller.chat.show_alternative(message_id, 0)

    def _compare(self) -> None:
        one, other = (pane.shown_text for pane in self.panes)
        self._comparison.replace(lambda _job: differences(one, other), self._mark)

    def _mark(self, found: Differences) -> None:
        texts = (found.one, found.other)
        if texts != tuple(pane.shown_text for pane in self.panes):
            return  # one of them was drawn on since
        for pane, spans in zip(self.panes, (found.in_one, found.in_other), strict=True):
            pane.area.body.marks.show(spans)
        self.note.setText("Words that differ are marked" if found.in_one or found.in_other else "Both say the same")

    def _scroll_other(self, place: int) -> None:
        """Keep both at the same share of their height."""
        if self._scrolling or not self.together.isChecked():
            return
        bar, other = (self.panes[each].area.verticalScrollBar() for each in (place, 1 - place))
        if bar.maximum() > 0:
            self._scrolling = True
            other.setValue(round(bar.value() / bar.maximum() * other.maximum()))
            self._scrolling = False

    def _restyle(self) -> None:
        palette = QPalette(self.palette())
        palette.setColor(QPalette.ColorRole.Window, self._theme.colors.surface)
        self.setPalette(palette)

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        self._comparison.close()
