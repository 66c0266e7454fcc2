"""Reads attached files in a child process, `rdchat --child files`: both sides of its pipe.

`FileReader` is the app's side. The child has limits of time and memory, so no file can block or crash the app. In it,
mammoth reads DOCX files, with headings, lists and tables; pypdf reads PDF files by page. What pypdf cannot decode it
logs and leaves out, so the note for the person is made from its warnings. Files are opened for reading only, and
nothing is kept.
"""

import io
import logging
import os
import re
import unicodedata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat.chat.attachments.attached_file import (
    MAX_CHARACTERS,
    FileKind,
    FileRefusedError,
    ReadFile,
    numbers_text,
    printable_name,
)
from rdchat.chat.attachments.kinds import IMAGE_REFUSAL, decoded, kind_in_zip, kind_of, refused
from rdchat.errors import ModelError, RdchatError
from rdchat.files import is_placeholder, read_bytes
from rdchat.work import ChildError, ChildProcess, Job, Limits, serve

if TYPE_CHECKING:
    import pypdf

# The time is for opening a file, and for each page: one with a thousand drawings takes some seconds.
_LIMITS = Limits(30.0, 1 << 30)
# For the whole download of a placeholder: the largest file needs 2 Mbit/s.
_DOWNLOAD = Limits(300.0, 1 << 30)
_HINT = "The file may be damaged. Save it again in the app that made it, or choose another one."
MAX_BYTES = 64 << 20
_MAX_MEMBERS = 10_000
_TOO_LARGE = "Save the part that you need as a separate file."
_EMPTY = "{name} is empty.", "Choose a file with text in it."
_DAMAGED_ZIP = "{name} is damaged.", "Open it in the app that made it and save it again."
_MAX_PAGES = 10_000
_EXPORT_AGAIN = "Open it in Preview and export it as a new PDF."
_LIGATURES = {code: unicodedata.normalize("NFKC", chr(code)) for code in range(0xFB00, 0xFB07)}
# Flags of form fields (PDF 32000-1, 12.7.4): a push button, a radio button, and a field for a password.
_BUTTON = 1 << 16
_RADIO = 1 << 15
_PASSWORD = 1 << 13
# Levels of form fields in each other that are looked through.
_DEEPEST = 32
# Kinds of annotations without a text of their own.
_SILENT = {"/Link", "/Popup"}
_SPACES = re.compile(r"[ \t\u00a0]+")
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# The private characters of a font are no letters.
_UNKNOWN_SIGN = re.compile("[\ufffd\ue000-\uf8ff\U000f0000-\U0010fffd]")
# Characters of a warning that a note quotes.
_WARNING = 80


class FileReader:
    """Reads one file at a time, on the calling thread; the child starts with the first file.

    Args:
        limits: Memory limit of the child, and time limit for opening a file and for each of its pages.
    """

    def __init__(self, limits: Limits = _LIMITS) -> None:
        self._child = ChildProcess("files")
        self._limits = limits

    def read_file(
        self,
        path: Path,
        on_progress: Callable[[float], object] = lambda _fraction: None,
        waiting: Callable[[], None] = lambda: None,
    ) -> ReadFile:
        """Read a file.

        Args:
            path: Any path that a person may drop.
            on_progress: Called on another thread with the share of pages read, from 0 to 1.
            waiting: Called every 20 ms; an exception from it ends the reading and is raised.

        Raises:
            FileRefusedError: If it cannot be read, or needs too much time or memory.
        """
        self.download(path, waiting)
        name = printable_name(path.name)
        arguments = {"path": os.path.abspath(path)}  # noqa: PTH100  keeps links
        try:
            read = partial(_file_of, name)
            job = self._child.submit("read_file", arguments, self._limits, read=read, on_progress=on_progress)
            result: ReadFile = job.result(waiting)
            return result
        except ChildError as error:
            raise FileRefusedError(f"{name} {error.reason}.", error.hint if error.interrupted else _HINT) from error
        # The refusals of the child's functions begin with the name; other errors get it here.
        except RdchatError as error:
            named = error.message.startswith(name)
            message = error.message if named else f"{name} could not be read. {error.message}"
            raise FileRefusedError(message, error.hint if named else _HINT) from error

    def download(self, path: Path, waiting: Callable[[], None] = lambda: None) -> None:
        """Have macOS download the content of a placeholder, by reading it in the child; other files are left alone.

        One that is too large is not downloaded, as its reader refuses it.

        Raises:
            FileRefusedError: If it could not be downloaded.
        """
        if not is_placeholder(path) or path.stat().st_size > MAX_BYTES:
            return
        try:
            self._child.submit("download", {"path": os.path.abspath(path)}, _DOWNLOAD).result(waiting)  # noqa: PTH100
        except RdchatError as error:
            message = f"{printable_name(path.name)} is in iCloud or a similar service, and could not be downloaded."
            raise FileRefusedError(message, "Choose Download Now for it in Finder, then try again.") from error

    def close(self) -> None:
        """End the child. Idempotent; the next file starts another one."""
        self._child.close()


