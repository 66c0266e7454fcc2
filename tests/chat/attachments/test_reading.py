"""Reading each kind of file in the child process."""

import io
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError, ReadFile
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.chat.attachments.html_text import html_to_text
from tests.chat.attachments.documents import docx, paragraph, pdf, table, zipped
from tests.inference.vision.pictures import encoded, photo


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    reader = FileReader()
    yield reader
    reader.close()


class Reading:
    def __init__(self, reader: FileReader, folder: Path) -> None:
        self._reader = reader
        self.folder = folder

    def __call__(self, name: str, content: bytes | str) -> ReadFile:
        path = self.folder / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return self._reader.read_file(path)

    def refusal(self, name: str, content: bytes | str) -> FileRefusedError:
        with pytest.raises(FileRefusedError) as refused:
            self(name, content)
        assert refused.value.message.startswith(name)
        assert refused.value.hint
        return refused.value


@pytest.fixture
def read(reader: FileReader, tmp_path: Path) -> Reading:
    return Reading(reader, tmp_path)


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("a.txt", FileKind.TEXT),
        ("main.py", FileKind.TEXT),
        ("Makefile", FileKind.TEXT),
        ("notes.MD", FileKind.MARKDOWN),
        ("figures.csv", FileKind.CSV),
        ("BMW.txt", FileKind.TEXT),
    ],
)
def test_text_is_kept_as_it_is(read: Reading, name: str, kind: FileKind) -> None:
    text = "BM,MZ\r\n\tdéjà vu, 日本, 🙂\r\n"
    file = read(name, text)
    assert (file.name, file.kind, file.parts, file.note) == (name, kind, (text.replace("\r\n", "\n"),), "")


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32"])
def test_a_mark_at_the_beginning_tells_the_encoding(read: Reading, encoding: str) -> None:
    assert read("a.txt", "Größe\n日本".encode(encoding)).parts == ("Größe\n日本",)


def test_what_is_not_utf_8_is_read_as_latin_1_and_that_is_said(read: Reading) -> None:
    file = read("a.txt", "“Größe” café".encode("cp1252"))
    assert file.parts == ("“Größe” café",)
    assert "Latin-1" in file.note


def test_html_becomes_text_that_reads_as_markdown(read: Reading) -> None:
    page = """<!doctype html><html><head><title>Prices</title><style>p {color: red}</style>
        <script>document.write("no")</script></head><body><h2>Fruit &amp; more</h2><p>Some <b>fresh</b>
        <a href="https://example.invalid/x">fruit</a>.<br>Next line.</p><ul><li>Apples<ol><li>red</li><li>green</li>
        </ol><li>Pears</ul><img src="https://example.invalid/track.png"><table><tr><th>Name<th>Price</tr>
        <tr><td>Apple</td><td>1 | 2</td></tr></table><pre>a = 1\n  b = 2</pre><p hidden>End</p></body></html>"""
    file = read("page.html", page)
    assert file.kind is FileKind.HTML
    assert file.parts[0] == (
        "# Prices\n\n## Fruit & more\n\nSome **fresh** fruit.\nNext line.\n\n- Apples\n  1. red\n  2. green\n- Pears"
        "\n\n| Name | Price |\n| --- | --- |\n| Apple | 1 \\| 2 |\n\n```\na = 1\n  b = 2\n```\n\nEnd"
    )


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<tr><td>Name<td>Price<tr><td>Tea<td>3", "| Name | Price |\n| --- | --- |\n| Tea | 3 |\n\nend"),
        (
            "<tr><td>A</td><td>b <table><tr><td>in<td>ner</table> c</td><td>D</td></tr><tr><td>E",
            "| A | b in ner c | D |\n| --- | --- | --- |\n| E |\n\nend",
        ),
        ("<tr><td><ul><li>A<li>B</ul></td><td>C</td></tr>", "| - A - B | C |\n| --- | --- |\n\nend"),
    ],
)
def test_no_cell_of_a_table_is_lost(page: str, text: str) -> None:
    assert html_to_text(f"<table>{page}</table><p>end") == text
    assert html_to_text(f"<table>{page}") == text.removesuffix("\n\nend")


