"""Reads what was typed into a PDF: the values of its form and its notes, which are no part of a page's text."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pypdf

# These flags of fields are in PDF 32000-1, 12.7.4.
_BUTTON, _RADIO, _PASSWORD = 1 << 16, 1 << 15, 1 << 13
_DEEPEST = 32
_SILENT = {"/Link", "/Popup"}


def added_lines(page: "pypdf.PageObject") -> list[str]:
    """Return a line for each filled field and each note of a page."""
    try:
        return list(_lines(page))
    except MemoryError:
        raise
    # Anything can be wrong in a foreign file.
    except Exception:
        return ["[Its form fields and notes cannot be read.]"]


def _lines(page: "pypdf.PageObject") -> Iterator[str]:
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
    """Return what a field shows; empty for an empty one, a push button and a password."""
    flags, kind = int(_inherited(field, "/Ff") or 0), _inherited(field, "/FT")
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
