"""Checkpoints of Apple's ml-recurrent-drafter: their configuration and weights in the terms of `RecurrentHead`.

The key names and the order of the layers are those of that project's PyTorch and MLX models. Tried on synthetic
checkpoints of this layout only: no real one was at hand.
"""

from typing import Any

import mlx.core as mx

from rdchat.errors import ModelError
from rdchat.inference.drafting.heads.recurrent_head import Cell, HeadConfig, Output


def apple_config(data: dict[str, Any]) -> HeadConfig:
    """Return the head that a checkpoint's `config.json` describes.

    Apple's head reads [h, s] through a linear layer only where `exit_dim` is not twice the hidden size, has no
    activation behind it, and an output matrix of its own over the whole vocabulary.

    Raises:
        ModelError: If a size is missing or makes no head.
    """
    try:
        hidden, inner = int(data["hidden_size"]), int(data["exit_dim"])
        vocabulary, blocks = int(data["vocab_size"]), int(data["num_draft_layers"])
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise ModelError(
            f"The configuration of the ml-recurrent-drafter checkpoint lacks a size: {str(error)[:100]}.",
            "Fetch it again.",
        ) from error
    return HeadConfig(
        hidden_size=hidden,
        draft_vocabulary_size=vocabulary,
        exit_size=inner,
        state_size=hidden,
        cell=Cell.RNN if data.get("rnn", False) else Cell.SUM,
        blocks=blocks,
        project_input=inner != 2 * hidden,
        activate_input=False,
        output=Output.OWN,
    )


def apple_weights(tensors: dict[str, mx.array], config: HeadConfig) -> dict[str, mx.array]:
    """Return a checkpoint's tensors under the names of `RecurrentHead`; unknown names are kept, to be refused.

    Args:
        tensors: `input_proj.{weight,bias}`, `lm_head.<i>.linear.{weight,bias}` for the residual blocks,
            `lm_head.<blocks>.weight`, `rnn_u.{weight,bias}` and `rnn_w.weight`.
        config: What `apple_config` gave.
    """
    names = {
        "rnn_w.weight": "from_token.weight",
        "rnn_u.weight": "recurrence.weight",
        "rnn_u.bias": "from_token.bias",  # one bias of the sum, on either side
        "input_proj.bias": "from_hidden.bias",
        f"lm_head.{config.blocks}.weight": "output.weight",
    }
    for block in range(config.blocks):
        for part in ("weight", "bias"):
            names[f"lm_head.{block}.linear.{part}"] = f"blocks.{block}.{part}"
    mapped = {names.get(name, name): tensor for name, tensor in tensors.items()}
    joint = mapped.pop("input_proj.weight", None)
    if joint is not None and joint.ndim != 2:
        mapped["input_proj.weight"] = joint  # to be refused
    elif joint is not None:  # (exit_dim, 2 * hidden): columns of h, then of s
        mapped["from_hidden.weight"] = joint[:, : config.hidden_size]
        mapped["from_state.weight"] = joint[:, config.hidden_size :]
    return mapped
