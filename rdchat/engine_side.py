"""Functions of the engine that the window calls on other threads; each imports its module at its first call.

A function that needs MLX returns None until the engine thread has imported MLX: two threads that import mlx-lm at the
same time may block each other for ever.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from rdchat.inference.api.memory_facts import MachineMemory
from rdchat.inference.api.model_card import ModelCard

_ENGINE = "rdchat.inference.local_engine"


def installed_models() -> tuple[ModelCard, ...]:
    """Find the models on this machine."""
    from rdchat.inference.library import folder_facts, model_library  # noqa: PLC0415  not before the window

    with folder_facts.facts_reader() as read:
        return model_library.installed_models(read)


def library_models(chosen: str) -> Iterator[ModelCard]:
    """Find the models on this machine, also in a chosen folder, with the facts from their headers."""
    from rdchat.inference.library import folder_facts, model_library  # noqa: PLC0415  not before the window

    with folder_facts.facts_reader() as read:
        yield from model_library.library_models(chosen, read)


def problem_of_model(path: str) -> str:
    """Return why a folder or file cannot be loaded; empty if it can be."""
    from rdchat.inference.library.model_library import problem_of  # noqa: PLC0415  not before the window

    return problem_of(path)


def _with_mlx(module: str, name: str) -> Callable[..., Any]:
    """Return a function that calls a function of a module that imports MLX."""

    def call(*arguments: Any) -> Any:
        has_begun = hasattr(sys.modules.get(_ENGINE), "LocalEngine")
        return getattr(import_module(f"rdchat.inference.{module}"), name)(*arguments) if has_begun else None

    return call


machine_memory: Callable[[], MachineMemory | None] = _with_mlx("target.device", "machine_memory")
"""Returns the device's memory."""
_Found = tuple[ModelCard, ...] | None
_INSTALLED = "drafting.checkpoints.installed_drafters"
installed_drafters: Callable[[Path | None], _Found] = _with_mlx(_INSTALLED, "installed_drafters")
"""Finds the drafters on this machine."""
drafters_made_for: Callable[[str], _Found] = _with_mlx(_INSTALLED, "drafters_made_for")
"""Finds the drafters of a model that is not loaded."""
fitting_drafters: Callable[[Path], _Found] = _with_mlx("library.fitting_drafters", "fitting_drafters")
"""Finds the drafter heads that fit a model."""
measured_calls: Callable[[Path], Mapping[int, float] | None] = _with_mlx("library.fitting_drafters", "measured_calls")
"""Returns the measured time of a model's calls by rows, in plain steps."""
