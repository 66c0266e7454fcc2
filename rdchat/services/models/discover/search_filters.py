"""Filters over the models that a search found."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from rdchat.hub.found_models import FoundModel
from rdchat.inference.api.memory_facts import Fit
from rdchat.services.models.discover.fit import Machine, sizes_found


@dataclass(frozen=True, slots=True)
class SearchFilters:
    """Required properties. A model whose value is unknown does not pass."""

    most_bytes: int | None = None  # of its weights; None for any size
    quantization: str = ""  # as the hub names it; empty for any
    licence: str = ""
    family: str = ""
    fitting: bool = False  # whether it must fit this machine

    def wanted(self, model: FoundModel, machine: Machine | None) -> bool:
        """Tell whether a model passes."""
        wanted = (self.quantization, self.licence, self.family)
        if any(name and name != has for name, has in zip(wanted, _names(model), strict=True)):
            return False
        if self.most_bytes is not None and (model.weight_bytes is None or model.weight_bytes > self.most_bytes):
            return False
        return not self.fitting or (machine is not None and machine.fit(sizes_found(model)) in {Fit.FITS, Fit.TIGHT})


def choices_among(found: Iterable[FoundModel]) -> tuple[list[str], ...]:
    """Return the quantisations, licences and families of models, the most frequent first."""
    counters = [Counter(filter(None, names)) for names in zip(*map(_names, found), strict=True)] or [Counter()] * 3
    return tuple(sorted(counter, key=lambda name: (-counter[name], name)) for counter in counters)


def _names(model: FoundModel) -> tuple[str, str, str]:
    return model.quantization, model.licence, model.family
