"""Parts of documents that are easily lost: equations, changes, comments, headers, merged cells, forms, notes."""

import io

import pypdf
import pytest
from pypdf.generic import ArrayObject, DictionaryObject, NameObject, NumberObject, TextStringObject

from rdchat.chat.attachments.attached_file import Passage, ranked
from rdchat.chat.attachments.docx_text import docx_text
from rdchat.chat.attachments.file_reader import pdf_texts
from rdchat.chat.attachments.html_text import html_to_text
from tests.chat.attachments.documents import docx, paragraph, pdf

MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'
WORD = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'


def read(body: str, **more: bytes) -> tuple[str, str]:
    return docx_text(docx(body, more={f"word/{name}.xml": part for name, part in more.items()}), "a.docx")


def mr(text: str) -> str:
    return f"<m:r><m:t>{text}</m:t></m:r>"


@pytest.mark.parametrize(
    ("math", "tex"),
    [
        (f"<m:f><m:num>{mr('a')}</m:num><m:den>{mr('b')}</m:den></m:f>", r"\frac{a}{b}"),
        (f'<m:rad><m:radPr><m:degHide m:val="1"/></m:radPr><m:deg/><m:e>{mr("x")}</m:e></m:rad>', r"\sqrt{x}"),
        (f"<m:rad><m:deg>{mr('3')}</m:deg><m:e>{mr('x')}</m:e></m:rad>", r"\sqrt[3]{x}"),
        (f"<m:sSub><m:e>{mr('x')}</m:e><m:sub>{mr('i')}</m:sub></m:sSub>", "x_{i}"),
        (f"<m:sSubSup><m:e>{mr('ab')}</m:e><m:sub>{mr('1')}</m:sub><m:sup>{mr('2')}</m:sup></m:sSubSup>",
         "{ab}_{1}^{2}"),
        (f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr><m:sub>{mr("i=1")}</m:sub><m:sup>{mr("n")}</m:sup>'
         f"<m:e>{mr('i')}</m:e></m:nary>", r"\sum_{i=1}^{n}{i}"),
        (f"<m:nary><m:sub/><m:sup/><m:e>{mr('f')}</m:e></m:nary>", r"\int{f}"),
        (f"<m:d><m:e>{mr('x')}</m:e><m:e>{mr('y')}</m:e></m:d>", "(x|y)"),
        (f'<m:d><m:dPr><m:begChr m:val="["/><m:endChr m:val="]"/></m:dPr><m:e>{mr("x")}</m:e></m:d>', "[x]"),
        (f"<m:m><m:mr><m:e>{mr('1')}</m:e><m:e>{mr('2')}</m:e></m:mr><m:mr><m:e>{mr('3')}</m:e><m:e>{mr('4')}</m:e>"
         "</m:mr></m:m>", r"\begin{matrix}1 & 2 \\ 3 & 4\end{matrix}"),
        (f"<m:func><m:fName>{mr('sin')}</m:fName><m:e>{mr('x')}</m:e></m:func>", "sin x"),
        (f"<m:acc><m:e>{mr('x')}</m:e></m:acc>", r"\hat{x}"),
        (f"<m:unknown><m:e>{mr('{0}')}</m:e></m:unknown>", "{0}"),
    ],
)  # fmt: skip
def test_an_equation_is_read_as_tex(math: str, tex: str) -> None:
    equation = f"<m:oMath {MATH}>{math}</m:oMath>"
    assert read(f"<w:p><w:r><w:t>is</w:t></w:r>{equation}</w:p>") == (f"is${tex}$", "")
    assert read(f"<w:p><m:oMathPara {MATH}>{equation}</m:oMathPara></w:p>") == (f"$${tex}$$", "")


def test_a_deeply_nested_equation_takes_no_longer_than_its_length() -> None:
    """Reading the inner parts twice at each level would take 2^200 steps."""
    math = "<m:f><m:num>" * 200 + mr("x") + "</m:num></m:f>" * 200
    assert "x" in read(f"<w:p><m:oMath {MATH}>{math}</m:oMath></w:p>")[0]


@pytest.mark.parametrize(
    "change",
    [
        '<w:del w:id="1"><w:r><w:delText>old</w:delText></w:r></w:del>',
        '<w:del w:id="1"><w:r><w:rPr><w:i/></w:rPr><w:delText>old</w:delText></w:r></w:del>',
    ],
)
def test_deleted_text_is_struck_and_noted(change: str) -> None:
    text, note = read(f'<w:p>{change}<w:ins w:id="2"><w:r><w:t>new</w:t></w:r></w:ins></w:p>')
    assert text.replace("*", "") == "~~old~~new"
    assert "tracked changes" in note


def test_a_deleted_row_and_the_place_from_which_text_was_moved() -> None:
    row = f'<w:tbl><w:tr><w:trPr><w:del w:id="1"/></w:trPr><w:tc>{paragraph("gone")}</w:tc></w:tr></w:tbl>'
    text, note = read(row + '<w:p><w:moveFrom w:id="2"><w:r><w:t>twice</w:t></w:r></w:moveFrom></w:p>' + paragraph("x"))
    assert "gone" in text
    assert "twice" not in text
    assert "tracked changes" in note


