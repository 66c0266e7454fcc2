"""What scroll areas that draw their own content share."""

from PySide6.QtGui import QAccessible, QAccessibleAnnouncementEvent, QFocusEvent
from PySide6.QtWidgets import QAbstractScrollArea


class PaintedArea(QAbstractScrollArea):
    """A scroll area that draws its cursor while it has the keyboard, and says where that went."""

    def announce(self) -> None:
        """Have a screen reader say the accessible description."""
        if QAccessible.isActive():
            QAccessible.updateAccessibility(QAccessibleAnnouncementEvent(self, self.accessibleDescription()))

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.viewport().update()
