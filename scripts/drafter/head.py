"""The recurrent head in PyTorch, and its files."""

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812
from safetensors.torch import load_file, save_file

from scripts.drafter.common import CUDA, DEVICE
from scripts.drafter.kernels import loss_rows
from scripts.drafter.states import Data
from scripts.drafter.target import Target

GRADIENT_SCALE = 256.0  # Keeps small probabilities in 16 bits.


class Head(torch.nn.Module):
    """The network of `recurrent_head.RecurrentHead`, on whitened inputs, with its own draft vocabulary."""

    def __init__(
        self, vocabulary: torch.Tensor, rows: torch.Tensor, *, inputs: int, state: int, inner: int, blocks: int
    ) -> None:
        super().__init__()
        linear = torch.nn.Linear
        width = rows.shape[1]
        self.from_token = linear(width, state)
        self.recurrence = linear(state, state, bias=False)
        self.from_hidden = linear(inputs, inner)
        self.from_state = linear(state, inner, bias=False)
        self.blocks = torch.nn.ModuleList(linear(inner, inner) for _ in range(blocks))
        self.output = linear(inner, width)
        self.output.weight.data.mul_(0.1)
        self.vocabulary = vocabulary
        self.rows = rows
        self.state_size = state
        self.inner = inner
        self.half_rows = rows.half()
        self.dropout = 0.0

    def _drop(self, x: torch.Tensor) -> torch.Tensor:
        return F.dropout(x, self.dropout) if self.training and self.dropout else x

    def context(self, hidden: torch.Tensor) -> torch.Tensor:
        return self.from_hidden(self._drop(hidden))

    def advance(self, state: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        return F.silu(self.from_token(self._drop(embedded)) + self.recurrence(state))

    def features(self, context: torch.Tensor, state: torch.Tensor) -> torch.Tensor:
        x = F.silu(context + self.from_state(self._drop(state)))
        for block in self.blocks:
            x = x + F.silu(block(self._drop(x)))
        return self.output(self._drop(x))

    def unroll(self, hidden: torch.Tensor, embedded: torch.Tensor) -> torch.Tensor:
        """Return (n, STEPS, width): features along the given tokens."""
        read = self.from_token(self._drop(embedded))
        state = None
        states = []
        for step in range(embedded.shape[1]):
            state = F.silu(read[:, step] + self.recurrence(state)) if step else F.silu(read[:, step])
            states.append(state)
        return self.features(self.context(hidden)[:, None], torch.stack(states, 1))

    def logits(self, features: torch.Tensor) -> torch.Tensor:
        return features.half() @ self.half_rows.T if CUDA else features @ self.rows.T


class Distillation(torch.autograd.Function):
    """The weighted mean cross entropy of features against the teacher; logits are never stored twice."""

    @staticmethod
    def forward(  # noqa: PLR0917  torch passes them by position
        context: Any,
        features: torch.Tensor,
        head: Head,
        columns: torch.Tensor,
        probs: torch.Tensor,
        weights: torch.Tensor,
    ) -> torch.Tensor:
        logits = head.logits(features)
        losses = loss_rows(logits, columns, probs, weights * GRADIENT_SCALE)
        total = weights.sum().clamp(min=1)
        context.gradient = (logits @ (head.half_rows if CUDA else head.rows)).float() / (total * GRADIENT_SCALE)
        return (losses * weights).sum() / total

    @staticmethod
    def backward(context: Any, upstream: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        return context.gradient * upstream, None, None, None, None


def fresh_head(data: Data, state: int, inner: int, blocks: int, seed: int) -> Head:
    torch.manual_seed(seed)
    sizes = {"inputs": data.states.shape[1], "state": state, "inner": inner, "blocks": blocks}
    return Head(data.vocabulary, data.output_rows, **sizes).to(DEVICE)


def _rewrite(
    weights: dict[str, torch.Tensor], shifts: dict[str, tuple[torch.Tensor, torch.Tensor]], output: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Shift and scale a head's inputs and turn its output; see `whitening.fold_weights`."""
    made = {name: tensor.double() for name, tensor in weights.items()}
    for name, (shift, factor) in shifts.items():
        read = made[f"{name}.weight"]
        made[f"{name}.bias"] = made[f"{name}.bias"] + read @ shift.double()
        made[f"{name}.weight"] = read * factor.double()
    for name in ("output.weight", "output.bias"):
        made[name] = output @ made[name]
    return made


def read_vocabulary(folder: Path) -> torch.Tensor:
    """Return the draft vocabulary of a stored drafter."""
    return load_file(folder / "model.safetensors")["draft_vocabulary"].long().to(DEVICE)


def read_head(folder: Path, data: Data, target: Target) -> Head:
    """Return a stored drafter as a head on whitened inputs, with its own vocabulary."""
    facts = json.loads((folder / "config.json").read_text())["architecture"]
    stored = {name: tensor.to(DEVICE) for name, tensor in load_file(folder / "model.safetensors").items()}
    vocabulary = stored.pop("draft_vocabulary").long()
    shifts = {"from_hidden": (data.mean, data.scale), "from_token": (data.token_mean, data.token_scale)}
    weights = _rewrite(stored, shifts, torch.linalg.inv(data.preconditioner))
    rows = (target.embeddings[vocabulary].double() @ data.preconditioner).float()
    sizes = {"state": facts["state_size"], "inner": facts["exit_size"], "blocks": facts["blocks"]}
    head = Head(vocabulary, rows, inputs=data.states.shape[1], **sizes).to(DEVICE)
    head.load_state_dict({name: tensor.float() for name, tensor in weights.items()})
    return head


def write_head(head: Head, data: Data, path: Path, binding: dict[str, Any]) -> None:
    """Write a drafter's files, `path`.safetensors and `path`.json, as rdchat reads them."""
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