def _file_of(name: str, answer: Any) -> ReadFile:
    """Return the file from the child's answer; what is raised here makes the answer an error of the child."""
    texts = answer["texts"]
    if not texts or not all(isinstance(text, str) for text in texts):
        raise TypeError("no texts")
    return ReadFile(name, FileKind(answer["kind"]), tuple(texts), str(answer["note"]))


# The child's own side


def pdf_texts(data: bytes, name: str, report: Callable[[float], object]) -> tuple[list[str], str]:
    """Return the text of each page, and a note on pages that cannot be read, have no text, or have doubtful signs.

    A warning of pypdf while the file is opened makes all of it doubtful, one at a page that page. A file without any
    text is refused: it is damaged, has its content outside of its pages (`_outside_notes`), or is a scan or empty.

    Args:
        data: The whole file.
        name: Its name.
        report: Called with the share of pages read.

    Raises:
        FileRefusedError: If it is damaged, protected, or has no text.
    """
    texts: list[str] = []
    unreadable: list[int] = []
    doubtful: list[int] = []
    with closing(_WarningLog()) as log:
        reader = _opened(data, name)
        notes = _outside_notes(reader)
        pages = reader.pages
        is_damaged = log.count > 0
        for page in range(len(pages)):
            report(page / len(pages))
            warnings = log.count
            text = _text_of(pages, page)
            if text is None:
                unreadable.append(page + 1)
                texts.append("")
                continue
            added = "\n".join(_added_lines(pages[page]))
            if log.count > warnings or _UNKNOWN_SIGN.search(text):
                doubtful.append(page + 1)
            texts.append("\n\n".join(filter(None, (text, added))))
    empty = [page for page, text in enumerate(texts, start=1) if page not in unreadable and not text.strip()]
    if len(unreadable) == len(texts):
        raise FileRefusedError(f"{name} is damaged: none of its pages can be read.", "Export it again.")
    if len(unreadable) + len(empty) == len(texts):
        if notes:
            raise FileRefusedError(f"{name} has no text on its pages.", " ".join(notes))
        is_scan = any(_tried(lambda page=page: len(page.images) > 0, False) for page in pages)  # type: ignore[misc]
        raise FileRefusedError(
            f"{name} is a scan: its pages are pictures without text." if is_scan else f"{name} has no text.",
            "Recognise the text in another app and save the result, or attach its pages as images.",
        )
    if unreadable:
        notes.append(f"{numbers_text('page', unreadable).capitalize()} could not be read.")
    if empty:
        verb = "has" if len(empty) == 1 else "have"
        notes.append(f"{numbers_text('page', empty).capitalize()} {verb} no text, perhaps pictures.")
    if is_damaged or doubtful:
        where = "The file" if is_damaged else numbers_text("page", doubtful).capitalize()
        reason = f" (pypdf: {log.first})" if log.first else ""
        notes.append(f"{where} may have signs that are wrong or missing{reason}.")
    return texts, " ".join(notes)


class _WarningLog(logging.Handler):
    """Counts pypdf's warnings: it logs what it cannot decode, and goes on. `close` ends it.

    Attributes:
        count: Number of warnings.
        first: The first one.
    """

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.count = 0
        self.first = ""
        logging.getLogger("pypdf").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.count += 1
        self.first = self.first or printable_name(record.getMessage()[:_WARNING])

    def close(self) -> None:
        logging.getLogger("pypdf").removeHandler(self)
        super().close()


def _outside_notes(reader: "pypdf.PdfReader") -> list[str]:
    """Return a note for each place beside its pages where a PDF keeps what its app shows: XFA forms, attached files.

    If the list of attached files cannot be read, it counts as one with the name `?`.
    """
    catalog = reader.root_object
    form: dict[Any, Any] = _tried(lambda: dict(catalog["/AcroForm"]), {})  # type: ignore[call-overload]
    notes = []
    if "/XFA" in form and (catalog.get("/NeedsRendering") or not form.get("/Fields")):
        notes.append("It is an XFA form, which only Adobe Acrobat shows: print it to a PDF there and attach that.")
    names = _tried(lambda: [str(each.name) for each in reader.attachment_list], ["?"])
    if names:
        kind = "It is a portfolio" if "/Collection" in catalog else "Files are attached to it"
        listed = printable_name(", ".join(names))
        notes.append(f"{kind}, and rdchat does not read the files in it ({listed}): save and attach them.")
    return notes


