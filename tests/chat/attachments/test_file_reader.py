"""Each kind of file is read in the child process; a hostile one is refused, and the next file is read."""

import io
import os
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.attachments import attached_file, file_reader
from rdchat.chat.attachments.attached_file import FileKind, FileRefusedError, ReadFile
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.chat.attachments.kinds import CANDIDATES, decoded, guessed
from rdchat.work.child_process import Limits
from rdchat.work.job import Job
from tests.chat.attachments.documents import docx, paragraph, pdf, table, zipped
from tests.grids import share
from tests.inference.vision.pictures import encoded, photo

# ruff: noqa: RUF001  texts in many scripts

ENTITIES = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'>" + "".join(
    f"<!ENTITY {name} '{f'&{below};' * 10}'>" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
) + "]>"  # fmt: skip


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    reader = FileReader(Limits(10.0, 300 << 20))
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


def looping_pdf() -> bytes:
    """A tree of pages whose child is itself, and a cross-reference whose predecessor is itself."""
    return pdf(["Hi"]).replace(b"/Kids [5 0 R]", b"/Kids [2 0 R]").replace(b"/Root 1 0 R", b"/Root 1 0 R /Prev 9")


def inflating_pdf() -> bytes:
    """A page whose 300 KB become 300 MB."""
    bomb = zlib.compress(b"(a) Tj " * (45 << 20))
    good = pdf(["Hi"])
    begin = good.index(b"<< /Length")
    end = good.index(b"endstream")
    return good[:begin] + b"<< /Length %d /Filter /FlateDecode >> stream\n%b\n" % (len(bomb), bomb) + good[end:]


def xml_bomb() -> bytes:
    return docx(paragraph("&i;"), head=ENTITIES)


def zip_bomb() -> bytes:
    return docx("<w:p/>" * (8 << 20))


def nested_docx() -> bytes:
    return docx("<w:tbl><w:tr><w:tc>" * 20_000 + "</w:tc></w:tr></w:tbl>" * 20_000)


def nested_html() -> bytes:
    return b"<html>" + b"<ul><li>" * 20_000 + b"deep"


@pytest.mark.parametrize("make", share([looping_pdf, xml_bomb, zip_bomb, nested_docx], 4))
def test_a_bomb_is_refused_and_the_next_file_is_read(read: Reading, make: Callable[[], bytes]) -> None:
    read.refusal(f"bomb.{'pdf' if make is looping_pdf else 'docx'}", make())
    assert read("a.txt", "Hi").parts == ("Hi",)


DTD = '<!DOCTYPE x [<!ENTITY a "expanded">]>'


def member_of(data: bytes, name: str) -> bytes:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        return archive.read(name)


def document_of(data: bytes) -> bytes:
    return member_of(data, "word/document.xml")


def in_utf_16(document: bytes) -> bytes:
    text = document.decode().replace('<?xml version="1.0"?>', '<?xml version="1.0" encoding="UTF-16"?>')
    return text.encode("utf-16")


@pytest.mark.parametrize("in_form", [lambda document: document, in_utf_16], ids=["in UTF-8", "in UTF-16"])
def test_a_document_whose_entities_grow_is_refused(read: Reading, in_form: Callable[[bytes], bytes]) -> None:
    document = in_form(document_of(docx(paragraph("&i;"), head=ENTITIES)))
    assert "damaged" in read.refusal("a.docx", docx("", more={"word/document.xml": document})).message


def test_a_document_with_a_dtd_in_a_part_of_another_name_is_not_read(read: Reading) -> None:
    relations = member_of(docx(""), "_rels/.rels").replace(b"document.xml", b"picture.png")
    more = {"_rels/.rels": relations, "word/picture.png": document_of(docx(paragraph("&a;"), head=DTD))}
    assert read("a.docx", docx(paragraph("Hi"), more=more)).parts == ("Hi",)


def test_a_picture_with_a_dtd_and_a_damaged_one_do_no_harm(read: Reading) -> None:
    """Many SVGs have one; neither picture is read."""
    more = {"word/media/a.svg": f"{DTD}<svg/>".encode(), "word/media/b.png": b"x" * 1000}
    data = docx(paragraph("Hi"), more=more)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = archive.getinfo("word/media/b.png")
    content = member.header_offset + 30 + len(member.filename)
    assert read("a.docx", data[:content] + b"\xff\xff" + data[content + 2 :]).parts == ("Hi",)


@pytest.mark.slow
def test_a_docx_in_utf_16_is_read(read: Reading) -> None:
    document = in_utf_16(document_of(docx(paragraph("Grüße"))))
    assert read("a.docx", docx("", more={"word/document.xml": document})).parts == ("Grüße",)


@pytest.mark.slow
def test_a_page_that_inflates_is_refused(read: Reading) -> None:
    read.refusal("bomb.pdf", inflating_pdf())


