"""Reads a DOCX: mammoth makes HTML of it, `html_to_text` makes text of that.

mammoth silently drops each element that it does not know, with the words in it. So `DocxParts` changes the XML first. A
part is one XML file in the DOCX, such as `word/document.xml`.
- An element around a text becomes one that mammoth reads through, unless it is part of the structure.
- Equations, ruby, tracked changes and the like become plain text. Headers, footers and drawings are collected.
- Items of lists and headings get the numbers that Word shows (`ListNumbers`).
- Each piece of text gets a mark with its index. One that is not in mammoth's HTML shows a loss, which the note names.

Elements are matched by their local names, since Word has two sets of namespaces. `file_reader` calls it in its child.
"""

import io
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from rdchat.chat.attachments.attached_file import FileRefusedError, printable_name
from rdchat.chat.attachments.html_text import html_to_text, numeral
from rdchat.chat.attachments.kinds import refused

# Styles may be based on each other in a circle.
_MAX_STYLES = 32
_MAX_BYTES = 256 << 20
# The tree of a part takes some twenty times as much memory.
_MAX_XML_BYTES = 32 << 20
# Levels of elements in each other that mammoth can read: it calls itself for each.
_DEEPEST = 500
_PICTURES = "word/media/"
# Endings of members without text.
_WORDLESS = ".xml", ".rels", ".bin", ".odttf", "/"
_DAMAGED = "{name} is damaged or not a DOCX file.", "Open it in Word or Pages and save it again."
_LARGE = "{name} is too large for rdchat.", "Save the part that you need as a separate file."
_NOTES = {"footnote", "endnote", "comment"}
# Names of the root elements of parts: those that mammoth reads, and those whose text is collected, with its label.
_TEXT_ROOTS = {"document", "footnotes", "endnotes", "comments"}
_SIMPLE_ROOTS = {"hdr": "Header", "ftr": "Footer"}
# Word shows neither of these: building blocks, and a second copy of a diagram's words.
_UNSEEN_ROOTS = {"glossaryDocument", "drawing"}
# Elements that keep their names, because mammoth needs them.
_STRUCTURE = _TEXT_ROOTS | _NOTES | {"body", "p", "r", "t", "tbl", "tr", "tc", "hyperlink", "sdt", "sdtContent"}
_BREAKS = {"br": "br", "cr": "br", "ptab": "tab"}
# What mammoth makes of styles that it does not know by itself; HTML has six headings, and Word has nine.
_STYLES = """comment-reference => sup
p[style-name='Heading 7'] => h6:fresh
p[style-name='Heading 8'] => h6:fresh
p[style-name='Heading 9'] => h6:fresh"""
# Marks made of characters that XML cannot contain: around the index of a piece of text, and around the label of a list
# item, which mammoth's HTML has at the beginning of the item.
_WORD = re.compile("\ufdd0([0-9]+)\ufdd1")
_ITEM = re.compile("<li>\ufdd2([^\ufdd3]*)\ufdd3")
# Values of an attribute that is a switch; one without a value is on.
_OFF = ("0", "false", "off")
# The place of a count in the pattern of a level of a list.
_COUNT = re.compile("%([1-9])")
# TeX of the signs of sums, and of the accents above a letter.
_SIGNS = {"∑": r"\sum", "∏": r"\prod", "∫": r"\int", "∮": r"\oint", "\u0302": r"\hat", "\u0303": r"\tilde",
          "\u0304": r"\bar", "\u0305": r"\bar", "\u20d7": r"\vec", "\u0307": r"\dot", "\u0308": r"\ddot"}  # fmt: skip
# Templates for `str.format`, by element of Office Math. A name in them is an element inside, or what `_tex` adds. A
# fraction is an `f` with a `num` and a `den`: of 1 and 2 it becomes `\frac{1}{2}`.
_TEX = {
    "f": r"\frac{{{num}}}{{{den}}}", "rad": r"\sqrt{degree}{{{e}}}", "bar": r"\overline{{{e}}}",
    "sSup": "{base}{scripts}", "sSub": "{base}{scripts}", "sSubSup": "{base}{scripts}", "sPre": "{{}}{scripts}{e}",
    "nary": "{sign}{scripts}{{{e}}}", "acc": "{sign}{{{e}}}", "func": "{fName} {e}", "d": "{beginning}{inside}{end}",
    "limLow": "{e}_{{{lim}}}", "limUpp": "{e}^{{{lim}}}", "mr": "{row}",
    "m": r"\begin{{matrix}}{rows}\end{{matrix}}", "eqArr": r"\begin{{matrix}}{rows}\end{{matrix}}",
}  # fmt: skip


