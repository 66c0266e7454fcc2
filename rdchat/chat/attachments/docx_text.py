"""The text of a DOCX: headings, lists and tables in their order, by mammoth."""

import io
import zipfile

from rdchat.chat.attachments.attached_file import FileRefusedError
from rdchat.chat.attachments.html_text import html_to_text

_MOST_BYTES = 256 << 20  # unpacked, pictures too
_MOST_XML_BYTES = 32 << 20  # of one part; its tree takes some twenty times as much
_READ = ("word/document.xml", "word/numbering.xml", "word/styles.xml", "word/footnotes.xml", "word/endnotes.xml",
         "word/comments.xml", "[Content_Types].xml", "_rels/.rels", "word/_rels/document.xml.rels")  # fmt: skip
_DAMAGED = "{name} is damaged, or no DOCX.", "Open it in Word or Pages and save it again."
_LARGE = "{name} unpacks to more than rdchat reads.", "Save the part that you need as a file of its own."


def docx_text(data: bytes, name: str) -> tuple[str, str]:
    """Return the text and a note.

    Raises:
        FileRefusedError: If it is damaged or unpacks to too much.
    """
    import mammoth  # noqa: PLC0415  only the reading process needs it

    try:
        _check(data, name)
        html = mammoth.convert_to_html(io.BytesIO(data), convert_image=lambda _image: []).value
    except (FileRefusedError, MemoryError):
        raise
    except Exception as error:  # a stranger's file: anything can be wrong in it
        raise _refused(_DAMAGED, name) from error
    text = html_to_text(html)
    if not text.strip():
        raise FileRefusedError(f"{name} has no text.", "Perhaps it has pictures only; rdchat cannot look at them yet.")
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        has_pictures = any(each.startswith("word/media/") for each in archive.namelist())
    return text, "Its pictures were left out." if has_pictures else ""


def _check(data: bytes, name: str) -> None:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        members = archive.infolist()  # reading one gives no more bytes than it says here
        if sum(each.file_size for each in members) > _MOST_BYTES:
            raise _refused(_LARGE, name)
        for each in members:
            if each.filename in _READ:
                if each.file_size > _MOST_XML_BYTES:
                    raise _refused(_LARGE, name)
                if b"<!DOCTYPE" in archive.read(each):  # no DOCX has one: it is there for its entities
                    raise _refused(_DAMAGED, name)


def _refused(words: tuple[str, str], name: str) -> FileRefusedError:
    return FileRefusedError(words[0].format(name=name), words[1])
