"""Where images stand in a model's prompts: their text for the tokenizer, and the ids of their tokens. No MLX here."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from rdchat.errors import ImageRefusedError, PromptTooLongError
from rdchat.inference.api.messages import MAX_IMAGES, ChatImage, ImageCap, ImageSpan
from rdchat.inference.models.model_config import read_config
from rdchat.inference.models.model_locations import stamp_of
from rdchat.inference.vision.families import Family, image_token
from rdchat.inference.vision.image_process import Waiting, shared_images
from rdchat.inference.vision.positions import with_images
from rdchat.inference.vision.prepared import Layout, Prepared
from rdchat.inference.vision.processors import PROCESSORS


class ImagePrompts:
    """The images of one model's prompts. Only their sizes are needed, so tokens are counted without pixels.

    Args:
        folder: Has the tower (`Vision`).
        family: How it sees.

    Attributes:
        token: The id that stands for pixels.
    """

    def __init__(self, folder: Path, family: Family) -> None:
        self.family = family
        self._settings = family.image_settings(folder)
        self._tower = stamp_of(folder).digest
        self.token = image_token(read_config(folder))

    @property
    def placeholder(self) -> str:
        """What chat templates write for an image."""
        return self.family.placeholder

    def expanded(self, images: Sequence[ChatImage], cap: ImageCap, limit: int) -> list[str]:
        """Return the text of each image, in the place of its placeholder; raises as `ModelPrompts.encode` does."""
        if len(images) > MAX_IMAGES:
            raise ImageRefusedError(f"This chat has {len(images)} images; a prompt takes {MAX_IMAGES}.", "Remove some.")
        layouts = [self._layout(each, cap) for each in images]
        # Foreign settings decide it, so it is checked before a text is built.
        if (tokens := sum(each.tokens for each in layouts)) > limit:
            raise PromptTooLongError(f"The images have {tokens:,} tokens, more than the model takes.", "Remove some.")
        return [self.family.expanded(each) for each in layouts]

    def place(
        self, ids: Sequence[int], images: Sequence[ChatImage], cap: ImageCap
    ) -> tuple[list[int], list[ImageSpan]]:
        """Return a prompt with the ids of its images, and where they stand; raises as `with_images` does."""
        keyed = ((self.key(each, cap), self._layout(each, cap)) for each in images)
        return with_images(ids, self.token, keyed, self.family)

    def tokens(self, image: ChatImage, cap: ImageCap) -> int:
        """Return the number of tokens that stand for an image's pixels."""
        return self._layout(image, cap).tokens

    def seen_size(self, image: ChatImage, cap: ImageCap) -> tuple[int, int]:
        """Return width and height in pixels to which an image is scaled."""
        return self._layout(image, cap).size

    def key(self, image: ChatImage, cap: ImageCap) -> str:
        """Return a hash of all that decides what the model sees: pixels, and the tower."""
        facts = image.digest, self._tower, self.family.processor, sorted(self._settings.items(), key=str), cap.value
        return hashlib.sha256(json.dumps(facts, default=str).encode()).hexdigest()

    def prepare(self, image: ChatImage, cap: ImageCap, waiting: Waiting) -> Prepared:
        """Decode an image for the model's tower; raises as `ImageProcess.prepare` does."""
        return shared_images().prepare(
            image.path, self.family.processor, self._settings, cap.tokens, name=image.name, waiting=waiting
        )

    def _layout(self, image: ChatImage, cap: ImageCap) -> Layout:
        return PROCESSORS[self.family.processor].layout(image.width, image.height, self._settings, cap.tokens)
