"""Computes the disk space and memory of a training before it begins."""

import shutil
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import DoesNotFitError, StorageFullError
from rdchat.inference.training.data.data_maker import MAX_SEQUENCE_TOKENS
from rdchat.inference.training.heads.samples import TEACHER_TOKENS
from rdchat.inference.verification.device import memory_room, total_memory_bytes
from rdchat.inference.verification.target import LoadedModel, TargetEmbeddings

# Share of the machine's memory for sequences and weights.
_BATCH_SHARE = 0.6
# Bytes that are left free on the disk.
_SPARE_BYTES = 500_000_000
# Memory for hidden states: a share of the machine's, at least this. Data that fits is read once, not every epoch.
_WINDOW_BYTES = 512 * 2**20
_WINDOW_SHARE = 0.2
# On disk for each answer token, with its share of the question.
_DATA_TOKEN_BYTES = 10
# In memory for each answer token: ids of it and its question as Python objects, facts, the teacher's top-k.
_TRAINING_TOKEN_BYTES = 80 + 4 * TEACHER_TOKENS
# Memory for whitening, batches and the optimiser.
_MEASURED_BYTES = 200_000_000


@dataclass(frozen=True, slots=True)
class Budget:
    """Disk space and memory of a training.

    Attributes:
        sequences: Conversations decoded together; the same at every start.
        disk_bytes: Disk space of the conversations.
        window_tokens: Tokens whose hidden states are in memory at a time.
        memory_bytes: Limit of the memory, without the model's.
    """

    sequences: int
    disk_bytes: int
    window_tokens: int
    memory_bytes: int


def check_disk(folder: Path, data_bytes: int) -> None:
    """Check that the disk has room for the data of a training that a folder lacks; it may not exist yet.

    Raises:
        StorageFullError: If there is no room.
    """
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    needed = max(data_bytes - sum(path.stat().st_size for path in folder.glob("*")), 0)
    room = max(shutil.disk_usage(existing).free - _SPARE_BYTES, 0)
    if needed > room:
        raise StorageFullError(
            f"The training data needs {needed / 1e9:.1f} GB on the disk of {folder}, which has room for "
            f"{room / 1e9:.1f} GB.",
            "Free some space, or train on fewer tokens.",
        )


def make_budget(model: LoadedModel, width: int, tokens: int, sequences: int, *, anyway: bool = False) -> Budget:
    """Return the budget of a training that fits in memory, measured on a call of one token.

    Args:
        model: The target.
        width: Width of the hidden states that the drafter reads.
        tokens: Answer tokens to train on.
        sequences: Conversations to decode together, if so many fit.
        anyway: Whether to continue with too little memory.

    Raises:
        DoesNotFitError: If there is not enough memory.
    """
    size = model.info.vocabulary_size
    total_bytes = total_memory_bytes()
    caches = make_prompt_cache(model.network)
    model.network(mx.array([[0]]), cache=caches)
    token_bytes = sum(array.nbytes // array.shape[2] for layer in caches for array in (layer.keys, layer.values))
    logits_bytes = 3 * 4 * size  # Logits, and log-probabilities of this step and the last.
    sequence_bytes = MAX_SEQUENCE_TOKENS * token_bytes + logits_bytes
    sequences = max(min(sequences, (int(total_bytes * _BATCH_SHARE) - model.info.weights_bytes) // sequence_bytes), 1)
    state_bytes = 2 * width
    window_bytes = max(_WINDOW_BYTES, int(total_bytes * _WINDOW_SHARE))
    table_bytes = 4 * size * TargetEmbeddings(model.network, size).width
    states_bytes = min(tokens * state_bytes, window_bytes)
    training_bytes = 3 * table_bytes + states_bytes + tokens * _TRAINING_TOKEN_BYTES + _MEASURED_BYTES
    memory_bytes = max(sequences * sequence_bytes, training_bytes)
    if memory_bytes > (limit := memory_room().limit_bytes) and not anyway:
        raise DoesNotFitError(
            f"The training needs {memory_bytes / 1e9:.1f} GB of memory besides the model, but only "
            f"{limit / 1e9:.1f} GB are free.",
            "Close other apps, train on fewer tokens, or choose a smaller model.",
        )
    return Budget(sequences, tokens * _DATA_TOKEN_BYTES, max(window_bytes // state_bytes, 1), memory_bytes)