@dataclass(slots=True)
class _NumberedList:
    """A list of Word. It refers to an abstract list, of which it may override levels and starts.

    Attributes:
        levels: By their depth, which is 0 for the first.
        starts: The first number at each depth.
        counts: The last number at each depth; all lists of an abstract list count on from one another.
        waiting: Depths at which it has a start of its own, and no item yet.
        has_begun: Whether it has an item.
    """

    levels: dict[int, Element]
    starts: dict[int, int]
    counts: dict[int, int]
    waiting: set[int]
    has_begun: bool = False


class ListNumbers:
    """Counts the items of a document's lists, which go on where Word lets them go on.

    Args:
        parts: The roots of its numbering and its styles.

    Attributes:
        is_sure: False once a number may not be what Word writes.
    """

    def __init__(self, parts: Iterable[Element]) -> None:
        self.is_sure = True
        # The definitions of lists and styles, by the name and value of each of their attributes, such as
        # ("numId", "3") for a list, ("abstractNumId", "0") and ("styleId", "Heading1").
        self._definitions = {
            (name, value): each for root in parts for each in root for name, value in attributes_of(each).items()
        }
        # The counts by the id of the abstract list, and the lists by their own ids.
        self._counts: dict[str, dict[int, int]] = defaultdict(dict)
        self._lists: dict[str, _NumberedList] = {}

    def next_label(self, paragraph: Element) -> str | None:
        """Return the number before a paragraph, such as `3.` or `(a)`; None where it has none, or a bullet.

        Each item adds one at its depth, and the counts below begin anew. A depth that was passed over counts as its
        first number. The first item of a list at a depth has the list's own start, if it has one. A level that is
        missing, a count in an unknown form, or a start that Word may count otherwise makes `is_sure` false.
        """
        numbered, depth = self._list_of(paragraph)
        if numbered is None:
            return None
        level = numbered.levels.get(depth)
        if level is None:
            self.is_sure = False
            return None
        counts = numbered.counts
        if depth in numbered.waiting:
            numbered.waiting.remove(depth)
            self.is_sure &= not (numbered.has_begun and depth in counts)
            counts.pop(depth, None)
        numbered.has_begun = True
        for each in numbered.levels:
            if each < depth:
                counts.setdefault(each, numbered.starts[each])
        counts[depth] = counts.get(depth, numbered.starts[depth] - 1) + 1
        # The depths that an item at this one restarts: all below, unless `lvlRestart` has the number of those that do.
        for each in [*counts]:
            above = attribute_number(value_of(numbered.levels.get(each, level), "lvlRestart"), each)
            if depth < min(above, each):
                del counts[each]
        is_bullet = _form(level) == "bullet" or level.find("{*}lvlPicBulletId") is not None
        return None if is_bullet else self._written(numbered, depth)

    def _written(self, numbered: _NumberedList, depth: int) -> str:
        """Return the label after the pattern of a level: `%1.%2` has the counts at the first and the second depth.

        Each count has the form of its own level, or digits in a legal label (`isLgl`). A level without numbers shows
        none; what Word does with the text around it is not sure. A hidden label (`vanish`) is empty.
        """
        level = numbered.levels[depth]
        if value_of(level, "rPr/{*}vanish", "0") not in _OFF:
            return ""
        pattern = value_of(level, "lvlText")
        is_legal = value_of(level, "isLgl", "0") not in _OFF

        def written_count(match: re.Match[str]) -> str:
            place = int(match[1]) - 1
            place_level = numbered.levels.get(place)
            if place_level is None or place > depth:
                self.is_sure = False
                return ""
            form = _form(place_level)
            if form in ("none", "bullet"):
                self.is_sure &= form == "bullet" or pattern == match[0]
                return ""
            count = numbered.counts[place]
            text = numeral(count, "decimal" if is_legal and form != "decimalZero" else form)
            self.is_sure &= bool(text) and place not in numbered.waiting
            return text or str(count)

        return _COUNT.sub(written_count, pattern)

    def _list_of(self, paragraph: Element) -> tuple[_NumberedList | None, int]:
        """Return the list and the depth of a paragraph: its own, else those of the nearest of its styles.

        A style may be based on another one, which comes after it. List and depth are looked for each by itself. A style
        that is linked to a level of the list has that level's depth.
        """
        # The paragraph and its styles, each with its id, which is empty for the paragraph.
        sources: list[tuple[str, Element]] = []
        name = ""
        element: Element | None = paragraph
        while element is not None and len(sources) < _MAX_STYLES:
            sources.append((name, element))
            name = value_of(element, "basedOn" if name else "pPr/{*}pStyle")
            element = self._definitions.get(("styleId", name))
        list_ids = (value_of(each, "pPr/{*}numPr/{*}numId") for _, each in sources)
        numbered = self._numbered_list(next(filter(None, list_ids), ""))
        if numbered is None:
            return None, 0
        linked = {value_of(level, "pStyle", "?"): str(depth) for depth, level in numbered.levels.items()}
        depths = (linked.get(name) or value_of(each, "pPr/{*}numPr/{*}ilvl") for name, each in sources)
        return numbered, attribute_number(next(filter(None, depths), ""))

    def _numbered_list(self, list_id: str) -> _NumberedList | None:
        """Return a list; None without one of that id.

        Its abstract list may be a style's (`numStyleLink`), which is the abstract list of the style's list.
        """
        definition = self._definitions.get(("numId", list_id))
        if definition is None or list_id in self._lists:
            return self._lists.get(list_id)
        source = definition
        for _ in range(2):
            abstract_id = value_of(source, "abstractNumId")
            abstract = self._definitions.get(("abstractNumId", abstract_id), definition)
            style = self._definitions.get(("styleId", value_of(abstract, "numStyleLink")), abstract)
            source = self._definitions.get(("numId", value_of(style, "pPr/{*}numPr/{*}numId")), source)
        all_levels = (*abstract.iterfind("{*}lvl"), *definition.iterfind("{*}lvlOverride/{*}lvl"))
        levels = {_depth(each): each for each in all_levels}
        own_starts = {
            _depth(each): attribute_number(value_of(each, "startOverride"))
            for each in definition.iterfind("{*}lvlOverride/{*}startOverride/..")
        }
        starts = {depth: attribute_number(value_of(level, "start")) for depth, level in levels.items()} | own_starts
        self._lists[list_id] = _NumberedList(levels, starts, self._counts[abstract_id], set(own_starts))
        return self._lists[list_id]


