"""Each word that Word shows is in the text of a DOCX, or the note says what is not; numbers are as shown."""

import pytest
from hypothesis import given, settings, strategies as st

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.docx_text import docx_text
from tests.chat.attachments.documents import docx, paragraph

W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
R = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'
RUN = "<w:r><w:t>sentinel</w:t></w:r>"
SPACES = (
    'xmlns:a="http://schemas.openxmlformats.org/drawingml/2006/main" xmlns:x="urn:unknown" xmlns:v="urn:schemas-micros'
    'oft-com:vml" xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006" xmlns:wp="http://schemas.openx'
    'mlformats.org/drawingml/2006/wordprocessingDrawing"'
)
WRAPPERS = [
    "w:bdo", "w:dir", "w:fldSimple", "w:smartTag", "w:customXml", "w:ins", "w:moveTo", "w:hyperlink", "w:object",
    "w:drawing", "w:pict", "w:sdt", "w:later", "wp:inline", "wp:anchor", "v:shape", "v:textbox", "a:graphic", "x:a",
    "w:subDoc", "w:conflictIns", "mc:AlternateContent", "w:p", "w:r", "w:txbxContent", "a:p", "w:del",
]  # fmt: skip


def read(body: str, **more: bytes) -> tuple[str, str]:
    return docx_text(docx(body, more={f"word/{name}.xml": part for name, part in more.items()}), "a.docx")


def part(tag: str, inner: str) -> bytes:
    """Return a part of the document, with its own root."""
    return f"<w:{tag} {W}>{inner}</w:{tag}>".encode()


def wrapped(inner: str, names: list[str]) -> str:
    for name in reversed(names):
        inner = f"<w:sdtContent>{inner}</w:sdtContent>" if name == "w:sdt" else inner
        inner = f"<{name} {SPACES}>{inner}</{name}>"
    return inner


NAMES = st.lists(st.sampled_from(WRAPPERS), max_size=4)


@given(NAMES, NAMES, st.booleans())
@settings(max_examples=40)
def test_no_element_takes_its_words_away(around: list[str], within: list[str], in_table: bool) -> None:
    body = wrapped(f"<w:p><w:r><w:t>before</w:t></w:r>{wrapped(RUN, within)}</w:p>", around)
    if in_table:
        body = f"<w:tbl><w:tr><w:tc>{body}</w:tc></w:tr></w:tbl>"
    text, note = read(body + paragraph("after"))
    for word in ("before", "sentinel", "after"):
        # A run that holds paragraphs and stands in none is no document of Word.
        assert text.count(word) == 1 or ("w:r" in around and word not in text and "of its text was left out" in note)


def test_what_the_rule_does_not_save_is_named() -> None:
    """A picture of a box takes its only letter away."""
    box = "<w14:checkbox xmlns:w14='http://schemas.microsoft.com/office/word/2010/wordml'/>"
    text, note = read(f"<w:p><w:sdt><w:sdtPr>{box}</w:sdtPr><w:sdtContent>{RUN}</w:sdtContent></w:sdt></w:p>")
    assert text == "[ ]"
    assert note == "Some of its text was left out, such as “sentinel”."


def field(chosen: str) -> str:
    entries = "<w:listEntry w:val='a'/><w:listEntry w:val='b'/>"
    inner = f"<w:ffData><w:ddList>{chosen}{entries}</w:ddList></w:ffData>"
    return f"<w:fldChar w:fldCharType='begin'>{inner}</w:fldChar>"


