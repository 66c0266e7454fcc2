"""Trains the shipped drafter of the default model on one CUDA GPU: prompts, answers, hidden states, heads, files.

The objective is that of `rdchat train-drafter` (`rdchat/inference/training`), on more data in minutes. It runs with a
Python that has torch, tokenizers and safetensors, and Triton on a GPU; rdchat does not need them. Phases:

    prompts   draws seed prompts as `DataMaker` does, on all cores (WORK/prompts.pkl)
    answers   the target finishes questions and answers them, in slots that are refilled (WORK/answers.npz)
    heads     reads hidden states and teacher, trains the arms, measures and writes each (OUT)
    smoke     compares the GPU's kernels with plain PyTorch, and times each part on random weights

    python scripts/train_drafter_cuda.py prompts answers heads --model FOLDER --work WORK --out OUT --batch 4096 \
        --arm wide:1024:1024:2:180:1.2e-3:0.05 --further 25

`--tiny` tries all of it on a CPU with a small random target. Held-out prompts are made from texts that no training
prompt has: every 15th article, search, request, foreign sentence and topic. Answers, states and heads are computed in
16 bits; how many a machine makes in its seconds differs, so a second run gives a similar head, not the same.
"""

# mypy: ignore-errors
# ruff: noqa: C901, N803, N812, PLC0415, PLR0915, PLR0917, PLW0603

import argparse
import importlib.util
import io
import json
import lzma
import math
import os
import pickle
import random
import sys
import time
from collections import Counter, deque
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F

try:
    import triton
    import triton.language as tl
except ImportError:
    triton = None

ROOT = Path(__file__).resolve().parent.parent
BEGAN = time.monotonic()
HELD_OUT_EVERY = 15
TEACHER_TOKENS, STEPS, STEP_DECAY = 16, 4, 0.8
TOP_P, TOP_K = 0.95, 64
LOOP_RUN, LOOP_LENGTH = 8, 8
GRADIENT_SCALE = 256.0  # Keeps small probabilities in 16 bits.
STATE_STEP = 12.0  # Hidden states are stored as whole twelfths of a standard deviation.
CUDA = torch.cuda.is_available()
DEVICE = torch.device("cuda" if CUDA else "cpu")
USE_TRITON = triton is not None and (CUDA or "TRITON_INTERPRET" in os.environ)


def note(*facts):
    print(f"[{time.monotonic() - BEGAN:6.1f}]", *facts, flush=True)


def sync():
    if CUDA:
        torch.cuda.synchronize()


# ---------------------------------------------------------------------------------------------------------- prompts


def _draw_prompts(job):
    """Return (text, tokens the target may add, kind) for each number of a range."""
    seed, start, stop, held, passages = job
    sys.path.insert(0, str(ROOT))
    name = "rdchat.inference.training.data.seed_prompts"  # Its package needs MLX; the module itself does not.
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, ROOT / "rdchat/inference/training/data/seed_prompts.py")
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    source = sys.modules[name]
    written, tables = source.texts("written_texts"), source.texts("seed_prompts")
    if not written.get("split"):
        for table, names in ((written, ("articles", "searches", "requests")), (tables, ("topics",))):
            for name in names:
                table[name] = _part(table[name], held)
        written["foreign"] = {name: _part(lines, held) for name, lines in written["foreign"].items()}
        written["split"] = True
    made = []
    for number in range(start, stop):
        draw = random.Random(f"{seed}/{held}/{number}")
        kind = draw.random()
        if kind < 0.16:
            made.append(("", 120, "magpie"))
            continue
        if kind < 0.24:  # One to three sentences, so that few prompts occur twice.
            languages = list(written["foreign"])
            language = draw.choices(languages, [len(written["foreign"][each]) for each in languages])[0]
            lines = written["foreign"][language]
            foreign = " ".join(draw.sample(lines, min(draw.choice((1, 2, 2, 3)), len(lines))))
            pattern = draw.choice(tables["into_english"])
            made.append((pattern.format_map({"language": language, "foreign": foreign}), 0, "joined translation"))
            continue
        prompt = source.seed_prompt(seed, number, passages, draw.random() < 0.24)
        made.append((prompt.text, prompt.more_tokens, prompt.kind))
    return made


def _part(items, held):
    return [item for index, item in enumerate(items) if (index % HELD_OUT_EVERY == HELD_OUT_EVERY - 1) == held]


def read_shipped():
    """Return the shipped answers as (tokens, answer start, number, temperature)."""
    path = next((ROOT / "assets/training/answers").glob("*.xz"))
    with np.load(io.BytesIO(lzma.decompress(path.read_bytes()))) as stored:
        tokens, facts, temperatures = (stored[name] for name in ("tokens", "facts", "temperatures"))
    ends = np.cumsum(facts[:, 1])
    return [
        (tokens[end - length : end], int(start), int(number), float(warmth) / 100)
        for end, (number, length, start), warmth in zip(ends, facts.tolist(), temperatures, strict=True)
    ]


