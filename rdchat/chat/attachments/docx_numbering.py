"""Numbers of lists and headings in a DOCX, as Word writes them; elements are matched by their local names."""

from collections import defaultdict
from collections.abc import Iterable
from xml.etree.ElementTree import Element

from rdchat.chat.attachments.numerals import numeral, whole_number

# Styles may be based on each other in a circle.
_MOST_STYLES = 32


class ListNumbers:
    """Counts the items of a document's lists, which go on where Word lets them go on.

    Args:
        parts: The roots of its numbering and its styles.

    Attributes:
        is_sure: False once a number may not be what Word writes.
    """

    def __init__(self, parts: Iterable[Element]) -> None:
        self.is_sure = True
        self._named = {
            (name, own): each for root in parts for each in root for name, own in attributes_of(each).items()
        }
        self._counts: dict[str, dict[str, int]] = defaultdict(dict)
        self._begun: set[str] = set()

    def next_label(self, paragraph: Element) -> str | None:
        """Return the number before a paragraph, such as `3.` or `(a)`; None where it has none, or a bullet."""
        use, depth = self._place(paragraph)
        number = self._named.get(("numId", use))
        if number is None:
            return None
        counted = value_of(number, "abstractNumId")
        shared = self._named.get(("abstractNumId", counted), number)
        changed = number.iterfind("{*}lvlOverride/{*}lvl")
        levels = {attributes_of(each).get("ilvl", "0"): each for each in (*shared.iterfind("{*}lvl"), *changed)}
        level = levels.get(depth)
        if level is None or value_of(level, "numFmt") == "bullet":
            self.is_sure &= level is not None
            return None
        counts = self._counts[counted]
        if use not in self._begun:
            self._begun.add(use)
            for each in number.iterfind("{*}lvlOverride/{*}startOverride/.."):
                counts[attributes_of(each)["ilvl"]] = _start(each, "startOverride") - 1
        counts[depth] = counts.get(depth, _start(level) - 1) + 1
        for deeper in [each for each in counts if each > depth]:
            del counts[deeper]
        label = value_of(level, "lvlText")
        for place, (above, each) in enumerate(sorted(levels.items()), start=1):
            if f"%{place}" in label:
                count = counts.get(above, _start(each))
                text = numeral(count, value_of(each, "numFmt"))
                self.is_sure &= bool(text)
                label = label.replace(f"%{place}", text or str(count))
        return label

    def _place(self, paragraph: Element) -> tuple[str, str]:
        """Return the list and the depth of a paragraph: its own, or those of its style."""
        own: Element | None = paragraph
        use = ""
        depth = ""
        style = value_of(paragraph, "pPr/{*}pStyle")
        for _ in range(_MOST_STYLES):
            if own is None:
                break
            use = use or value_of(own, "pPr/{*}numPr/{*}numId")
            depth = depth or value_of(own, "pPr/{*}numPr/{*}ilvl")
            own = self._named.get(("styleId", style))
            style = "" if own is None else value_of(own, "basedOn")
        return use, depth or "0"


def attributes_of(element: Element) -> dict[str, str]:
    """Return an element's attributes by their local names."""
    return {name.rpartition("}")[2]: value for name, value in element.items()}


def value_of(element: Element, path: str, default: str = "") -> str:
    """Return the value of a property below an element, or `default` without it."""
    found = element.find(f"{{*}}{path}")
    return default if found is None else attributes_of(found).get("val", "")


def _start(level: Element, name: str = "start") -> int:
    return whole_number(value_of(level, name))
