"""A field for numbers separated by commas, as the options of `rdchat bench` take them."""

from collections.abc import Callable

from PySide6.QtWidgets import QLineEdit, QWidget

from rdchat.errors import InvalidSettingError
from rdchat.ui.look.plain_text import set_tip


class NumberField[T: (int, float)](QLineEdit):
    """Holds one number or several.

    Args:
        name: What the numbers are, for error messages and screen readers.
        kind: `int` or `float`.
        text: What it holds at first.
        explanation: Its tooltip.
    """

    def __init__(
        self, name: str, kind: Callable[[str], T], text: str, explanation: str, parent: QWidget | None = None
    ) -> None:
        super().__init__(text, parent)
        self._name = name
        self._kind: Callable[[str], T] = kind
        self.setAccessibleName(name)
        set_tip(self, explanation)

    def numbers(self) -> tuple[T, ...]:
        """Return the numbers, each once.

        Raises:
            InvalidSettingError: If there is none, or something that is no number.
        """
        words = [word.strip() for word in self.text().split(",") if word.strip()]
        if not words:
            raise InvalidSettingError(f"{self._name}: type at least one number.")
        try:
            return tuple(dict.fromkeys(self._kind(word) for word in words))
        except ValueError as error:
            whole = "whole numbers" if self._kind is int else "numbers"
            raise InvalidSettingError(f"{self._name}: type {whole} separated by commas, such as {_EXAMPLE}.") from error


_EXAMPLE = "1, 4"
