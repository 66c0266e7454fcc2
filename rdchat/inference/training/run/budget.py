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

_BATCH_SHARE = 0.6  # share of the machine's memory for sequences and weights
_SPARE_BYTES = 500_000_000  # left free on the disk
_DISK_SHARE = 0.5  # share of the disk's room for hidden states
_WINDOW_BYTES = 512 * 2**20  # least memory for hidden states
_WINDOW_SHARE = 0.12  # share of the machine's memory for hidden states; data that fits is read once, not in every epoch
_DATA_TOKEN_BYTES = 10  # on disk for each answer token, with its share of the question
# In memory for each answer token: ids of it and its question as Python objects, facts, the teacher's top-k.
_TRAINING_TOKEN_BYTES = 80 + 4 * TEACHER_TOKENS
_MEASURED_BYTES = 200_000_000  # memory for whitening, batches and the optimiser


@dataclass(frozen=True, slots=True)
class Budget:
    """Disk space and memory of a training."""

    keep_states: bool  # whether the hidden states are kept on disk; else they are computed again in every epoch
    disk_bytes: int  # of all data
    window_tokens: int  # answer tokens whose hidden states are in memory at a time
    memory_bytes: int  # at most, without the model


class TrainingMemory:
    """The memory that a target's conversations need, measured on a call of one token.

    Args:
        model: The target.
        width: Width of the hidden states that the drafter reads.
    """

    def __init__(self, model: LoadedModel, width: int) -> None:
        caches = make_prompt_cache(model.network)
        model.network(mx.array([[0]]), cache=caches)
        arrays = [array for layer in caches for array in (layer.keys, layer.values)]
        size = model.info.vocabulary_size
        self._model = model
        sequence_bytes = MAX_SEQUENCE_TOKENS * sum(array.nbytes // array.shape[2] for array in arrays)
        self._batch_bytes = sequence_bytes + 3 * 4 * size  # logits on the device, in float32, and on the host
        self._state_bytes = 2 * width
        self._table_bytes = 4 * size * TargetEmbeddings(model.network, size).width

    def sequences(self, wanted: int) -> int:
        """Return how many conversations to decode together: `wanted`, or as many as fit; the same at every start."""
        room = int(total_memory_bytes() * _BATCH_SHARE) - self._model.info.weights_bytes
        return max(min(wanted, int(room // self._batch_bytes)), 1)

    def budget(
        self, tokens: int, sequences: int, folder: Path, keep_states: bool | None, *, anyway: bool = False
    ) -> Budget:
        """Return the budget of a training that fits on the disk and in memory.

        Args:
            tokens: Most answer tokens.
            sequences: Conversations decoded together.
            folder: Folder of the data; its present files count as free space.
            keep_states: An earlier run's decision; None decides by the free space.
            anyway: Whether to continue with too little memory.

        Raises:
            StorageFullError: If there is no room for the data.
            DoesNotFitError: If there is not enough memory.
        """
        room = _room(folder)
        data = tokens * _DATA_TOKEN_BYTES
        if keep_states is None:
            keep_states = data + tokens * self._state_bytes <= room * _DISK_SHARE
        data += tokens * self._state_bytes if keep_states else 0
        if data > room:
            raise StorageFullError(
                f"The training data needs {data / 1e9:.1f} GB on the disk of {folder}, which has room for "
                f"{max(room, 0) / 1e9:.1f} GB.",
                "Free some space, or train on fewer --tokens.",
            )
        window = min(tokens * self._state_bytes, _window_bytes())
        training = 3 * self._table_bytes + window + tokens * _TRAINING_TOKEN_BYTES + _MEASURED_BYTES
        memory = max(sequences * self._batch_bytes, training)
        if memory > (limit := memory_room().limit_bytes) and not anyway:
            raise DoesNotFitError(
                f"The training needs {memory / 1e9:.1f} GB of memory besides the model, but only "
                f"{limit / 1e9:.1f} GB are free.",
                "Close other apps, train on fewer --tokens, or choose a smaller model.",
            )
        window_tokens = max(_window_bytes() // self._state_bytes, 1)
        return Budget(keep_states, data, window_tokens, memory)


def _window_bytes() -> int:
    return max(_WINDOW_BYTES, int(total_memory_bytes() * _WINDOW_SHARE))


def _room(folder: Path) -> int:
    """Return the bytes that the data may use: free space and its own files, less a reserve."""
    there = sum(path.stat().st_size for path in folder.glob("shards/*"))
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free + there - _SPARE_BYTES
