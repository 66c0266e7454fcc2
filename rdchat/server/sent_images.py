"""The images of requests, as files: the engine takes paths."""

import hashlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from rdchat.errors import ImageRefusedError
from rdchat.files.atomic_file import temporary_folder
from rdchat.inference.api import MAX_IMAGES, MAX_MESSAGE_IMAGES, ChatImage, ChatMessage
from rdchat.inference.vision.image_process import Waiting, shared_images
from rdchat.server.interfaces.chat_messages import SentImage
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.interfaces.reply_request import ReplyRequest
from rdchat.server.response import DisconnectedError

# Images whose sizes are remembered: clients send those of a conversation with each of its requests.
_MAX_SIZES = 1000
# Stands in the place of an image that the model does not get.
_UNSEEN = "[image]"


class SentImages:
    """Keeps the images of each request in a private folder of its own, as long as the request lives."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}

    @asynccontextmanager
    async def reader(self, request: ReplyRequest) -> AsyncGenerator[Callable[[], ReplyRequest | None]]:
        """Give a function that reads a request's images.

        Each call reads one; the call after the last one returns the request with images that are files of known sizes.
        A call blocks, and ends when the block does. An old image that cannot be read is a placeholder, as other
        parts without text are. So are the oldest ones where a message or the conversation has too many. A new one that
        cannot be read is an ApiError.
        """
        ended = threading.Event()
        with temporary_folder() as folder:
            try:
                yield partial(next, self._steps(request, folder, partial(_check, ended)))
            finally:
                ended.set()

    def _steps(self, request: ReplyRequest, folder: Path, waiting: Waiting) -> Iterator[ReplyRequest | None]:
        (prompt,) = request.prompts
        room = MAX_IMAGES
        left_out = set[str]()
        messages = list[ChatMessage]()
        # The newest images are kept.
        for message in reversed(prompt.messages):
            sent = [image for image in message.images if isinstance(image, SentImage)]
            newest = min(len(sent), MAX_MESSAGE_IMAGES, room)
            room -= newest
            oldest = len(sent) - newest
            left_out |= {image.field for image in sent[:oldest]}
            seen: list[ChatImage | str] = [_UNSEEN] * oldest
            for image in sent[oldest:]:
                seen.append(self._seen(image, folder, waiting))
                yield None
            messages.append(message.with_lines(seen))
        ignored = (*request.ignored, *sorted(left_out))
        yield replace(request, prompts=(replace(prompt, messages=tuple(reversed(messages))),), ignored=ignored)

    def _seen(self, image: SentImage, folder: Path, waiting: Waiting) -> ChatImage | str:
        """Return an image as a file, or the line in its place."""
        waiting()
        digest = hashlib.sha256(image.data).hexdigest()
        path = folder / digest
        path.write_bytes(image.data)
        size = self._sizes.pop(digest, None)
        if size is None:
            try:
                facts = shared_images().check_image(path, name=image.name, waiting=waiting)
            except ImageRefusedError as error:
                if image.strict:
                    raise ApiError(400, str(error), image.name) from error
                return _UNSEEN
            size = facts.width, facts.height
        self._sizes[digest] = size
        while len(self._sizes) > _MAX_SIZES:
            self._sizes.pop(next(iter(self._sizes)), None)
        return replace(image, path=path, digest=digest, width=size[0], height=size[1], data=b"")


def _check(ended: threading.Event) -> None:
    """Raise DisconnectedError once nobody waits for an image."""
    if ended.is_set():
        raise DisconnectedError
