"""Stores the images of a request as files, because the engine takes paths, and finds their sizes."""

import hashlib
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from rdchat.errors import ImageRefusedError
from rdchat.files import temporary_folder
from rdchat.inference.api import MAX_IMAGES, MAX_MESSAGE_IMAGES, ChatImage, ChatMessage
from rdchat.inference.vision.image_process import Waiting, shared_images
from rdchat.server.interfaces.chat_messages import SentImage
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.interfaces.reply_request import ReplyRequest
from rdchat.server.response import DisconnectedError

# Images whose sizes are remembered: clients send those of a conversation with each of its requests.
_MAX_SIZES = 1000
# Text in place of an image that the model does not get.
_PLACEHOLDER = "[image]"


class SentImages:
    """Stores the images of each request in a private folder of its own, which goes when the request has ended."""

    def __init__(self) -> None:
        # Width and height of images by the SHA-256 of their bytes, the ones used last at the end.
        self._sizes: dict[str, tuple[int, int]] = {}

    @asynccontextmanager
    async def reader(self, request: ReplyRequest) -> AsyncGenerator[Callable[[], ReplyRequest | None]]:
        """Give a function that reads a request's images, one at each call, so that requests can take turns.

        It returns None for each image, and after the last one the request, whose images are now files of known sizes.
        A call blocks its thread until the image is read, or until the `async with` block ends.

        An image of an earlier message that cannot be read becomes a placeholder. So do the oldest images where a
        message or the conversation has too many. An image of the last message that cannot be read is an ApiError.
        """
        ended = threading.Event()

        def check_ended() -> None:
            if ended.is_set():
                raise DisconnectedError

        with temporary_folder() as folder:
            try:
                yield partial(next, self._read_one_by_one(request, folder, check_ended))
            finally:
                ended.set()

    def _read_one_by_one(self, request: ReplyRequest, folder: Path, waiting: Waiting) -> Iterator[ReplyRequest | None]:
        """Yield None after each image, and at last the request; `waiting` raises once nobody waits for it.

        The last message comes first, since the newest images count. Each message begins with placeholders for its
        oldest images, where there are too many, and then has the others. A request with images has one prompt.
        """
        (prompt,) = request.prompts
        room = MAX_IMAGES
        # Names of the fields whose images the model does not get.
        left_out = set[str]()
        messages = list[ChatMessage]()
        for message in reversed(prompt.messages):
            sent = [image for image in message.images if isinstance(image, SentImage)]
            newest = min(len(sent), MAX_MESSAGE_IMAGES, room)
            room -= newest
            oldest = len(sent) - newest
            left_out |= {image.field for image in sent[:oldest]}
            lines: list[ChatImage | str] = [_PLACEHOLDER] * oldest
            for image in sent[oldest:]:
                lines.append(self._stored(image, folder, waiting))
                yield None
            messages.append(message.with_lines(lines))
        ignored = (*request.ignored, *sorted(left_out))
        yield replace(request, prompts=(replace(prompt, messages=tuple(reversed(messages))),), ignored=ignored)

    def _stored(self, image: SentImage, folder: Path, waiting: Waiting) -> ChatImage | str:
        """Return an image as a file with its size, or the text in its place.

        One that cannot be read is an ApiError where it is `strict`, which images of the last message are.
        """
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
                return _PLACEHOLDER
            size = facts.width, facts.height
        self._sizes[digest] = size
        while len(self._sizes) > _MAX_SIZES:
            # The thread of a request that was given up may still be here, and have taken it.
            self._sizes.pop(next(iter(self._sizes)), None)
        return replace(image, path=path, digest=digest, width=size[0], height=size[1], data=b"")
