"""Reads the text of a DOCX, with its headings, lists and tables, by mammoth."""

import io
import zipfile
from xml.parsers import expat

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.html_text import html_to_text

_MOST_BYTES = 256 << 20  # unpacked, pictures too
_MOST_XML_BYTES = 32 << 20  # of one part; its tree takes some twenty times as much
_PICTURES = "word/media/"
_CHUNK = 1 << 12  # small, as what follows a declaration is read with it
_DTD, _ELEMENT = "declaration", "element"  # no declaration may stand behind the first element
_DAMAGED = "{name} is damaged, or no DOCX.", "Open it in Word or Pages and save it again."
_LARGE = "{name} unpacks to more than rdchat reads.", "Save the part that you need as a file of its own."


def docx_text(data: bytes, name: str) -> tuple[str, str]:
    """Return the text and a note.

    Raises:
        FileRefusedError: If it is damaged or unpacks to too much.
    """
    import mammoth  # noqa: PLC0415  only the reading process needs it

    try:
        safe = io.BytesIO(_without_dtds(data, name))
        html = mammoth.convert_to_html(safe, convert_image=lambda _image: []).value
    except (FileRefusedError, MemoryError):
        raise
    except Exception as error:  # a stranger's file: anything can be wrong in it
        raise _refused(_DAMAGED, name) from error
    text = html_to_text(html)
    if not text.strip():
        raise FileRefusedError(f"{name} has no text.", "Perhaps it has pictures only; rdchat cannot look at them yet.")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        has_pictures = any(each.startswith(_PICTURES) for each in archive.namelist())
    return text, "Its pictures were left out." if has_pictures else ""


def _without_dtds(data: bytes, name: str) -> bytes:
    """Return a DOCX without the parts that have a document type declaration, whose entities could grow without end.

    Word writes none. A picture in SVG may have one, and is not read; without its text, a document is damaged. All parts
    are looked at: a relationship may give any of them as the text.

    Raises:
        FileRefusedError: If it unpacks to too much.
    """
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()  # reading one gives no more bytes than it says here
        if sum(each.file_size for each in members) > _MOST_BYTES:
            raise _refused(_LARGE, name)
        kinds = {each: _beginning_of(archive, each) for each in members}
        for each, kind in kinds.items():
            if kind == _ELEMENT and each.file_size > _MOST_XML_BYTES and not each.filename.startswith(_PICTURES):
                raise _refused(_LARGE, name)
        if _DTD not in kinds.values():
            return data
        copy = io.BytesIO()
        with zipfile.ZipFile(copy, "w") as kept:
            for each, kind in kinds.items():
                if kind == _ELEMENT:  # nothing else is read
                    kept.writestr(each.filename, archive.read(each))
        return copy.getvalue()


def _beginning_of(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> str | None:
    """Return what a part has first, `_DTD` or `_ELEMENT`, by the parser that mammoth uses; None where it is no XML."""
    found: list[str] = []
    parser = expat.ParserCreate()
    parser.StartDoctypeDeclHandler = lambda *_declaration: found.append(_DTD)
    parser.StartElementHandler = lambda *_element: found.append(_ELEMENT)
    try:
        with archive.open(member) as file:
            while not found and (chunk := file.read(_CHUNK)):
                parser.Parse(chunk)
        if not found:
            parser.Parse(b"", True)
    except MemoryError:
        raise
    except Exception:  # noqa: S110  no XML, or cannot be unpacked: a picture may be damaged, and mammoth tells of the text
        pass
    return found[0] if found else None


def _refused(words: tuple[str, str], name: str) -> FileRefusedError:
    return FileRefusedError(words[0].format(name=name), words[1])