@pytest.mark.slow
def test_html_may_be_nested_as_deep_as_it_likes(tmp_path: Path) -> None:
    (tmp_path / "deep.html").write_bytes(nested_html())
    with closing(FileReader()) as reader:
        assert reader.read_file(tmp_path / "deep.html").parts[0].endswith("- deep")


@pytest.mark.slow
def test_one_that_takes_for_ever_is_ended(tmp_path: Path) -> None:
    """The time limit itself, with a page that would be read in a minute."""
    with closing(FileReader(Limits(0.01))) as reader:
        assert "took longer" in Reading(reader, tmp_path).refusal("slow.pdf", pdf(["x" * 200_000] * 400)).message


@pytest.mark.slow
def test_the_person_can_stop_it(reader: FileReader, tmp_path: Path) -> None:
    class StoppedError(Exception):
        pass

    def stop() -> None:
        raise StoppedError

    (tmp_path / "a.pdf").write_bytes(pdf(["Hi"] * 1000))  # takes longer than the 20 ms before the first look
    with pytest.raises(StoppedError):
        reader.read_file(tmp_path / "a.pdf", waiting=stop)
    assert len(reader.read_file(tmp_path / "a.pdf").parts) == 1000


@pytest.mark.slow
def test_the_size_of_a_file_and_of_its_text_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_reader, "MAX_BYTES", 1000)
    monkeypatch.setattr(file_reader, "MAX_CHARACTERS", 100)
    (tmp_path / "a.txt").write_text("x" * 1001)
    with pytest.raises(FileRefusedError, match="is too large"):
        file_reader.read_file(Job(), str(tmp_path / "a.txt"))
    (tmp_path / "a.txt").write_text("x" * 101)
    with pytest.raises(FileRefusedError, match="is too long"):
        file_reader.read_file(Job(), str(tmp_path / "a.txt"))
    assert attached_file.MAX_CHARACTERS > 10**6


TEXTS = {
    "cp1251": ["Привет", "ПРИВЕТ", "Съешь же ещё этих мягких французских булок", "Отчёт за квартал: +12%."],
    "koi8-r": ["Привет", "ПРИВЕТ", "Москва", "Отчёт за третий квартал"],
    "cp1250": ["Zażółć gęślą jaźń", "Dobrý den, děkuji", "Příliš žluťoučký kůň", "čeština", "Łódź są"],
    "cp1253": ["Καλημέρα", "Αθήνα", "Αυτό είναι ένα κείμενο στα ελληνικά."],
    "gb18030": ["北京", "你好", "你好，世界", "这是一个测试", "简体中文", "重庆市渝中区"],
    "big5": ["這是一個測試", "繁體中文", "你好，世界", "臺灣", "今天天氣很好，我們去公園散步。"],
    "cp932": ["こんにちは", "日本語", "カタカナ", "東京都", "吾輩は猫である。名前はまだ無い。"],
    "euc-jp": ["こんにちは", "日本語", "カタカナ", "東京都", "これは日本語のテキストです。"],
    "cp949": ["안녕하세요", "대한민국", "서울", "이것은 시험이다", "파일 인코딩 테스트"],
    "cp1252": ["naïve", "café", "Größe", "»Spaß«", "“Hi”", "It’s fine – really", "più", "où êtes-vous", "£5", "50 €",
               "São Paulo", "½ cup", "señor", "Île-de-France", "rødgrød", "ÜBERGRÖSSE", "così, però, città"],
}  # fmt: skip


@pytest.mark.parametrize(("codec", "text"), [(codec, text) for codec, texts in TEXTS.items() for text in texts])
def test_even_a_short_text_is_read_in_its_encoding(codec: str, text: str) -> None:
    """charset-normalizer takes cp1251's `Привет` for Big5, and cp1252's `naïve` for cp1250."""
    read, note = guessed(text.encode(codec))
    assert read == text
    names = [each.name for each in CANDIDATES]
    assert sum(name in note for name in names) == 3, "the guess and two others"


@pytest.mark.parametrize("garbage", [b"\x80\x81", b"ok \x90", b"\xe4\xe0"])
def test_without_clear_evidence_it_is_latin_1(garbage: bytes) -> None:
    assert "Latin-1" in guessed(garbage)[1]


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ("Zürich und Köln ".encode() + b"\xff.", "Zürich und Köln \ufffd."),
        ("日本語のテキスト".encode()[:-1], "日本語のテキス\ufffd"),
        ("日本語のテキスト".encode()[1:], "\ufffd\ufffd本語のテキスト"),
        (b"\xe9 caf\xe9, " + "Büro".encode(), "é café, BÃ¼ro"),
    ],
)
def test_a_few_bad_bytes_cost_themselves(data: bytes, text: str) -> None:
    """All of a log with one bad byte was read as Latin-1: `ZÃ¼rich`."""
    assert decoded(data, "a.txt")[0] == text


def test_a_long_text_is_judged_by_a_sample_and_read_whole() -> None:
    text = "name = value\n" * 5000 + "Москва и Петербург\n" * 5000
    assert decoded(text.encode("cp1251"), "a.txt")[0] == text