@pytest.mark.parametrize(
    ("inner", "text"),
    [
        ("<w:ruby><w:rt><w:r><w:t>かんじ</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>漢字</w:t></w:r></w:rubyBase></w:ruby>",
         "漢字(かんじ)"),
        ("<w:ruby><w:rubyBase><w:r><w:t>漢字</w:t></w:r></w:rubyBase></w:ruby>", "漢字()"),
        ("<w:t>a</w:t><w:cr/><w:t>b</w:t><w:ptab w:alignment='left'/><w:t>c</w:t><w:br w:type='page'/><w:t>d</w:t>",
         "a\nb c\nd"),
        ("<mc:AlternateContent><mc:Choice><w:t>new</w:t></mc:Choice><mc:Fallback><w:t>old</w:t></mc:Fallback></mc:Alte"
         "rnateContent>", "new"),
        ("<mc:AlternateContent><mc:Choice><x:a><w:t>new</w:t></x:a></mc:Choice></mc:AlternateContent>", "new"),
        ("<mc:AlternateContent><mc:Choice/><mc:Fallback><w:t>old</w:t></mc:Fallback></mc:AlternateContent>", "old"),
        ("<w:t>a</w:t><x:a><w:p><w:r><w:t>in a box</w:t></w:r></w:p></x:a><w:t>b</w:t>", "ab\n\nin a box"),
        (field("<w:result w:val='1'/>"), "b"),
        (field("<w:default w:val='1'/>"), "b"),
        (field(""), "a"),
        (field("<w:result w:val='2'/>") + "<w:t>c</w:t>", "c"),
        (field("<w:result w:val='x'/>") + "<w:t>c</w:t>", "c"),
    ],
)  # fmt: skip
def test_what_a_run_shows(inner: str, text: str) -> None:
    assert read(f"<w:p {SPACES}><w:r>{inner}</w:r></w:p>") == (text, "")


def level(depth: int, form: str, text: str, start: int = 1) -> str:
    about = f'<w:start w:val="{start}"/><w:numFmt w:val="{form}"/><w:lvlText w:val="{text}"/>'
    return f'<w:lvl w:ilvl="{depth}">{about}</w:lvl>'


def use(number: int, of: int, more: str = "") -> str:
    return f'<w:num w:numId="{number}"><w:abstractNumId w:val="{of}"/>{more}</w:num>'


def item(text: str, number: int, depth: int | None = 0) -> str:
    place = "" if depth is None else f'<w:ilvl w:val="{depth}"/>'
    about = f'<w:pPr><w:numPr>{place}<w:numId w:val="{number}"/></w:numPr></w:pPr>'
    return f"<w:p>{about}<w:r><w:t>{text}</w:t></w:r></w:p>"


OUTLINE = (
    f'<w:abstractNum w:abstractNumId="0"><w:nsid w:val="1"/>{level(0, "decimal", "%1.")}'
    f'{level(1, "lowerLetter", "(%2)")}{level(2, "upperRoman", "%1.%2.%3")}{level(3, "ordinal", "%4")}</w:abstractNum>'
    f'<w:abstractNum w:abstractNumId="1">{level(0, "decimal", "%1.", 3)}</w:abstractNum>'
    + use(1, 0) + use(2, 1) + use(3, 0, '<w:lvlOverride w:ilvl="0"><w:startOverride w:val="7"/></w:lvlOverride>')
    + use(4, 0, f'<w:lvlOverride w:ilvl="0">{level(0, "decimal", "§ %1")}</w:lvlOverride>') + use(5, 9)
)  # fmt: skip
STYLES = (
    '<w:style w:type="paragraph" w:styleId="Heading1"><w:name w:val="heading 1"/><w:basedOn w:val="Base"/></w:style>'
    '<w:style w:type="paragraph" w:styleId="Base"><w:basedOn w:val="Heading1"/><w:pPr><w:numPr><w:numId w:val="1"/>'
    "</w:numPr></w:pPr></w:style>"
)
UNSURE = "Some numbers of its lists may not be as Word shows them."


@pytest.mark.parametrize(
    ("body", "lines", "note"),
    [
        (item("Rent", 2) + item("Term", 2), ["3. Rent", "4. Term"], ""),
        (item("a", 1) + paragraph("p") + item("b", 1), ["1. a", "p", "2. b"], ""),
        (item("a", 1) + item("b", 3) + item("c", 3) + item("d", 1), ["1. a", "7. b", "8. c", "9. d"], ""),
        (item("a", 1) + item("b", 1, 1) + item("c", 1, 1) + item("d", 1) + item("e", 1, 1),
         ["1. a", "(a) b", "(b) c", "2. d", "(a) e"], ""),
        (item("a", 1) + item("b", 1, 2) + item("c", 1, 2), ["1. a", "1.a.I b", "1.a.II c"], ""),
        (item("a", 4), ["§ 1 a"], ""),
        (item("a", 1, None), ["1. a"], ""),
        (item("a", 1) + paragraph("Title", "Heading1") + item("b", 1), ["1. a", "# 2. Title", "3. b"], ""),
        (item("x", 1, 3), ["1 x"], UNSURE),
        (item("x", 5) + item("a", 1), ["x", "1. a"], UNSURE),
        (item("x", 8) + item("y", 0), ["x", "y"], ""),
    ],
)  # fmt: skip
def test_lists_have_the_numbers_that_word_shows(body: str, lines: list[str], note: str) -> None:
    text, said = read(body, numbering=part("numbering", OUTLINE), styles=part("styles", STYLES))
    assert [line.lstrip(" -") for line in text.split("\n") if line] == lines
    assert said == note


