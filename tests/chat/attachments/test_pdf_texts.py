"""What a PDF shows is in the text, or the note says what is not."""

import io
import logging
import random

import pypdf
import pytest
from fontTools.cffLib import CFFFontSet
from fontTools.fontBuilder import FontBuilder
from fontTools.pens.t2CharStringPen import T2CharStringPen
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, NumberObject, TextStringObject

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


def form(*annotations: dict[str, object]) -> bytes:
    """Return a PDF with one page, its text `Text`, and annotations."""

    def value(of: object) -> object:
        match of:
            case dict():
                return DictionaryObject({NameObject(key): value(each) for key, each in of.items()})
            case list():
                return ArrayObject([value(each) for each in of])
            case int():
                return NumberObject(of)
            case str():
                return NameObject(of) if of.startswith("/") else TextStringObject(of)
        return of

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf(["Text"])))
    writer.pages[0][NameObject("/Annots")] = value(list(annotations))  # type: ignore[assignment]
    sink = io.BytesIO()
    writer.write(sink)
    return sink.getvalue()


def field(kind: str, **more: object) -> dict[str, object]:
    return {"/Subtype": "/Widget", "/FT": kind, "/T": "F"} | {f"/{key}": each for key, each in more.items()}


@pytest.mark.parametrize(
    ("annotation", "line"),
    [
        (field("/Tx", V="Ada"), "[Field F: Ada]"),
        (field("/Tx", V="Ada", TU="Your name"), "[Field Your name: Ada]"),
        ({"/Subtype": "/Widget", "/Parent": {"/FT": "/Tx", "/T": "Up", "/V": "Ada"}}, "[Field Up: Ada]"),
        (field("/Tx", V="secret", Ff=1 << 13), ""),
        (field("/Tx"), ""),
        (field("/Btn", AS="/Yes"), "[Field F: [x]]"),
        (field("/Btn", AS="/Off"), "[Field F: [ ]]"),
        (field("/Btn", AS="/Red", Ff=1 << 15), "[Field F: Red]"),
        (field("/Btn", AS="/Off", Ff=1 << 15), ""),
        (field("/Btn", Ff=1 << 16), ""),
        (field("/Ch", V="de", Opt=[["de", "Germany"], ["fr", "France"]]), "[Field F: Germany]"),
        (field("/Ch", V=["a", "b"], Opt=["a", "b", "c"]), "[Field F: a, b]"),
        ({"/Subtype": "/Text", "/Contents": "Check this"}, "[Note: Check this]"),
        ({"/Subtype": "/FreeText", "/Contents": "Typed on it"}, "[Note: Typed on it]"),
        ({"/Subtype": "/Highlight", "/Contents": "why?"}, "[Note: why?]"),
        ({"/Subtype": "/Highlight"}, ""),
        ({"/Subtype": "/Link", "/Contents": "a link"}, ""),
        (field("/Btn", Ff="many"), "[Its form fields and notes cannot be read.]"),
    ],
)
def test_what_was_typed_into_a_pdf_is_read(annotation: dict[str, object], line: str) -> None:
    (text,), _ = read(form(annotation))
    assert text == (f"Text\n\n{line}" if line else "Text")


def test_an_aes_pdf_with_an_empty_password_is_read() -> None:
    assert read(pdf(["Plain"], encrypt=""))[0] == ["Plain"]
