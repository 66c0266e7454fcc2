"""What the automatic mode knows of one target, from reply to reply: what things cost, and how drafts are followed."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path

from rdchat.errors import RdchatError
from rdchat.files.foreign_files import entries_of
from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.auto.acceptance_estimates import Acceptance, ChainRates, DraftValues, LookupRates, NodeRates
from rdchat.inference.auto.acceptance_file import read_acceptance
from rdchat.inference.auto.cost_file import MEASUREMENTS, CostFile
from rdchat.inference.auto.costs import CostModel, Part, usable
from rdchat.inference.auto.measuring import Measurement, measure_beams, measure_calls, measure_draft_model
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
class Equipment:
    """What there is to draft with, besides prompt lookup.

    Attributes:
        recurrent: A recurrent drafter; None without.
        folder: Its folder.
        draft_model: A draft model; None without.
    """

    recurrent: RecurrentModel | None = None
    folder: Path | None = None
    draft_model: DraftModel | None = None


@dataclass(frozen=True, slots=True)
class Followed:
    """How far the target follows each kind of draft."""

    lookup: LookupRates = field(default_factory=LookupRates)
    chains: ChainRates = field(default_factory=ChainRates)
    nodes: NodeRates = field(default_factory=NodeRates)
    values: DraftValues = field(default_factory=DraftValues)

    @classmethod
    def beginning_with(cls, known: Acceptance | None) -> "Followed":
        """Begin with what is known of the recurrent drafter."""
        return cls() if known is None else cls(nodes=NodeRates(known.rates), values=DraftValues(known.values))


class AutoState:
    """Serves all replies of one target.

    Args:
        model: The target.

    Attributes:
        costs: What things cost.
    """

    def __init__(self, model: LoadedModel) -> None:
        self._model = model
        self._equipment = Equipment()
        self._known: Acceptance | None = None  # of the recurrent drafter, beforehand
        self._followed: dict[float, Followed] = {}
        self._planner: Planner | None = None
        self._files: dict[Part, CostFile] = {}  # of parts whose costs are known, or asked for
        self._missing: dict[Part, Callable[[], Measurement]] = {}
        self._running: tuple[Part, Measurement] | None = None
        self.costs = CostModel()

    @property
    def model(self) -> LoadedModel:
        """The target."""
        return self._model

    @property
    def equipment(self) -> Equipment:
        """What there is to draft with."""
        return self._equipment

    @property
    def planner(self) -> Planner:
        """Picks plans for the target."""
        if self._planner is None:
            stateful = has_state(KVCache(self._model.network).layers)
            trees = self._model.capability.kind is DraftKind.TREE
            self._planner = Planner(self.costs, trees=trees, padding=not stateful)
        return self._planner

    def followed(self, sampling: SamplingParams) -> Followed:
        """Return what is known of how drafts are followed at a temperature: the warmer, the less they are."""
        return self._followed.setdefault(round(sampling.temperature, 1), Followed.beginning_with(self._known))

    def equip(self, equipment: Equipment) -> None:
        """Draft with these from now on; reads what is known of their costs on this machine."""
        if equipment != self._equipment:
            self._equipment = equipment
            self._known = read_acceptance(equipment.folder) if equipment.folder else None
            self._followed.clear()
            self._planner = None
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
        model, equipment = self._model, self._equipment
        works: dict[Part, tuple[str, Callable[[], Measurement]]] = {Part.CALLS: ("", lambda: measure_calls(model))}
        if (recurrent := equipment.recurrent) and equipment.folder:
            works[Part.BEAMS] = _fingerprint(equipment.folder), lambda: measure_beams(model, recurrent)
        if draft := equipment.draft_model:
            works[Part.DRAFT_MODEL] = _identity(draft.model), lambda: measure_draft_model(draft)
            if whole := model.info.weights_bytes:
                self.costs.draft_model_share = draft.model.info.weights_bytes / whole
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
