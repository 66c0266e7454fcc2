"""A small tower of SmolVLM's kind for training, and its tensors under the names of checkpoints."""

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from mlx.utils import tree_flatten

from scripts.seeing.drawings import Pixels

SIDE = 64
PATCH = 8
WIDTH = 128
HEADS = 4
LAYERS = 4
ROWS = (SIDE // PATCH) ** 2


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            self[name] = nn.Linear(WIDTH, WIDTH)

    def __call__(self, x: mx.array) -> mx.array:
        batch, rows, _ = x.shape
        q, k, v = (self[f"{name}_proj"](x).reshape(batch, rows, HEADS, -1).swapaxes(1, 2) for name in "qkv")
        seen = mx.fast.scaled_dot_product_attention(q, k, v, scale=(WIDTH // HEADS) ** -0.5)
        out: mx.array = self["out_proj"](seen.swapaxes(1, 2).reshape(batch, rows, -1))
        return out


class _Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer_norm1, self.layer_norm2 = (nn.LayerNorm(WIDTH, eps=1e-6) for _ in range(2))
        self.self_attn = _Attention()
        self.mlp = {"fc1": nn.Linear(WIDTH, 2 * WIDTH), "fc2": nn.Linear(2 * WIDTH, WIDTH)}

    def __call__(self, x: mx.array) -> mx.array:
        x = x + self.self_attn(self.layer_norm1(x))
        more: mx.array = self.mlp["fc2"](nn.gelu_approx(self.mlp["fc1"](self.layer_norm2(x))))
        return x + more


class Tower(nn.Module):
    """SigLIP in small: a row of the text model's width for each patch.

    Args:
        width: The text model's.
        kinds: For each row a number; rows with the same number share a part of their position's vector.
    """

    def __init__(self, width: int, kinds: list[int]) -> None:
        super().__init__()
        self.patch = nn.Linear(3 * PATCH**2, WIDTH)
        self.position = 0.02 * mx.random.normal((ROWS, WIDTH))
        self.shared = mx.zeros((ROWS, WIDTH))
        self._kinds = mx.array(kinds)
        self.layers = [_Layer() for _ in range(LAYERS)]
        self.post_layernorm = nn.LayerNorm(WIDTH, eps=1e-6)
        self.projection = nn.Linear(WIDTH, width, bias=False)

    @property
    def positions(self) -> mx.array:
        """The vectors of positions, (ROWS, WIDTH)."""
        return self.position + self.shared[self._kinds]

    def __call__(self, pixels: mx.array) -> mx.array:
        """Return rows (batch, ROWS, width) for `normal` pixels."""
        batch = len(pixels)
        count = SIDE // PATCH
        cut = pixels.reshape(batch, 3, count, PATCH, count, PATCH).transpose(0, 2, 4, 1, 3, 5)
        x = self.patch(cut.reshape(batch, ROWS, -1)) + self.positions
        for layer in self.layers:
            x = layer(x)
        rows: mx.array = self.projection(self.post_layernorm(x))
        return rows


def normal(drawings: list[Pixels]) -> mx.array:
    """Return pixels as the processor of SmolVLM gives them: (batch, 3, SIDE, SIDE), from -1 to 1."""
    return mx.array((np.stack(drawings).astype(np.float32) / 127.5 - 1).transpose(0, 3, 1, 2))


def checkpoint(tower: Tower) -> dict[str, mx.array]:
    """Return the tensors of a tower in 16 bits, under the names of SmolVLM's checkpoints."""
    vision = "model.vision_model."
    own = dict(tree_flatten(tower.parameters()))
    del own["shared"]
    own["position"] = tower.positions
    kernel = own.pop("patch.weight").reshape(WIDTH, 3, PATCH, PATCH)
    names = {"patch.bias": f"{vision}embeddings.patch_embedding.bias"}
    names |= {"position": f"{vision}embeddings.position_embedding.weight"}
    names |= {"projection.weight": "model.connector.modality_projection.proj.weight"}

    def named(name: str) -> str:
        return names.get(name) or vision + (f"encoder.{name}" if name.startswith("layers.") else name)

    found = {named(name): array for name, array in own.items()}
    found[f"{vision}embeddings.patch_embedding.weight"] = kernel
    return {name: array.astype(mx.float16) for name, array in found.items()}