def _opened(data: bytes, name: str) -> "pypdf.PdfReader":
    """Return a PDF whose pages can be read; FileRefusedError for one that is damaged, protected, empty or too long."""
    import pypdf  # noqa: PLC0415  only the reading process needs it

    try:
        reader = pypdf.PdfReader(io.BytesIO(data))
        # Many have an empty password. The encryption may need a package that is missing.
        if reader.is_encrypted and not _tried(lambda: reader.decrypt(""), None):
            raise FileRefusedError(
                f"{name} is protected by a password.", "Save a copy without a password, for example in Preview."
            )
        count = len(reader.pages)
    except (FileRefusedError, MemoryError):
        raise
    # Anything can be wrong in a foreign file.
    except Exception as error:
        raise FileRefusedError(f"{name} is damaged or not a PDF file.", _EXPORT_AGAIN) from error
    if not count:
        raise FileRefusedError(f"{name} has no pages.", _EXPORT_AGAIN)
    if count > _MAX_PAGES:
        raise FileRefusedError(
            f"{name} has {count:,} pages, and rdchat reads at most {_MAX_PAGES:,}.", "Split it first."
        )
    return reader


def _tried[T, D](read: Callable[[], T], otherwise: D) -> T | D:
    """Return what a call of pypdf returns, or another value if it fails: anything can be wrong in a foreign file."""
    try:
        return read()
    except MemoryError:
        raise
    except Exception:
        return otherwise


def _text_of(pages: "Sequence[pypdf.PageObject]", page: int) -> str | None:
    """Return the text of a page, with U+FFFD for a sign without a letter; None where it cannot be read."""
    _tried(lambda: _name_signs(pages[page]), None)
    text = _tried(lambda: str(pages[page].extract_text()), None)
    if text is None:
        return None
    lines = (_SPACES.sub(" ", line).rstrip() for line in text.replace("\r", "\n").split("\n"))
    joined = re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip("\n")
    return _CONTROLS.sub("\ufffd", joined.translate(_LIGATURES))


def _name_signs(page: "pypdf.PageObject") -> None:
    """Give pypdf the letters of glyph names that it does not know: it writes these names into the text.

    The names stand in the list `/Differences` of a font's encoding, after the code of the first: `[65, /A, /B]`. One
    that is unknown here too becomes U+FFFD.

    Code 0 in TeX's symbol fonts is the minus sign: fontTools leaves it out of a font's own encoding.
    """
    from fontTools import agl  # noqa: PLC0415  as above
    from pypdf._codecs import adobe_glyphs  # noqa: PLC0415  as above
    from pypdf.generic import ArrayObject, DictionaryObject, NameObject, NumberObject  # noqa: PLC0415  as above

    resources: Any = page["/Resources"]
    for each in resources["/Font"].values():
        font = each.get_object()
        if "CMSY" in font.get("/BaseFont", "") and "/Encoding" not in font:
            names = ArrayObject([NumberObject(0), NameObject("/minus")])
            font[NameObject("/Encoding")] = DictionaryObject({NameObject("/Differences"): names})
        if "/Encoding" not in font or "/Differences" not in font["/Encoding"]:
            continue
        names = font["/Encoding"]["/Differences"]
        for at, name in enumerate(names):
            # Pages share fonts: the letters that this loop wrote for an earlier page have no slash.
            if not isinstance(name, NameObject) or not name.startswith("/") or name in adobe_glyphs:
                continue
            letters = agl.toUnicode(name[1:])
            # pypdf itself reads names such as `/u00e9`.
            if letters or not name.startswith("/u"):
                names[at] = NameObject(letters or "\ufffd")


def _added_lines(page: "pypdf.PageObject") -> list[str]:
    """Return a line for each filled field and each note of a page."""
    return _tried(lambda: list(_lines(page)), ["[Its form fields and notes cannot be read.]"])


