"""Counts accepted tokens along answers, as decoding with the head would."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F  # noqa: N812

from scripts.drafter.common import DEVICE, STEPS
from scripts.drafter.head import Head
from scripts.drafter.states import Data, columns_of


@torch.no_grad()
def greedy_lengths(head: Head, data: Data, roots: torch.Tensor, rows: int = 8192) -> torch.Tensor:
    """Return (n,) how many tokens of a draft with one beam are accepted after each root."""
    head.eval()
    columns = columns_of(head.vocabulary, len(data.table))
    lengths = []
    for part in roots.split(rows):
        features = head.unroll(data.hidden(part), data.table[data.path(part)])
        steps = torch.arange(1, STEPS + 1, device=DEVICE)
        after = data.tokens[(part[:, None] + steps).clamp(max=len(data.tokens) - 1)].long()
        goals = torch.where(steps <= data.left[part][:, None], columns[after], -1)
        guesses = torch.stack([head.logits(features[:, step]).argmax(-1) for step in range(STEPS)], 1)
        lengths.append((guesses == goals).to(torch.int32).cumprod(1).sum(1))
    head.train()
    return torch.cat(lengths).to(torch.int32)


@torch.no_grad()
def beam_lengths(head: Head, data: Data, roots: torch.Tensor, width: int = 4, rows: int = 1024) -> torch.Tensor:
    """Return (n,) how many tokens of a draft with several beams are accepted after each root."""
    head.eval()
    columns = columns_of(head.vocabulary, len(data.table))
    size = len(head.vocabulary)
    lengths = []
    for part in roots.split(rows):
        context = head.context(data.hidden(part))[:, None]
        state = F.silu(head.from_token(data.table[data.tokens[part].long()]))[:, None]
        sums = torch.zeros((len(part), 1), device=DEVICE)
        on = torch.ones((len(part), 1), dtype=torch.bool, device=DEVICE)
        alive = torch.ones(len(part), dtype=torch.bool, device=DEVICE)
        length = torch.zeros(len(part), device=DEVICE)
        for step in range(STEPS):
            logits = head.logits(head.features(context, state)).float()
            best = (logits.log_softmax(-1) + sums[..., None]).flatten(1).topk(width, -1)
            parents = best.indices // size
            tokens = best.indices % size
            sums = best.values
            after = data.tokens[(part + step + 1).clamp(max=len(data.tokens) - 1)].long()
            goal = torch.where(data.left[part] > step, columns[after], -1)
            on = on.gather(1, parents) & (tokens == goal[:, None])
            alive = alive & on.any(1)
            length += alive
            if step < STEPS - 1:
                chosen = state.gather(1, parents[..., None].expand(-1, -1, state.shape[-1]))
                state = head.advance(chosen, data.table[head.vocabulary[tokens]])
        lengths.append(length.to(torch.int32))
    head.train()
    return torch.cat(lengths)


def walk(data: Data, roots: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the roots that a reply's rounds begin at, given the accepted tokens after each root of whole answers."""
    accepted = torch.zeros(len(data.tokens), dtype=torch.int64, device=DEVICE)
    accepted[roots] = lengths.long()
    first = torch.ones(len(roots), dtype=torch.bool, device=DEVICE)
    first[1:] = (roots[1:] != roots[:-1] + 1) | (data.left[roots[1:]] > data.left[roots[:-1]])
    at = roots[first]
    seen = []
    last = at + data.left[at]
    while len(at):
        seen.append(at)
        after = at + accepted[at] + 1
        on = after < last
        at = after[on]
        last = last[on]
    seen = torch.cat(seen)
    return seen, accepted[seen]


def evaluate(
    head: Head, data: Data, groups: Sequence[int] = (1, 2), beams: bool = True, limit: int = 120_000
) -> dict[int, dict[str, float]]:
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
