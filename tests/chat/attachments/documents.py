"""Files as other programs write them, made by hand."""

import io
import zipfile
import zlib
from collections.abc import Sequence

_W = 'xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main"'
_CONTENT_TYPES = (
    '<?xml version="1.0"?><Types xmlns="http://schemas.openxmlformats.org/package/2006/content-types">'
    '<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/>'
    '<Override PartName="/word/document.xml" ContentType="application/vnd.openxmlformats-officedocument.'
    'wordprocessingml.document.main+xml"/></Types>'
)
_RELATIONS = (
    '<?xml version="1.0"?><Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
    '<Relationship Id="rId1" Type="http://schemas.openxmlformats.org/officeDocument/2006/relationships/'
    'officeDocument" Target="word/document.xml"/></Relationships>'
)
_NUMBERING = (
    f'<?xml version="1.0"?><w:numbering {_W}><w:abstractNum w:abstractNumId="0"><w:lvl w:ilvl="0">'
    '<w:numFmt w:val="bullet"/></w:lvl></w:abstractNum>'
    '<w:num w:numId="1"><w:abstractNumId w:val="0"/></w:num></w:numbering>'
)
_STYLES = (
    f'<?xml version="1.0"?><w:styles {_W}><w:style w:type="paragraph" w:styleId="Heading1">'
    '<w:name w:val="heading 1"/></w:style></w:styles>'
)


def pdf(
    pages: Sequence[str],
    *,
    encrypt: str | None = None,
    font: bytes = b"/BaseFont /Helvetica",
    catalog: bytes = b"",
    more: Sequence[bytes] = (),
) -> bytes:
    """Return a PDF with a line of text for each line of each page; of an empty one, a page without any.

    Args:
        pages: Their texts.
        encrypt: Its password.
        font: Entries of its font's dictionary.
        catalog: Entries of its catalog.
        more: Objects, of which the first has number 4.
    """
    objects: list[bytes] = [b"", b"", b"<< /Type /Font /Subtype /Type1 %b >>" % font, *more]
    kids = []
    for page in pages:
        lines = "".join(f"({line}) Tj T* " for line in page.splitlines())
        content = zlib.compress(f"BT /F1 12 Tf 14 TL 72 720 Td {lines}ET".encode("latin-1") if page else b"")
        objects.append(b"<< /Length %d /Filter /FlateDecode >> stream\n%b\nendstream" % (len(content), content))
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R"
            b" /Resources << /Font << /F1 3 0 R >> >> >>" % len(objects)
        )
        kids.append(b"%d 0 R" % len(objects))
    objects[0] = b"<< /Type /Catalog /Pages 2 0 R %b >>" % catalog
    objects[1] = b"<< /Type /Pages /Count %d /Kids [%b] >>" % (len(kids), b" ".join(kids))
    written = b"%PDF-1.4\n"
    places = []
    for number, each in enumerate(objects, start=1):
        places.append(len(written))
        written += b"%d 0 obj %b endobj\n" % (number, each)
    table = b"".join(b"%010d 00000 n \n" % place for place in places)
    written += b"xref\n0 %d\n0000000000 65535 f \n%btrailer << /Size %d /Root 1 0 R >>\nstartxref\n%d\n%%%%EOF" % (
        len(objects) + 1, table, len(objects) + 1, len(written),
    )  # fmt: skip
    return written if encrypt is None else _encrypted(written, encrypt)


def _encrypted(data: bytes, password: str) -> bytes:
    import pypdf

    writer = pypdf.PdfWriter(clone_from=io.BytesIO(data))
    writer.encrypt(password, "owner", algorithm="AES-256")
    sink = io.BytesIO()
    writer.write(sink)
    return sink.getvalue()


def paragraph(text: str, style: str = "", *, listed: bool = False) -> str:
    about = f'<w:pStyle w:val="{style}"/>' if style else ""
    about += '<w:numPr><w:ilvl w:val="0"/><w:numId w:val="1"/></w:numPr>' if listed else ""
    return f"<w:p><w:pPr>{about}</w:pPr><w:r><w:t>{text}</w:t></w:r></w:p>"


def table(*rows: Sequence[str]) -> str:
    cells = ("".join(f"<w:tc>{paragraph(cell)}</w:tc>" for cell in row) for row in rows)
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in cells)}</w:tbl>"


def docx(body: str, *, head: str = "", more: dict[str, bytes] | None = None) -> bytes:
    document = f'<?xml version="1.0"?>{head}<w:document {_W}><w:body>{body}</w:body></w:document>'
    files = {
        "[Content_Types].xml": _CONTENT_TYPES,
        "_rels/.rels": _RELATIONS,
        "word/document.xml": document,
        "word/numbering.xml": _NUMBERING,
        "word/styles.xml": _STYLES,
        "word/_rels/document.xml.rels": _RELATIONS.replace("word/document.xml", "numbering.xml").replace(
            "/officeDocument\"", "/numbering\""
        ).replace("</Relationships>", '<Relationship Id="rId2" Type="http://schemas.openxmlformats.org/officeDocument'
                  '/2006/relationships/styles" Target="styles.xml"/></Relationships>'),
    }  # fmt: skip
    return zipped(files | (more or {}))


def zipped(files: dict[str, str] | dict[str, bytes] | dict[str, str | bytes]) -> bytes:
    sink = io.BytesIO()
    with zipfile.ZipFile(sink, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return sink.getvalue()
