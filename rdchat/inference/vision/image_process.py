"""The app's side of the child that decodes images, and what that child makes of an image for a model.

`ImageProcess` sends requests to `pixels_child`, in which `processors` prepares the pixels. Neither NumPy nor MLX is
imported here: windows start without them.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from rdchat.errors import ImageRefusedError, ModelError, RdchatError, one_line
from rdchat.files import plain, temporary_folder
from rdchat.inference.vision.prepared_images import Layout, Prepared, Settings
from rdchat.work import ChildError, ChildProcess, Limits

# Images of 100 megapixels take up to 5 s, and up to 1.7 GB (WebP).
_LIMITS = Limits(30.0, 2 * 2**30)
# The child takes a third of a second to start.
_IDLE_S = 120.0
AS_IT_IS = 100_000_000, 100_000_000
"""A width and height for `ImageProcess.scale_image` that no image has."""
_HINT = "It may be damaged. Save it again in the app that made it, or choose another one."

Waiting = Callable[[], None]
"""Called every 20 ms during a request; an exception from it ends the request."""


@dataclass(frozen=True, slots=True)
class ImageFacts:
    """What is known of an image that can be read.

    Attributes:
        width: Width in pixels, after the turning that the file's EXIF asks for.
        height: Height in pixels, as `width`.
        format: The name of its format, such as JPEG.
        note: What the person should know of the reading, a sentence; may be empty.
    """

    width: int
    height: int
    format: str
    note: str = ""


@cache
def shared_images() -> "ImageProcess":
    """Return the process that all models and chats share."""
    return ImageProcess()


@contextmanager
def as_file(data: bytes) -> Iterator[Path]:
    """Give an image as a private file, which ends with the block."""
    with temporary_folder() as folder:
        path = folder / "image"
        path.write_bytes(data)
        yield path


class ImageProcess:
    """Decodes one image at a time. Any thread may call it; the child starts with the first image.

    Args:
        limits: Limits of each request.
    """

    def __init__(self, limits: Limits = _LIMITS) -> None:
        self.child = ChildProcess("images", idle_s=_IDLE_S)
        self._limits = limits

    def check_image(self, path: Path, *, name: str = "", waiting: Waiting = lambda: None) -> ImageFacts:
        """Decode an image, so that one that is damaged is refused before it is sent.

        Args:
            path: Any file.
            name: Its name for people; that of the path if empty.
            waiting: See `Waiting`.

        Raises:
            ImageRefusedError: If it is no image that can be read, or takes too much time or memory.
        """
        return self._request("look", path, name, waiting, lambda answer, _: plain(ImageFacts, answer))

    def prepare(
        self,
        path: Path,
        processor: str,
        settings: Settings,
        max_tokens: int | None,
        *,
        name: str = "",
        waiting: Waiting = lambda: None,
    ) -> Prepared:
        """Return what a model's tower needs of an image.

        Args:
            path: The file.
            processor: A key of `PROCESSORS`.
            settings: The model's settings for images.
            max_tokens: At most so many tokens, where the processor can choose; None for the model's own limit.
            name: See `check_image`.
            waiting: See `Waiting`.

        Raises:
            ImageRefusedError: As in `check_image`.
            ModelError: If the settings are invalid.
        """
        more = {"processor": processor, "settings": dict(settings), "max_tokens": max_tokens}
        return self._request("prepare", path, name, waiting, _prepared_of, **more)

    def scale_image(
        self, path: Path, size: tuple[int, int], *, name: str = "", waiting: Waiting = lambda: None
    ) -> bytes:
        """Return an image as PNG without metadata, scaled down where it is larger than `size`, width and height.

        Raises:
            ImageRefusedError: As in `check_image`.
        """
        return self._request("draw", path, name, waiting, lambda _, out: out.read_bytes(), size=size)

    def forget_images(self) -> None:
        """Let the child forget the images that it keeps for a second use."""
        if self.child.pid is not None:
            self.child.submit("forget", {})

    def _request[T](
        self, do: str, path: Path, name: str, waiting: Waiting, read: Callable[[Any, Path], T], **more: Any
    ) -> T:
        """Return `read` of the child's answer and the file that it wrote."""
        name = one_line(name or path.name)
        # A file of its own for each request: a cancelled one may still write for a moment.
        with temporary_folder() as folder:
            out = folder / "out"
            arguments = {"path": str(path.absolute()), "name": name, "out": str(out), **more}
            job = self.child.submit(do, arguments, self._limits, read=lambda answer: read(answer, out))
            try:
                result: T = job.result(waiting)
            except ChildError as error:
                hint = error.hint if error.interrupted else _HINT
                raise ImageRefusedError(f"{name} {error.reason}.", hint) from error
            except (ImageRefusedError, ModelError):
                raise
            except RdchatError as error:
                raise ImageRefusedError(f"{name} could not be read. {error.message}", error.hint) from error
            return result


def _prepared_of(answer: Any, out: Path) -> Prepared:
    """Return the patches that the child wrote, with the layout that it answered."""
    import numpy as np  # noqa: PLC0415  see above

    patches = np.load(out, allow_pickle=False)
    if patches.dtype != np.float32:
        raise TypeError("no patches")
    return Prepared(patches, plain(Layout, answer))