def test_each_paragraph_of_a_quote_is_one() -> None:
    page = (
        "<blockquote><p>One<p>Two<br>lines<ul><li>A<li>B</ul><blockquote>Deep</blockquote></blockquote></blockquote>Out"
    )
    assert html_to_text(page) == "> One\n\n> Two\n> lines\n\n> - A\n> - B\n\n> > Deep\n\nOut"


@pytest.mark.parametrize(
    ("page", "text"),
    [
        ("<pre>x = 1\ny = 2</pre>", "> ```\n> x = 1\n> y = 2\n> ```"),
        ("<table><tr><th>A<tr><td>1</table>", "> | A |\n> | --- |\n> | 1 |"),
        ("a<hr>b", "> a\n\n> ---\n\n> b"),
        ("<table><tr><td><blockquote>q</blockquote></table>b", "> | q |\n> | --- |\n\n> b"),
    ],
)
def test_all_that_a_quote_holds_is_marked_and_nothing_behind_it(page: str, text: str) -> None:
    assert html_to_text(f"<blockquote>{page}</blockquote><p>after") == f"{text}\n\nafter"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.md", 'A PDF begins with %PDF-1.7, then "1 0 obj".'),
        ("a.txt", "%PDF-1.7 begins a PDF, then: 1 0 obj"),
        ("a.txt", "GGUF is a format."),
        ("a.txt", "bplist00 and SQLite format 3 are formats."),
        ("a.txt", "RIFF, or ftyp: containers."),
        ("a.txt", "Rar! and BZh are archives."),
    ],
)
def test_a_text_about_a_format_is_text(read: Reading, name: str, text: str) -> None:
    assert read(name, text).parts == (text,)


@pytest.mark.parametrize("name", ["a.pdf", "a", "a.txt"])
def test_a_pdf_is_known_by_its_content(read: Reading, name: str) -> None:
    assert read(name, pdf(["Hi"])).kind is FileKind.PDF
    assert read("b.pdf", b"From a scanner\n" + pdf(["Hi"])).kind is FileKind.PDF


def test_a_docx_of_word_for_the_web_has_its_parts_under_other_names(read: Reading) -> None:
    with zipfile.ZipFile(io.BytesIO(docx(paragraph("Hi", listed=True)))) as archive:
        members = {name: archive.read(name).decode() for name in archive.namelist()}
    for old, new in (("word/document.xml", "word/document2.xml"), ("numbering.xml", "numbering2.xml")):
        members = {name.replace(old, new): text.replace(old, new) for name, text in members.items()}
    members["word/_rels/document2.xml.rels"] = members.pop("word/_rels/document.xml.rels")
    assert read("a.docx", zipped(members)).parts == ("- Hi",)


def test_a_page_says_its_own_encoding(read: Reading) -> None:
    assert read("a.html", '<meta charset="iso-8859-2"><p>żółw'.encode("iso-8859-2")).parts == ("żółw",)


def test_a_pdf_is_read_page_by_page(read: Reading) -> None:
    told: list[float] = []
    path = read.folder / "report.pdf"
    path.write_bytes(pdf(["First page\nwith two lines", "", "Third page"]))
    file = FileReader.read_file(read._reader, path, told.append)
    assert file.kind is FileKind.PDF
    assert file.parts == ("First page\nwith two lines", "", "Third page")
    assert file.note == "Page 2 has no text, perhaps pictures."
    assert told[0] == 0