def attributes_of(element: Element) -> dict[str, str]:
    """Return an element's attributes by their local names."""
    return {name.rpartition("}")[2]: value for name, value in element.items()}


def value_of(element: Element, path: str, default: str = "") -> str:
    """Return the attribute `val` of the element at a path below another one, or `default` without that element."""
    result = element.find(f"{{*}}{path}")
    return default if result is None else attributes_of(result).get("val", "")


def attribute_number(text: str, default: int = 0) -> int:
    """Return the number in an attribute, or `default` where it has none."""
    return int(text) if text.isdecimal() and len(text) < 10 else default


def _depth(level: Element) -> int:
    """Return the depth of a level of a list, or of what overrides it."""
    return attribute_number(attributes_of(level).get("ilvl", ""))


def _form(level: Element) -> str:
    """Return the form of a level's numbers; of one that is described, such as `001, 002, ...`, its first number.

    What is described is in an element with several choices, of which the first counts.
    """
    # The level itself has no such attributes.
    attributes = attributes_of(next(level.iterfind(".//{*}numFmt"), level))
    first = attributes.get("format", "").partition(",")[0]
    return first if first.isdecimal() else attributes.get("val", "")


@dataclass(slots=True)
class DocxParts:
    """Changes the parts of a DOCX for mammoth, and collects what mammoth would drop. Used for all parts in order.

    Attributes:
        numbers: Counts the items of its lists.
        extras: Texts of its headers, footers and drawings by their label, each once.
        pieces: Each piece of its text, marked in the part by its index here. A mark that mammoth drops shows a loss.
        has_changes: Whether changes are tracked.
    """

    numbers: ListNumbers
    extras: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    pieces: list[str] = field(default_factory=list)
    has_changes: bool = False

    def prepared(self, xml: bytes) -> bytes:
        """Return a part as mammoth reads all of it; collect the text of one that it does not read."""
        root = _parsed(xml)
        # If mammoth needs a part that cannot be parsed, it refuses the file.
        if root is None or (kind := _name(root)) in _UNSEEN_ROOTS:
            return xml
        # The elements with a text in them, inner ones first. On the way, an `AlternateContent`, which has the same
        # thing for several versions of Word, keeps only its first child with a text.
        with_text: set[Element] = set()
        for each in reversed(list(root.iter())):
            if _name(each) == "AlternateContent":
                each[:] = [child for child in each if child in with_text][:1]
            if _name(each) == "t" or any(child in with_text for child in each):
                with_text.add(each)
        # mammoth does not read this part. Its words are in paragraphs, or in a chart's values (`v`).
        if kind not in _TEXT_ROOTS:
            text = "\n".join(line for each in root.iter() if _name(each) in ("p", "v") and (line := _plain(each)))
            label = _SIMPLE_ROOTS.get(kind, "Drawing")
            if text:
                self.extras[label][text] = None
            return xml
        namespace = root.tag.rpartition("}")[0] + "}"
        waiting = [root]
        while waiting:
            parent = waiting.pop()
            for index, each in enumerate(parent):
                self._replace(parent, index, each, namespace)
            # Read from the parent again: some of its elements were replaced.
            waiting += parent
        self._mark_texts(root, namespace)
        changed: bytes = ElementTree.tostring(root, "utf-8")
        return changed

    def _replace(self, parent: Element, index: int, each: Element, namespace: str) -> None:
        """Replace or change one element, if mammoth would drop it or what it means.

        - An equation and ruby become plain text; ruby is written as `base(reading)`.
        - The chosen entry of a drop-down list is inserted behind the field's mark.
        - Of tracked changes, deleted text gets `~~`, and moved text is left out at its old place.
        - Double strike and special breaks become those that mammoth knows.
        """
        name = _name(each)
        if name in ("oMath", "oMathPara"):
            mark = "$" if name == "oMath" else "$$"
            parent[index] = _run(namespace, f"{mark}{_tex(each)}{mark}")
        elif name == "ruby":
            texts = defaultdict(str, ((_name(child), _plain(child)) for child in each))
            parent[index] = _run(namespace, f"{texts['rubyBase']}({texts['rt']})")
        elif name == "fldChar":
            parent.insert(index + 1, _run(namespace, _chosen_entry(each)))
        elif name in ("ins", "del", "moveFrom", "moveTo"):
            self.has_changes = True
            if name == "del" and (text := _plain(each, "delText")):
                parent[index] = _run(namespace, f"~~{text}~~")
            # Moved text is shown where it went, so it is emptied here; the end of a moved paragraph (`rPr`) becomes
            # that of a deleted one. For a `del` in a row's properties, `trPr`, mammoth would drop the row: as an `ins`
            # it stays.
            elif name == "moveFrom" or _name(parent) == "trPr":
                each.clear()
                kind = "del" if _name(parent) == "rPr" else "ins"
                each.tag = f"{namespace}{kind}"
        elif name == "dstrike":
            each.tag = f"{namespace}strike"
        elif name in _BREAKS:
            each.tag = f"{namespace}{_BREAKS[name]}"
            each.attrib.clear()

    def _mark_texts(self, root: Element, namespace: str) -> None:
        """Mark each piece of text, rename the elements around it, and insert the numbers of list items.

        A paragraph whose end is deleted is no item: Word counts as if it were gone, and mammoth puts its content before
        that of the next one.
        """
        parents = {child: parent for parent in root.iter() for child in parent}
        renamed = {root}
        # The first of the paragraphs that become one, by what they are in.
        firsts: dict[Element, Element] = {}
        # The keys are in the document's order, so list items are counted in it.
        for each in list(parents):
            if _name(each) == "p":
                first = firsts.pop(parents[each], each)
                if each.find("{*}pPr/{*}rPr/{*}del") is not None:
                    firsts[parents[each]] = first
                elif (label := self.numbers.next_label(each)) is not None:
                    # The properties of a paragraph stay first in it: the label comes at index 1 behind any, else 0.
                    first.insert(first.find("{*}pPr") is not None, _run(namespace, f"\ufdd2{label}\ufdd3"))
            elif _name(each) == "t":
                text = each.text or ""
                each.text = f"\ufdd0{len(self.pieces)}\ufdd1{text}"
                self.pieces.append(text)
                _rename_around(each, parents, renamed, namespace)


