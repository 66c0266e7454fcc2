"""What a model's processor makes of an image, as plain data. Neither NumPy nor MLX is imported here."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

type Settings = Mapping[str, Any]
"""The entries of a model's preprocessor_config.json, with what `Family.sides` adds from config.json, such as
`token_side`: the rows, and columns, of tokens of a tile."""


@dataclass(frozen=True, slots=True)
class Layout:
    """The tokens of an image.

    Attributes:
        grids: Rows and columns of tokens of each tile, in the order of the prompt.
        size: Width and height in pixels to which the image is scaled first.
        tiles: Rows and columns of tiles, behind which one of the whole image may stand; (0, 0) if there is one tile.
    """

    grids: tuple[tuple[int, int], ...]
    size: tuple[int, int]
    tiles: tuple[int, int] = (0, 0)

    @property
    def pixel_tokens(self) -> int:
        """The number of tokens that stand for pixels."""
        return sum(rows * columns for rows, columns in self.grids)


@dataclass(frozen=True, slots=True, eq=False)
class Prepared:
    """What a tower needs of one image.

    Attributes:
        patches: float32. Qwen: (patches, channels * frames * side * side); the patches of a token follow one another.
            Pixtral: (patches, channels * side * side). Gemma 4, LFM2-VL: (patches, side * side * channels), of one tile
            after the other. Others: (tiles, channels, side, side).
        layout: The tokens that these patches become.
    """

    patches: "npt.NDArray[np.float32]"
    layout: Layout
