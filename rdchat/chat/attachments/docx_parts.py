"""Prepares the XML of a DOCX for mammoth, which drops equations and deleted text without a word.

Elements are matched by their local names, since Word has two sets of namespaces.
"""

from collections import defaultdict
from dataclasses import dataclass, field
from xml.etree import ElementTree

_TEXT_ROOTS = {"document", "footnotes", "endnotes", "comments"}
_SIMPLE_ROOTS = {"hdr": "Header", "ftr": "Footer"}
_SIGNS = {"∑": r"\sum", "∏": r"\prod", "∫": r"\int", "∮": r"\oint", "\u0302": r"\hat", "\u0303": r"\tilde",
          "\u0304": r"\bar", "\u0305": r"\bar", "\u20d7": r"\vec", "\u0307": r"\dot", "\u0308": r"\ddot"}  # fmt: skip
# TeX by elements of Office Math.
_TEX = {
    "f": r"\frac{{{num}}}{{{den}}}", "rad": r"\sqrt{degree}{{{e}}}", "bar": r"\overline{{{e}}}",
    "sSup": "{base}{scripts}", "sSub": "{base}{scripts}", "sSubSup": "{base}{scripts}", "sPre": "{{}}{scripts}{e}",
    "nary": "{sign}{scripts}{{{e}}}", "acc": "{sign}{{{e}}}", "func": "{fName} {e}", "d": "{beginning}{inside}{end}",
    "limLow": "{e}_{{{lim}}}", "limUpp": "{e}^{{{lim}}}", "mr": "{row}",
    "m": r"\begin{{matrix}}{rows}\end{{matrix}}", "eqArr": r"\begin{{matrix}}{rows}\end{{matrix}}",
}  # fmt: skip


@dataclass(slots=True)
class DocxParts:
    """What is found in the parts of a DOCX.

    Attributes:
        headers_and_footers: Texts of its headers and footers, each once.
        has_changes: Whether changes are tracked.
    """

    headers_and_footers: dict[str, list[str]] = field(default_factory=lambda: {"Header": [], "Footer": []})
    has_changes: bool = False

    def prepared(self, xml: bytes) -> bytes:
        """Return a part with equations as TeX and with deleted text struck out; collect headers and footers."""
        try:
            root = ElementTree.fromstring(xml)  # noqa: S314  parts with a declaration were left out before
        except ElementTree.ParseError:
            # If mammoth needs this part, it refuses the file.
            return xml
        if label := _SIMPLE_ROOTS.get(_name(root)):
            text = "\n".join(line for each in root.iter() if _name(each) == "p" and (line := _plain(each)))
            if text and text not in self.headers_and_footers[label]:
                self.headers_and_footers[label].append(text)
        if _name(root) not in _TEXT_ROOTS:
            return xml
        space = root.tag.rpartition("}")[0] + "}"
        for parent in list(root.iter()):
            for index, each in enumerate(parent):
                self._prepare(parent, index, each, space)
        changed: bytes = ElementTree.tostring(root, "utf-8")
        return changed

    def _prepare(self, parent: ElementTree.Element, index: int, each: ElementTree.Element, space: str) -> None:
        """Replace or change one element, if mammoth would drop it."""
        name = _name(each)
        if name in ("oMath", "oMathPara"):
            mark = "$" if name == "oMath" else "$$"
            parent[index] = run = ElementTree.Element(f"{space}r")
            ElementTree.SubElement(run, f"{space}t").text = f"{mark}{_tex(each)}{mark}"
        elif name in ("ins", "del", "moveFrom", "moveTo"):
            self.has_changes = True
            if name == "del" and _name(parent) != "rPr":
                _strike(each, space)
        elif name == "dstrike":
            each.tag = f"{space}strike"
        elif name == "AlternateContent" and all(_name(child) != "Fallback" for child in each):
            parent[index] = box = ElementTree.Element(f"{space}pict")
            box.extend([child for child in each.iter() if _name(child) == "txbxContent"])


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]


def _plain(paragraph: ElementTree.Element) -> str:
    """Return the words of a paragraph."""
    parts = (
        "\t" if _name(each) == "tab" else each.text or "" for each in paragraph.iter() if _name(each) in ("t", "tab")
    )
    return "".join(parts).strip()


def _strike(deleted: ElementTree.Element, space: str) -> None:
    """Make deleted runs inserted ones that are struck out."""
    deleted.tag = f"{space}ins"
    for each in list(deleted.iter()):
        if _name(each) == "delText":
            each.tag = f"{space}t"
        elif _name(each) == "r":
            properties = next((child for child in each if _name(child) == "rPr"), None)
            if properties is None:
                properties = ElementTree.Element(f"{space}rPr")
                each.insert(0, properties)
            ElementTree.SubElement(properties, f"{space}strike")


def _tex(element: ElementTree.Element) -> str:
    """Return an equation, or a part of one, as TeX."""
    if _name(element) == "t":
        return element.text or ""
    texts = [(_name(each), _tex(each)) for each in element if not _name(each).endswith("Pr")]
    joined = "".join(text for _, text in texts)
    if _name(element) not in _TEX:
        return joined
    parts = defaultdict(str, texts)
    e, low, high, degree = parts["e"], parts["sub"], parts["sup"], parts["deg"]
    cells = [text for name, text in texts if name in ("e", "mr")]
    sign = _value(element, "chr", "∫" if _name(element) == "nary" else "\u0302")
    parts |= {
        "base": e if len(e) == 1 or e.isdigit() else f"{{{e}}}",
        "scripts": (f"_{{{low}}}" if low else "") + (f"^{{{high}}}" if high else ""),
        "degree": f"[{degree}]" if degree else "",
        "sign": _SIGNS.get(sign, sign),
        "beginning": _value(element, "begChr", "("),
        "inside": _value(element, "sepChr", "|").join(cells),
        "end": _value(element, "endChr", ")"),
        "row": " & ".join(cells),
        "rows": r" \\ ".join(cells),
    }
    return _TEX[_name(element)].format_map(parts)


def _value(element: ElementTree.Element, name: str, default: str) -> str:
    """Return the value of a property, such as the sign of a sum."""
    groups = (each for each in element if _name(each).endswith("Pr"))
    value = next((each for group in groups for each in group if _name(each) == name), None)
    return default if value is None else next(iter(value.attrib.values()), "")
