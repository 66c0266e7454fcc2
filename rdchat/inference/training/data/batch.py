"""A batch of conversations, decoded together from first token to last; it can be saved in between and restored."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from rdchat.errors import ModelError
from rdchat.files.atomic_file import atomic_file
from rdchat.files.foreign_files import parse_json
from rdchat.inference.models.safetensors_file import read_header
from rdchat.inference.target.fetch import fetch
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import BatchCache, BatchedDecoder
from rdchat.inference.training.data.sequences import Template, TokenSequence
from rdchat.inference.training.data.shards import TrainingConversation

_FULL_ENOUGH = 0.93  # sequences that have ended are dropped once at most this share of the rows still runs


class ConversationBatch:
    """Conversations that started together.

    Args:
        decoder: Holds, for each sequence of `running` in that order, all its tokens but the last.
        sequences: All of the batch.
        running: Indices of the sequences that still have a row in the decoder: ended ones keep theirs until at most
            `_FULL_ENOUGH` of the rows run.
    """

    def __init__(self, decoder: BatchedDecoder, sequences: Sequence[TokenSequence], running: Sequence[int]) -> None:
        self._decoder = decoder
        self._sequences = list(sequences)
        self._running = list(running)

    @property
    def over(self) -> bool:
        """Whether all conversations have ended."""
        return not self._running

    @property
    def answer_tokens(self) -> int:
        """Answer tokens so far."""
        return sum(sequence.answer_tokens for sequence in self._sequences)

    def step(self) -> None:
        """Make one target call and let every conversation that has not ended choose a token."""
        running = [self._sequences[place] for place in self._running]
        logits, hidden = self._decoder.step([sequence.next_input() for sequence in running])
        rows, states = fetch(logits.astype(mx.float32), hidden.astype(mx.float16))
        for sequence, row, state in zip(running, rows, states, strict=True):
            if not sequence.over:
                sequence.take(row, state)
        places = [place for place, sequence in enumerate(running) if not sequence.over]
        if len(places) <= len(running) * _FULL_ENOUGH:
            self._running = [self._running[place] for place in places]
            if places:
                self._decoder.keep(places)

    def result(self) -> tuple[list[TrainingConversation], npt.NDArray[np.float16]]:
        """Return the ended conversations, and (answer tokens, width) float16: the hidden states of their answers."""
        return [sequence.conversation() for sequence in self._sequences], self._states()

    def _states(self) -> npt.NDArray[np.float16]:
        return np.stack([state for sequence in self._sequences for state in sequence.states])

    def save(self, path: Path, number: int) -> None:
        """Save the batch exactly: restored, it makes the same tokens as if it had never been interrupted.

        Args:
            path: A safetensors file, replaced atomically.
            number: The shard that the batch is to become; `restore` wants the same.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If it cannot be written.
        """
        held, layers = self._decoder.state()
        tensors = {}
        for place, (keys, values) in enumerate(layers):
            tensors[f"keys.{place}"], tensors[f"values.{place}"] = keys, values
        if self.answer_tokens:
            tensors["states"] = mx.array(self._states())
        facts = {"number": number, "held": held, "running": self._running}
        facts["lanes"] = [sequence.to_dict() for sequence in self._sequences]
        with atomic_file(path) as temporary:
            mx.save_safetensors(str(temporary), tensors, {"wave": json.dumps(facts)})

    @classmethod
    def restore(cls, path: Path, number: int, model: LoadedModel, template: Template) -> "ConversationBatch | None":
        """Return the saved batch; None where there is none, it is damaged, or it is of another shard."""
        if not path.exists():
            return None
        try:
            read_header(path)
        except ModelError:  # damaged: it is made again from its beginning
            return None
        loaded: Any = mx.load(str(path), return_metadata=True)
        tensors, metadata = loaded
        facts = parse_json(metadata["wave"], f"{path} is damaged", "Delete it: the batch is then made again.")
        if facts["number"] != number:
            return None
        mx.eval(tensors)  # before the file is replaced
        states, sequences = fetch(tensors["states"]) if "states" in tensors else np.empty((0, 0), np.float16), []
        for data in facts["lanes"]:
            count = len(data["tokens"]) - data["answer_start"] if data["answer_start"] else 0
            sequences.append(TokenSequence.from_dict(data, states[:count], template))
            states = states[count:]
        layers = [BatchCache(tensors[f"keys.{i}"], tensors[f"values.{i}"]) for i in range(len(tensors) // 2)]
        return cls(BatchedDecoder(model, facts["held"], layers), sequences, facts["running"])
