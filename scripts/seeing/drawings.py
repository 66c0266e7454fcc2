"""Drawings of two shapes, and the sentence that each shows. No MLX here."""

import numpy as np
import numpy.typing as npt

type Pixels = npt.NDArray[np.uint8]

COLOURS = {"red": (220, 40, 40), "green": (40, 160, 60), "blue": (40, 80, 220), "yellow": (230, 200, 40)}
SHAPES = ("circle", "square", "triangle")
RELATIONS = ("left of", "above")
"""Where the first shape of a sentence is: the left one, or the upper one, is named first."""


def sentence(first: tuple[str, str], relation: str, second: tuple[str, str]) -> str:
    """Return the sentence for two shapes, each a colour and a name: `A red circle left of a blue square.`."""
    return f"A {' '.join(first)} {relation} a {' '.join(second)}."


def drawing(random: np.random.Generator, side: int = 64) -> tuple[Pixels, str]:
    """Return a drawing, (side, side, 3), and its sentence.

    Colours, shapes, relation, places, sizes, shades, paper and noise are drawn; the two colours differ.
    """
    colours = random.choice(list(COLOURS), 2, replace=False)
    shapes = random.choice(SHAPES, 2)
    relation = str(random.choice(RELATIONS))
    along = (random.uniform(0.22, 0.30), random.uniform(0.70, 0.78))
    across = random.uniform(0.3, 0.7) + random.uniform(-0.1, 0.1, 2)
    image = np.ones((side, side, 3)) * (255 - random.integers(0, 30, 3))
    y, x = (np.mgrid[:side, :side] + 0.5) / side
    for number in range(2):
        place = (along[number], across[number]) if relation == "left of" else (across[number], along[number])
        distance = _distance(str(shapes[number]), x - place[0], y - place[1], random.uniform(0.14, 0.19))
        cover = np.clip(0.5 - distance * side, 0, 1)[..., None]
        shade = np.array(COLOURS[str(colours[number])]) + random.integers(-20, 21, 3)
        image = image * (1 - cover) + shade * cover
    image += random.normal(0, random.uniform(0, 6), image.shape)
    first, second = ((str(colour), str(shape)) for colour, shape in zip(colours, shapes, strict=True))
    return image.clip(0, 255).astype(np.uint8), sentence(first, relation, second)


def _distance(
    shape: str, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64], radius: float
) -> npt.NDArray[np.float64]:
    """Return how far points are from the edge of a shape around (0, 0), negative inside."""
    if shape == "circle":
        return np.hypot(x, y) - radius
    if shape == "square":
        return np.maximum(abs(x), abs(y)) - 0.9 * radius
    outside: npt.NDArray[np.float64] = (1.9 * abs(x) - y - radius) / np.hypot(1.9, 1)
    return np.maximum(y - 0.8 * radius, outside)
