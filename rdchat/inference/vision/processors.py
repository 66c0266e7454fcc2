"""Turns the pixels of an image into what a family's tower takes, as transformers' processors for Pillow do.

A family adds two functions, of a layout and of patches, and an entry of `PROCESSORS`. A patch is a small square of
pixels; a token stands for one or several; large images are cut into tiles, each of which the tower sees by itself. The
layout needs only the size of an image, so tokens are counted without its pixels. Pillow resizes, and only the child for
images imports it.

Settings are foreign data. A name `usual` is for the value of a setting that is missing.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError, one_line
from rdchat.files import REFETCH_HINT
from rdchat.inference.vision.prepared_images import Layout, Prepared, Settings

type Pixels = npt.NDArray[np.uint8]

# Pillow's numbers of filters, since Pillow is not imported here.
_LANCZOS = 1
_BILINEAR = 2
_BICUBIC = 3
# The usual means and deviations of colours: of SigLIP, and of CLIP.
_HALF = (0.5, 0.5, 0.5)
_CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
_CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
# Qwen's own processor refuses longer images, such as a line of 20,000 pixels; here their short side is stretched.
_LONGEST_RATIO = 200
# The limit for an image of several tiles.
_LONGEST_EDGE = 4096
# Models have up to 36.
_MAX_TILES = 1000
# What Gemma 4 was trained with at most.
_GEMMA4_TOKENS = 1120
_MAX_NUMBER = 2**40
# Four times those of the largest images of known models.
_MAX_TOKENS = 2**16
# Of an image as it is scaled, or of all its tiles.
_MAX_PIXELS = 2**26
# Models have 2.
_MAX_FRAMES = 16


class Processor(NamedTuple):
    """A family's way to prepare images.

    The limit of tokens is what the person allows for an image (`ImageCap`). None, for "Full", is the model's own limit:
    that of its settings, except for Gemma 4.

    Attributes:
        shape: Takes width, height, settings and the limit of tokens; returns a layout of any size.
        patches: Takes pixels (height, width, 3), settings and their layout; returns those of `Prepared`.
        patches_shape: Takes settings and a layout; returns the shape of these patches.
    """

    shape: Callable[[int, int, Settings, int | None], Layout]
    patches: Callable[[Pixels, Settings, Layout], npt.NDArray[np.float32]]
    patches_shape: Callable[[Settings, Layout], tuple[int, ...]]

    def layout(self, width: int, height: int, settings: Settings, max_tokens: int | None) -> Layout:
        """Return the layout of an image, of a size that can be used.

        Raises:
            ModelError: If the settings are invalid, or ask for more tokens or pixels than any model takes.
        """
        layout = self.shape(width, height, settings, max_tokens)
        if layout.pixel_tokens > _MAX_TOKENS or math.prod(layout.size) > _MAX_PIXELS:
            raise _invalid("the size of an image", f"{layout.pixel_tokens:,} tokens, {layout.size} pixels")
        return layout

    def prepare(self, rgb: Pixels, settings: Settings, max_tokens: int | None) -> Prepared:
        """Return what the family's tower needs of an image.

        Raises:
            ModelError: If the settings are invalid.
        """
        layout = self.layout(rgb.shape[1], rgb.shape[0], settings, max_tokens)
        return Prepared(self.patches(rgb, settings, layout), layout)


def qwen_layout(width: int, height: int, settings: Settings, max_tokens: int | None) -> Layout:
    """Return the layout for Qwen2-VL and later: about the size of the image, within the limits of pixels."""
    side = _integer_setting(settings, "patch_size", 14) * _integer_setting(settings, "merge_size", 2)
    minimum = _integer_setting(settings, "min_pixels", _edge(settings, "size", "shortest_edge", 56 * 56))
    maximum = _integer_setting(settings, "max_pixels", _edge(settings, "size", "longest_edge", 28 * 28 * 1280))
    if max_tokens is not None:
        maximum = min(maximum, max(minimum, max_tokens * side**2))
    height, width = (max(each, math.ceil(max(width, height) / _LONGEST_RATIO)) for each in (height, width))
    return _one_tile(*_grid(width, height, side, (minimum, maximum)), side)


def _one_tile(rows: int, columns: int, side: int) -> Layout:
    """Return the layout of an image whose tokens have this side in pixels."""
    return Layout(((rows, columns),), (columns * side, rows * side))


def _grid(width: int, height: int, side: int, limits: tuple[int, int], fewest: int = 0) -> tuple[int, int]:
    """Return rows and columns of squares that have about the size of an image, within limits of pixels."""
    minimum, maximum = limits
    rows, columns = (max(fewest, round(each / side)) for each in (height, width))
    if rows * columns * side**2 > maximum:
        shrink = math.sqrt(height * width / maximum)
        rows, columns = (max(1, math.floor(each / shrink / side)) for each in (height, width))
    elif rows * columns * side**2 < minimum:
        grow = math.sqrt(minimum / (height * width))
        rows, columns = (math.ceil(each * grow / side) for each in (height, width))
    return rows, columns


def qwen_patches(rgb: Pixels, settings: Settings, layout: Layout) -> npt.NDArray[np.float32]:
    """Return patches (patches, channels * frames * side * side) of a still image; all frames are the same."""
    side = _integer_setting(settings, "patch_size", 14)
    merge = _integer_setting(settings, "merge_size", 2)
    ((rows, columns),) = layout.grids
    cut = _resized(rgb, layout.size, settings, _BICUBIC).reshape(rows, merge, side, columns, merge, side, 3)
    cut = cut.transpose(0, 3, 1, 4, 6, 2, 5)
    numbers = _normal(cut.reshape(-1, 3, side, side), settings, _CLIP_MEAN, _CLIP_STD)
    frames = np.repeat(numbers[:, :, None], _integer_setting(settings, "temporal_patch_size", 2, _MAX_FRAMES), axis=2)
    return frames.reshape(len(frames), -1)


def pixtral_layout(width: int, height: int, settings: Settings, max_tokens: int | None) -> Layout:
    """Return the layout for Pixtral and Mistral 3: about the size of the image, within the longest edge."""
    side = _integer_setting(settings, "patch_size", 16) * _integer_setting(settings, "merge_size", 1)
    longest = min(max(width, height), _edge(settings, "size", "longest_edge", 1024))
    rows, columns = _covering_squares(width, height, side, longest)
    if max_tokens is not None and rows * columns > max_tokens:
        longest = min(longest, max_tokens * side)
        while rows * columns > max_tokens and longest > 1:
            longest = max(longest - side, 1)
            rows, columns = _covering_squares(width, height, side, longest)
    return _one_tile(rows, columns, side)


def _covering_squares(width: int, height: int, side: int, longest: int) -> tuple[int, int]:
    """Return rows and columns of the squares that an image needs, which has at most this longest edge."""
    ratio = max(width / longest, height / longest, 1)
    rows, columns = ((max(math.floor(each / ratio), 1) - 1) // side + 1 for each in (height, width))
    return rows, columns


def pixtral_patches(rgb: Pixels, settings: Settings, layout: Layout) -> npt.NDArray[np.float32]:
    """Return patches (patches, channels * side * side)."""
    squares = _cut(_resized(rgb, layout.size, settings, _BICUBIC), _integer_setting(settings, "patch_size", 16))
    return _normal(squares, settings, _CLIP_MEAN, _CLIP_STD).reshape(len(squares), -1)


def idefics3_layout(width: int, height: int, settings: Settings, max_tokens: int | None) -> Layout:
    """Return the layout for Idefics3 and SmolVLM: tiles, and behind them one of the whole image.

    `max_tokens` limits the tokens of the tiles; those of the whole image come on top.
    """
    grid = (_integer_setting(settings, "token_side"),) * 2
    edge = _edge(settings, "max_image_size", "longest_edge", 364)
    longest = min(_edge(settings, "size", "longest_edge", 4 * 364), _LONGEST_EDGE)
    if edge > _LONGEST_EDGE:
        raise _invalid("max_image_size", edge)
    size = _fitted(width, height, longest)
    if not _given(settings, "do_image_splitting", True):
        return Layout((grid,), size)
    rows, columns = _tiles(*size, edge)
    while max_tokens is not None and rows * columns * grid[0] ** 2 > max_tokens and longest > edge:
        longest = (math.ceil(longest / edge) - 1) * edge
        size = _fitted(width, height, longest)
        rows, columns = _tiles(*size, edge)
    if rows == columns == 1:
        return Layout((grid,), size)
    if rows * columns > _MAX_TILES:
        raise _invalid("max_image_size", edge)
    return Layout((grid,) * (rows * columns + 1), size, (rows, columns))


def _fitted(width: int, height: int, longest: int) -> tuple[int, int]:
    """Return the size whose longer side has `longest` pixels, and whose other side is even, or 1."""
    short = int(longest / (width / height) if width >= height else longest * (width / height))
    short = max(1, short + short % 2)
    return (longest, short) if width >= height else (short, longest)


def _tiles(width: int, height: int, edge: int) -> tuple[int, int]:
    """Return rows and columns of the tiles that an image is enlarged to."""
    if width >= height:
        columns = math.ceil(width / edge)
        return max(1, math.ceil(int(columns * edge / (width / height)) / edge)), columns
    rows = math.ceil(height / edge)
    return rows, max(1, math.ceil(int(rows * edge * (width / height)) / edge))


def idefics3_patches(rgb: Pixels, settings: Settings, layout: Layout) -> npt.NDArray[np.float32]:
    """Return tiles (tiles, channels, edge, edge), row after row, the whole image last."""
    edge = _edge(settings, "max_image_size", "longest_edge", 364)
    rows, columns = layout.tiles
    image = _resized(rgb, layout.size, settings, _LANCZOS)
    if rows:
        image = _resized(image, (columns * edge, rows * edge), settings, _LANCZOS)
    tiles = _cut(_resized(image, (edge, edge), settings, _LANCZOS), edge)
    if rows:
        tiles = np.concatenate([_cut(image, edge), tiles])
    return _normal(tiles, settings)


def gemma3_layout(_width: int, _height: int, settings: Settings, _max_tokens: int | None) -> Layout:
    """Return the layout for Gemma 3: every image is scaled to one square."""
    side = _integer_setting(settings, "token_side")
    return Layout(((side, side),), (_edge(settings, "size", "width", 224), _edge(settings, "size", "height", 224)))


def gemma3_patches(rgb: Pixels, settings: Settings, layout: Layout) -> npt.NDArray[np.float32]:
    """Return one tile (1, channels, height, width)."""
    return _normal(_resized(rgb, layout.size, settings, _BILINEAR).transpose(2, 0, 1)[None], settings)


def gemma4_layout(width: int, height: int, settings: Settings, max_tokens: int | None) -> Layout:
    """Return the layout for Gemma 4: as large as the tokens allow, also for a small image.

    The limit in its settings is lower than the one that the model was trained with, which only `max_tokens` None asks
    for: with the usual settings an image has up to 256 tokens where `max_tokens` is 256, 280 where it is 1,024, and
    1,120 where it is None.
    """
    side = _integer_setting(settings, "patch_size", 16) * _integer_setting(settings, "pooling_kernel_size", 3)
    maximum = _GEMMA4_TOKENS
    if max_tokens is not None:
        maximum = min(max_tokens, _integer_setting(settings, "max_soft_tokens", 280))
    factor = math.sqrt(maximum * side**2 / (width * height))
    rows, columns = (math.floor(factor * each / side) for each in (height, width))
    if 0 in {rows, columns}:
        # A long line: one row or column of tokens, as many as its sides' ratio, or as the limit has.
        rows, columns = (max(1, min(each, maximum)) for each in (height // width, width // height))
    return _one_tile(rows, columns, side)


def gemma4_patches(rgb: Pixels, settings: Settings, layout: Layout) -> npt.NDArray[np.float32]:
    """Return patches (patches, side * side * channels)."""
    squares = _cut(_resized(rgb, layout.size, settings, _BICUBIC), _integer_setting(settings, "patch_size", 16))
    return _flat(_normal(squares, settings, (0.0,) * 3, (1.0,) * 3))


def lfm2_layout(width: int, height: int, settings: Settings, max_tokens: int | None) -> Layout:
    """Return the layout for LFM2-VL: the whole image, and tiles before it if it is large.

    `max_tokens` limits both, each by itself.
    """
    patch = _integer_setting(settings, "encoder_patch_size", 16)
    maximum = _integer_setting(settings, "max_image_tokens", 256)
    side = patch * _integer_setting(settings, "downsample_factor", 2)
    pixels = math.prod(max(patch, round(each / side) * side) for each in (width, height))
    # `_channels` reads any number, here a plain one.
    is_large = pixels > maximum * side**2 * _channels(settings, "max_pixels_tolerance", (2.0,))[0]
    split = is_large and _given(settings, "do_image_splitting", True)
    across, rows, columns = _nearest_tiles(width, height, side, settings, max_tokens) if split else (0, 0, 0)
    maximum = min(maximum, max_tokens or maximum)
    minimum = min(maximum, _integer_setting(settings, "min_image_tokens", 64))
    high, broad = _grid(width, height, side, (minimum * side**2, maximum * side**2), 1)
    # Those of a line of pixels would be too many.
    broad = min(broad, max(maximum // high, 1))
    high = min(high, maximum)
    overview = ((high, broad),) if rows == 0 or _given(settings, "use_thumbnail", True) else ()
    return Layout(((across, across),) * (rows * columns) + overview, (broad * side, high * side), (rows, columns))


def _nearest_tiles(
    width: int, height: int, side: int, settings: Settings, max_tokens: int | None
) -> tuple[int, int, int]:
    """Return the tokens across a tile, and the rows and columns of tiles nearest to the shape of an image.

    All are zero where no division has at least `min_tiles` and at most the maximum: the image is not divided.
    """
    tile = _integer_setting(settings, "tile_size", 512)
    maximum = _integer_setting(settings, "max_tiles", 10)
    if tile % side or maximum > _MAX_TILES or maximum * tile**2 > _MAX_PIXELS:
        raise _invalid("the size or number of tiles", (tile, maximum))
    if max_tokens is not None:
        maximum = min(maximum, max_tokens // (tile // side) ** 2)
    # (1, 1) stands for no division. Fewer tiles are tried first; of equally near shapes, one with more tiles wins if
    # the image has more than half of their pixels.
    best = (1, 1)
    nearest = math.inf
    shapes = ((rows, columns) for rows in range(1, maximum + 1) for columns in range(1, maximum // rows + 1))
    for rows, columns in sorted(shapes, key=math.prod):
        apart = abs(width / height - columns / rows)
        count = rows * columns
        fits = apart < nearest or (apart == nearest and width * height > tile**2 * count / 2)
        if fits and count >= _integer_setting(settings, "min_tiles", 2):
            best = (rows, columns)
            nearest = apart
    return (tile // side, *best) if best != (1, 1) else (0, 0, 0)


def lfm2_patches(rgb: Pixels, settings: Settings, layout: Layout) -> npt.NDArray[np.float32]:
    """Return patches (patches, side * side * channels), tile after tile, those of the whole image last."""
    rows, columns = layout.tiles
    tile = _integer_setting(settings, "tile_size", 512)
    images = []
    if rows:
        tiles = _cut(_resized(rgb, (columns * tile, rows * tile), settings, _BILINEAR), tile)
        images += [*tiles.transpose(0, 2, 3, 1)]
    if len(layout.grids) > rows * columns:
        images.append(_resized(rgb, layout.size, settings, _BILINEAR))
    side = _integer_setting(settings, "encoder_patch_size", 16)
    return _flat(_normal(np.concatenate([_cut(each, side) for each in images]), settings))


def _cut(image: Pixels, side: int) -> Pixels:
    """Return the squares (n, 3, side, side) that an image is cut into, row by row."""
    return image.reshape(image.shape[0] // side, side, -1, side, 3).transpose(0, 2, 4, 1, 3).reshape(-1, 3, side, side)


def _flat(squares: npt.NDArray[np.float32]) -> npt.NDArray[np.float32]:
    """Return each square (channels, side, side) as a row, the channels of a pixel side by side."""
    return squares.transpose(0, 2, 3, 1).reshape(len(squares), -1)


def _rows_shape(merge: str, usual: int, frames: str = "") -> Callable[[Settings, Layout], tuple[int, ...]]:
    """Return the `patches_shape` of patches as rows. The settings name the patches along a token's side, and frames."""

    def shape(settings: Settings, layout: Layout) -> tuple[int, int]:
        count = layout.pixel_tokens * _integer_setting(settings, merge, usual) ** 2
        times = _integer_setting(settings, frames, 2, _MAX_FRAMES) if frames else 1
        return count, 3 * times * math.prod(layout.size) // count

    return shape


