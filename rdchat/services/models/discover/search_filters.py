"""Filters over the models that a search found."""

from collections.abc import Iterable
from dataclasses import dataclass

from rdchat.hub.found_models import FoundModel
from rdchat.inference.api.memory_facts import Fit
from rdchat.services.models.discover.fit import Machine, sizes_found


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """What a model must have. A model without the value does not pass.

    Attributes:
        most_bytes: Of its weights; None for any size.
        quantization, licence, family: As the hub names them; empty for any.
        fitting: Whether it must fit this machine.
    """

    most_bytes: int | None = None
    quantization: str = ""
    licence: str = ""
    family: str = ""
    fitting: bool = False

    @property
    def any(self) -> bool:
        """Whether anything is asked for."""
        return self != SearchFilters()

    def wanted(self, model: FoundModel, machine: Machine | None) -> bool:
        """Tell whether a model has all of it."""
        named = (
            (self.quantization, model.quantization),
            (self.licence, model.licence),
            (self.family, model.family),
        )
        if any(wanted and wanted != has for wanted, has in named):
            return False
        if self.most_bytes is not None and (model.weight_bytes is None or model.weight_bytes > self.most_bytes):
            return False
        return not self.fitting or (machine is not None and machine.fit(sizes_found(model)) in {Fit.FITS, Fit.TIGHT})


@dataclass(frozen=True, slots=True)
class FilterChoices:
    """The values of the found models, the most frequent first."""

    quantizations: tuple[str, ...] = ()
    licences: tuple[str, ...] = ()
    families: tuple[str, ...] = ()


def choices_among(found: Iterable[FoundModel]) -> FilterChoices:
    """Return the values that can be chosen."""
    models = tuple(found)
    return FilterChoices(
        _by_number(model.quantization for model in models),
        _by_number(model.licence for model in models),
        _by_number(model.family for model in models),
    )


def _by_number(names: Iterable[str]) -> tuple[str, ...]:
    numbers: dict[str, int] = {}
    for name in names:
        if name:
            numbers[name] = numbers.get(name, 0) + 1
    return tuple(sorted(numbers, key=lambda name: (-numbers[name], name)))
