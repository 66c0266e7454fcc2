"""Files and images that are dragged over a window or were copied."""

from PySide6.QtCore import QBuffer, QMimeData
from PySide6.QtGui import QImage

# As browsers and screenshots give them: these bytes are not decoded here.
_FORMATS = tuple(f"image/{name}" for name in ("png", "jpeg", "webp", "gif", "avif", "heic", "tiff", "bmp"))


def local_files(data: QMimeData) -> list[str]:
    """Return the files and folders of this machine among the data."""
    return [url.toLocalFile() for url in data.urls() if url.isLocalFile()]


def has_image(data: QMimeData) -> bool:
    """Return whether the data are an image, without words: its address, which browsers add, is none."""
    if not data.hasImage() and not any(map(data.hasFormat, _FORMATS)):
        return False
    words = {line.strip() for line in data.text().splitlines()}
    return not words - {url.toString() for url in data.urls()} - {""}


def image_in(data: QMimeData) -> bytes:
    """Return the data of an image, never what is at its address; empty where there is none."""
    for kind in filter(data.hasFormat, _FORMATS):
        if found := data.data(kind).data():
            return bytes(found)
    image, buffer = QImage(data.imageData()), QBuffer()
    image.save(buffer, "PNG")  # type: ignore[call-overload]  # its type wants bytes, its code a str
    return bytes(buffer.data().data())
