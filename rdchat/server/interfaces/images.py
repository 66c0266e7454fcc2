"""Images in the parts of messages. They come in the request itself: nothing is fetched."""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rdchat.inference.api.messages import ChatImage, ImageCap
from rdchat.server.interfaces.api_error import ApiError, unsupported, wrong
from rdchat.server.interfaces.fields import without_numbers

_KINDS = ("image", "image_url", "input_image")
_DETAILS = {"low": ImageCap.SMALL, "auto": ImageCap.MEDIUM, "high": ImageCap.FULL, "original": ImageCap.FULL}


@dataclass(frozen=True, slots=True)
class SentImage(ChatImage):
    """An image as a client sent it; its path and its size are known once it is stored.

    Attributes:
        data: The file.
        cap: How many tokens it may take.
        kind: The type of its part.
        strict: Whether it is an error if it cannot be read; see `part_text`.
    """

    data: bytes = field(default=b"", repr=False)
    cap: ImageCap = ImageCap.MEDIUM
    kind: str = ""
    strict: bool = True

    @property
    def field(self) -> str:
        """The name of its field for a client."""
        return f"{without_numbers(self.name)}.{self.kind}"


def image_of(part: Any, name: str, *, strict: bool) -> SentImage | None:
    """Return the image of a part of a message; None for another part.

    Args:
        part: The part.
        name: Its name in errors.
        strict: Whether an image that is not in the request is an error; otherwise it counts as another part.
    """
    if not isinstance(part, dict):
        return None
    kind = part.get("type")
    if kind not in _KINDS and part.keys() - {"type", "detail", "file_id"} == {"image_url"}:
        kind = "image_url"
    if kind not in _KINDS:
        return None
    try:
        return SentImage(Path(), "", 0, 0, name, _data_of(part, name), _cap_of(part, name), kind, strict)
    except ApiError:
        if strict:
            raise
    return None


def _data_of(part: Mapping[str, Any], name: str) -> bytes:
    match part:
        case {"image_url": {"url": str(given)} | str(given)} | {"source": {"type": "url", "url": str(given)}}:
            head, _, text = given.partition(",")
            if not head.lower().startswith("data:") or not head.lower().endswith(";base64"):
                why = "rdchat fetches nothing; send the image itself, as `data:image/png;base64,...`."
                raise unsupported(name, why)
        case {"source": {"data": str(text)}} | {"data": str(text)}:
            pass
        case _:
            raise unsupported(name, "send the image itself, in base64.")
    try:
        data = b64decode("".join(text.split()), validate=True)
    except ValueError as error:
        raise wrong(name, "is not valid base64.") from error
    if not data:
        raise wrong(name, "is empty.")
    return data


def _cap_of(part: Mapping[str, Any], name: str) -> ImageCap:
    inner = part.get("image_url")
    given = (inner if isinstance(inner, dict) else part).get("detail") or "auto"
    cap = _DETAILS.get(str(given))
    if cap is None:
        raise wrong(f"{name}.detail", f"must be one of {', '.join(_DETAILS)}.")
    return cap
