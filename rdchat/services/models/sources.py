"""What reads models and asks the device, handed in by the composition root: services know neither."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from rdchat.inference.api.memory_facts import MachineMemory
from rdchat.inference.api.model_card import ModelCard


def _no_models(_chosen: str) -> Iterable[ModelCard]:
    return ()


def _no_memory() -> MachineMemory | None:
    return None


def _no_drafters(_folder: Path) -> tuple[ModelCard, ...] | None:
    return ()


def _no_problem(_path: str) -> str:
    return ""


@dataclass(frozen=True, slots=True)
class ModelSources:
    """Functions that take their time: each is called on a thread of its own.

    Attributes:
        models: Returns the models on this machine one by one; takes a folder of the person's own, or "".
        memory: Returns the machine's memory; None before the engine has begun.
        drafters: Returns the drafter heads that fit the model in a folder; None before the engine has begun.
        problem: Returns why a folder or file cannot be loaded, a sentence; empty where nothing stands against it.
    """

    models: Callable[[str], Iterable[ModelCard]] = _no_models
    memory: Callable[[], MachineMemory | None] = _no_memory
    drafters: Callable[[Path], tuple[ModelCard, ...] | None] = _no_drafters
    problem: Callable[[str], str] = _no_problem
