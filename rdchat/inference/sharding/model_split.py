"""How a model is split over ranks: every layer by tensor parallelism, or whole layers as a pipeline.

mlx-lm does the splitting. It is tried on a network without weights before a model is loaded or downloaded, because
mlx-lm does not say whether a model can be split.
"""

import zlib
from collections.abc import Callable
from enum import StrEnum
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import mlx.core as mx
import mlx.nn as nn
from mlx_lm.models.cache import KVCache, make_prompt_cache

from rdchat.errors import ModelError, RanksError, one_line
from rdchat.inference.loading import Part
from rdchat.inference.models.model_settings import model_classes, model_settings
from rdchat.inference.prompts.tokenizer_process import shared_tokenizers
from rdchat.inference.verification import leaves

# A refusal names the numbers of ranks up to this one that would do.
_MAX_RANKS = 9
_NUMBERS = ("none", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
Split = StrEnum("Split", "TENSOR PIPELINE")
"""How a model is split. `TENSOR` has two sums over all ranks in each layer, `PIPELINE` a message from rank to rank."""


def split_of(folder: Path, ranks: int) -> Split:
    """Return how a model can be split over so many ranks, by its configuration and mlx-lm's class alone.

    Raises:
        RanksError: If it cannot; it says why, and with how many ranks it could.
        ModelError: If it has no readable configuration.
    """
    try:
        config = model_settings(folder, shared_tokenizers()).config
        model_class, arguments = model_classes(config)
        make = partial(model_class, arguments.from_dict(config))
        network = make()
    except ModelError:
        raise
    except Exception as error:
        # The configuration is foreign: mlx-lm's classes may raise anything.
        reason = one_line(error)[:200].rstrip(".")
        raise RanksError(
            f"{folder.name} cannot be split over several Macs: {reason}.", "Choose another model."
        ) from None
    can_shard = hasattr(network, "shard")
    reason = _indivisible(make, ranks) if can_shard else f"mlx-lm cannot split its family, {config['model_type']}"
    if not reason:
        return Split.TENSOR
    # With caches of one kind, every rank of a pipeline can do what the first one can.
    plain = all(type(cache) is KVCache for cache in leaves(make_prompt_cache(network)))
    if plain and hasattr(getattr(network, "model", None), "pipeline") and len(network.layers) >= ranks:
        return Split.PIPELINE
    others = [_NUMBERS[n] for n in range(2, 1 + _MAX_RANKS) if can_shard and not _indivisible(make, n)]
    raise RanksError(
        f"{folder.name} cannot be split over {_NUMBERS[ranks] if ranks <= _MAX_RANKS else ranks} Macs: {reason}.",
        f"It can be over {' or '.join(others)}." if others else "Choose another model.",
    )


def shard(network: nn.Module, group: Any, split: Split) -> None:
    """Reduce a network whose weights are not read yet to this rank's part.

    Args:
        network: An mlx-lm model with all of its weights, lazy.
        group: The ranks.
        split: See `split_of`.
    """
    if split is Split.PIPELINE:
        network.model.pipeline(group)
        return
    outputs = [(owner, owner.lm_head) for _, owner in network.named_modules() if "lm_head" in owner]
    network.shard(group)
    for owner, output in outputs:
        # The output layer stays whole: drafter heads use it outside of calls, where no sum over ranks may be.
        if owner.lm_head is not output:
            owner.lm_head = output
            owner.sharding_group = None


def part_of(folder: Path, group: mx.distributed.Group) -> Part:
    """Return this rank's part of a model, for `load_model`; raises as `split_of` does."""
    return Part(group.size(), partial(shard, group=group, split=split_of(folder, group.size())))


def check_sum(folder: Path) -> int:
    """Return a 31-bit check sum of a model's configuration, an int32: each rank compares its own with rank 0's."""
    return zlib.crc32((folder / "config.json").read_bytes()) >> 1


def _indivisible(make: Callable[[], nn.Module], ranks: int) -> str:
    """Return why tensor parallelism over so many ranks is impossible; empty where it is possible.

    mlx-lm divides a layer's counts of heads without a look at the remainder. Of 8 heads, each of three ranks would get
    2, and two heads would be lost. Two key-value heads over four ranks are no such case: each rank has a copy of one.
    """
    network = make()
    before = _counts(network)
    try:
        # In place of a group of ranks, of which mlx-lm calls only these two.
        shard(network, SimpleNamespace(size=lambda: ranks, rank=lambda: 0), Split.TENSOR)
    except Exception as error:
        return f"its layers cannot be divided ({one_line(error)[:200].rstrip('.')})"
    after = _counts(network)
    for key, count in before.items():
        left = after.get(key, count)
        if left == count or count % ranks == 0:
            continue
        # Unless each rank has a copy of one head, the ranks' counts do not add up.
        if left != 1 or ranks % count:
            what = "key-value heads" if "kv" in key[1] or "key_value" in key[1] else "heads"
            return f"its layers have {count} {what}"
    return ""


def _counts(network: nn.Module) -> dict[tuple[str, str], int]:
    """Return the attributes of modules that are integers, counts of heads among them, by module and name."""
    return {
        (name, key): value
        for name, module in network.named_modules()
        for key, value in vars(module).items()
        if type(value) is int
    }
