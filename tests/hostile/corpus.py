"""The whole corpus: the cases of each kind are made by the module of its name, such as `folder_cases.folder_cases`."""

from collections.abc import Iterable
from importlib import import_module

from tests.hostile.case import Case, Kind


def cases(kinds: Iterable[Kind] = Kind) -> list[Case]:
    """Return the cases of some kinds, by default of all, always in the same order."""
    makers = [f"{kind.removesuffix('s')}_cases" for kind in kinds]
    return [case for maker in makers for case in getattr(import_module(f"tests.hostile.{maker}"), maker)()]
