"""The formulas of a document that stand there as source until they are drawn."""

from dataclasses import dataclass

from PySide6.QtGui import QTextCharFormat, QTextCursor, QTextDocument

from rdchat.ui.transcript.markdown.blocks import Run
from rdchat.ui.transcript.markdown.maths.formula_object import OBJECT, formula_format, is_drawn, width_of
from rdchat.ui.transcript.markdown.maths.formulas import FORMULAS

_MOST_HURRIED = 40


@dataclass(frozen=True, slots=True)
class WaitingFormula:
    """A formula's character.

    Attributes:
        place: Stands before it, and moves with the text.
        run: The formula.
        look: The format of the text around it.
        index: Place of its block among the blocks.
    """

    place: QTextCursor
    run: Run
    look: QTextCharFormat
    index: int

    @property
    def is_known(self) -> bool:
        """Whether it can be shown, or never will."""
        return FORMULAS.is_known(self.run.maths, self.run.display)


@dataclass(frozen=True, slots=True)
class Shown:
    """What a step showed.

    Attributes:
        widths: Of the widest formula that is drawn now, by the place of its block.
        failed: Some cannot be drawn.
    """

    widths: dict[int, float]
    failed: bool


class WaitingFormulas:
    """Puts formulas in the place of their source, a bounded step at a time."""

    def __init__(self, document: QTextDocument) -> None:
        self._document = document
        self._waiting: list[WaitingFormula] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def clear(self) -> None:
        self._waiting.clear()

    def insert(self, cursor: QTextCursor, run: Run, look: QTextCharFormat, index: int, in_table: bool) -> float:
        """Write a formula's character at a cursor and return its width, 0 while it is source.

        Args:
            cursor: Where.
            run: The formula.
            look: The format of the text around it.
            index: Place of its block.
            in_table: Its column becomes as wide as it is, once the step after this one shows it.
        """
        place = QTextCursor(cursor)
        place.setKeepPositionOnInsert(True)
        formula = formula_format(run, look)
        cursor.insertText(OBJECT, formula)
        if in_table or not is_drawn(formula):
            self._waiting.append(WaitingFormula(place, run, look, index))
        return width_of(formula) if is_drawn(formula) else 0.0

    def hurry(self, first: int, last: int) -> None:
        """Have those drawn first that stand from one place of the document to another: they are in view."""
        seen = [each.run for each in self._waiting if first <= each.place.position() <= last and not each.is_known]
        FORMULAS.hurry((run.maths, run.display) for run in seen[:_MOST_HURRIED])

    def show(self, most: int) -> Shown:
        """Show up to `most` of the formulas that have been drawn by now, within the caller's edit block."""
        widths, failed = dict[int, float](), False
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            if most <= 0 or not each.is_known:
                FORMULAS.find(each.run.maths, each.run.display)  # one that was forgotten is asked for again
                self._waiting.append(each)
                continue
            place = each.place
            place.setPosition(place.position())  # the anchor has moved on with the text
            place.movePosition(QTextCursor.MoveOperation.NextCharacter, QTextCursor.MoveMode.KeepAnchor)
            if place.selectedText() != OBJECT:
                continue  # it was written anew since
            formula = formula_format(each.run, each.look)
            if is_drawn(formula):
                most -= 1
                place.setCharFormat(formula)
                widths[each.index] = max(widths.get(each.index, 0.0), width_of(formula))
            else:
                failed = True
        return Shown(widths, failed)
