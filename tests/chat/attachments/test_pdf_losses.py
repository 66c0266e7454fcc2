"""What a PDF shows is in the text, or the note says what is not."""

import logging
import random

import pytest
from fontTools.cffLib import CFFFontSet
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.file_reader import pdf_texts
from tests.chat.attachments.documents import pdf

SIGNS = {0: "minus", 18: "reflexsubset", 50: "element", 56: "universal", 65: "A", 88: "X"}


def read(data: bytes) -> tuple[list[str], str]:
    return pdf_texts(data, "a.pdf", lambda _share: None)


def stream(data: bytes, about: bytes = b"") -> bytes:
    return b"<< %b /Length %d >> stream\n%b\nendstream" % (about, len(data), data)


def font_of_tex() -> bytes:
    """Return a font in CFF with an encoding of its own, as TeX's symbol fonts have."""
    names = [".notdef", *SIGNS.values()]
    builder = FontBuilder(1000, isTTF=False)
    builder.setupGlyphOrder(names)
    strings = {name: T2CharStringPen(500, {}).getCharString() for name in names}
    builder.setupCFF("CMSY10", {}, strings, {})
    fonts: CFFFontSet = builder.font["CFF "].cff
    fonts.topDictIndex[0].Encoding = [SIGNS.get(code, ".notdef") for code in range(256)]
    data: bytes = builder.font["CFF "].compile(builder.font)
    return data


def test_signs_of_a_latex_font_are_read_by_its_own_encoding() -> None:
    font = b"/BaseFont /ABCDEF+CMSY10 /FirstChar 0 /FontDescriptor 4 0 R"
    descriptor = b"<< /Type /FontDescriptor /FontName /ABCDEF+CMSY10 /Flags 4 /FontFile3 5 0 R >>"
    more = [descriptor, stream(font_of_tex(), b"/Subtype /Type1C")]
    assert read(pdf([r"8 A \022 X: A\000A 2 X"], font=font, more=more)) == (["∀ A ⊆ X: A\u2212A ∈ X"], "")


@pytest.mark.parametrize("code", [*range(10), 11, 12, *range(14, 32), 127, 128, 159])
def test_a_sign_without_a_letter_leaves_its_place_and_a_note(code: int) -> None:
    texts, note = read(pdf([f"a{chr(code)}b"]))
    # pypdf takes some for spaces and line ends.
    assert texts in (["a\ufffdb"], ["a b"], ["a\nb"])
    assert ("Page 1 may have signs that are wrong or missing" in note) == (texts == ["a\ufffdb"])


@pytest.mark.parametrize(
    ("glyph", "letters"),
    [
        *[("f_i", "fi"), ("f_f_l.liga", "ffl"), ("T_h", "Th"), ("uni00660069", "fi"), ("a.sc", "a"), ("uni00e9", "é")],
        *[("eacute", "é"), ("u1D6FC", "\U0001d6fc"), ("angbracketleftbig", "\u27e8"), ("g123", "\ufffd")],
        *[("cid_7", "\ufffd"), ("dotlessj", "\uf6be")],
    ],
)
def test_the_name_of_a_glyph_is_its_letters(glyph: str, letters: str) -> None:
    encoding = b"<< /Type /Encoding /Differences [65 /%b] >>" % glyph.encode()
    # The pages share their font.
    texts, note = read(pdf(["bAc"] * 3, font=b"/BaseFont /Helvetica /Encoding 4 0 R", more=[encoding]))
    assert texts == [f"b{letters}c"] * 3
    assert ("signs that are wrong or missing" in note) == (letters in ("\ufffd", "\uf6be"))


def test_what_pypdf_warns_of_is_noted_with_its_page() -> None:
    _, note = read(pdf(["a"], font=b"/BaseFont /Helvetica /Encoding /Unknown-H"))
    assert note.startswith("Page 1 may have signs that are wrong or missing (pypdf: Advanced encoding /Unknown-H not")


class Warned(logging.Handler):
    """Tells whether pypdf logs a warning."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@pytest.mark.parametrize("seed", range(60))
def test_no_warning_of_pypdf_stays_without_a_note(seed: int) -> None:
    chance = random.Random(seed)
    data = bytearray(pdf(["First", "Second (note)"]))
    for _ in range(chance.randint(1, 6)):
        data[chance.randrange(len(data))] = chance.randrange(32, 127)
    warned = Warned()
    logger = logging.getLogger("pypdf")
    logger.addHandler(warned)
    try:
        _, note = read(bytes(data))
    except FileRefusedError as refusal:
        note = str(refusal)
    finally:
        logger.removeHandler(warned)
    assert note or not warned.messages


XFA = b"/AcroForm << /Fields [] /XFA 4 0 R >>"
FILES = b"/Names << /EmbeddedFiles << /Names [(a.txt) 4 0 R] >> >>"
INNER = [b"<< /Type /Filespec /F (a.txt) /UF (a.txt) /EF << /F 5 0 R >> >>", stream(b"red", b"/Type /EmbeddedFile")]


@pytest.mark.parametrize(
    ("catalog", "more", "words"),
    [
        (XFA, [stream(b"<x/>")], "It is an XFA form"),
        (XFA.replace(b"[]", b"[9 0 R]") + b" /NeedsRendering true", [stream(b"<x/>")], "It is an XFA form"),
        (XFA.replace(b"[]", b"[9 0 R]"), [stream(b"<x/>")], ""),
        (b"/AcroForm 7", [], ""),
        (b"/Collection << >> " + FILES, INNER, "It is a portfolio, and rdchat does not read the files in it (a.txt)"),
        (FILES, INNER, "Files are attached to it, and rdchat does not read the files in it (a.txt)"),
    ],
)
def test_what_a_pdf_keeps_beside_its_pages_is_named(catalog: bytes, more: list[bytes], words: str) -> None:
    _, note = read(pdf(["Please wait..."], catalog=catalog, more=more))
    assert note.startswith(words)
    assert bool(note) == bool(words)
    if words:
        with pytest.raises(FileRefusedError) as refusal:
            read(pdf([""], catalog=catalog, more=more))
        assert words in refusal.value.hint
