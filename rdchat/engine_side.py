"""What the window asks of the engine's side on threads: each imports what it needs when it is first called.

What imports MLX waits until the engine thread has imported it whole, and returns None before: two threads that import
mlx-lm at once may block each other for ever.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from rdchat.inference.api.memory_facts import MachineMemory
from rdchat.inference.api.model_card import ModelCard

# Without MLX


def installed_models() -> tuple[ModelCard, ...]:
    """Look for models on this machine."""
    from rdchat.inference.library.facts_child import facts_reader  # noqa: PLC0415  not before the window
    from rdchat.inference.library.model_library import installed_models as find  # noqa: PLC0415

    with facts_reader() as read:
        return find(read)


def library_models(chosen: str) -> Iterator[ModelCard]:
    """Look for models on this machine with all that headers tell, those in a chosen folder too."""
    from rdchat.inference.library.facts_child import facts_reader  # noqa: PLC0415  not before the window
    from rdchat.inference.library.model_library import library_models as find  # noqa: PLC0415

    with facts_reader() as read:
        yield from find(chosen, read)


def problem_of_model(path: str) -> str:
    """Look why a folder or file cannot be loaded; empty where nothing stands against it."""
    from rdchat.inference.library.model_library import problem_of  # noqa: PLC0415  not before the window

    return problem_of(path)


# With MLX


def machine_memory() -> MachineMemory | None:
    """Ask the device for its memory."""
    if not _engine_has_begun():
        return None
    from rdchat.inference.target.device import machine_memory as ask  # noqa: PLC0415

    return ask()


def installed_drafters(model: Path | None) -> tuple[ModelCard, ...] | None:
    """Look for drafters on this machine."""
    if not _engine_has_begun():
        return None
    from rdchat.inference.drafting.checkpoints.installed_drafters import installed_drafters as find  # noqa: PLC0415

    return find(model)


def drafters_made_for(model: str) -> tuple[ModelCard, ...] | None:
    """Look for the drafters of a model that is not loaded."""
    if not _engine_has_begun():
        return None
    from rdchat.inference.drafting.checkpoints.installed_drafters import drafters_made_for as find  # noqa: PLC0415

    return find(model)


def fitting_drafters(model: Path) -> tuple[ModelCard, ...] | None:
    """Look which drafter heads fit a model."""
    if not _engine_has_begun():
        return None
    from rdchat.inference.library.fitting_drafters import fitting_drafters as find  # noqa: PLC0415

    return find(model)


def _engine_has_begun() -> bool:
    """Tell whether the engine thread has imported MLX and mlx-lm whole."""
    return hasattr(sys.modules.get("rdchat.inference.local_engine"), "LocalEngine")