def _rename_around(text: Element, parents: dict[Element, Element], renamed: set[Element], namespace: str) -> None:
    """Rename the elements around a text, outwards up to one that an earlier text has `renamed`.

    mammoth reads what is in a `smartTag` as if the tag were not there. Paragraphs inside a run, as in a text box, it
    reads only in a `pict`.
    """
    has_paragraph = False
    element = text
    while element not in renamed:
        renamed.add(element)
        name = _name(element)
        parent = parents[element]
        if name not in _STRUCTURE:
            name = "pict" if has_paragraph and _name(parent) == "r" else "smartTag"
        has_paragraph |= name == "p"
        element.tag = f"{namespace}{name}"
        element = parent


def docx_text(data: bytes, name: str) -> tuple[str, str]:
    """Return the text of a DOCX in Markdown style, and a note for the person; empty if nothing was left out.

    Raises:
        FileRefusedError: If it is damaged or too large, or has no text.
    """
    import mammoth  # noqa: PLC0415  only the reading process needs it

    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = [each for each in archive.namelist() if each.startswith("word/")]
            prepared, parts = _prepared(archive, name)
        result = mammoth.convert_to_html(io.BytesIO(prepared), convert_image=lambda _image: [], style_map=_STYLES)
    except (FileRefusedError, MemoryError):
        raise
    # Anything can be wrong in a foreign file.
    except Exception as error:
        raise refused(_DAMAGED, name) from error
    present = set(_WORD.findall(result.value))
    # An item gets the number that Word shows as its label; one without a number has a bullet, and one that is only
    # around a deeper list has nothing. The signs that are left stand around the number of a paragraph that is no item
    # in the HTML, such as a heading.
    html = _ITEM.sub(r'<li label="\1">', _WORD.sub("", result.value))
    html = re.sub("<li>(?=<[uo]l>)", '<li label="">', html).replace("<li>", '<li label="-">')
    body = html_to_text(html.replace("\ufdd2", "").replace("\ufdd3", " "))
    headers, footers, drawings = (
        [f"{kind}: {text}" for text in parts.extras[kind]] for kind in ("Header", "Footer", "Drawing")
    )
    text = "\n\n".join(each for each in (*headers, body, *drawings, *footers) if each.strip())
    others = (each for each in members if not each.startswith(_PICTURES) and not each.endswith(_WORDLESS))
    inner = [each.removeprefix("word/") for each in others]
    missing = (piece for index, piece in enumerate(parts.pieces) if str(index) not in present)
    lost = [piece for piece in missing if re.search(r"\w", piece)]
    notes = {
        "Its pictures were left out.": any(each.startswith(_PICTURES) for each in members),
        "It has tracked changes: deleted text is struck through.": parts.has_changes,
        "Some numbers of its lists may not be as Word shows them.": not parts.numbers.is_sure,
        "Some of its symbols were left out.": any("unsupported character" in each.message for each in result.messages),
        f"Files inside it were not read ({printable_name(', '.join(inner))}). If Word shows their text, save it again"
        " in Word.": inner,
        f"Some of its text was left out, such as “{printable_name(''.join(lost[:1]))}”.": lost,
    }
    note = " ".join(each for each, is_so in notes.items() if is_so)
    if not text.strip():
        raise FileRefusedError(f"{name} has no text.", note or "It may have only pictures: attach them as images.")
    return text, note


