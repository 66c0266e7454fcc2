"""What the automatic mode knows of one target from reply to reply: the costs of calls and drafts, and acceptance."""

import hashlib
import logging
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from rdchat import machine
from rdchat.errors import RdchatError
from rdchat.files.foreign_files import entries_of
from rdchat.inference.api.requests import SamplingParams
from rdchat.inference.auto.acceptance import Acceptance, AcceptanceEstimates
from rdchat.inference.auto.acceptance_file import read_acceptance
from rdchat.inference.auto.cost_file import MEASUREMENTS, CostFile
from rdchat.inference.auto.cost_model import CostModel, Part, usable
from rdchat.inference.auto.measuring import (
    Measurement,
    OtherPrograms,
    depths_of,
    lacks_rows,
    measure_beams,
    measure_calls,
    measure_deep_calls,
    measure_draft_model,
)
from rdchat.inference.auto.plan import MOST_ROWS
from rdchat.inference.auto.planner import Planner
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.models.fingerprint import target_hash
from rdchat.inference.target.capability import DraftKind
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.round_cache import has_state
from rdchat.inference.target.target import LoadedModel

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AvailableDrafters:
    """The drafters besides prompt lookup.

    Attributes:
        head: A drafter head; None without.
        folder: Its folder.
        draft_model: A draft model; None without.
    """

    head: HeadModel | None = None
    folder: Path | None = None
    draft_model: DraftModel | None = None


class AutoState:
    """Serves all replies of one target: keeps its estimates, and measures costs while the app is idle.

    Args:
        model: The target.

    Attributes:
        model: The same.
        available: The drafters besides prompt lookup.
        costs: Of calls and drafts.
        planner: Compares drafts.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.available = AvailableDrafters()
        self._known: Acceptance | None = None  # of the drafter head
        self._estimates: dict[float, AcceptanceEstimates] = {}
        self._files: dict[Part, CostFile] = {}  # of the parts that concern this target
        self._missing: dict[Part, Callable[[], Measurement]] = {}
        self._running: tuple[Part, Measurement] | None = None
        self._others = OtherPrograms()
        self.costs = CostModel()
        # rows without meaning would change a recurrent state
        self.planner = Planner(self.costs, padding=not has_state(KVCache(model.network).layers))

    @property
    def trees(self) -> bool:
        """Whether the target verifies trees; else it gets chains."""
        return self.model.capability.kind is DraftKind.TREE

    def estimates(self, sampling: SamplingParams) -> AcceptanceEstimates:
        """Return how far drafts are followed at a temperature: the warmer, the less they are."""
        return self._estimates.setdefault(round(sampling.temperature, 1), AcceptanceEstimates(self._known))

    def equip(self, available: AvailableDrafters) -> None:
        """Draft with these from now on; read their measured costs."""
        if available != self.available:
            self.available = available
            self._known = read_acceptance(available.folder) if available.folder else None
            self._estimates.clear()
            self._files.clear()
        if not self._files:
            self._look_up_costs()

    def draft_shape(self, draft: DraftModel, sampling: SamplingParams, draft_tokens: int, depth: int) -> DraftShape:
        """Return the shape of a draft model's drafts where their length is chosen by hand.

        The measured costs of calls decide how many runner-ups it has; without them it has the usual number.

        Args:
            draft: The draft model.
            sampling: How the reply's tokens are chosen.
            draft_tokens: The depth of the drafts.
            depth: Tokens in the target's cache.
        """
        shapes = [shape for shape in draft.shapes(draft_tokens, range(MOST_ROWS + 1)) if shape.nodes <= MOST_ROWS]
        if not (self.costs.measured and shapes):
            return draft.usual_shape(draft_tokens)
        known = draft is self.available.draft_model
        step_ms = self.costs.draft_model_step_ms if known else self._share_of(draft) * self.costs.plain_ms(depth)
        estimates = self.estimates(sampling)
        drafts = [(shape.nodes, estimates.chain(shape)) for shape in shapes]
        return shapes[self.planner.best_size(drafts, draft_tokens * step_ms, depth)]

    def look_up_costs(self) -> None:
        """Read the measured costs, unless that was done."""
        try:
            if not self._files:
                self._look_up_costs()
        except RdchatError as error:  # the model's files are gone
            _LOG.warning("Nothing is known of what the model's calls cost: %s", error)

    def measure(self) -> bool:
        """Measure costs for a moment; return whether there is more to do now.

        On battery nothing is measured: a machine may be slower then, and its charge is not for this.
        """
        self.look_up_costs()
        if not (self._running or self._missing) or machine.on_battery():
            return False
        if self._running is None:
            part = next(iter(self._missing))
            self._running = part, self._missing.pop(part)()
        part, work = self._running
        try:
            next(work)
        except StopIteration as end:
            costs, quiet = end.value
            self.costs.use(part, self._files[part].add(costs, quiet))
            self._running = None
        except Exception:  # a model may fail in its own ways; it is not measured again before the next start
            _LOG.exception("The cost of %s could not be measured", part.value)
            self._running = None
        return self._running is not None or bool(self._missing)

    def _look_up_costs(self) -> None:
        model, available, others = self.model, self.available, self._others
        works: dict[Part, tuple[str, Callable[[], Measurement]]] = {
            Part.CALLS: ("", lambda: measure_calls(model, others))
        }
        if depths_of(model.info.context_length):
            works[Part.DEEP_CALLS] = "", lambda: measure_deep_calls(model, others)
        if (head := available.head) and available.folder:
            works[Part.BEAMS] = _fingerprint(available.folder), lambda: measure_beams(model, head, others)
        if draft := available.draft_model:
            works[Part.DRAFT_MODEL] = _identity(draft.model), lambda: measure_draft_model(draft, others)
            self.costs.draft_model_share = self._share_of(draft)
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
                if measurements < MEASUREMENTS or (part is Part.CALLS and lacks_rows(known)):
                    again[part] = work
        self._missing |= again  # after what is not known at all

    def _share_of(self, draft: DraftModel) -> float:
        """Guess what a draft model's step costs, in plain steps."""
        whole = self.model.info.weights_bytes
        return draft.model.info.weights_bytes / whole if whole else self.costs.draft_model_share


def _identity(model: LoadedModel) -> str:
    """Return a text that tells a model, its precision and the device apart from others."""
    info = model.info
    return f"{target_hash(info.path)} {info.name} {info.dtype} {info.device}"


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in entries_of(folder):
        status = path.lstat()  # of a link too that leads nowhere
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
