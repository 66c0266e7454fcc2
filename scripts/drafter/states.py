"""The answers with the target's hidden states and its top-k, on the device."""

import argparse
import time
from typing import Any

import numpy as np
import torch

from scripts.drafter.common import DEVICE, HELD_OUT_EVERY, STEPS, TEACHER_TOKENS, note, sync
from scripts.drafter.prompts import read_shipped
from scripts.drafter.target import Target

STATE_STEP = 12.0  # Hidden states are stored as whole twelfths of a standard deviation.


def columns_of(vocabulary: torch.Tensor, size: int) -> torch.Tensor:
    """Return (size,) int32: each token's column in a draft vocabulary, or -1."""
    columns = torch.full((size,), -1, dtype=torch.int32, device=DEVICE)
    columns[vocabulary] = torch.arange(len(vocabulary), dtype=torch.int32, device=DEVICE)
    return columns


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
    def __init__(
        self,
        options: argparse.Namespace,
        target: Target,
        tokens: np.ndarray,
        facts: np.ndarray,
        vocabulary: torch.Tensor | None = None,
    ) -> None:
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

        def to(array: Any) -> Any:
            return torch.from_numpy(array).to(DEVICE)

        self.tokens = to(np.concatenate([row[start:].astype(np.int32) for row, start, *_ in rows]))
        self.left = to((np.repeat(starts[1:], lengths) - 1 - np.arange(starts[-1])).astype(np.int32))
        self.group = to(np.repeat(np.array([row[2] for row in rows], np.int8), lengths))
        self.greedy = to(np.repeat(np.array([row[3] for row in rows]), lengths))
        self._choose_vocabulary(target, options.vocabulary, vocabulary)
        note(f"{len(rows):,} conversations, {starts[-1]:,} answer tokens, {self.cover:.1%} draftable")
        self._read_states(target, rows, starts, options.call_tokens)
        self._whiten(target)

    def _choose_vocabulary(self, target: Target, limit: int, given: torch.Tensor | None) -> None:
        """Take the given tokens, or the most frequent ones of the answers to train on."""
        size = target.embeddings.shape[0]
        learnt = self.tokens[self.group == 0].long()
        counts = torch.bincount(learnt, minlength=size)
        best = counts.argsort(descending=True, stable=True)[:limit]
        self.counts = counts
        self.vocabulary = best[counts[best] > 0].sort().values if given is None else given
        self.cover = float(counts[self.vocabulary].sum() / counts.sum())
        self.rows = target.embeddings[self.vocabulary]
        self.draftable = columns_of(self.vocabulary, size)[self.tokens.long()] >= 0

    def _read_states(self, target: Target, rows: list[Any], starts: np.ndarray, call_tokens: int) -> None:
        """Read hidden states and teacher, after their mean and scale are measured on some calls."""
        count = int(starts[-1])
        width = target.width * (1 + len(target.read_layers))
        self.states = torch.empty((count, width), dtype=torch.int8, device=DEVICE)
        self.columns = torch.empty((count, TEACHER_TOKENS), dtype=torch.int16, device=DEVICE)
        self.probs = torch.empty((count, TEACHER_TOKENS), dtype=torch.float16, device=DEVICE)
        calls = []
        first = 0
        for index in range(1, len(rows) + 1):
            if index == len(rows) or (index + 1 - first) * len(rows[index][0]) > call_tokens:
                calls.append((first, index))
                first = index
        some = [self._read(target, rows, *calls[index]) for index in np.linspace(0, len(calls) - 1, 24).astype(int)]
        sample = torch.cat([part[torch.randperm(len(part), device=DEVICE)[:20_000]] for part in some]).double()
        self.mean = sample.mean(0)
        self.scale = sample.std(0, correction=0)
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

    @staticmethod
    def _read(target: Target, rows: list[Any], begin: int, stop: int) -> Any:
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

    def _whiten(self, target: Target) -> None:
        """Standardise embeddings by how often each is read; scale output rows to a unit second moment."""
        table = target.embeddings.double()
        shares = self.counts.double() / self.counts.sum()
        mean = (table * shares[:, None]).sum(0)
        scale = ((table - mean) ** 2 * shares[:, None]).sum(0).sqrt()
        scale = scale.clamp(min=1e-3 * float(scale.max()))
        self.token_mean = mean.float()
        self.token_scale = scale.float()
        self.table = ((table - mean) / scale).float()
        rows = self.rows.double()
        values, vectors = torch.linalg.eigh(rows.T @ rows / len(rows))
        values = values.clamp(min=1e-6 * float(values.max()))
        self.preconditioner = (vectors / values.sqrt()) @ vectors.T
        self.output_rows = (rows @ self.preconditioner).float()

    def hidden(self, roots: torch.Tensor) -> torch.Tensor:
        return self.states[roots].float() / STATE_STEP

    def path(self, roots: torch.Tensor) -> torch.Tensor:
        """Return (n, STEPS): the roots and the tokens after them."""
        ahead = roots[:, None] + torch.arange(STEPS, device=DEVICE)
        return self.tokens[ahead.clamp(max=len(self.tokens) - 1)].long()

    def goals(self, roots: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Return columns, probabilities and (n, STEPS) weights of the steps after some roots; see `Objective.goals`."""
        steps = torch.arange(1, STEPS + 1, device=DEVICE)
        ahead = (roots[:, None] + steps).clamp(max=len(self.tokens) - 1)
        inside = steps <= self.left[roots][:, None]
        reached = (inside & self.draftable[ahead]).to(torch.int32).cumprod(1)
        return self.columns[ahead], self.probs[ahead], reached.float()
