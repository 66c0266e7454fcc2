"""Decodes many sequences side by side."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F  # noqa: N812

from scripts.drafter import kernels
from scripts.drafter.common import CUDA, DEVICE
from scripts.drafter.target import Target

TOP_P = 0.95
TOP_K = 64


class Slots:
    """Sequences that are decoded side by side, each at its own position; one call a token, recorded as a CUDA graph.

    Attributes:
        tokens: (slots, length) int32: the sequences.
        positions: (slots,) int32: index of each slot's last token, which the next call reads.
        limits: (slots,) int32: a sequence ends at this many tokens.
        warmth: (slots,) float32: temperatures.
        active: (slots,) bool.
    """

    def __init__(self, target: Target, count: int, length: int, ends: set[int]) -> None:
        self.target = target
        self.count = count
        self.length = length
        shape = (len(target.layers), count, target.kv_heads, length, target.size)
        self.keys, self.values = (torch.zeros(shape, dtype=target.dtype, device=DEVICE) for _ in range(2))

        def blank(dtype: torch.dtype, *more: int) -> Any:
            return torch.zeros((count, *more), dtype=dtype, device=DEVICE)

        self.tokens = blank(torch.int32, length)
        self.positions = blank(torch.int32)
        self.limits = blank(torch.int32)
        self.warmth = blank(torch.float32)
        self.active = blank(torch.bool)
        self.ends = torch.tensor(sorted(ends), dtype=torch.int32, device=DEVICE)
        self.rows = torch.arange(count, device=DEVICE)
        self.graph = None

    def _attend(self, number: int, qkv: torch.Tensor) -> torch.Tensor:
        target = self.target
        keys = self.keys[number]
        values = self.values[number]
        if kernels.USE_TRITON:
            q = torch.empty((self.count, target.heads, target.size), dtype=qkv.dtype, device=DEVICE)
            out = torch.empty_like(q)
            strides = keys.stride(0), keys.stride(1)
            shared = target.heads // target.kv_heads
            kernels.rope_store[(self.count, target.heads + 2 * target.kv_heads)](
                qkv, q, keys, values, self.positions, target.cosines, target.sines, *strides,
                target.heads, target.kv_heads, target.size, num_warps=1,
            )  # fmt: skip
            kernels.decode_attention[(self.count, target.kv_heads)](
                q, keys, values, self.lengths, out, *strides, target.size**-0.5,
                target.heads, shared, target.size, 64, num_warps=4,
            )  # fmt: skip
            return out.flatten(1)
        heads = qkv.unflatten(-1, (-1, target.size))
        q, k, v = heads.split([target.heads, target.kv_heads, target.kv_heads], 1)
        where = self.positions.long()
        cosines = target.cosines[where][:, None]
        sines = target.sines[where][:, None]
        keys[self.rows, :, where] = target.turn(k, cosines, sines)
        values[self.rows, :, where] = v
        q = target.turn(q, cosines, sines).unflatten(1, (target.kv_heads, -1))
        scores = torch.einsum("skgd,skld->skgl", q.float(), keys.float()) * target.size**-0.5
        unseen = torch.arange(self.length, device=DEVICE) >= self.lengths[:, None]
        likely = scores.masked_fill(unseen[:, None, None], -math.inf).softmax(-1)
        return torch.einsum("skgl,skld->skgd", likely, values.float()).to(qkv.dtype).flatten(1)

    def logits(self) -> torch.Tensor:
        target = self.target
        self.lengths = torch.where(self.active, self.positions + 1, 1).to(torch.int32)
        last = self.tokens.gather(1, self.positions.long()[:, None])[:, 0]
        x = F.embedding(last, target.embeddings)
        for number, layer in enumerate(target.layers):
            qkv = F.linear(target.norm(x, layer["first"]), layer["qkv"])
            x = x + F.linear(self._attend(number, qkv), layer["o"])
            x = target.mlp(x, layer)
        return F.linear(target.norm(x, target.last_norm), target.embeddings)

    def _step(self) -> None:
        best, ids = self.logits().topk(min(TOP_K, self.target.embeddings.shape[0]), -1)
        scaled = best.float() / self.warmth.clamp(min=0.01)[:, None]
        likely = scaled.softmax(-1)
        allowed = likely.cumsum(-1) - likely < TOP_P
        noise = -torch.log(-torch.log(torch.rand_like(scaled).clamp(1e-20, 1 - 1e-7)))
        drawn = torch.where(allowed, scaled + noise, -1e30).argmax(-1)
        choice = torch.where(self.warmth > 0, drawn, 0)
        token = ids.gather(1, choice[:, None]).to(torch.int32)
        after = (self.positions + 1).clamp(max=self.length - 1).long()[:, None]
        self.tokens.scatter_(1, after, torch.where(self.active[:, None], token, self.tokens.gather(1, after)))
        self.positions.add_(self.active.to(torch.int32))
        ended = (token == self.ends).any(-1) | (self.positions + 1 >= self.limits)
        self.active.logical_and_(~ended)

    def _stop_loops(self) -> None:
        """End slots whose last 48 tokens repeat with a period of at most 48."""
        back = self.positions.long()[:, None] + torch.arange(-95, 1, device=DEVICE)
        window = self.tokens.gather(1, back.clamp(min=0)).masked_fill(back < 0, -1)
        shifted = window.unfold(1, 48, 1)[:, :48]  # Shifts by 48, 47, ..., 1.
        self.active.logical_and_(~(shifted == window[:, None, 48:]).all(-1).any(-1))

    def record(self) -> None:
        """Record the graph; call it before the first sequence is read."""
        if not CUDA:
            return
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(3):
                self._step()
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self._step()
        self.positions.zero_()
        self.tokens.zero_()

    def run(self, steps: int) -> None:
        for _ in range(steps):
            self.graph.replay() if self.graph is not None else self._step()
        self._stop_loops()

    def fill(
        self,
        slots: list[int],
        prompts: Sequence[list[int]],
        limits: Sequence[int],
        warmth: Sequence[float],
        call_tokens: int,
    ) -> Any:
        """Read prompts, (at least 2 tokens each), into free slots."""
        order = sorted(range(len(prompts)), key=lambda index: len(prompts[index]))
        start = 0
        while start < len(order):
            stop = start
            while stop < len(order) and (stop + 1 - start) * len(prompts[order[stop]]) <= call_tokens:
                stop += 1
            part = order[start : max(stop, start + 1)]
            start += len(part)
            width = max(len(prompts[index]) for index in part)
            ids = np.zeros((len(part), width), np.int32)
            for row, index in enumerate(part):
                ids[row, : len(prompts[index])] = prompts[index]
            rows = torch.tensor([slots[index] for index in part], device=DEVICE)
            ids = torch.from_numpy(ids).to(DEVICE)

            def keep(
                number: int, k: torch.Tensor, v: torch.Tensor, rows: torch.Tensor = rows, width: int = width
            ) -> None:
                self.keys[number][rows, :, : width - 1] = k
                self.values[number][rows, :, : width - 1] = v

            self.tokens[rows, :width] = ids
            self.target.call(ids[:, :-1], keep)
        rows = torch.tensor(slots, device=DEVICE)

        def numbers(values: Any, dtype: torch.dtype) -> Any:
            return torch.tensor(values, dtype=dtype, device=DEVICE)

        self.positions[rows] = numbers([len(prompt) - 1 for prompt in prompts], torch.int32)
        self.limits[rows] = numbers(limits, torch.int32)
        self.warmth[rows] = numbers(warmth, torch.float32)
        self.active[rows] = True
