"""Published models' attention is held against MLX's rules for fused kernels on Metal; the docs list the result."""

from pathlib import Path

import pytest

from tests.inference.attention_shapes import MODELS, NOT_LISTED, Kernel, Shape, table
from tests.inference.families import CHAINS, TREES

DOCS = Path(__file__).parents[2] / "docs" / "metal-attention.md"


@pytest.mark.parametrize(
    ("shape", "kernel"),
    [
        (Shape(8, 32, 8, 128, 128), Kernel.VECTOR),
        (Shape(4, 64, 8, 64, 64), Kernel.VECTOR),
        (Shape(5, 64, 8, 64, 64), Kernel.UNFUSED),  # 40 rows of queries share a key
        (Shape(9, 64, 8, 64, 64), Kernel.TILED),
        (Shape(8, 8, 4, 256, 256), Kernel.VECTOR),
        (Shape(9, 8, 4, 256, 256), Kernel.UNFUSED),
        (Shape(1, 16, 2, 512, 512), Kernel.UNFUSED),
        (Shape(1, 16, 16, 192, 128), Kernel.VECTOR),
        (Shape(9, 16, 16, 192, 128), Kernel.UNFUSED),
        (Shape(1, 16, 16, 80, 80), Kernel.UNFUSED),
        (Shape(9, 16, 16, 80, 80), Kernel.TILED),
    ],
)
def test_the_rules_for_fused_kernels(shape: Shape, kernel: Kernel) -> None:
    assert shape.kernel is kernel


def test_every_family_is_listed() -> None:
    variants = {"llama with llama3 rope", "llama with yarn rope"}  # of the same shapes
    assert MODELS.keys() | NOT_LISTED | variants == {*TREES, *CHAINS}


@pytest.mark.slow
def test_the_docs_list_what_falls_to_the_slow_path() -> None:
    """`python -m tests.inference.attention_shapes` prints it anew."""
    assert table() in DOCS.read_text(encoding="utf-8")