def _smol_shape(settings: Settings, layout: Layout) -> tuple[int, ...]:
    """Return the `patches_shape` of Idefics3 and SmolVLM."""
    edge = _edge(settings, "max_image_size", "longest_edge", 364)
    return len(layout.grids), 3, edge, edge


PROCESSORS = {
    "qwen": Processor(qwen_layout, qwen_patches, _rows_shape("merge_size", 2, "temporal_patch_size")),
    "pixtral": Processor(pixtral_layout, pixtral_patches, _rows_shape("merge_size", 1)),
    "idefics3": Processor(idefics3_layout, idefics3_patches, _smol_shape),
    "gemma3": Processor(gemma3_layout, gemma3_patches, lambda _, layout: (1, 3, *layout.size[::-1])),
    "gemma4": Processor(gemma4_layout, gemma4_patches, _rows_shape("pooling_kernel_size", 3)),
    "lfm2": Processor(lfm2_layout, lfm2_patches, _rows_shape("downsample_factor", 2)),
}
"""The processors by the names that families give."""


def _resized(rgb: Pixels, size: tuple[int, int], settings: Settings, usual: int) -> Pixels:
    """Scale an image to a width and height, with the filter that the settings name, or the usual one."""
    from PIL import Image  # noqa: PLC0415  only the child for images needs it

    number = _given(settings, "resample", usual)
    if type(number) is not int or number not in set(Image.Resampling):
        raise _invalid("resample", number)
    return np.asarray(Image.fromarray(rgb).resize(size, Image.Resampling(number)))


