"""Hostile files do no harm: they are refused, and the next file is read."""

import io
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from rdchat.chat.attachments import attached_file, file_reader
from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.file_reader import FileReader
from rdchat.work.job import Job
from tests.chat.attachments.documents import docx, paragraph, pdf
from tests.grids import share

ENTITIES = "<!DOCTYPE x [<!ENTITY a 'aaaaaaaaaa'>" + "".join(
    f"<!ENTITY {name} '{f'&{below};' * 10}'>" for below, name in zip("abcdefgh", "bcdefghi", strict=True)
) + "]>"  # fmt: skip


@pytest.fixture(scope="module")
def reader() -> Iterator[FileReader]:
    reader = FileReader(step_s=10.0, memory_bytes=300 << 20)
    yield reader
    reader.close()


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
def test_a_bomb_is_refused_and_the_next_file_is_read(
    reader: FileReader, tmp_path: Path, make: Callable[[], bytes]
) -> None:
    path = tmp_path / f"bomb.{'pdf' if make is looping_pdf else 'docx'}"
    path.write_bytes(make())
    with pytest.raises(FileRefusedError, match="bomb"):
        reader.read_file(path)
    (tmp_path / "a.txt").write_text("Hi")
    assert reader.read_file(tmp_path / "a.txt").parts == ("Hi",)


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
def test_a_document_whose_entities_grow_is_refused(
    reader: FileReader, tmp_path: Path, in_form: Callable[[bytes], bytes]
) -> None:
    document = in_form(document_of(docx(paragraph("&i;"), head=ENTITIES)))
    (tmp_path / "a.docx").write_bytes(docx("", more={"word/document.xml": document}))
    with pytest.raises(FileRefusedError, match="damaged"):
        reader.read_file(tmp_path / "a.docx")


def test_a_document_with_a_dtd_in_a_part_of_another_name_is_not_read(reader: FileReader, tmp_path: Path) -> None:
    relations = member_of(docx(""), "_rels/.rels").replace(b"document.xml", b"picture.png")
    more = {"_rels/.rels": relations, "word/picture.png": document_of(docx(paragraph("&a;"), head=DTD))}
    (tmp_path / "a.docx").write_bytes(docx(paragraph("Hi"), more=more))
    assert reader.read_file(tmp_path / "a.docx").parts == ("Hi",)


def test_a_picture_with_a_dtd_and_a_damaged_one_do_no_harm(reader: FileReader, tmp_path: Path) -> None:
    """Many SVGs have one; neither picture is read."""
    more = {"word/media/a.svg": f"{DTD}<svg/>".encode(), "word/media/b.png": b"x" * 1000}
    data = docx(paragraph("Hi"), more=more)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        member = archive.getinfo("word/media/b.png")
    content = member.header_offset + 30 + len(member.filename)
    (tmp_path / "a.docx").write_bytes(data[:content] + b"\xff\xff" + data[content + 2 :])
    assert reader.read_file(tmp_path / "a.docx").parts == ("Hi",)


@pytest.mark.slow
def test_a_docx_in_utf_16_is_read(reader: FileReader, tmp_path: Path) -> None:
    document = in_utf_16(document_of(docx(paragraph("Grüße"))))
    (tmp_path / "a.docx").write_bytes(docx("", more={"word/document.xml": document}))
    assert reader.read_file(tmp_path / "a.docx").parts == ("Grüße",)


@pytest.mark.slow
def test_a_page_that_inflates_is_refused(reader: FileReader, tmp_path: Path) -> None:
    (tmp_path / "bomb.pdf").write_bytes(inflating_pdf())
    with pytest.raises(FileRefusedError, match="bomb"):
        reader.read_file(tmp_path / "bomb.pdf")


@pytest.mark.slow
def test_html_may_be_nested_as_deep_as_it_likes(tmp_path: Path) -> None:
    (tmp_path / "deep.html").write_bytes(nested_html())
    with closing(FileReader()) as reader:
        assert reader.read_file(tmp_path / "deep.html").parts[0].endswith("- deep")


@pytest.mark.slow
def test_one_that_takes_for_ever_is_ended(tmp_path: Path) -> None:
    """The time limit itself, with a page that would be read in a minute."""
    (tmp_path / "slow.pdf").write_bytes(pdf(["x" * 200_000] * 400))
    reader = FileReader(step_s=0.01)
    try:
        with pytest.raises(FileRefusedError, match="took longer"):
            reader.read_file(tmp_path / "slow.pdf")
    finally:
        reader.close()


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
