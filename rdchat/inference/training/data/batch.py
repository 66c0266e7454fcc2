"""A wave: conversations that are decoded in lockstep from their first token to their last, and put aside in between."""

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
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.training.data.batched_decoding import LaneCache, Lockstep
from rdchat.inference.training.data.sequences import Lane, Template
from rdchat.inference.training.data.shards import Conversation

_FULL_ENOUGH = 0.93  # lanes that are over are dropped where at most this share still runs


class Wave:
    """Conversations that started together.

    Args:
        lockstep: Has read all tokens but the last of the lanes in `running`, in that order.
        lanes: All of them.
        running: Places of those that are still fed: lanes that are over stay among them until enough are.
    """

    def __init__(self, lockstep: Lockstep, lanes: Sequence[Lane], running: Sequence[int]) -> None:
        self._lockstep = lockstep
        self._lanes = list(lanes)
        self._running = list(running)

    @property
    def over(self) -> bool:
        """Whether all conversations have ended."""
        return not self._running

    @property
    def answer_tokens(self) -> int:
        """Answer tokens so far."""
        return sum(lane.answer_tokens for lane in self._lanes)

    def step(self) -> None:
        """Let every conversation that runs choose a token."""
        running = [self._lanes[place] for place in self._running]
        logits, hidden = self._lockstep.step([lane.next_input() for lane in running])
        rows, states = np.array(logits.astype(mx.float32)), np.array(hidden.astype(mx.float16))
        for lane, row, state in zip(running, rows, states, strict=True):
            if not lane.over:
                lane.take(row, state)
        places = [place for place, lane in enumerate(running) if not lane.over]
        if len(places) <= len(running) * _FULL_ENOUGH:
            self._running = [self._running[place] for place in places]
            if places:
                self._lockstep.keep(places)

    def result(self) -> tuple[list[Conversation], npt.NDArray[np.float16]]:
        """Return the conversations, once all are over, and the (answer tokens, width) states of their answers."""
        return [lane.conversation() for lane in self._lanes], self._states()

    def _states(self) -> npt.NDArray[np.float16]:
        return np.stack([state for lane in self._lanes for state in lane.states])

    def save(self, path: Path, number: int) -> None:
        """Put the wave aside, to the bit: what goes on from there says what it would have said.

        Args:
            path: Of a safetensors file, replaced at once.
            number: Of the wave.

        Raises:
            StorageFullError: If the disk is full.
            StorageError: If it cannot be written.
        """
        held, layers = self._lockstep.state()
        tensors = {}
        for place, (keys, values) in enumerate(layers):
            tensors[f"keys.{place}"], tensors[f"values.{place}"] = keys, values
        if self.answer_tokens:
            tensors["states"] = mx.array(self._states())
        facts = {"number": number, "held": held, "running": self._running}
        facts["lanes"] = [lane.to_dict() for lane in self._lanes]
        with atomic_file(path) as draft:
            mx.save_safetensors(str(draft), tensors, {"wave": json.dumps(facts)})

    @classmethod
    def restore(cls, path: Path, number: int, model: LoadedModel, template: Template) -> "Wave | None":
        """Return the wave that was put aside; None where there is none, or another one."""
        if not path.exists():
            return None
        try:
            read_header(path)
        except ModelError:  # damaged: it is made again from its beginning
            return None
        loaded: Any = mx.load(str(path), return_metadata=True)
        tensors, metadata = loaded
        facts = parse_json(metadata["wave"], f"{path} is damaged", "Delete it: the wave is then made again.")
        if facts["number"] != number:
            return None
        mx.eval(tensors)  # before the file is replaced
        states, lanes = np.array(tensors["states"]) if "states" in tensors else np.empty((0, 0), np.float16), []
        for data in facts["lanes"]:
            count = len(data["tokens"]) - data["answer_start"] if data["answer_start"] else 0
            lanes.append(Lane.from_dict(data, states[:count], template))
            states = states[count:]
        layers = [LaneCache(tensors[f"keys.{i}"], tensors[f"values.{i}"]) for i in range(len(tensors) // 2)]
        return cls(Lockstep(model, facts["held"], layers), lanes, facts["running"])