def make_prompts(options, tokenizer):
    path = options.work / "prompts.pkl"
    if path.exists():
        return pickle.loads(path.read_bytes())
    shipped = read_shipped()
    answers = [tokens[start:][:110].tolist() for tokens, start, number, _ in shipped if number % HELD_OUT_EVERY != 14]
    passages = []
    for text in tokenizer.decode_batch([each for each in answers if len(each) >= 40], skip_special_tokens=True):
        sentences, stop, _ = text.strip().rpartition(". ")
        if "```" not in text and text.count("\n") <= 3:
            passages.append((sentences or text) + stop.strip())
    note(len(passages), "passages")
    made = {}
    for held, count in ((True, options.held_out), (False, options.prompts)):
        size = -(-count // (options.cores * 4))
        jobs = [(options.seed, first, min(first + size, count), held, passages) for first in range(0, count, size)]
        if options.cores > 1:
            with ProcessPoolExecutor(options.cores) as pool:  # A worker sees one kind of texts only.
                parts = list(pool.map(_draw_prompts, jobs))
        else:
            parts = [_in_child(job) for job in jobs]
        drawn = [item for part in parts for item in part]
        ids = [each.ids for each in tokenizer.encode_batch([text for text, *_ in drawn], add_special_tokens=False)]
        made[held] = [(row, more, kind) for row, (_, more, kind) in zip(ids, drawn, strict=True)]
        note("held out" if held else "to train on", len(drawn), Counter(kind for *_, kind in drawn).most_common(40))
    path.write_bytes(pickle.dumps(made))
    return made


def _in_child(job):
    with ProcessPoolExecutor(1) as pool:
        return pool.submit(_draw_prompts, job).result()


# ---------------------------------------------------------------------------------------------------------- kernels

if triton is not None:

    @triton.jit
    def _rope_store(
        qkv, q_out, keys, values, positions, cosines, sines, slot_stride, head_stride,
        H: tl.constexpr, KV: tl.constexpr, D: tl.constexpr,
    ):  # fmt: skip
        """Turns queries and keys of one token a slot, and writes keys and values to the caches."""
        slot = tl.program_id(0)
        head = tl.program_id(1)
        position = tl.load(positions + slot)
        half = tl.arange(0, D // 2)
        row = qkv + (slot * (H + 2 * KV) + head) * D
        a = tl.load(row + half).to(tl.float32)
        b = tl.load(row + D // 2 + half).to(tl.float32)
        if head < H + KV:
            cosine = tl.load(cosines + position * (D // 2) + half)
            sine = tl.load(sines + position * (D // 2) + half)
            first = a * cosine - b * sine
            second = b * cosine + a * sine
            if head < H:
                to = q_out + (slot * H + head) * D
            else:
                to = keys + slot * slot_stride + (head - H) * head_stride + position * D
            tl.store(to + half, first)
            tl.store(to + D // 2 + half, second)
        else:
            to = values + slot * slot_stride + (head - H - KV) * head_stride + position * D
            tl.store(to + half, a)
            tl.store(to + D // 2 + half, b)

    @triton.jit
    def _decode_attention(
        q, keys, values, lengths, out, slot_stride, head_stride, scale,
        H: tl.constexpr, G: tl.constexpr, D: tl.constexpr, BLOCK: tl.constexpr,
    ):  # fmt: skip
        """Attention of one token a slot over its own keys, the query heads of one key head at a time."""
        slot = tl.program_id(0)
        head = tl.program_id(1)
        length = tl.load(lengths + slot)
        g = tl.arange(0, 16)
        d = tl.arange(0, D)
        rows = (slot * H + head * G + g[:, None]) * D + d[None, :]
        queries = tl.load(q + rows, mask=g[:, None] < G, other=0.0)
        base = slot * slot_stride + head * head_stride
        best = tl.full([16], -1e30, tl.float32)
        total = tl.zeros([16], tl.float32)
        sums = tl.zeros([16, D], tl.float32)
        for start in range(0, length, BLOCK):
            j = start + tl.arange(0, BLOCK)
            k = tl.load(keys + base + j[None, :] * D + d[:, None], mask=j[None, :] < length, other=0.0)
            scores = tl.dot(queries, k) * scale
            scores = tl.where(j[None, :] < length, scores, -1e30)
            higher = tl.maximum(best, tl.max(scores, 1))
            likely = tl.exp(scores - higher[:, None])
            fade = tl.exp(best - higher)
            total = total * fade + tl.sum(likely, 1)
            v = tl.load(values + base + j[:, None] * D + d[None, :], mask=j[:, None] < length, other=0.0)
            sums = sums * fade[:, None] + tl.dot(likely.to(v.dtype), v)
            best = higher
        tl.store(out + rows, sums / total[:, None], mask=g[:, None] < G)

    @triton.jit
    def _loss_rows(logits, columns, probs, weights, losses, V, K: tl.constexpr, BLOCK: tl.constexpr):
        """The cross entropy of a row; its logits become their gradients, times the row's weight."""
        row = tl.program_id(0)
        j = tl.arange(0, BLOCK)
        at = logits + row.to(tl.int64) * V
        x = tl.load(at + j, mask=j < V, other=-1e30).to(tl.float32)
        weight = tl.load(weights + row)
        k = tl.arange(0, K)
        column = tl.load(columns + row * K + k).to(tl.int64)
        p = tl.load(probs + row * K + k).to(tl.float32)
        chosen = tl.load(at + column).to(tl.float32)
        best = tl.max(x, 0)
        e = tl.exp(x - best)
        total = tl.sum(e, 0)
        tl.store(losses + row, best + tl.log(total) - tl.sum(chosen * p, 0))
        tl.debug_barrier()
        tl.store(at + j, e / total * weight, mask=j < V)
        tl.debug_barrier()
        tl.store(at + column, (tl.exp(chosen - best) / total - p) * weight)


def loss_rows(logits, columns, probs, weights):
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
    chosen, scale = x.gather(1, index), torch.logsumexp(x, -1)
    gradient = torch.exp(x - scale[:, None]).scatter_add(1, index, -probs.float()) * weights[:, None]
    logits.copy_(gradient)
    return scale - (chosen * probs.float()).sum(-1)


# ----------------------------------------------------------------------------------------------------------- target


class Target:
    """The model, read from its quantised file: calls over whole sequences, and one token a slot."""

    def __init__(self, config, weights, dtype):
        self.config, self.dtype = config, dtype
        self.heads, self.kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
        self.width, self.size = config["hidden_size"], self.heads and config["hidden_size"] // self.heads
        count = config["num_hidden_layers"]
        self.read_layers = tuple(sorted({count // 4, count // 2, count - count // 4}))
        self.epsilon = config["rms_norm_eps"]
        take = lambda name: weights[name].to(DEVICE, dtype)  # noqa: E731
        self.embeddings, self.norm = take("model.embed_tokens.weight"), take("model.norm.weight")
        self.layers = []
        for index in range(count):
            at = f"model.layers.{index}."
            join = lambda *names: torch.cat([take(f"{at}{name}.weight") for name in names])  # noqa: B023, E731
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
    def read(cls, folder, dtype):
        """Read an MLX folder, 4 and 8 bits a weight: `scale * q + bias` in groups, in half precision as MLX does."""
        from safetensors.torch import load_file

        config, stored = json.loads((folder / "config.json").read_text()), load_file(folder / "model.safetensors")
        weights = {}
        for name, tensor in stored.items():
            if name.endswith((".scales", ".biases")):
                continue
            base = name.removesuffix(".weight")
            if f"{base}.scales" in stored:
                settings = config["quantization"].get(base) or config["quantization"]
                bits, group = settings["bits"], settings["group_size"]
                packed = tensor.to(DEVICE).to(torch.int64)
                shifts = torch.arange(0, 32, bits, device=DEVICE)
                values = ((packed[..., None] >> shifts) & (2**bits - 1)).flatten(1).half().unflatten(1, (-1, group))
                scales, biases = (stored[f"{base}.{part}"].to(DEVICE) for part in ("scales", "biases"))
                weights[name] = (values * scales[..., None] + biases[..., None]).flatten(1)
            else:
                weights[name] = tensor
        return cls(config, weights, dtype)

    @classmethod
    def random(cls, dtype, **changes):
        """Return a target of random weights, in the default model's shape unless changed."""
        config = {
            "hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": 30, "num_attention_heads": 9,
            "num_key_value_heads": 3, "rms_norm_eps": 1e-5, "rope_theta": 100000.0, "max_position_embeddings": 8192,
            "vocab_size": 49152,
        } | changes  # fmt: skip
        width, inner, size = config["hidden_size"], config["intermediate_size"], config["vocab_size"]
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

    def _norm(self, x, weight):
        return F.rms_norm(x, (self.width,), weight, self.epsilon)

    def _turn(self, x, cosines, sines):
        a, b = x.float().chunk(2, -1)
        return torch.cat([a * cosines - b * sines, b * cosines + a * sines], -1).to(x.dtype)

    def _mlp(self, x, layer):
        gate, up = F.linear(self._norm(x, layer["second"]), layer["up"]).chunk(2, -1)
        return x + F.linear(F.silu(gate) * up, layer["down"])

    def call(self, ids, keep=None):
        """Return (batch, tokens, states) the hidden states a head reads, the trunk's first.

        Args:
            ids: (batch, tokens), padded on the right.
            keep: Called with each layer's number, keys and values; then nothing is returned.
        """
        count = ids.shape[1]
        x = F.embedding(ids, self.embeddings)
        cosines, sines, reads = self.cosines[:count], self.sines[:count], []
        sizes = [self.heads * self.size, self.kv_heads * self.size, self.kv_heads * self.size]
        for number, layer in enumerate(self.layers):
            parts = F.linear(self._norm(x, layer["first"]), layer["qkv"]).split(sizes, -1)
            q, k, v = (part.unflatten(-1, (-1, self.size)).transpose(1, 2) for part in parts)
            q, k = self._turn(q, cosines, sines), self._turn(k, cosines, sines)
            if keep is not None:
                keep(number, k, v)
                if number == len(self.layers) - 1:
                    return None
            shared = self.heads // self.kv_heads
            k, v = k.repeat_interleave(shared, 1), v.repeat_interleave(shared, 1)
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + F.linear(mixed.transpose(1, 2).flatten(2), layer["o"])
            x = self._mlp(x, layer)
            if number in self.read_layers:
                reads.append(F.rms_norm(x.float(), (self.width,), None, 1e-6).to(x.dtype))
        return torch.cat([self._norm(x, self.norm), *reads], -1)


class Slots:
    """Sequences that are decoded side by side, each at its own position; one call a token, recorded as a CUDA graph.

    Attributes:
        tokens: (slots, length) int32: the sequences.
        positions: (slots,) int32: index of each slot's last token, which the next call reads.
        limits: (slots,) int32: a sequence ends at this many tokens.
        warmth: (slots,) float32: temperatures.
        active: (slots,) bool.
    """

    def __init__(self, target, count, length, ends):
        self.target, self.count, self.length = target, count, length
        shape = (len(target.layers), count, target.kv_heads, length, target.size)
        self.keys, self.values = (torch.zeros(shape, dtype=target.dtype, device=DEVICE) for _ in range(2))
        blank = lambda dtype, *more: torch.zeros((count, *more), dtype=dtype, device=DEVICE)  # noqa: E731
        self.tokens, self.positions, self.limits = blank(torch.int32, length), blank(torch.int32), blank(torch.int32)
        self.warmth, self.active = blank(torch.float32), blank(torch.bool)
        self.ends = torch.tensor(sorted(ends), dtype=torch.int32, device=DEVICE)
        self.rows = torch.arange(count, device=DEVICE)
        self.graph = None

    def _attend(self, number, qkv):
        target = self.target
        keys, values = self.keys[number], self.values[number]
        if USE_TRITON:
            q = torch.empty((self.count, target.heads, target.size), dtype=qkv.dtype, device=DEVICE)
            out = torch.empty_like(q)
            strides = keys.stride(0), keys.stride(1)
            shared = target.heads // target.kv_heads
            _rope_store[(self.count, target.heads + 2 * target.kv_heads)](
                qkv, q, keys, values, self.positions, target.cosines, target.sines, *strides,
                target.heads, target.kv_heads, target.size, num_warps=1,
            )  # fmt: skip
            _decode_attention[(self.count, target.kv_heads)](
                q, keys, values, self.lengths, out, *strides, target.size**-0.5,
                target.heads, shared, target.size, 64, num_warps=4,
            )  # fmt: skip
            return out.flatten(1)
        heads = qkv.unflatten(-1, (-1, target.size))
        q, k, v = heads.split([target.heads, target.kv_heads, target.kv_heads], 1)
        where = self.positions.long()
        cosines, sines = target.cosines[where][:, None], target.sines[where][:, None]
        keys[self.rows, :, where] = target._turn(k, cosines, sines)
        values[self.rows, :, where] = v
        q = target._turn(q, cosines, sines).unflatten(1, (target.kv_heads, -1))
        scores = torch.einsum("skgd,skld->skgl", q.float(), keys.float()) * target.size**-0.5
        unseen = torch.arange(self.length, device=DEVICE) >= self.lengths[:, None]
        likely = scores.masked_fill(unseen[:, None, None], -math.inf).softmax(-1)
        return torch.einsum("skgl,skld->skgd", likely, values.float()).to(qkv.dtype).flatten(1)

    def _logits(self):
        target = self.target
        self.lengths = torch.where(self.active, self.positions + 1, 1).to(torch.int32)
        last = self.tokens.gather(1, self.positions.long()[:, None])[:, 0]
        x = F.embedding(last, target.embeddings)
        for number, layer in enumerate(target.layers):
            qkv = F.linear(target._norm(x, layer["first"]), layer["qkv"])
            x = x + F.linear(self._attend(number, qkv), layer["o"])
            x = target._mlp(x, layer)
        return F.linear(target._norm(x, target.norm), target.embeddings)

    def _step(self):
        best, ids = self._logits().topk(min(TOP_K, self.target.embeddings.shape[0]), -1)
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

    def _stop_loops(self):
        """End slots whose last 48 tokens repeat with a period of at most 48."""
        back = self.positions.long()[:, None] + torch.arange(-95, 1, device=DEVICE)
        window = self.tokens.gather(1, back.clamp(min=0)).masked_fill(back < 0, -1)
        shifted = window.unfold(1, 48, 1)[:, :48]  # Shifts by 48, 47, ..., 1.
        self.active.logical_and_(~(shifted == window[:, None, 48:]).all(-1).any(-1))

    def record(self):
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

    def run(self, steps):
        for _ in range(steps):
            self.graph.replay() if self.graph is not None else self._step()
        self._stop_loops()

    def fill(self, slots, prompts, limits, warmth, call_tokens):
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

            def keep(number, k, v, rows=rows, width=width):
                self.keys[number][rows, :, : width - 1] = k
                self.values[number][rows, :, : width - 1] = v

            self.tokens[rows, :width] = ids
            self.target.call(ids[:, :-1], keep)
        rows = torch.tensor(slots, device=DEVICE)
        numbers = lambda values, dtype: torch.tensor(values, dtype=dtype, device=DEVICE)  # noqa: E731
        self.positions[rows] = numbers([len(prompt) - 1 for prompt in prompts], torch.int32)
        self.limits[rows] = numbers(limits, torch.int32)
        self.warmth[rows] = numbers(warmth, torch.float32)
        self.active[rows] = True


# ---------------------------------------------------------------------------------------------------------- answers


class Template:
    """The chat template's token ids; see `data_maker.Template`."""

    def __init__(self, tokenizer):
        encode = lambda text: tokenizer.encode(text, add_special_tokens=False).ids  # noqa: E731
        system = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
        self.before = encode(f"<|im_start|>system\n{system}<|im_end|>\n<|im_start|>user\n")
        self.after = encode("<|im_end|>\n<|im_start|>assistant\n")
        self.again = encode("\n<|im_start|>user\n")
        self.ends = {0, 2}


def loop_end(answer):
    """Return how many tokens of an answer stay: it ends where `LOOP_LENGTH` runs of `LOOP_RUN` tokens were seen."""
    runs = max(len(answer) - LOOP_RUN + 1, 0)
    if runs - len(set(zip(*(answer[first:] for first in range(LOOP_RUN)), strict=False))) < LOOP_LENGTH:
        return len(answer)
    seen, repeats = set(), 0
    for end in range(LOOP_RUN, len(answer) + 1):
        run = tuple(answer[end - LOOP_RUN : end])
        repeats = repeats + 1 if run in seen else 0
        seen.add(run)
        if repeats >= LOOP_LENGTH:
            return end
    return len(answer)


class Conversations:
    """Makes conversations from prompts: questions that the target finishes, answers, and some second turns."""

    def __init__(self, options, template, prompts):
        self.options, self.template = options, template
        self.draw = random.Random(options.seed)
        self.next = deque()
        self.sources = {held: iter(rows) for held, rows in prompts.items()}
        self.asked = set()
        self.made = []
        self.tokens = 0
        self.kinds, self.dropped = Counter(), Counter()

    def job(self):
        """Return the next (tokens, limit, temperature, what) to decode; None when the prompts are used up."""
        while True:
            if self.next:
                return self.next.popleft()
            for held in (True, False):
                if row := next(self.sources[held], None):
                    break
            else:
                return None
            ids, more, kind = row
            room = self.options.length - self.options.answer - len(self.template.before) - len(self.template.after) - 1
            start = [*self.template.before, *ids[: max(room - more, 1)]]
            if more:
                warmth = 1.0 if kind == "magpie" else 0.8
                return start, len(start) + more, warmth, ("question", held, kind, len(start), 0)
            self.ask(start, held, kind, 0)

    def ask(self, question, held, kind, turn):
        """Queue the answer to a complete question."""
        warm = not held and self.draw.random() < 0.5
        key = hash(tuple(question))
        if not warm and key in self.asked:
            if held:
                return
            warm = True
        self.asked.add(key)
        start = [*question, *self.template.after]
        if len(start) + self.options.answer > self.options.length:
            self.dropped["too long"] += 1
            return
        what = ("answer", held, kind, len(start), turn)
        self.next.append((start, len(start) + self.options.answer, 0.7 if warm else 0.0, what))

    def take(self, row, warmth, what):
        """Take a finished sequence: the tokens of its slot."""
        phase, held, kind, start, turn = what
        ended = row[-1] in self.template.ends
        if phase == "question":
            question = row[:-1] if ended else row
            written = len(question) - start
            if (
                (kind == "magpie" and (not ended or written < 4))
                or written < 1
                or self.template.after[0] in row[start:-1]
            ):
                self.dropped[kind] += 1
                return
            self.ask(question, held, kind, turn)
            return
        stays = loop_end(row[start:])
        row = row[: start + stays]
        if stays < 2:
            self.dropped["short"] += 1
            return
        self.made.append((np.array(row, np.uint16), start, held, warmth))
        self.tokens += stays
        self.kinds[kind] += 1
        if ended and not held and turn < 2 and self.draw.random() < 0.25:
            begin = [*row, *self.template.again]
            if len(begin) + 60 + self.options.answer + 8 < self.options.length:
                self.next.append((begin, len(begin) + 60, 1.0, ("question", held, "next turn", len(begin), turn + 1)))


@torch.no_grad()
def make_answers(options, target, template, prompts):
    path = options.work / "answers.npz"
    if path.exists():
        with np.load(path) as stored:
            return [stored[name] for name in ("tokens", "facts")]
    began = shown = time.monotonic()
    maker = Conversations(options, template, prompts)
    slots = Slots(target, options.slots, options.length, template.ends)
    slots.record()
    running, free, pending, steps = {}, list(range(options.slots)), [], 0
    spent = Counter()
    while time.monotonic() - began < options.answer_seconds and maker.tokens < options.tokens:
        mark = time.monotonic()
        jobs = []
        while len(jobs) < len(free) and (job := maker.job()) is not None:
            jobs.append(job)
        if jobs:
            used, free = free[: len(jobs)], free[len(jobs) :]
            rows, limits, warmth, what = zip(*jobs, strict=True)
            slots.fill(used, rows, limits, warmth, options.call_tokens)
            for slot, heat, facts in zip(used, warmth, what, strict=True):
                running[slot] = heat, facts
        elif not running and not pending:
            break
        spent["fill"] += time.monotonic() - mark
        mark = time.monotonic()
        slots.run(options.stride)
        steps += options.stride
        for row, warmth, what in pending:  # While the GPU works.
            maker.take(row, warmth, what)
        spent["host"] += time.monotonic() - mark
        mark = time.monotonic()
        active, positions = slots.active.cpu().numpy(), slots.positions.cpu().numpy()
        spent["step"] += time.monotonic() - mark
        done = [slot for slot in running if not active[slot]]
        rows = slots.tokens[torch.tensor(done, dtype=torch.int64, device=DEVICE)].cpu().numpy()
        pending = [
            (row[: positions[slot] + 1].tolist(), *running.pop(slot)) for slot, row in zip(done, rows, strict=True)
        ]
        free += done
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            rate = maker.tokens / (shown - began)
            note(
                f"answers {len(maker.made):,}, {maker.tokens:,} tokens, {rate:,.0f} a second, {steps} steps",
                dict(spent),
            )
    note(f"answers {len(maker.made):,}, {maker.tokens:,} tokens, {steps} steps in {time.monotonic() - began:.1f} s")
    note("kinds", maker.kinds.most_common(40), "dropped", maker.dropped.most_common(10), "seconds", dict(spent))
    tokens = np.concatenate([row for row, *_ in maker.made])
    facts = np.array([[len(row), start, held, round(100 * heat)] for row, start, held, heat in maker.made], np.int32)
    np.savez(path, tokens=tokens, facts=facts)
    return tokens, facts


# ----------------------------------------------------------------------------------------------------------- states


class Data:
    """All answers end to end, N tokens, with hidden states and teacher, on the device.

    Attributes:
        tokens: (N,) int32.
        left: (N,) int32: how many tokens of the same answer follow.
        group: (N,) int8: 0 to train on, 1 held out here, 2 held out of the shipped answers.
        greedy: (N,) bool.
        states: (N, inputs) int8: standardised hidden states from which each token was chosen.
        columns, probs: (N, 16): the teacher's top-k.
        mean, scale: (inputs,) float32 of the hidden states.
    """

    @torch.no_grad()
    def __init__(self, options, target, tokens, facts):
        rows = []
        ends = np.cumsum(facts[:, 0])
        for end, (length, start, held, heat) in zip(ends, facts.tolist(), strict=True):
            rows.append((tokens[end - length : end], start, int(held), heat == 0))
        for row, start, number, heat in read_shipped()[: options.shipped]:
            held = 2 if number % HELD_OUT_EVERY == HELD_OUT_EVERY - 1 else 0
            rows.append((row, start, held, heat == 0))
        rows.sort(key=lambda row: len(row[0]))
        lengths = np.array([len(row) - start for row, start, *_ in rows])
        starts = np.concatenate([[0], np.cumsum(lengths)])
        to = lambda array: torch.from_numpy(array).to(DEVICE)  # noqa: E731
        self.tokens = to(np.concatenate([row[start:].astype(np.int32) for row, start, *_ in rows]))
        self.left = to((np.repeat(starts[1:], lengths) - 1 - np.arange(starts[-1])).astype(np.int32))
        self.group = to(np.repeat(np.array([row[2] for row in rows], np.int8), lengths))
        self.greedy = to(np.repeat(np.array([row[3] for row in rows]), lengths))
        size = target.embeddings.shape[0]
        learnt = self.tokens[self.group == 0].long()
        counts = torch.bincount(learnt, minlength=size)
        best = counts.argsort(descending=True, stable=True)[: options.vocabulary]
        self.counts, self.vocabulary = counts, best[counts[best] > 0].sort().values
        self.cover = float(counts[self.vocabulary].sum() / counts.sum())
        self.rows = target.embeddings[self.vocabulary]
        count, width = int(starts[-1]), target.width * (1 + len(target.read_layers))
        note(
            f"{len(rows):,} conversations, {count:,} answer tokens, {len(learnt):,} learnt, {self.cover:.1%} draftable"
        )
        self.states = torch.empty((count, width), dtype=torch.int8, device=DEVICE)
        self.columns = torch.empty((count, TEACHER_TOKENS), dtype=torch.int16, device=DEVICE)
        self.probs = torch.empty((count, TEACHER_TOKENS), dtype=torch.float16, device=DEVICE)
        calls, first = [], 0
        for index in range(1, len(rows) + 1):
            if index == len(rows) or (index + 1 - first) * len(rows[index][0]) > options.call_tokens:
                calls.append((first, index))
                first = index
        self.mean = self.scale = None
        some = [self._read(target, rows, *calls[index]) for index in np.linspace(0, len(calls) - 1, 24).astype(int)]
        sample = torch.cat([part[torch.randperm(len(part), device=DEVICE)[:20_000]] for part in some]).double()
        self.mean, self.scale = sample.mean(0), sample.std(0, correction=0)
        self.scale = self.scale.clamp(min=1e-3 * float(self.scale.max())).float()
        self.mean = self.mean.float()
        del some, sample
        shown = time.monotonic()
        for index, (begin, stop) in enumerate(calls):
            hidden = self._read(target, rows, begin, stop)
            here = slice(int(starts[begin]), int(starts[stop]))
            whitened = (hidden.float() - self.mean) / self.scale
            self.states[here] = (whitened * STATE_STEP).round_().clamp_(-127, 127).to(torch.int8)
            logits = hidden[:, : target.width] @ self.rows.T
            best, columns = logits.topk(min(TEACHER_TOKENS, len(self.vocabulary)), -1)
            self.columns[here], self.probs[here] = columns.to(torch.int16), best.float().softmax(-1).half()
            if time.monotonic() - shown > 10:
                shown = time.monotonic()
                note(f"states: call {index} of {len(calls)}, {here.stop:,} tokens")
        sync()
        column_of = torch.full((size,), -1, dtype=torch.int32, device=DEVICE)
        column_of[self.vocabulary] = torch.arange(len(self.vocabulary), dtype=torch.int32, device=DEVICE)
        self.column_of = column_of
        self.draftable = column_of[self.tokens.long()] >= 0
        self._whiten(target)

    @staticmethod
    def _read(target, rows, begin, stop):
        """Return (answer tokens, inputs): the states from which the answers of some conversations were chosen."""
        width = len(rows[stop - 1][0])
        ids = np.zeros((stop - begin, width), np.int32)
        for index in range(begin, stop):
            ids[index - begin, : len(rows[index][0])] = rows[index][0]
        hidden = target.call(torch.from_numpy(ids).to(DEVICE)).flatten(0, 1)
        parts = [
            np.arange(start - 1, len(row) - 1) + index * width
            for index, (row, start, *_) in enumerate(rows[begin:stop])
        ]
        return hidden[torch.from_numpy(np.concatenate(parts)).to(DEVICE)]

    def _whiten(self, target):
        """Standardise embeddings by how often each is read; scale output rows to a unit second moment."""
        table = target.embeddings.double()
        shares = self.counts.double() / self.counts.sum()
        mean = (table * shares[:, None]).sum(0)
        scale = ((table - mean) ** 2 * shares[:, None]).sum(0).sqrt()
        scale = scale.clamp(min=1e-3 * float(scale.max()))
        self.token_mean, self.token_scale = mean.float(), scale.float()
        self.table = ((table - mean) / scale).float()
        rows = self.rows.double()
        values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
        values = values.clamp(min=1e-6 * float(values.max()))
        self.preconditioner = (vectors / values.sqrt()) @ vectors.T
        self.output_rows = (rows @ self.preconditioner).float()

    def hidden(self, roots):
        return self.states[roots].float() / STATE_STEP

    def path(self, roots):
        """Return (n, STEPS): the roots and the tokens after them."""
        ahead = roots[:, None] + torch.arange(STEPS, device=DEVICE)
        return self.tokens[ahead.clamp(max=len(self.tokens) - 1)].long()

    def goals(self, roots):
        """Return columns, probabilities and (n, STEPS) weights of the steps after some roots; see `Objective.goals`."""
        steps = torch.arange(1, STEPS + 1, device=DEVICE)
        ahead = (roots[:, None] + steps).clamp(max=len(self.tokens) - 1)
        inside = steps <= self.left[roots][:, None]
        reached = (inside & self.draftable[ahead]).to(torch.int32).cumprod(1)
        return self.columns[ahead], self.probs[ahead], reached.float()


# ------------------------------------------------------------------------------------------------------------ heads


class Head(torch.nn.Module):
    """The network of `recurrent_head.RecurrentHead`, on whitened inputs, with its own draft vocabulary."""

    def __init__(self, width, inputs, state, inner, blocks, vocabulary, rows):
        super().__init__()
        linear = torch.nn.Linear
        self.from_token, self.recurrence = linear(width, state), linear(state, state, bias=False)
        self.from_hidden, self.from_state = linear(inputs, inner), linear(state, inner, bias=False)
        self.blocks = torch.nn.ModuleList(linear(inner, inner) for _ in range(blocks))
        self.output = linear(inner, width)
        self.output.weight.data.mul_(0.1)
        self.vocabulary, self.rows, self.state_size, self.inner = vocabulary, rows, state, inner
        self.half_rows = rows.half()
        self.dropout = 0.0

    def _drop(self, x):
        return F.dropout(x, self.dropout) if self.training and self.dropout else x

    def context(self, hidden):
        return self.from_hidden(self._drop(hidden))

    def advance(self, state, embedded):
        return F.silu(self.from_token(self._drop(embedded)) + self.recurrence(state))

    def features(self, context, state):
        x = F.silu(context + self.from_state(self._drop(state)))
        for block in self.blocks:
            x = x + F.silu(block(self._drop(x)))
        return self.output(self._drop(x))

    def unroll(self, hidden, embedded):
        """Return (n, STEPS, width): features along the given tokens."""
        read, state, states = self.from_token(self._drop(embedded)), None, []
        for step in range(embedded.shape[1]):
            state = F.silu(read[:, step] + self.recurrence(state)) if step else F.silu(read[:, step])
            states.append(state)
        return self.features(self.context(hidden)[:, None], torch.stack(states, 1))

    def logits(self, features):
        return features.half() @ self.half_rows.T if CUDA else features @ self.rows.T


class Distillation(torch.autograd.Function):
    """The weighted mean cross entropy of features against the teacher; logits are never stored twice."""

    @staticmethod
    def forward(context, features, head, columns, probs, weights):
        logits = head.logits(features)
        losses = loss_rows(logits, columns, probs, weights * GRADIENT_SCALE)
        total = weights.sum().clamp(min=1)
        context.gradient = (logits @ (head.half_rows if CUDA else head.rows)).float() / (total * GRADIENT_SCALE)
        return (losses * weights).sum() / total

    @staticmethod
    def backward(context, upstream):
        return context.gradient * upstream, None, None, None, None


def fresh_head(data, state, inner, blocks, seed):
    torch.manual_seed(seed)
    width = data.output_rows.shape[1]
    head = Head(width, data.states.shape[1], state, inner, blocks, data.vocabulary, data.output_rows)
    return head.to(DEVICE)


def _rewrite(weights, shifts, output):
    """Shift and scale a head's inputs and turn its output; see `recurrent_objective._rewritten`."""
    made = {name: tensor.double() for name, tensor in weights.items()}
    for name, (shift, factor) in shifts.items():
        read = made[f"{name}.weight"]
        made[f"{name}.bias"] = made[f"{name}.bias"] + read @ shift.double()
        made[f"{name}.weight"] = read * factor.double()
    for name in ("output.weight", "output.bias"):
        made[name] = output @ made[name]
    return made


def read_head(folder, data, target):
    """Return a stored drafter as a head on whitened inputs, with its own vocabulary."""
    from safetensors.torch import load_file

    facts = json.loads((folder / "config.json").read_text())["architecture"]
    stored = {name: tensor.to(DEVICE) for name, tensor in load_file(folder / "model.safetensors").items()}
    vocabulary = stored.pop("draft_vocabulary").long()
    shifts = {"from_hidden": (data.mean, data.scale), "from_token": (data.token_mean, data.token_scale)}
    weights = _rewrite(stored, shifts, torch.linalg.inv(data.preconditioner))
    rows = (target.embeddings[vocabulary].double() @ data.preconditioner).float()
    sizes = facts["state_size"], facts["exit_size"], facts["blocks"]
    head = Head(rows.shape[1], data.states.shape[1], *sizes, vocabulary, rows).to(DEVICE)
    head.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    return head


def write_head(head, data, path, binding):
    """Write a drafter's files, `path`.safetensors and `path`.json, as rdchat reads them."""
    from safetensors.torch import save_file

    shifts = {
        "from_hidden": (-data.mean / data.scale, 1 / data.scale),
        "from_token": (-data.token_mean / data.token_scale, 1 / data.token_scale),
    }
    folded = _rewrite(
        {name: tensor.detach() for name, tensor in head.state_dict().items()}, shifts, data.preconditioner
    )
    tensors = {name: tensor.half().contiguous().cpu() for name, tensor in folded.items()}
    tensors["draft_vocabulary"] = head.vocabulary.to(torch.int32).cpu()
    save_file(tensors, f"{path}.safetensors", {"format": "mlx"})
    architecture = {
        "hidden_size": head.rows.shape[1], "draft_vocabulary_size": len(head.vocabulary), "exit_size": head.inner,
        "state_size": head.state_size, "cell": "rnn", "blocks": len(head.blocks),
        "target_layers": list(binding["layers"]), "project_input": True, "activate_input": True,
        "output": "tied", "inverse_temperature": 1.2,
    }  # fmt: skip
    facts = {"format": 1, "target": binding["target"], "architecture": architecture}
    Path(f"{path}.json").write_text(json.dumps(facts, indent=2))


# ------------------------------------------------------------------------------------------------------- evaluation


@torch.no_grad()
def greedy_lengths(head, data, roots, rows=8192):
    """Return (n,) how many tokens of a draft with one beam are accepted after each root."""
    head.eval()
    column_of = torch.full((len(data.table),), -1, dtype=torch.int32, device=DEVICE)
    column_of[head.vocabulary] = torch.arange(len(head.vocabulary), dtype=torch.int32, device=DEVICE)
    lengths = []
    for part in roots.split(rows):
        features = head.unroll(data.hidden(part), data.table[data.path(part)])
        steps = torch.arange(1, STEPS + 1, device=DEVICE)
        after = data.tokens[(part[:, None] + steps).clamp(max=len(data.tokens) - 1)].long()
        goals = torch.where(steps <= data.left[part][:, None], column_of[after], -1)
        guesses = torch.stack([head.logits(features[:, step]).argmax(-1) for step in range(STEPS)], 1)
        lengths.append((guesses == goals).to(torch.int32).cumprod(1).sum(1))
    head.train()
    return torch.cat(lengths).to(torch.int32)


@torch.no_grad()
def beam_lengths(head, data, roots, width=4, rows=1024):
    """Return (n,) how many tokens of a draft with several beams are accepted after each root."""
    head.eval()
    column_of = torch.full((len(data.table),), -1, dtype=torch.int32, device=DEVICE)
    column_of[head.vocabulary] = torch.arange(len(head.vocabulary), dtype=torch.int32, device=DEVICE)
    size, lengths = len(head.vocabulary), []
    for part in roots.split(rows):
        context = head.context(data.hidden(part))[:, None]
        state = F.silu(head.from_token(data.table[data.tokens[part].long()]))[:, None]
        sums = torch.zeros((len(part), 1), device=DEVICE)
        on = torch.ones((len(part), 1), dtype=torch.bool, device=DEVICE)
        alive, length = torch.ones(len(part), dtype=torch.bool, device=DEVICE), torch.zeros(len(part), device=DEVICE)
        for step in range(STEPS):
            logits = head.logits(head.features(context, state)).float()
            best = (logits.log_softmax(-1) + sums[..., None]).flatten(1).topk(width, -1)
            parents, tokens, sums = best.indices // size, best.indices % size, best.values
            after = data.tokens[(part + step + 1).clamp(max=len(data.tokens) - 1)].long()
            goal = torch.where(data.left[part] > step, column_of[after], -1)
            on = on.gather(1, parents) & (tokens == goal[:, None])
            alive = alive & on.any(1)
            length += alive
            if step < STEPS - 1:
                chosen = state.gather(1, parents[..., None].expand(-1, -1, state.shape[-1]))
                state = head.advance(chosen, data.table[head.vocabulary[tokens]])
        lengths.append(length.to(torch.int32))
    head.train()
    return torch.cat(lengths)


def walk(data, roots, lengths):
    """Return the roots that a reply's rounds begin at, given the accepted tokens after each root of whole answers."""
    accepted = torch.zeros(len(data.tokens), dtype=torch.int64, device=DEVICE)
    accepted[roots] = lengths.long()
    first = torch.ones(len(roots), dtype=torch.bool, device=DEVICE)
    first[1:] = (roots[1:] != roots[:-1] + 1) | (data.left[roots[1:]] > data.left[roots[:-1]])
    at, seen = roots[first], []
    last = at + data.left[at]
    while len(at):
        seen.append(at)
        after = at + accepted[at] + 1
        on = after < last
        at, last = after[on], last[on]
    seen = torch.cat(seen)
    return seen, accepted[seen]


def evaluate(head, data, groups=(1, 2), beams=True, limit=120_000):
    facts = {}
    for group in groups:
        roots = torch.nonzero((data.group == group) & data.greedy & (data.left > 0))[:, 0]
        if len(roots) > limit:  # Whole answers, of all lengths.
            begin = torch.cumsum(torch.cat([roots.new_ones(1), (roots[1:] != roots[:-1] + 1).long()]), 0)
            roots = roots[begin % (len(roots) // limit + 1) == 0]
        if not len(roots):
            continue
        lengths = greedy_lengths(head, data, roots)
        _, accepted = walk(data, roots, lengths)
        named = {
            "W1": 1 + float(accepted.float().mean()),
            "first": float((lengths > 0).float().mean()),
            "n": len(roots),
        }
        if beams:
            _, accepted = walk(data, roots, beam_lengths(head, data, roots))
            named["W4"] = 1 + float(accepted.float().mean())
        facts[group] = {name: round(value, 4) for name, value in named.items()}
    return facts


# ---------------------------------------------------------------------------------------------------------- training


def train(head, data, *, seconds, rate, batch, dropout, seed, name, warm_up=200, rounds=False, steps=None):
    """Train a head for some seconds (or steps): AdamW, a linear warm-up, then a cosine to 0.

    With `rounds` the head trains on the roots of its own rounds, and on the steps up to the first rejected one
    (Draft-OPD, arXiv 2605.29343); it drafts again at every quarter. Drafting counts.
    """
    head.train()
    head.dropout = dropout
    matrices = [weights for weights in head.parameters() if weights.ndim > 1]
    vectors = [weights for weights in head.parameters() if weights.ndim == 1]
    optimizer = torch.optim.AdamW(
        [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}], lr=rate, fused=CUDA
    )
    all_roots = torch.nonzero((data.group == 0) & (data.left > 0))[:, 0]
    draw = torch.Generator(DEVICE).manual_seed(seed)
    decay = STEP_DECAY ** torch.arange(STEPS, device=DEVICE)
    began = shown = looked = time.monotonic()
    step, total, losses, drafted, passes = 0, 0, [], -1, 0.0
    roots = order = None
    position = 0
    while True:
        share = (time.monotonic() - began) / seconds if steps is None else step / steps
        if share >= 1:
            break
        if rounds and int(4 * share) > drafted:
            drafted = int(4 * share)
            lengths = torch.cat([greedy_lengths(head, data, part) for part in all_roots.split(2_000_000)])
            roots, accepted = walk(data, all_roots, lengths)
            note(f"{name}: {len(roots):,} rounds, {1 + float(accepted.float().mean()):.4f} tokens a round")
            order = None
        elif roots is None:
            roots = all_roots
        if order is None or position + batch > len(order):
            order, position = torch.randperm(len(roots), device=DEVICE, generator=draw), 0
        chosen = order[position : position + batch]
        position += batch
        some = roots[chosen]
        features = head.unroll(data.hidden(some), data.table[data.path(some)])
        columns, probs, weights = data.goals(some)
        if rounds:
            weights = weights * (torch.arange(STEPS, device=DEVICE) <= accepted[chosen][:, None])
        else:
            weights = weights * decay
        flat = (part.flatten(0, 1) for part in (features, columns, probs))
        features, columns, probs = flat
        loss = Distillation.apply(features, head, columns.contiguous(), probs.contiguous(), weights.flatten())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / warm_up, 1) * 0.5 * (1 + math.cos(math.pi * min(share, 1)))
        optimizer.step()
        step, total = step + 1, total + len(some)
        losses.append(loss.detach())
        if step % 10 == 0:
            sync()
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            passes = total / len(all_roots)
            mean = float(torch.stack(losses).mean())
            losses = []
            note(f"{name}: step {step}, share {share:.2f}, {passes:.2f} passes, loss {mean:.4f}")
            if not math.isfinite(mean):
                raise SystemExit("the loss is not finite")
            if time.monotonic() - looked > 40:
                looked = time.monotonic()
                note(name, evaluate(head, data, (1,), beams=False, limit=60_000))
    sync()
    note(
        f"{name}: {step} steps, {total:,} roots, {total / len(all_roots):.2f} passes, {time.monotonic() - began:.1f} s"
    )
    return {"steps": step, "roots": total, "passes": round(total / len(all_roots), 3)}


def train_heads(options, target, tokens, facts):
    data = Data(options, target, tokens, facts)
    note("states read;", f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most" if CUDA else "")
    shipped = ROOT / "assets/drafters/smollm2-135m-instruct"
    results = {"answers": len(facts), "answer tokens": len(data.tokens), "coverage": data.cover}
    binding = {"target": json.loads((shipped / "config.json").read_text())["target"], "layers": target.read_layers}

    def keep(name, head, more):
        results[name] = more | {str(group): row for group, row in evaluate(head, data).items()}
        note(name, results[name])
        if head is not None and name != "shipped":
            write_head(head, data, options.out / name, binding)
        (options.out / "results.json").write_text(json.dumps(results, indent=1))

    if not options.tiny:
        keep("shipped", read_head(shipped, data, target), {})
    best = None
    for arm in options.arm:
        name, *numbers = arm.split(":")
        state, inner, blocks, seconds, rate, dropout = (float(number) for number in numbers)
        seconds = min(seconds, options.until - (time.monotonic() - BEGAN) - options.spare)
        if seconds < 5 and not options.tiny:
            note(name, "left out: no time")
            continue
        if options.start is None:
            head = fresh_head(data, int(state), int(inner), int(blocks), options.seed)
        else:
            head = read_head(options.start, data, target)
        settings = {"rate": rate, "batch": options.batch, "dropout": dropout, "seed": options.seed}
        done = train(head, data, seconds=seconds, name=name, **settings)
        keep(name, head, settings | done | {"seconds": seconds})
        best = best or head
    seconds = min(options.further, (options.until - (time.monotonic() - BEGAN) - options.spare) / 2)
    if best is not None and (seconds >= 8 or options.tiny):
        start = {key: tensor.clone() for key, tensor in best.state_dict().items()}
        for name, rounds in (("further", False), ("rounds", True)):
            best.load_state_dict(start)
            settings = {"rate": options.further_rate, "batch": options.batch, "dropout": 0.0, "seed": options.seed + 1}
            done = train(best, data, seconds=seconds, name=name, rounds=rounds, **settings)
            keep(name, best, settings | done | {"seconds": seconds})
    note("done")
    return data


# ------------------------------------------------------------------------------------------------------------- smoke


def smoke(options):
    """Compare the kernels with plain PyTorch, and time each part in the default model's shape."""
    global USE_TRITON
    kernels = USE_TRITON
    dtype = torch.float16
    target = Target.random(dtype, num_hidden_layers=4)
    slots = Slots(target, 64, 256, {0, 2})
    draw = np.random.default_rng(0)
    prompts = [draw.integers(3, 40_000, draw.integers(2, 150)).tolist() for _ in range(64)]
    slots.fill(list(range(64)), prompts, [250] * 64, [0.0] * 64, 4096)
    with torch.no_grad():
        USE_TRITON = False
        plain = slots._logits().float()
        USE_TRITON = kernels
        quick = slots._logits().float()
        calls = [target.call(torch.tensor([row], device=DEVICE))[0, -1, : target.width] for row in prompts[:8]]
        whole = torch.stack(calls) @ target.embeddings.T
    note("kernels against plain", float((quick - plain).abs().max() / plain.std()))
    note("one call against step by step", float((whole.float() - quick[:8]).abs().max() / plain.std()))
    logits = torch.randn(64, 10_240, device=DEVICE).half() * 5
    columns = torch.stack([torch.randperm(10_240, device=DEVICE)[:16] for _ in range(64)]).to(torch.int16)
    probs, weights = torch.rand(64, 16, device=DEVICE).softmax(-1).half(), torch.rand(64, device=DEVICE)
    first, second = logits.clone(), logits.clone()
    USE_TRITON = False
    a = loss_rows(first, columns, probs, weights)
    USE_TRITON = kernels
    b = loss_rows(second, columns, probs, weights)
    note("loss", float((a - b).abs().max()), "gradient", float((first.float() - second.float()).abs().max()))
    if not CUDA:
        return
    del slots, target
    torch.cuda.empty_cache()
    target = Target.random(dtype)
    slots = Slots(target, options.slots, options.length, {0, 2})
    mark = time.monotonic()
    slots.record()
    note(f"graph recorded in {time.monotonic() - mark:.1f} s, {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")
    for length in (50, 300):
        prompts = [draw.integers(3, 40_000, length).tolist() for _ in range(options.slots)]
        mark = time.monotonic()
        slots.fill(
            list(range(options.slots)),
            prompts,
            [1000] * options.slots,
            [0.0, 0.7] * (options.slots // 2),
            options.call_tokens,
        )
        sync()
        note(f"filled {options.slots} slots with {length} tokens in {time.monotonic() - mark:.3f} s")
        mark = time.monotonic()
        slots.run(32)
        sync()
        note(f"a step takes {(time.monotonic() - mark) / 32 * 1e3:.2f} ms")
    profile(partial(slots.run, 2))
    del slots
    torch.cuda.empty_cache()
    lengths = draw.integers(60, 500, 3000)
    facts = np.stack([lengths, lengths - 50, np.arange(3000) % 20 == 0, np.zeros(3000)], 1).astype(np.int32)
    options.shipped, options.arm, options.until = 500, ["smoke:1024:1024:2:10:1e-3:0.05"], 1e9
    data = train_heads(options, target, draw.integers(3, 12_000, lengths.sum()).astype(np.uint16), facts)
    settings = {"rate": 1e-3, "batch": options.batch, "dropout": 0.05, "seed": 0}
    profile(lambda: train(fresh_head(data, 1024, 1024, 2, 0), data, seconds=1, name="profile", steps=5, **settings))


def profile(action):
    """Print the kernels that take the most time."""
    try:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profiler:
            action()
            sync()
        print(profiler.key_averages().table(sort_by="self_cuda_time_total", row_limit=14, max_name_column_width=50))
    except Exception as error:  # It is not needed for the training.
        note("no profile:", error)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("phases", nargs="+", choices=("prompts", "answers", "heads", "smoke"))
    parser.add_argument("--model", type=Path, help="folder of the target: config.json, model.safetensors")
    parser.add_argument("--tokenizer", type=Path, help="its tokenizer.json, if not in that folder")
    parser.add_argument("--work", type=Path, default=Path("/tmp/drafter"))
    parser.add_argument("--out", type=Path, default=Path("/tmp/drafter/out"))
    parser.add_argument("--seed", type=int, default=48)
    parser.add_argument("--cores", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--prompts", type=int, default=320_000)
    parser.add_argument("--held-out", type=int, default=3000)
    parser.add_argument("--tokens", type=int, default=20_000_000, help="answer tokens to make at most")
    parser.add_argument("--answer-seconds", type=float, default=120)
    parser.add_argument("--answer", type=int, default=288, help="tokens of an answer at most")
    parser.add_argument("--slots", type=int, default=1536)
    parser.add_argument("--length", type=int, default=1408, help="tokens of a conversation at most")
    parser.add_argument("--stride", type=int, default=16, help="calls between two looks at the slots")
    parser.add_argument("--call-tokens", type=int, default=65_536, help="tokens of a call over whole sequences")
    parser.add_argument("--shipped", type=int, default=10**9, help="shipped answers to take along")
    parser.add_argument("--vocabulary", type=int, default=10_240)
    parser.add_argument("--batch", type=int, default=2048)
    parser.add_argument("--arm", action="append", default=[], help="NAME:STATE:INNER:BLOCKS:SECONDS:RATE:DROPOUT")
    parser.add_argument("--start", type=Path, help="drafter's folder that the arms train further, in its own shape")
    parser.add_argument("--further", type=float, default=0, help="seconds of each further training of the first arm")
    parser.add_argument("--further-rate", type=float, default=1e-4)
    parser.add_argument("--until", type=float, default=1e9, help="seconds after the start at which all must be done")
    parser.add_argument("--spare", type=float, default=25, help="of these, seconds to measure and write a head")
    parser.add_argument("--tiny", action="store_true", help="a small random target on the CPU, to try the script")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    options.out.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    torch.manual_seed(options.seed)
    if "smoke" in options.phases:
        smoke(options)
        return
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(options.tokenizer or options.model / "tokenizer.json"))
    template = Template(tokenizer)
    prompts = make_prompts(options, tokenizer)
    if options.phases == ["prompts"]:
        return
    if options.tiny:
        small = {"hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 4, "num_attention_heads": 6}
        target = Target.random(torch.float32, **small)
    else:
        target = Target.read(options.model, torch.float16 if CUDA else torch.float32)
    note("target read")
    tokens, facts = make_answers(options, target, template, prompts)
    if CUDA:
        torch.cuda.empty_cache()
    if "heads" in options.phases:
        train_heads(options, target, tokens, facts)


if __name__ == "__main__":
    main()
