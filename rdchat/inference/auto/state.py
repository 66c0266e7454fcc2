"""What the automatic mode knows of one target, from reply to reply: what things cost, and how drafts are followed."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.files.foreign_files import entries_of
from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.auto.costs.cost_file import MEASUREMENTS, CostFile
from rdchat.inference.auto.costs.cost_model import CostModel, Part, usable
from rdchat.inference.auto.costs.measuring import (
    Measurement,
    measure_beams,
    measure_calls,
    measure_draft_model,
    measure_waits,
)
from rdchat.inference.auto.estimates.acceptance_estimates import Acceptance, AcceptanceEstimates
from rdchat.inference.auto.estimates.acceptance_file import read_acceptance
from rdchat.inference.auto.planner import Planner
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.recurrent_drafter import RecurrentModel
from rdchat.inference.models.fingerprint import target_hash
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.round_cache import has_state
from rdchat.inference.target.target import LoadedModel

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AvailableDrafters:
    """What there is to draft with, besides prompt lookup.

    Attributes:
        recurrent: A recurrent drafter; None without.
        folder: Its folder.
        draft_model: A draft model; None without.
    """

    recurrent: RecurrentModel | None = None
    folder: Path | None = None
    draft_model: DraftModel | None = None


class AutoState:
    """Serves all replies of one target.

    Args:
        model: The target.

    Attributes:
        costs: What things cost.
        padding: Whether rows without meaning may be added to a call.
        planner: Compares drafts.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._available = AvailableDrafters()
        self._known: Acceptance | None = None  # of the recurrent drafter, beforehand
        self._estimates: dict[float, AcceptanceEstimates] = {}
        self._files: dict[Part, CostFile] = {}  # of parts whose costs are known, or asked for
        self._missing: dict[Part, Callable[[], Measurement]] = {}
        self._running: tuple[Part, Measurement] | None = None
        self.costs = CostModel()
        # rows without meaning would change a recurrent state
        self.padding = not has_state(KVCache(model.network).layers)
        self.planner = Planner(self.costs, self.padding)

    @property
    def model(self) -> LoadedModel:
        """The target."""
        return self._model

    @property
    def available(self) -> AvailableDrafters:
        """What there is to draft with."""
        return self._available

    @property
    def trees(self) -> bool:
        """Whether the target verifies trees; else it gets chains."""
        return self._model.capability.kind is DraftKind.TREE

    def estimates(self, sampling: SamplingParams) -> AcceptanceEstimates:
        """Return what is known of how drafts are followed at a temperature: the warmer, the less they are."""
        return self._estimates.setdefault(round(sampling.temperature, 1), AcceptanceEstimates(self._known))

    def equip(self, available: AvailableDrafters) -> None:
        """Draft with these from now on; reads what is known of their costs on this machine."""
        if available != self._available:
            self._available = available
            self._known = read_acceptance(available.folder) if available.folder else None
            self._estimates.clear()
            self._files.clear()
        if not self._files:
            self._look_up_costs()

    def measure(self) -> bool:
        """Do a slice of what is not measured yet; return whether there is more."""
        try:
            if not self._files:
                self._look_up_costs()
        except RdchatError as error:  # the model's files are gone
            _LOG.warning("Nothing can be measured: %s", error)
            return False
        if self._running is None and self._missing:
            part = next(iter(self._missing))
            self._running = part, self._missing.pop(part)()
        if self._running is None:
            return False
        part, work = self._running
        try:
            next(work)
        except StopIteration as end:
            self.costs.use(part, self._files[part].add(end.value))
            self._running = None
        except Exception:  # a model may fail in its own ways; it is not measured again before the next start
            _LOG.exception("The cost of %s could not be measured", part.value)
            self._running = None
        return self._running is not None or bool(self._missing)

    def _look_up_costs(self) -> None:
        model, available = self._model, self._available
        works: dict[Part, tuple[str, Callable[[], Measurement]]] = {Part.CALLS: ("", lambda: measure_calls(model))}
        if (recurrent := available.recurrent) and available.folder:
            works[Part.BEAMS] = _fingerprint(available.folder), lambda: measure_beams(model, recurrent)
        if draft := available.draft_model:
            works[Part.DRAFT_MODEL] = _identity(draft.model), lambda: measure_draft_model(draft)
            if whole := model.info.weights_bytes:
                self.costs.draft_model_share = draft.model.info.weights_bytes / whole
        drafters = works.keys() - {Part.CALLS}
        if drafters:
            either = " ".join(works[part][0] for part in sorted(drafters))
            beams = recurrent if Part.BEAMS in drafters else None
            works[Part.WAITS] = either, lambda: measure_waits(model, beams, draft)
        again: dict[Part, Callable[[], Measurement]] = {}
        self._running, self._missing = None, {}
        for part in Part:
            self.costs.use(part, {})
            if part in works:
                drafter, work = works[part]
                self._files[part] = CostFile(
                    {"part": part.value, "target": _identity(model), "drafter": drafter, "mlx": version("mlx")}
                )
                known, measurements = self._files[part].read()
                if not usable(part, known):
                    self._missing[part] = work
                    continue
                self.costs.use(part, known)
                if measurements < MEASUREMENTS:
                    again[part] = work
        self._missing |= again  # after what is not known at all


def _identity(model: LoadedModel) -> str:
    """Tell a model, its precision and the device apart from others."""
    info = model.info
    return f"{target_hash(info.path)} {info.name} {info.dtype} {info.device}"


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in entries_of(folder):
        status = path.lstat()  # of a link too that leads nowhere
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode())
    return digest.hexdigest()
