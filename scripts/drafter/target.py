"""The target in PyTorch, read from its quantised file."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file

from scripts.drafter.common import DEVICE


class Target:
    """The model, read from its quantised file: calls over whole sequences, and one token a slot."""

    def __init__(self, config: dict[str, Any], weights: dict[str, torch.Tensor], dtype: torch.dtype) -> None:
        self.config = config
        self.dtype = dtype
        self.heads = config["num_attention_heads"]
        self.kv_heads = config["num_key_value_heads"]
        self.width = config["hidden_size"]
        self.size = self.heads and config["hidden_size"] // self.heads
        count = config["num_hidden_layers"]
        self.read_layers = tuple(sorted({count // 4, count // 2, count - count // 4}))
        self.epsilon = config["rms_norm_eps"]

        def take(name: str) -> Any:
            return weights[name].to(DEVICE, dtype)

        self.embeddings = take("model.embed_tokens.weight")
        self.last_norm = take("model.norm.weight")
        self.layers = []
        for index in range(count):
            at = f"model.layers.{index}."

            def join(*names: Any, at: Any = at) -> Any:
                return torch.cat([take(f"{at}{name}.weight") for name in names])

            self.layers.append(
                {
                    "qkv": join("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
                    "o": join("self_attn.o_proj"),
                    "up": join("mlp.gate_proj", "mlp.up_proj"),
                    "down": join("mlp.down_proj"),
                    "first": join("input_layernorm"),
                    "second": join("post_attention_layernorm"),
                }
            )
        positions = min(config["max_position_embeddings"], 4096)
        rates = config["rope_theta"] ** (-torch.arange(0, self.size, 2, dtype=torch.float64) / self.size)
        angles = torch.arange(positions, dtype=torch.float64)[:, None] * rates
        self.cosines = angles.cos().float().to(DEVICE)
        self.sines = angles.sin().float().to(DEVICE)

    @classmethod
    def read(cls, folder: Path, dtype: torch.dtype) -> Self:
        """Read an MLX folder, 4 and 8 bits a weight: `scale * q + bias` in groups, in half precision as MLX does."""
        config = json.loads((folder / "config.json").read_text())
        stored = load_file(folder / "model.safetensors")
        weights = {}
        for name, tensor in stored.items():
            if name.endswith((".scales", ".biases")):
                continue
            base = name.removesuffix(".weight")
            if f"{base}.scales" in stored:
                settings = config["quantization"].get(base) or config["quantization"]
                bits = settings["bits"]
                group = settings["group_size"]
                packed = tensor.to(DEVICE).to(torch.int64)
                shifts = torch.arange(0, 32, bits, device=DEVICE)
                values = ((packed[..., None] >> shifts) & (2**bits - 1)).flatten(1).half().unflatten(1, (-1, group))
                scales, biases = (stored[f"{base}.{part}"].to(DEVICE) for part in ("scales", "biases"))
                weights[name] = (values * scales[..., None] + biases[..., None]).flatten(1)
            else:
                weights[name] = tensor
        return cls(config, weights, dtype)

    @classmethod
    def random(cls, dtype: torch.dtype, **changes: int) -> Self:
        """Return a target of random weights, in the default model's shape unless changed."""
        config: dict[str, Any] = {
            "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
            "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "max_position_embeddings": 8192,
            "vocab_size": 49152,
        } | changes  # fmt: skip
        width = config["hidden_size"]
        inner = config["intermediate_size"]
        size = config["vocab_size"]
        kv = width // config["num_attention_heads"] * config["num_key_value_heads"]
        shapes = {
            "self_attn.q_proj": (width, width), "self_attn.k_proj": (kv, width), "self_attn.v_proj": (kv, width),
            "self_attn.o_proj": (width, width), "mlp.gate_proj": (inner, width), "mlp.up_proj": (inner, width),
            "mlp.down_proj": (width, inner),
        }  # fmt: skip
        draw = torch.Generator().manual_seed(1)
        weights = {"model.embed_tokens.weight": torch.randn(size, width, generator=draw)}
        weights["model.norm.weight"] = torch.ones(width)
        for index in range(config["num_hidden_layers"]):
            for name, shape in shapes.items():
                tensor = torch.randn(shape, generator=draw) / shape[1] ** 0.5
                weights[f"model.layers.{index}.{name}.weight"] = tensor
            for name in ("input_layernorm", "post_attention_layernorm"):
                weights[f"model.layers.{index}.{name}.weight"] = torch.ones(width)
        return cls(config, weights, dtype)

    def norm(self, x: torch.Tensor, weight: torch.Tensor) -> Any:
        return F.rms_norm(x, (self.width,), weight, self.epsilon)

    def turn(self, x: torch.Tensor, cosines: torch.Tensor, sines: torch.Tensor) -> Any:
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cosines - b * sines, b * cosines + a * sines], -1).to(x.dtype)

    def mlp(self, x: torch.Tensor, layer: dict[str, torch.Tensor]) -> Any:
        gate, up = F.linear(self.norm(x, layer["second"]), layer["up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, layer["down"])

    def call(self, ids: torch.Tensor, keep: Callable[..., None] | None = None) -> torch.Tensor:
        """Return (batch, tokens, states) the hidden states a head reads, the trunk's first.

        Args:
            ids: (batch, tokens), padded on the right.
            keep: Called with each layer's number, keys and values; then the states are not read.
        """
        count = ids.shape[1]
        x = F.embedding(ids, self.embeddings)
        cosines = self.cosines[:count]
        sines = self.sines[:count]
        reads = []
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        for number, layer in enumerate(self.layers):
            parts = F.linear(self.norm(x, layer["first"]), layer["qkv"]).split(sizes, -1)
            q, k, v = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts)
            q = self.turn(q, cosines, sines)
            k = self.turn(k, cosines, sines)
            if keep is not None:
                keep(number, k, v)
                if number == len(self.layers) - 1:
                    return x
            shared = self.heads // self.kv_heads
            k = k.repeat_interleave(shared, 1)
            v = v.repeat_interleave(shared, 1)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(mixed.transpose(1, 2).flatten(2), layer["o"])
            x = self.mlp(x, layer)
            if number in self.read_layers:
                reads.append(F.rms_norm(x.float(), (self.width,), None, 1e-6).to(x.dtype))
        return torch.cat([self.norm(x, self.last_norm), *reads], -1)
