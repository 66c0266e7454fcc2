"""Trains heads, measures and writes them."""

import argparse
import json
import math
import time
from typing import Any

import numpy as np
import torch

from scripts.drafter.common import CUDA, DEVICE, ROOT, STEP_DECAY, STEPS, note, sync
from scripts.drafter.head import Distillation, Head, fresh_head, read_head, read_vocabulary, write_head
from scripts.drafter.rounds import evaluate, greedy_lengths, walk
from scripts.drafter.states import Data
from scripts.drafter.target import Target


def train(
    head: Head,
    data: Data,
    *,
    seconds: float,
    rate: float,
    batch: int,
    dropout: float,
    seed: int,
    name: str,
    warm_up: int = 200,
    rounds: bool = False,
) -> dict[str, Any]:
    """Train a head for some seconds: AdamW, a linear warm-up, then a cosine to 0.

    With `rounds` the head trains on the roots of its own rounds, and on the steps up to the first rejected one
    (Draft-OPD, arXiv 2605.29343); it drafts again at every quarter. Drafting counts.
    """
    head.train()
    head.dropout = dropout
    optimizer = _optimizer(head, rate)
    all_roots = torch.nonzero((data.group == 0) & (data.left > 0))[:, 0]
    draw = torch.Generator(DEVICE).manual_seed(seed)
    began = shown = looked = time.monotonic()
    step = 0
    total = 0
    losses = []
    drafted = -1
    position = 0
    roots = all_roots
    accepted = None
    order = torch.empty(0)
    while (share := (time.monotonic() - began) / seconds) < 1:
        if rounds and int(4 * share) > drafted:
            drafted = int(4 * share)
            lengths = torch.cat([greedy_lengths(head, data, part) for part in all_roots.split(2_000_000)])
            roots, accepted = walk(data, all_roots, lengths)
            note(f"{name}: {len(roots):,} rounds, {1 + float(accepted.float().mean()):.4f} tokens a round")
            order = torch.empty(0)
        if position + batch > len(order):
            order = torch.randperm(len(roots), device=DEVICE, generator=draw)
            position = 0
        chosen = order[position : position + batch]
        position += batch
        loss = _loss(head, data, roots[chosen], None if accepted is None else accepted[chosen])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(head.parameters(), 1.0)
        for group in optimizer.param_groups:
            group["lr"] = rate * min((step + 1) / warm_up, 1) * 0.5 * (1 + math.cos(math.pi * share))
        optimizer.step()
        step = step + 1
        total = total + len(chosen)
        losses.append(loss.detach())
        if step % 10 == 0:
            sync()
        if time.monotonic() - shown > 10:
            shown = time.monotonic()
            mean = float(torch.stack(losses).mean())
            losses = []
            note(f"{name}: step {step}, share {share:.2f}, {total / len(all_roots):.2f} passes, loss {mean:.4f}")
            if not math.isfinite(mean):
                raise SystemExit("the loss is not finite")
        if time.monotonic() - looked > 40:
            looked = time.monotonic()
            note(name, evaluate(head, data, (1,), beams=False, limit=60_000))
    sync()
    return {"steps": step, "roots": total, "passes": round(total / len(all_roots), 3)}


def _optimizer(head: Head, rate: float) -> torch.optim.Optimizer:
    matrices = [weights for weights in head.parameters() if weights.ndim > 1]
    vectors = [weights for weights in head.parameters() if weights.ndim == 1]
    groups = [{"params": matrices, "weight_decay": 0.05}, {"params": vectors, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=rate, fused=CUDA)


def _loss(head: Head, data: Data, roots: torch.Tensor, accepted: torch.Tensor | None) -> torch.Tensor:
    """Return the loss of some drafts: of all steps, later ones weighing less, or up to the first rejected one."""
    parts = head.unroll(data.hidden(roots), data.table[data.path(roots)]), *data.goals(roots)
    features, columns, probs, weights = (part.flatten(0, 1).contiguous() for part in parts)
    steps = torch.arange(STEPS, device=DEVICE)
    seen = (STEP_DECAY**steps).expand(len(roots), -1) if accepted is None else steps <= accepted[:, None]
    return Distillation.apply(features, head, columns, probs, weights * seen.flatten(0, 1))


def train_heads(options: argparse.Namespace, target: Target, tokens: np.ndarray, facts: np.ndarray) -> None:
    data = Data(options, target, tokens, facts, options.start and read_vocabulary(options.start))
    note("states read;", f"{torch.cuda.max_memory_allocated() / 2**30:.1f} GiB at most" if CUDA else "")
    shipped = ROOT / "assets/drafters/smollm2-135m-instruct"
    results = {"answers": len(facts), "answer tokens": len(data.tokens), "coverage": data.cover}
    binding = {"target": json.loads((shipped / "config.json").read_text())["target"], "layers": target.read_layers}

    def keep(name: str, head: Head, more: dict[str, Any]) -> None:
        results[name] = more | {str(group): row for group, row in evaluate(head, data).items()}
        note(name, results[name])
        if name != "shipped":
            write_head(head, data, options.out / name, binding)
        (options.out / "results.json").write_text(json.dumps(results, indent=1))

    if not options.tiny:
        keep("shipped", read_head(shipped, data, target), {})
    best = None
    for arm in options.arm:
        name, *numbers = arm.split(":")
        state, inner, blocks, seconds, rate, dropout = (float(number) for number in numbers)
        if options.start:
            head = read_head(options.start, data, target)
        else:
            head = fresh_head(data, int(state), int(inner), int(blocks), options.seed)
        settings = {"rate": rate, "batch": options.batch, "dropout": dropout, "seed": options.seed}
        done = train(head, data, seconds=seconds, name=name, **settings)
        keep(name, head, settings | done | {"seconds": seconds})
        best = best or head
    if best is not None and options.further:
        start = {key: tensor.clone() for key, tensor in best.state_dict().items()}
        for name, rounds in (("further", False), ("rounds", True)):
            best.load_state_dict(start)
            settings = {"rate": options.further_rate, "batch": options.batch, "dropout": 0.0, "seed": options.seed + 1}
            done = train(best, data, seconds=options.further, name=name, rounds=rounds, **settings)
            keep(name, best, settings | done | {"seconds": options.further})
    note("done")
