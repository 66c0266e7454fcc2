"""Reads a DOCX: mammoth makes HTML of it, and silently drops equations, deleted text, headers and footers.

So these are replaced or collected first. Elements are matched by their local names, since Word has two sets of
namespaces.
"""

import io
import zipfile
from collections import defaultdict
from dataclasses import dataclass, field
from xml.etree import ElementTree

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.html_text import html_to_text
from rdchat.chat.attachments.kinds import refused

_MAX_BYTES = 256 << 20
# The tree of a part takes some twenty times as much memory.
_MAX_XML_BYTES = 32 << 20
_PICTURES = "word/media/"
_DAMAGED = "{name} is damaged or not a DOCX file.", "Open it in Word or Pages and save it again."
_LARGE = "{name} is too large for rdchat.", "Save the part that you need as a separate file."
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
    """Content that mammoth would drop from the parts of a DOCX.

    Attributes:
        headers_and_footers: Texts of its headers and footers, each once.
        has_changes: Whether changes are tracked.
    """

    headers_and_footers: dict[str, list[str]] = field(default_factory=lambda: {"Header": [], "Footer": []})
    has_changes: bool = False

    def prepared(self, xml: bytes) -> bytes:
        """Return a part with equations as TeX and with deleted text struck out; collect headers and footers."""
        try:
            root = ElementTree.fromstring(xml)  # noqa: S314  expat limits entities
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


def docx_text(data: bytes, name: str) -> tuple[str, str]:
    """Return the text and a note.

    Raises:
        FileRefusedError: If it is damaged or too large.
    """
    import mammoth  # noqa: PLC0415  only the reading process needs it

    try:
        prepared, parts = _prepared(data, name)
        html = mammoth.convert_to_html(
            io.BytesIO(prepared), convert_image=lambda _image: [], style_map="comment-reference => sup"
        ).value
    except (FileRefusedError, MemoryError):
        raise
    # Anything can be wrong in a foreign file.
    except Exception as error:
        raise refused(_DAMAGED, name) from error
    headers, footers = (
        [f"{kind}: {text}" for text in parts.headers_and_footers[kind]] for kind in ("Header", "Footer")
    )
    text = "\n\n".join(each for each in (*headers, html_to_text(html), *footers) if each.strip())
    if not text.strip():
        raise FileRefusedError(f"{name} has no text.", "It may have only pictures, which rdchat cannot read yet.")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        has_pictures = any(each.startswith(_PICTURES) for each in archive.namelist())
    notes = ["Its pictures were left out."] if has_pictures else []
    notes += ["It has tracked changes: deleted text is struck through."] if parts.has_changes else []
    return text, " ".join(notes)


def _prepared(data: bytes, name: str) -> tuple[bytes, DocxParts]:
    """Return a DOCX that mammoth reads, without its pictures, and what stands beside its text.

    Entities cannot grow without end: expat, which parses all parts, limits them.

    Raises:
        FileRefusedError: If it is too large.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        # Reading a member gives no more bytes than listed here.
        members = archive.infolist()
        xml_parts = [each for each in members if each.filename.endswith((".xml", ".rels"))]
        is_large = any(each.file_size > _MAX_XML_BYTES for each in xml_parts)
        if is_large or sum(each.file_size for each in members) > _MAX_BYTES:
            raise refused(_LARGE, name)
        copy, parts = io.BytesIO(), DocxParts()
        with zipfile.ZipFile(copy, "w") as copied:
            for each in xml_parts:
                xml = archive.read(each)
                copied.writestr(each.filename, parts.prepared(xml) if each.filename.startswith("word/") else xml)
        return copy.getvalue(), parts


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
