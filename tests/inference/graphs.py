"""The graphs that MLX is asked to compute: their primitives with dtypes, held against what Metal lacks."""

import io
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch

import mlx.core as mx
from mlx.utils import tree_flatten

# Metal has none of these: they run on the CPU's stream only.
CPU_ONLY = {"Cholesky", "Eig", "Eigh", "Inverse", "LUF", "QRF", "SVD"}
SCATTERS = {"Scatter", "ScatterAxis", "MaskedScatter"}
EIGHT_BYTES = {mx.int64, mx.uint64, mx.complex64}
READS = ("item", "tolist")


class Node(NamedTuple):
    """A primitive of a graph."""

    name: str
    inputs: tuple[mx.Dtype, ...]
    outputs: tuple[mx.Dtype, ...]

    @property
    def lacking(self) -> str:
        """What Metal lacks for it; empty where it has a kernel."""
        if self.name in CPU_ONLY:
            return f"{self.name} has no kernel"
        if mx.float64 in (*self.inputs, *self.outputs):
            return f"{self.name} of float64"
        if self.name in SCATTERS and not EIGHT_BYTES.isdisjoint(self.outputs):
            return f"{self.name} of 8 bytes"
        if self.name == "Arange" and mx.bool_ in self.outputs:
            return "Arange of bool"
        return ""


def graph_of(*arrays: mx.array) -> list[Node]:
    """Return the primitives that computing lazy arrays would run; it computes nothing."""
    found: list[Node] = []

    def take(part: dict[str, Any]) -> None:
        if part["type"] == "primitive":
            inputs, outputs = (tuple(dtype for *_, dtype in part[side]) for side in ("inputs", "outputs"))
            found.append(Node(part["name"], inputs, outputs))

    mx.synchronize()  # MLX 0.32.4 now and then crashes when it exports a graph whose inputs are still being computed
    mx.export_function(take, lambda: list(arrays))
    return found


@contextmanager
def noted_graphs() -> Iterator[list[Node]]:
    """Note the primitives of all that MLX is asked to compute within; compiled functions are taken apart.

    Not seen is what only `bool`, `int` or `float` of a lazy array asks for: MLX's type does not let these be replaced.
    """
    noted: list[Node] = []

    def noting(plain: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*what: Any, **options: Any) -> Any:
            noted.extend(graph_of(*(array for _, array in tree_flatten(list(what)) if isinstance(array, mx.array))))
            return plain(*what, **options)

        return asked

    reads = {name: getattr(mx.array, name) for name in READS}
    mx.disable_compile()
    try:
        with ExitStack() as stack:
            # MLX 0.32.4 cannot export a copy that is contiguous; Metal has it.
            stack.enter_context(patch.object(mx, "contiguous", lambda array, *_layout, **_stream: array))
            for name in ("eval", "async_eval"):
                stack.enter_context(patch.object(mx, name, noting(getattr(mx, name))))
            for name, plain in reads.items():
                setattr(mx.array, name, noting(plain))
            yield noted
    finally:
        for name, plain in reads.items():
            setattr(mx.array, name, plain)
        mx.enable_compile()


# Primitives that compute nothing.
_VIEWS = {"Broadcast", "BroadcastAxes", "Depends", "ExpandDims", "Flatten", "Reshape", "Slice", "Split", "Squeeze",
          "Transpose", "Unflatten"}  # fmt: skip


def launches(*lazy: mx.array) -> list[str]:
    """Return the primitives of a graph that cost a launch."""
    text = io.StringIO()
    mx.export_to_dot(text, *lazy)
    return [name for name in re.findall(r'label ="(\w+)", shape=rectangle', text.getvalue()) if name not in _VIEWS]