def _normal(
    pixels: Pixels, settings: Settings, usual_mean: tuple[float, ...] = _HALF, usual_std: tuple[float, ...] = _HALF
) -> npt.NDArray[np.float32]:
    """Return the normalised numbers of pixels (n, channels, height, width).

    A channel has only 256 numbers, so they are looked up. They are computed in transformers' precisions.
    """
    scale = np.ones(3)
    mean = np.zeros(3)
    std = np.ones(3)
    if _given(settings, "do_rescale", True):
        scale = _channels(settings, "rescale_factor", (1 / 255,) * 3)
    if _given(settings, "do_normalize", True):
        mean = _channels(settings, "image_mean", usual_mean)
        std = _channels(settings, "image_std", usual_std)
    with np.errstate(all="ignore"):
        scaled = (np.arange(256.0)[:, None] * scale).astype(np.float32)
        table = (scaled - mean.astype(np.float32)) / std.astype(np.float32)
    if not np.isfinite(table).all():
        raise _invalid("a number of a colour", "not finite")
    numbers = np.empty(pixels.shape, np.float32)
    for channel in range(3):
        numbers[:, channel] = table[pixels[:, channel], channel]
    return numbers


def _channels(settings: Settings, key: str, usual: tuple[float, ...]) -> npt.NDArray[np.float64]:
    """Return a setting that is a number, or one for each channel, as three numbers."""
    value = _given(settings, key, usual)
    try:
        return np.broadcast_to(np.array(value, np.float64), 3)
    except (TypeError, ValueError, OverflowError) as error:
        raise _invalid(key, value) from error


def _integer_setting(settings: Settings, key: str, usual: int | None = None, maximum: int = _MAX_NUMBER) -> int:
    """Return a positive whole number of the settings."""
    value = _given(settings, key, usual)
    if type(value) is not int or not 0 < value <= maximum:
        raise _invalid(key, value)
    return value


def _given(settings: Settings, key: str, usual: Any) -> Any:
    """Return a setting; the usual value if it is missing or null."""
    value = settings.get(key)
    return usual if value is None else value


def _edge(settings: Settings, key: str, edge: str, usual: int) -> int:
    """Return a number of a size of the settings, such as `size` with `longest_edge`."""
    value = settings.get(key)
    return _integer_setting(value if isinstance(value, Mapping) else {edge: value}, edge, usual)


def _invalid(key: str, value: object) -> ModelError:
    """Return the error about a setting that cannot be used."""
    return ModelError(f"The model's settings for images are invalid: {key} is {one_line(value)}.", REFETCH_HINT)
