"""The images of requests, as files: the engine takes paths."""

import asyncio
import hashlib
import tempfile
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from rdchat.errors import ImageRefusedError
from rdchat.inference.api.images import MAX_IMAGES, MAX_MESSAGE_IMAGES, ChatImage
from rdchat.inference.api.messages import ChatMessage
from rdchat.inference.vision.image_process import Waiting, shared_images
from rdchat.server.interfaces.api_error import wrong
from rdchat.server.interfaces.images import SentImage
from rdchat.server.interfaces.reply_request import ReplyRequest

# Images whose sizes are remembered: clients send those of a conversation with each of its requests.
_MAX_SIZES = 1000


class SentImages:
    """Keeps the images of each request in a private folder of its own, as long as the request lives."""

    def __init__(self) -> None:
        self._sizes: dict[str, tuple[int, int]] = {}

    @asynccontextmanager
    async def stored(self, request: ReplyRequest) -> AsyncGenerator[ReplyRequest]:
        """Give a request whose images are files of known sizes.

        An old image that cannot be read is a placeholder, as other parts without text are. So are the oldest ones where
        a message or the conversation has too many.

        Raises:
            ApiError: If a new one cannot be read.
        """
        if not request.images:
            yield request
            return
        ended = threading.Event()
        with tempfile.TemporaryDirectory(prefix="rdchat-sent-", ignore_cleanup_errors=True) as folder:
            try:
                yield await asyncio.to_thread(self._request, request, Path(folder), partial(_check, ended))
            finally:
                ended.set()

    def _request(self, request: ReplyRequest, folder: Path, waiting: Waiting) -> ReplyRequest:
        (prompt,) = request.prompts
        left_out = _too_old(prompt.messages)
        messages = tuple(self._message(each, left_out, folder, waiting) for each in prompt.messages)
        ignored = (*request.ignored, *sorted(set(left_out.values())))
        return replace(request, prompts=(replace(prompt, messages=messages),), ignored=ignored)

    def _message(self, message: ChatMessage, left_out: dict[str, str], folder: Path, waiting: Waiting) -> ChatMessage:
        seen = list[ChatImage | str]()
        for image in message.images:
            assert isinstance(image, SentImage)
            try:
                if image.name in left_out:
                    raise ImageRefusedError("It is one too many.")
                seen.append(self._image(image, folder, waiting))
            except ImageRefusedError as error:
                if image.strict:
                    raise wrong(image.name, str(error)) from error
                seen.append("[image]")
        return message.with_lines(seen) if seen else message

    def _image(self, image: SentImage, folder: Path, waiting: Waiting) -> SentImage:
        digest = hashlib.sha256(image.data).hexdigest()
        path = folder / digest
        path.write_bytes(image.data)
        size = self._sizes.pop(digest, None)
        if size is None:
            facts = shared_images().look(path, name=image.name, waiting=waiting)
            size = facts.width, facts.height
        self._sizes[digest] = size
        while len(self._sizes) > _MAX_SIZES:
            self._sizes.pop(next(iter(self._sizes)), None)
        return replace(image, path=path, digest=digest, width=size[0], height=size[1], data=b"")


def _too_old(messages: Sequence[ChatMessage]) -> dict[str, str]:
    """Return the names and fields of the oldest images, where a message or all of them have too many."""
    room = MAX_IMAGES
    left_out = dict[str, str]()
    for message in reversed(messages):
        kept = min(len(message.images), MAX_MESSAGE_IMAGES, room)
        room -= kept
        oldest = message.images[: len(message.images) - kept]
        left_out |= {each.name: each.field for each in oldest if isinstance(each, SentImage)}
    return left_out


def _check(ended: threading.Event) -> None:
    """Raise ImageRefusedError once nobody waits for an image."""
    if ended.is_set():
        raise ImageRefusedError("The request has ended.")
