"""Triton kernels of decoding and of the loss; plain PyTorch where there is no GPU."""

# mypy: disable-error-code="no-untyped-def"
# Triton reads the annotations of a kernel's arguments.

import os

import torch

from scripts.drafter.common import CUDA, TEACHER_TOKENS

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

USE_TRITON = triton is not None and (CUDA or "TRITON_INTERPRET" in os.environ)


if triton is not None:

    @triton.jit
    def rope_store(  # noqa: PLR0917  kernels are launched by position
        qkv, q_out, keys, values, positions, cosines, sines, slot_stride, head_stride,
        heads: tl.constexpr, kv_heads: tl.constexpr, size: tl.constexpr,
    ):  # fmt: skip
        """Turns queries and keys of one token a slot, and writes keys and values to the caches."""
        slot = tl.program_id(0)
        head = tl.program_id(1)
        position = tl.load(positions + slot)
        half = tl.arange(0, size // 2)
        row = qkv + (slot * (heads + 2 * kv_heads) + head) * size
        a = tl.load(row + half).to(tl.float32)
        b = tl.load(row + size // 2 + half).to(tl.float32)
        if head < heads + kv_heads:
            cosine = tl.load(cosines + position * (size // 2) + half)
            sine = tl.load(sines + position * (size // 2) + half)
            first = a * cosine - b * sine
            second = b * cosine + a * sine
            if head < heads:
                to = q_out + (slot * heads + head) * size
            else:
                to = keys + slot * slot_stride + (head - heads) * head_stride + position * size
            tl.store(to + half, first)
            tl.store(to + size // 2 + half, second)
        else:
            to = values + slot * slot_stride + (head - heads - kv_heads) * head_stride + position * size
            tl.store(to + half, a)
            tl.store(to + size // 2 + half, b)

    @triton.jit
    def decode_attention(  # noqa: PLR0917
        q, keys, values, lengths, out, slot_stride, head_stride, scale,
        heads: tl.constexpr, shared: tl.constexpr, size: tl.constexpr, block: tl.constexpr,
    ):  # fmt: skip
        """Attention of one token a slot over its own keys, the query heads of one key head at a time."""
        slot = tl.program_id(0)
        head = tl.program_id(1)
        length = tl.load(lengths + slot)
        g = tl.arange(0, 16)
        d = tl.arange(0, size)
        rows = (slot * heads + head * shared + g[:, None]) * size + d[None, :]
        queries = tl.load(q + rows, mask=g[:, None] < shared, other=0.0)
        base = slot * slot_stride + head * head_stride
        best = tl.full([16], -1e30, tl.float32)
        total = tl.zeros([16], tl.float32)
        sums = tl.zeros([16, size], tl.float32)
        for start in range(0, length, block):
            j = start + tl.arange(0, block)
            k = tl.load(keys + base + j[None, :] * size + d[:, None], mask=j[None, :] < length, other=0.0)
            scores = tl.dot(queries, k) * scale
            scores = tl.where(j[None, :] < length, scores, -1e30)
            higher = tl.maximum(best, tl.max(scores, 1))
            likely = tl.exp(scores - higher[:, None])
            fade = tl.exp(best - higher)
            total = total * fade + tl.sum(likely, 1)
            v = tl.load(values + base + j[:, None] * size + d[None, :], mask=j[:, None] < length, other=0.0)
            sums = sums * fade[:, None] + tl.dot(likely.to(v.dtype), v)
            best = higher
        tl.store(out + rows, sums / total[:, None], mask=g[:, None] < shared)

    @triton.jit
    def _loss_rows(  # noqa: PLR0917
        logits, columns, probs, weights, losses, vocabulary, top: tl.constexpr, block: tl.constexpr
    ):
        """The cross entropy of a row; its logits become their gradients, times the row's weight."""
        row = tl.program_id(0)
        j = tl.arange(0, block)
        at = logits + row.to(tl.int64) * vocabulary
        x = tl.load(at + j, mask=j < vocabulary, other=-1e30).to(tl.float32)
        weight = tl.load(weights + row)
        k = tl.arange(0, top)
        column = tl.load(columns + row * top + k).to(tl.int64)
        p = tl.load(probs + row * top + k).to(tl.float32)
        chosen = tl.load(at + column).to(tl.float32)
        best = tl.max(x, 0)
        e = tl.exp(x - best)
        total = tl.sum(e, 0)
        tl.store(losses + row, best + tl.log(total) - tl.sum(chosen * p, 0))
        tl.debug_barrier()
        tl.store(at + j, e / total * weight, mask=j < vocabulary)
        tl.debug_barrier()
        tl.store(at + column, (tl.exp(chosen - best) / total - p) * weight)


def loss_rows(logits: torch.Tensor, columns: torch.Tensor, probs: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Return (rows,) cross entropies; `logits` is overwritten with its weighted gradient."""
    if USE_TRITON:
        losses = torch.empty(len(logits), device=logits.device)
        block = triton.next_power_of_2(logits.shape[1])
        _loss_rows[(len(logits),)](
            logits, columns, probs, weights, losses, logits.shape[1], TEACHER_TOKENS, block, num_warps=16
        )
        return losses
    x = logits.float()
    index = columns.long()
    chosen = x.gather(1, index)
    scale = torch.logsumexp(x, -1)
    gradient = torch.exp(x - scale[:, None]).scatter_add(1, index, -probs.float()) * weights[:, None]
    logits.copy_(gradient)
    return scale - (chosen * probs.float()).sum(-1)
