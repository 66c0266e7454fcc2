"""What stands in the place of downloads while there are none."""

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget

from rdchat.ui.look.icons import line_pixmap
from rdchat.ui.look.labels import Ground, ThemedLabel
from rdchat.ui.look.plain_text import PlainLabel
from rdchat.ui.look.theme import MEDIUM, SMALL, Theme

_ICON = 36


class EmptyView(Ground):
    """Says what will be here, and leads to where models are found.

    Args:
        theme: The appearance to follow.
        parent: The Qt parent.
    """

    discover_requested = Signal()

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(theme, "surface", parent)
        self._picture = PlainLabel()
        self._picture.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        title = ThemedLabel(theme, "No downloads", points_more=3, bold=True)
        more = ThemedLabel(
            theme,
            "Models that you download appear here. They go on while you chat, and after a restart.",
            "muted",
            wraps=True,
        )
        for label in (title, more):
            label.setAlignment(Qt.AlignmentFlag.AlignHCenter)
        self.discover = QPushButton("Find a model")
        self.discover.setAutoDefault(False)
        self.discover.clicked.connect(self.discover_requested)
        column = QVBoxLayout(self)
        column.setSpacing(SMALL)
        column.addStretch(2)
        for widget in (self._picture, title, more):
            column.addWidget(widget)
        column.addSpacing(MEDIUM)
        column.addWidget(self.discover, 0, Qt.AlignmentFlag.AlignHCenter)
        column.addStretch(3)
        theme.changed.connect(self._draw)
        self._draw()

    def _draw(self) -> None:
        self._picture.setPixmap(line_pixmap("download", self._theme.colors.muted, _ICON, self.devicePixelRatioF()))
