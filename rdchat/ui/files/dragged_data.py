"""Files and images that are dragged over a window or were copied."""

from collections.abc import Callable
from functools import partial

from PySide6.QtCore import QBuffer, QMimeData
from PySide6.QtGui import QImage

from rdchat import host
from rdchat.errors import ImageRefusedError

_IMAGE = "image/"
# The first of these is taken, then any other kind of image; another program may give its bytes Qt's own name.
_FORMATS = tuple(_IMAGE + name for name in ("png", "jpeg", "webp", "gif", "avif", "heic", "tiff", "bmp"))
_QT_IMAGE = "application/x-qt-image"


def local_files(data: QMimeData) -> list[str]:
    """Return the files and folders of this machine among the data."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()]


def has_image(data: QMimeData) -> bool:
    """Return whether the data are an image, without words: its address, which browsers add, is none."""
    if not data.hasImage() and not any(kind.startswith(_IMAGE) for kind in data.formats()):
        return False
    words = {line.strip() for line in data.text().splitlines()}
    return not words - {url.toString() for url in data.urls()} - {""}


def image_in(data: QMimeData, *, is_dragged: bool) -> Callable[[], bytes]:
    """Return what gives the data of an image, never what is at its address; call it on a thread, as it may encode.

    Bytes of another program are not decoded here, whatever they are: the child that decodes images gets them.
    """
    if found := host.pasteboard_image(is_dragged=is_dragged):
        return lambda: found
    others = (kind for kind in data.formats() if kind.startswith(_IMAGE))
    for kind in (*filter(data.hasFormat, _FORMATS), *others, _QT_IMAGE):
        if given := bytes(data.data(kind).data()):
            return lambda: given
    return partial(_as_png, data.imageData())


def _as_png(image: QImage | None) -> bytes:
    if image is None:
        raise ImageRefusedError(
            "The other app has not saved what was dropped as a file yet.",
            "Save it and drop the file, or copy and paste it.",
        )
    buffer = QBuffer()
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # its type wants bytes, its code a str
    return bytes(buffer.data().data())
