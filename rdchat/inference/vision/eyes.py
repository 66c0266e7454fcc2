"""What a loaded model sees with: the images of a prompt become rows that an unmodified network takes."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import rdchat.inference.blas  # noqa: F401  before MLX

# isort: split
import mlx.core as mx
import mlx.nn as nn

from rdchat.errors import ModelError
from rdchat.files.foreign_files import REFETCH_HINT
from rdchat.inference.api.image_spans import ImageSpan
from rdchat.inference.api.images import ChatImage, ImageCap
from rdchat.inference.api.messages import images_of
from rdchat.inference.api.requests import GenerationRequest
from rdchat.inference.models.model_config import read_config
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import Feed, TargetEmbeddings
from rdchat.inference.vision.families import Vision
from rdchat.inference.vision.image_process import Waiting
from rdchat.inference.vision.image_prompts import ImagePrompts
from rdchat.inference.vision.image_rows import ImageRows, SeenImage
from rdchat.inference.vision.seam import Seam


class ModelEyes:
    """Implements `Eyes`.

    Args:
        folder: The model's folder.
        vision: What it has to see with (`vision_of`); it has a family.
        network: The network, with rdchat's other hooks.
        vocabulary_size: Columns of its logits.

    Attributes:
        prompts: The images of its prompts.
    """

    def __init__(self, folder: Path, vision: Vision, network: nn.Module, vocabulary_size: int) -> None:
        assert vision.family is not None
        self.prompts = ImagePrompts(vision.folder, vision.family)
        self._rows = ImageRows(folder, vision)
        self._network = network
        self._seam = Seam(network, vision.family.sections(read_config(folder)), vision.deep)
        table = TargetEmbeddings(network, vocabulary_size)
        if vision.width != table.width:
            widths = f"gives rows of {vision.width} numbers; its text model takes {table.width}"
            raise ModelError(f"The vision of {folder.name} {widths}.", REFETCH_HINT)
        self._embed = table.embed

    @property
    def token(self) -> int:
        """See `Eyes`."""
        return self.prompts.token

    def place(self, ids: list[int], request: GenerationRequest) -> tuple[list[int], list[ImageSpan]]:
        """See `Eyes`."""
        images = images_of(request.messages)
        return self.prompts.place(ids, images, request.image_cap) if images else (ids, [])

    def see(
        self, ids: list[int], spans: Sequence[ImageSpan], request: GenerationRequest, waiting: Waiting, *, start: int
    ) -> Feed:
        """See `Eyes`."""
        images = images_of(request.messages)
        cap = request.image_cap
        pixels = [index for index, token in enumerate(ids) if token < 0]
        # Those that are not fed count as text.
        fed = list(ids)
        seen = list[SeenImage]()
        for image in images:
            count = self.prompts.tokens(image, cap)
            own = pixels[:count]
            pixels = pixels[count:]
            if own[-1] >= start:
                seen.append(self._see(image, cap, waiting))
            else:
                for index in own:
                    fed[index] = 0
        if sum(len(each.rows) for each in seen) != sum(token < 0 for token in fed):
            raise ModelError("An image of this chat has changed on the disk.", "Attach it again.")
        prompt = self._rows.prompt(fed, spans, seen)

        def feed(cache: KVCache, start: int, end: int) -> None:
            rows = prompt.call(start, end, self._embed)
            tokens = mx.maximum(mx.array(fed[start:end])[None], 0)
            if rows is None:
                self._network(tokens, cache=cache.layers)
                return
            windows_only = self.prompts.family.windows_only
            seeing = nullcontext() if rows.blocks is None else cache.seeing(rows.blocks, windows_only=windows_only)
            with self._seam.call(rows), seeing:
                self._network(tokens, cache=cache.layers, input_embeddings=rows.embeddings)

        return feed

    def _see(self, image: ChatImage, cap: ImageCap, waiting: Waiting) -> SeenImage:
        key = self.prompts.key(image, cap)
        return self._rows.find(key) or self._rows.see(key, self.prompts.prepare(image, cap, waiting), waiting)