def test_headers_and_footers_are_read_once() -> None:
    def part(tag: str, text: str) -> bytes:
        return f"<w:{tag} {WORD}>{paragraph(text)}</w:{tag}>".encode()

    text, _ = read(
        paragraph("Body"), header1=part("hdr", "Secret"), header2=part("hdr", "Secret"), footer1=part("ftr", "Page 1"),
    )  # fmt: skip
    assert text == "Header: Secret\n\nBody\n\nFooter: Page 1"


def test_struck_raised_and_lowered_text_of_word() -> None:
    def run(text: str, about: str = "") -> str:
        return f"<w:r><w:rPr>{about}</w:rPr><w:t>{text}</w:t></w:r>"

    up = '<w:vertAlign w:val="superscript"/>'
    down = '<w:vertAlign w:val="subscript"/>'
    body = run("10") + run("-6", up) + run(" x") + run("max", down) + run("a", "<w:strike/>") + run("b", "<w:dstrike/>")
    assert read(f"<w:p>{body}</w:p>")[0].replace("~~~~", "") == "10⁻⁶ x_{max}~~ab~~"


def test_a_text_box_without_a_fallback_is_read() -> None:
    box = f"<w:txbxContent>{paragraph('In the box')}</w:txbxContent>"
    spaces = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:x="x"'
    body = (
        f"<w:p><w:r><mc:AlternateContent {spaces}><mc:Choice><x:a>{box}</x:a></mc:Choice></mc:AlternateContent></w:r>"
    )
    assert "In the box" in read(body + "</w:p>")[0]


def test_cells_merged_in_word_keep_the_others_in_their_columns() -> None:
    def cell(text: str, about: str = "") -> str:
        return f"<w:tc><w:tcPr>{about}</w:tcPr>{paragraph(text)}</w:tc>"

    rows = [
        cell("Tall", '<w:vMerge w:val="restart"/>') + cell("Wide", '<w:gridSpan w:val="2"/>') + cell("C"),
        cell("", "<w:vMerge/>") + cell("1") + cell("2") + cell("3"),
    ]
    text, _ = read(f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>")
    assert text == "| Tall | Wide |  | C |\n| --- | --- | --- | --- |\n|  | 1 | 2 | 3 |"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("a <s>1</s> <strike>2</strike> <del>3</del>", "a ~~1~~ ~~2~~ ~~3~~"),
        ("m<sup>2</sup> CO<sub>2</sub> 1<sup>st</sup> x<sub>i</sub>", "m² CO₂ 1^{st} x_{i}"),
        ("<table><tr><td>m<sup>2</sup><td><s>a</s></table>", "| m² | ~~a~~ |\n| --- | --- |"),
        ("<table><tr><td rowspan=2>R<td>A<tr><td>B<tr><td>C<td>D</table>",
         "| R | A |\n| --- | --- |\n|  | B |\n| C | D |"),
        ("<table><tr><td>A<td rowspan=2>R<tr><td>B</table>", "| A | R |\n| --- | --- |\n| B |  |"),
        ("<table><tr><td colspan=x>A<td colspan=0>B<td colspan=99999999999>C</table>",
         "| A | B | C |\n| --- | --- | --- |"),
        ("<input type=checkbox checked>Yes <input type=radio>No <input value=Ada> <input type=password value=x>",
         "[x] Yes [ ] No Ada"),
        ("Size: <select><option>S<option selected>M</select> <textarea>typed</textarea>", "Size: M typed"),
        ("<p>a<![a >b<![if !IE]>c<![endif]></p>", "abc"),
        ("<p>a</p>3 < 4 and <b", "a\n\n3 < 4 and <b"),
    ],
)  # fmt: skip
def test_what_pages_of_the_web_strike_raise_merge_and_ask(page: str, text: str) -> None:
    assert html_to_text(page) == text


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
    (text,), _ = pdf_texts(form(annotation), "a.pdf", lambda _share: None)
    assert text == (f"Text\n\n{line}" if line else "Text")


def test_an_aes_pdf_with_an_empty_password_is_read() -> None:
    writer = pypdf.PdfWriter(clone_from=io.BytesIO(pdf(["Plain"])))
    writer.encrypt("", "owner", algorithm="AES-256")
    sink = io.BytesIO()
    writer.write(sink)
    assert pdf_texts(sink.getvalue(), "a.pdf", lambda _share: None)[0] == ["Plain"]


@pytest.mark.parametrize(
    ("text", "question"),
    [
        ("inter\u00adnational", "international"),
        ("inter\u00ad\nnational", "international"),
        ("international", "inter\u00adnational"),
        ("the \ufb01nal o\ufb00er", "final offer"),
        ("\uff26\uff55\uff4c\uff4c width", "full"),
        ("full", "\uff46\uff55\uff4c\uff4c"),
    ],
)
def test_passages_and_questions_are_compared_in_one_form(text: str, question: str) -> None:
    passages = [Passage("Apples."), Passage("Pears."), Passage(text)]
    assert ranked(passages, question) == [2]
