"""The disk and memory that a training takes, computed before it begins."""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import mlx.core as mx
from mlx_lm.models.cache import make_prompt_cache

from rdchat.errors import DoesNotFitError, StorageFullError
from rdchat.inference.target.device import memory_room, total_memory_bytes
from rdchat.inference.target.embeddings import TargetEmbeddings
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batch import MOST_SEQUENCE_TOKENS
from rdchat.inference.training.data.batched_decoding import BatchedDecoder
from rdchat.inference.training.heads.samples import TEACHER_TOKENS

_BATCH_SHARE = 0.6  # of the machine's memory that sequences and weights may take together
_SPARE_BYTES = 500_000_000  # of the disk that a training leaves alone
_DISK_SHARE = 0.5  # of the room on the disk that hidden states may take
_WINDOW_BYTES = 512 * 2**20  # of memory for hidden states, at least
_WINDOW_SHARE = 0.12  # of the machine's memory for them: data that fits is read once, not in every epoch
_DATA_TOKEN_BYTES = 10  # of the data on disk for each answer token, its share of the question included
# of memory for each answer token: its and its question's ids as Python holds them, facts, the teacher's top-k
_TRAINING_TOKEN_BYTES = 80 + 4 * TEACHER_TOKENS
_MEASURED_BYTES = 200_000_000  # of memory for the states that whitening is measured on, batches and optimiser


@dataclass(frozen=True, slots=True)
class Budget:
    """Disk and memory that a training takes.

    Attributes:
        keep_states: Whether the hidden states are kept on disk; else they are computed again in every epoch.
        disk_bytes: Of all data, and of an unfinished batch.
        window_tokens: Answer tokens whose hidden states are in memory together.
        memory_bytes: Of memory, beside the model, at most.
    """

    keep_states: bool
    disk_bytes: int
    window_tokens: int
    memory_bytes: int


class Need:
    """Memory that a target's conversations take, measured on a call of one token.

    Args:
        model: The target.
        width: Of its hidden states, as the drafter reads them.
    """

    def __init__(self, model: LoadedModel, width: int) -> None:
        caches = make_prompt_cache(model.network)
        model.network(mx.array([[0]]), cache=caches)
        arrays = [array for layer in caches for array in (layer.keys, layer.values)]
        size = model.info.vocabulary_size
        self._model = model
        self._sequence_bytes = MOST_SEQUENCE_TOKENS * sum(array.nbytes // array.shape[2] for array in arrays)
        self._batch_bytes = self._sequence_bytes + 3 * 4 * size  # logits on the device, in float32, and on the host
        self._state_bytes = 2 * width
        self._table_bytes = 4 * size * TargetEmbeddings(model.network, size).width

    def sequences(self, wanted: int) -> int:
        """Return how many conversations are decoded together: `wanted`, or what fits; the same at every start."""
        room = int(total_memory_bytes() * _BATCH_SHARE) - self._model.info.weights_bytes
        return max(min(wanted, int(room // self._batch_bytes)), 1)

    def tokens_in(self, hours: float, sequences: int, now: Callable[[], float]) -> int:
        """Return the most answer tokens that can be made, at the speed of short sequences, which is the highest."""
        decoder = BatchedDecoder.read(self._model, [0], [[0]] * sequences)
        mx.eval(decoder.step([0] * sequences))
        began = now()
        mx.eval(decoder.step([0] * sequences))
        return int(hours * 3600 * sequences / max(now() - began, 1e-6)) + 1

    def budget(
        self, tokens: int, sequences: int, folder: Path, keep_states: bool | None, *, anyway: bool = False
    ) -> Budget:
        """Return the budget of a training that fits on the disk and in memory.

        Args:
            tokens: Answer tokens, at most.
            sequences: Conversations decoded together.
            folder: Of the data; files there count as room.
            keep_states: As an earlier run decided; None lets the room on the disk decide.
            anyway: Whether too little memory is no reason to stop.

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
                f"The data would take {data / 1e9:.1f} GB on the disk of {folder}, which has room for "
                f"{max(room, 0) / 1e9:.1f} GB.",
                "Make room there, or train on fewer --tokens.",
            )
        window = min(tokens * self._state_bytes, _window_bytes())
        training = 3 * self._table_bytes + window + tokens * _TRAINING_TOKEN_BYTES + _MEASURED_BYTES
        memory = max(sequences * self._batch_bytes, training)
        if memory > (limit := memory_room().limit_bytes) and not anyway:
            raise DoesNotFitError(
                f"The training would take {memory / 1e9:.1f} GB of memory beside the model; {limit / 1e9:.1f} GB are "
                f"free.",
                "Close other apps, train on fewer --tokens, or pick a smaller model.",
            )
        window_tokens = max(_window_bytes() // self._state_bytes, 1)
        return Budget(keep_states, data + sequences * self._sequence_bytes, window_tokens, memory)


def _window_bytes() -> int:
    return max(_WINDOW_BYTES, int(total_memory_bytes() * _WINDOW_SHARE))


def _room(folder: Path) -> int:
    """Return the bytes that the data may take: the free ones and those of its own files, less a reserve."""
    there = sum(path.stat().st_size for path in folder.glob("shards/*"))
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free + there - _SPARE_BYTES