def test_a_docx_keeps_headings_lists_and_tables_in_their_order(read: Reading) -> None:
    body = (
        paragraph("Report", "Heading1")
        + paragraph("Before the table.")
        + table(("Name", "Price"), ("Apple", "1"))
        + paragraph("first", listed=True)
        + paragraph("second", listed=True)
        + paragraph("After it.")
    )
    file = read("report.docx", docx(body))
    assert file.kind is FileKind.DOCX
    assert file.parts[0] == (
        "# Report\n\nBefore the table.\n\n| Name | Price |\n| --- | --- |\n| Apple | 1 |\n\n- first\n- second\n\n"
        "After it."
    )
    assert "pictures" in read("b.docx", docx(body, more={"word/media/image1.png": b"x"})).note


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("photo.png", b"\x89PNG\r\n\x1a\n\0\0", "is an image, not a text"),
        ("photo.txt", b"\xff\xd8\xff\xe0\0\x10JFIF", "is an image, not a text"),
        ("photo.heic", b"\0\0\0\x18ftypheic\0\0", "is an image, not a text"),
        ("song.mp3", b"ID3\4\0\0", "which rdchat cannot read"),
        ("film.mp4", b"\0\0\0\x18ftypmp42\0\0", "which rdchat cannot read"),
        ("tool", b"\xcf\xfa\xed\xfe\0\1", "is a program"),
        ("old.doc", b"\xd0\xcf\x11\xe0\xa1\xb1", "old Office format"),
        (
            "new.docx",
            b"\xd0\xcf\x11\xe0" + bytes(5000) + "EncryptedPackage".encode("utf-16-le"),
            "protected by a password",
        ),
        ("a.rtf", b"{\\rtf1 Hi}", "is RTF"),
        ("a.tar.gz", b"\x1f\x8b\x08\0", "is an archive"),
        ("chats.db", b"SQLite format 3\0\x10", "is a database"),
        ("model.gguf", b"GGUF\3\0\0\0", "is a GGUF model"),
        ("model.safetensors", b"\x10\0\0\0\0\0\0\0{}", "a model's weights"),
        ("a.bin", bytes(range(256)) * 4, "binary file"),
        ("a.dat", b"\1\2\3\4\5" * 100, "binary file"),
        ("sheet.xlsx", zipped({"xl/workbook.xml": "x"}), "is a spreadsheet"),
        ("talk.pptx", zipped({"ppt/presentation.xml": "x"}), "is a presentation"),
        ("text.odt", zipped({"content.xml": "x"}), "OpenDocument"),
        ("text.pages", zipped({"Index/Document.iwa": "x"}), "Pages"),
        ("book.epub", zipped({"META-INF/container.xml": "x"}), "EPUB"),
        ("things.zip", zipped({"a.txt": "x"}), "is an archive"),
        ("empty.txt", b"", "is empty"),
        ("blank.txt", b" \n\n", "is empty"),
        ("scan.pdf", encoded(photo(), "PDF"), "is a scan: its pages are pictures"),
        ("drawing.pdf", pdf(["", ""]), "has no text."),
        ("secret.pdf", pdf(["Hi"], encrypt="x"), "protected by a password"),
        ("half.pdf", pdf(["Hi"])[:40], "is damaged"),
        ("half.docx", docx(paragraph("Hi"))[:300], "is damaged"),
        ("wrong.docx", zipped({"word/document.xml": "<no"}), "is damaged"),
        ("none.docx", docx(paragraph("")), "has no text"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(read: Reading, name: str, content: bytes, words: str) -> None:
    assert words in read.refusal(name, content).message


def test_after_a_refusal_the_next_file_is_read(read: Reading) -> None:
    read.refusal("photo.png", b"\x89PNG\r\n\x1a\n\0\0")
    assert read("a.txt", "Hi").parts == ("Hi",)


@pytest.mark.slow
def test_links_lead_to_files_and_what_is_no_file_is_not_waited_for(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("Hi")
    (tmp_path / "link.txt").symlink_to(tmp_path / "a.txt")
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    (tmp_path / "gone").symlink_to(tmp_path / "nothing")
    os.mkfifo(tmp_path / "pipe")
    assert reader.read_file(tmp_path / "link.txt").parts == ("Hi",)
    for path, words in (
        (tmp_path, "is a folder"),
        (tmp_path / "pipe", "is a named pipe, not a file"),
        (Path("/dev/zero"), "is a device, not a file"),
        (tmp_path / "gone", "cannot be read: it is a broken link"),
        (tmp_path / "circle", "cannot be read"),
        (tmp_path / ("x" * 300), "cannot be read"),
    ):
        with pytest.raises(FileRefusedError, match=words):
            reader.read_file(path)


@pytest.mark.slow
def test_a_name_is_shown_in_one_printable_line(reader: FileReader, tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"in\nvoice\x1b[31m \xff \xe2\x80\xaegpj.txt")
    path.write_text("Hi")
    file = reader.read_file(path)
    assert file.parts == ("Hi",)
    assert file.name.isprintable()
    assert file.name.startswith("in voice [31m")