def test_each_of_the_nine_headings_of_word_is_a_heading() -> None:
    styles = "".join(
        f'<w:style w:type="paragraph" w:styleId="H{depth}"><w:name w:val="heading {depth}"/></w:style>'
        for depth in range(1, 10)
    )
    text, _ = read("".join(paragraph("Title", f"H{depth}") for depth in range(1, 10)), styles=part("styles", styles))
    assert text.split("\n\n") == [f"{'#' * min(depth, 6)} Title" for depth in range(1, 10)]


def test_words_of_charts_and_names_of_inner_files() -> None:
    chart = (
        b"<c:chartSpace xmlns:c='c' xmlns:a='a'><a:p><a:r><a:t>Revenue</a:t></a:r></a:p><c:v>42</c:v></c:chartSpace>"
    )
    more = {"word/charts/chart1.xml": chart, "word/afchunk.html": b"<p>4711", "word/fonts/a.odttf": b"x"}
    text, note = docx_text(docx(paragraph("See:"), more=more), "a.docx")
    assert text == "See:\n\nDrawing: Revenue\n42"
    assert note == "Files inside it were not read (afchunk.html). If Word shows their text, save it again in Word."
    with pytest.raises(FileRefusedError) as refusal:
        docx_text(docx("", more={"word/afchunk.html": b"<p>4711"}), "a.docx")
    assert "afchunk.html" in refusal.value.hint


MATH = 'xmlns:m="http://schemas.openxmlformats.org/officeDocument/2006/math"'


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


def test_deleted_text_is_struck_and_noted() -> None:
    change = '<w:del w:id="1"><w:r><w:rPr><w:i/></w:rPr><w:delText>old</w:delText></w:r></w:del>'
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
    text, _ = read(
        paragraph("Body"),
        header1=part("hdr", paragraph("Secret")),
        header2=part("hdr", paragraph("Secret")),
        footer1=part("ftr", paragraph("Page 1")),
    )  # fmt: skip
    assert text == "Header: Secret\n\nBody\n\nFooter: Page 1"


def test_struck_raised_and_lowered_text_of_word() -> None:
    def run(text: str, about: str = "") -> str:
        return f"<w:r><w:rPr>{about}</w:rPr><w:t>{text}</w:t></w:r>"

    up = '<w:vertAlign w:val="superscript"/>'
    down = '<w:vertAlign w:val="subscript"/>'
    body = run("10") + run("-6", up) + run(" x") + run("max", down) + run("a", "<w:strike/>") + run("b", "<w:dstrike/>")
    assert read(f"<w:p>{body}</w:p>")[0].replace("~~~~", "") == "10⁻⁶ x_{max}~~ab~~"


def test_cells_merged_in_word_keep_the_others_in_their_columns() -> None:
    def cell(text: str, about: str = "") -> str:
        return f"<w:tc><w:tcPr>{about}</w:tcPr>{paragraph(text)}</w:tc>"

    rows = [
        cell("Tall", '<w:vMerge w:val="restart"/>') + cell("Wide", '<w:gridSpan w:val="2"/>') + cell("C"),
        cell("", "<w:vMerge/>") + cell("1") + cell("2") + cell("3"),
    ]
    text, _ = read(f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>")
    assert text == "| Tall | Wide |  | C |\n| --- | --- | --- | --- |\n|  | 1 | 2 | 3 |"
