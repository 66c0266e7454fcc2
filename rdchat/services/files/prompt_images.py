"""Images for a prompt: decoded once to find their sizes, and given to the engine as files.

Decoding runs in a child process and takes time, so nothing here is for the main thread.
"""

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from rdchat.chat.attachments.attached_file import MAX_IMAGE_BYTES, AttachedFile, FileRefusedError, image_file
from rdchat.chat.store import ConversationStore
from rdchat.errors import ImageRefusedError, ModelError, StorageError
from rdchat.files import read_bytes
from rdchat.inference.api import ChatImage
from rdchat.inference.vision.image_process import as_file, shared_images


def image_bytes(path: Path, name: str) -> bytes:
    """Return the data of a file that is an image; raises FileRefusedError."""
    try:
        return read_bytes(path, "Choose another image, or check its permissions.", MAX_IMAGE_BYTES)
    except ModelError as error:
        raise FileRefusedError(error.message.replace(str(path), name), error.hint) from error


def looked_at(data: bytes, name: str, waiting: Callable[[], None]) -> tuple[AttachedFile, str]:
    """Return an image as a file with its text, once it was decoded; not for the main thread.

    Raises:
        ImageRefusedError: If it cannot be read.
    """
    with as_file(data) as path:
        facts = shared_images().check_image(path, name=name, waiting=waiting)
    return image_file(data, name, facts.note, facts.width, facts.height)


class PromptImages:
    """Gives the engine the stored images of messages. Any thread may use it, except the main one.

    Args:
        store: It gets the sizes of images that were not decoded before, such as those of tools and imports.
    """

    def __init__(self, store: ConversationStore) -> None:
        self._store = store
        # By digest: the sizes found here; (-1, -1) for an image that cannot be read. A file that was never decoded has
        # (0, 0).
        self._sizes: dict[str, tuple[int, int]] = {}

    def image(self, file: AttachedFile, waiting: Callable[[], None], *, counted: bool = False) -> ChatImage | None:
        """Return an image for a prompt; None if it cannot be read. `waiting` may raise to end the work.

        Where tokens are only `counted`, an image whose size is known is not written as a file, and has an empty path.
        """
        size = self._sizes.get(file.digest) or (file.width, file.height)
        try:
            path = Path() if counted and size != (0, 0) else self._store.image_path(file)
            if size == (0, 0):
                size = self._look(file, path, waiting)
        except (StorageError, ValueError):
            return None
        return ChatImage(path, file.digest, *size, file.name) if min(size) > 0 else None

    def _look(self, file: AttachedFile, path: Path, waiting: Callable[[], None]) -> tuple[int, int]:
        """Decode an image once; return and store its size, or one that is not positive if it cannot be read."""
        size = -1, -1
        with suppress(ImageRefusedError):
            facts = shared_images().check_image(path, name=file.name, waiting=waiting)
            size = facts.width, facts.height
            self._store.set_image_size(file, *size)
        self._sizes[file.digest] = size
        return size