def _prepared(archive: zipfile.ZipFile, name: str) -> tuple[bytes, DocxParts]:
    """Return a DOCX of changed parts for mammoth to read, without pictures, and what was collected from the parts.

    Entities cannot grow without end: expat, which parses all parts, limits them.

    Raises:
        FileRefusedError: If it is too large.
    """
    # Reading a member gives no more bytes than listed here.
    members = archive.infolist()
    xml_parts = [each for each in members if each.filename.endswith((".xml", ".rels"))]
    is_large = any(each.file_size > _MAX_XML_BYTES for each in xml_parts)
    if is_large or sum(each.file_size for each in members) > _MAX_BYTES:
        raise refused(_LARGE, name)
    lists = [each for each in xml_parts if each.filename.startswith(("word/numbering", "word/styles"))]
    roots = [root for each in lists if (root := _parsed(archive.read(each))) is not None]
    copy = io.BytesIO()
    parts = DocxParts(ListNumbers(roots))
    with zipfile.ZipFile(copy, "w") as copied:
        for each in xml_parts:
            xml = archive.read(each)
            copied.writestr(each.filename, parts.prepared(xml) if each.filename.startswith("word/") else xml)
    return copy.getvalue(), parts


def _parsed(xml: bytes) -> Element | None:
    """Return the root of a part; None if it is damaged, or nested deeper than mammoth reads."""
    try:
        root = ElementTree.fromstring(xml)  # noqa: S314  expat limits entities
    except ElementTree.ParseError:
        return None
    level = [root]
    for _ in range(_DEEPEST):
        level = [inner for outer in level for inner in outer]
    return None if level else root


