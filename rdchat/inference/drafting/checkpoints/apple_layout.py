"""Checkpoints of Apple's ml-recurrent-drafter: their configuration and weights in the terms of `RecurrentHead`.

The key names and the order of the layers are those of that project's PyTorch and MLX models. Tried on synthetic
checkpoints of this layout only: no real one was at hand.
"""

import mlx.core as mx

from rdchat.inference.drafting.checkpoints.settings import Settings
from rdchat.inference.drafting.heads.recurrent_head import Cell, HeadConfig, Output

_TENSORS = {  # Apple's name: ours
    "rnn_w.weight": "from_token.weight",
    "rnn_u.weight": "recurrence.weight",
    "rnn_u.bias": "from_token.bias",  # one bias of the sum, on either side
    "input_proj.bias": "from_hidden.bias",
}
_BLOCK_TENSORS = {"lm_head.{}.linear.weight": "blocks.{}.weight", "lm_head.{}.linear.bias": "blocks.{}.bias"}


def apple_config(settings: Settings) -> HeadConfig:
    """Return the head that a checkpoint's `config.json` describes.

    Apple's head reads [h, s] through a linear layer only where `exit_dim` is not twice the hidden size, has no
    activation behind it, and an output matrix of its own over the whole vocabulary.

    Raises:
        ModelError: If a size is missing or makes no head.
    """
    hidden, inner = settings.size("hidden_size"), settings.size("exit_dim")
    return HeadConfig(
        hidden_size=hidden,
        draft_vocabulary_size=settings.size("vocab_size"),
        exit_size=inner,
        state_size=hidden,
        cell=Cell.RNN if settings.data.get("rnn", False) else Cell.SUM,
        blocks=settings.size("num_draft_layers", least=0),
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
    names = _TENSORS | {f"lm_head.{config.blocks}.weight": "output.weight"}
    for block in range(config.blocks):
        names |= {theirs.format(block): ours.format(block) for theirs, ours in _BLOCK_TENSORS.items()}
    mapped = {names.get(name, name): tensor for name, tensor in tensors.items()}
    joint = mapped.get("input_proj.weight")
    if joint is not None and joint.ndim == 2:  # (exit_dim, 2 * hidden): columns of h, then of s
        del mapped["input_proj.weight"]
        mapped["from_hidden.weight"] = joint[:, : config.hidden_size]
        mapped["from_state.weight"] = joint[:, config.hidden_size :]
    return mapped