def _lines(page: "pypdf.PageObject") -> Iterator[str]:
    """Yield what `_added_lines` returns; anything may be wrong in a foreign file, and is raised."""
    annotations: Any = page.get("/Annots")
    for each in annotations.get_object() if annotations is not None else ():
        annotation = each.get_object()
        if not isinstance(annotation, dict):
            continue
        note = annotation.get("/Contents")
        if annotation.get("/Subtype") == "/Widget":
            if value := _value(annotation):
                yield f"[Field {_inherited(annotation, '/TU') or _inherited(annotation, '/T') or ''}: {value}]"
        elif annotation.get("/Subtype") not in _SILENT and isinstance(note, str) and note.strip():
            yield f"[Note: {note.strip()}]"


def _inherited(field: Any, key: str) -> Any:
    """Return a value of a field, or of the nearest field above it that has it."""
    for _ in range(_DEEPEST):
        if key in field:
            return field[key]
        if "/Parent" not in field:
            break
        field = field["/Parent"]
    return None


def _value(field: Any) -> str:
    """Return what a field shows; empty for an empty one, a push button and a password.

    - a tick box: `[x]` or `[ ]`
    - a radio button: the name of its state if it is chosen
    - other fields: the text, or the chosen entries. `/Opt` has pairs of an entry's stored value and its shown name.
    """
    flags = int(_inherited(field, "/Ff") or 0)
    kind = _inherited(field, "/FT")
    if kind == "/Btn":
        state = str(field.get("/AS") or _inherited(field, "/V") or "/Off")
        if flags & _BUTTON:
            return ""
        if flags & _RADIO:
            return state[1:] if state != "/Off" else ""
        return "[ ]" if state == "/Off" else "[x]"
    if kind == "/Tx" and flags & _PASSWORD:
        return ""
    value = _inherited(field, "/V")
    chosen = [each for each in (value if isinstance(value, list) else [value]) if isinstance(each, str)]
    pairs = [each for each in _inherited(field, "/Opt") or () if isinstance(each, list) and len(each) == 2]
    names = {str(export): str(name) for export, name in pairs}
    return ", ".join(names.get(each, each) for each in chosen).strip()


def read_file(job: Job[Any], path: str) -> dict[str, Any]:
    """Read a file; return its kind, the texts of its parts, and a note for the person.

    Args:
        job: Receives the share of pages read; the time limit applies to each page.
        path: The file.

    Raises:
        FileRefusedError: If it cannot be read.
    """
    from rdchat.chat.attachments.docx_text import docx_text  # noqa: PLC0415  only the child needs it
    from rdchat.chat.attachments.html_text import html_to_text, notebook_text  # noqa: PLC0415  as above

    name = printable_name(Path(path).name)
    data = _bytes_of(Path(path), name)
    kind = kind_of(data, name) or _kind_in_zip(data, name)
    if kind is FileKind.IMAGE:
        raise refused(IMAGE_REFUSAL, name)
    if kind is FileKind.PDF:
        texts, note = pdf_texts(data, name, job.report_progress)
    else:
        text, note = docx_text(data, name) if kind is FileKind.DOCX else decoded(data, name, kind is FileKind.HTML)
        if name.casefold().endswith(".ipynb"):
            text, note = notebook_text(text)
        texts = [html_to_text(text) if kind is FileKind.HTML else text]
        if not texts[0].strip():
            raise refused(_EMPTY, name)
    if sum(map(len, texts)) > MAX_CHARACTERS:
        raise FileRefusedError(
            f"{name} is too long: rdchat reads up to {MAX_CHARACTERS // 10**6} million characters.", _TOO_LARGE
        )
    return {"kind": kind.value, "texts": [text.encode("utf-8", "replace").decode() for text in texts], "note": note}


def download(_job: Job[Any], path: str) -> None:
    """Read all of a file. Raises ModelError."""
    read_bytes(Path(path), max_size=MAX_BYTES)


def _bytes_of(path: Path, name: str) -> bytes:
    """Return all of a regular file. Pipes and devices are refused without waiting; links are followed."""
    try:
        data = read_bytes(path, "Choose a document, or check its path and permissions.", MAX_BYTES)
    except ModelError as error:
        raise FileRefusedError(error.message.replace(str(path), name), error.hint) from error
    if not data:
        raise refused(_EMPTY, name)
    return data


def _kind_in_zip(data: bytes, name: str) -> FileKind:
    """Return the kind of a ZIP by its list of members."""
    try:
        with zipfile.ZipFile(io.BytesIO(data)) as archive:
            members = archive.namelist()
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError) as error:
        raise refused(_DAMAGED_ZIP, name) from error
    if len(members) > _MAX_MEMBERS:
        raise refused(_DAMAGED_ZIP, name)
    return kind_in_zip(set(members), name)


def main() -> int:
    """Answer requests until the parent ends."""
    return serve({"read_file": read_file, "download": download})