def _name(element: Element) -> str:
    """Return an element's name without its namespace."""
    return element.tag.rpartition("}")[2]


def _run(namespace: str, text: str) -> Element:
    """Return a run, which is Word's element for a stretch of text, with a text."""
    run = Element(f"{namespace}r")
    ElementTree.SubElement(run, f"{namespace}t").text = text
    return run


def _chosen_entry(field: Element) -> str:
    """Return the entry that is chosen in a field of a form that is an old drop-down list; empty for other fields."""
    entries = [attributes_of(each).get("val", "") for each in field.iter() if _name(each) == "listEntry"]
    usual = value_of(field, "ffData/{*}ddList/{*}default", "0")
    chosen = attribute_number(value_of(field, "ffData/{*}ddList/{*}result", usual), len(entries))
    return "".join(entries[chosen:][:1])


def _plain(element: Element, *more: str) -> str:
    """Return the words of a paragraph, or of a value in a chart; `more` names other elements of text."""
    parts = (
        "\t" if _name(each) == "tab" else each.text or ""
        for each in element.iter()
        if _name(each) in ("t", "tab", "v", *more)
    )
    return "".join(parts).strip()


def _tex(element: Element) -> str:
    """Return an equation, or a part of one, as TeX. An element without an entry in `_TEX` is what is in it.

    `parts` gets the TeX of each element inside by its name, and what templates need besides. The cells of a matrix are
    its rows (`mr`), those of a row its entries (`e`). Without a sign of its own, an `nary` is an integral, and an `acc`
    a hat.
    """
    if _name(element) == "t":
        return element.text or ""
    texts = [(_name(each), _tex(each)) for each in element if not _name(each).endswith("Pr")]
    joined = "".join(text for _, text in texts)
    if _name(element) not in _TEX:
        return joined
    parts = defaultdict(str, texts)
    e = parts["e"]
    low = parts["sub"]
    high = parts["sup"]
    degree = parts["deg"]
    cells = [text for name, text in texts if name in ("e", "mr")]
    sign = value_of(element, "*/{*}chr", "∫" if _name(element) == "nary" else "\u0302")
    parts |= {
        "base": e if len(e) == 1 or e.isdigit() else f"{{{e}}}",
        "scripts": (f"_{{{low}}}" if low else "") + (f"^{{{high}}}" if high else ""),
        "degree": f"[{degree}]" if degree else "",
        "sign": _SIGNS.get(sign, sign),
        "beginning": value_of(element, "*/{*}begChr", "("),
        "inside": value_of(element, "*/{*}sepChr", "|").join(cells),
        "end": value_of(element, "*/{*}endChr", ")"),
        "row": " & ".join(cells),
        "rows": r" \\ ".join(cells),
    }
    return _TEX[_name(element)].format_map(parts)
