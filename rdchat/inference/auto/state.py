"""The automatic mode's state of one target, kept between replies: costs of calls and drafts, and acceptance."""

import hashlib
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path

from rdchat import machine
from rdchat.errors import RdchatError
from rdchat.files.foreign_files import entries_of
from rdchat.inference.api import DraftKind, ModelInfo, SamplingParams
from rdchat.inference.auto.cost_model import MEASUREMENTS, NEAR, CostFile, CostModel, Costs, Part, usable
from rdchat.inference.auto.measuring import (
    DEEP_ROWS,
    NEAR_ROWS,
    Measurement,
    depths_of,
    measure_beams,
    measure_calls,
    measure_draft_model,
    measure_readings,
)
from rdchat.inference.auto.plan import MAX_ROWS, WIDTH
from rdchat.inference.auto.planner import AcceptanceEstimates, Planner
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead, Reading
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.inference.verification.device import device_errors, is_device_error
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.target import LoadedModel
from rdchat.machine import OtherPrograms

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AvailableDrafters:
    """The drafters besides prompt lookup.

    Attributes:
        head: The drafter head; None without one.
        folder: Folder of the drafter head.
        draft_model: The draft model; None without one.
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
        costs: Costs of calls and drafts.
        planner: Compares drafts.
        has_replied: Whether there was a reply since plain steps were last checked.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.available = AvailableDrafters()
        self._estimates: dict[float, AcceptanceEstimates] = {}
        # Only parts that concern this target.
        self._files: dict[Part, CostFile] = {}
        self._missing: dict[Part, Callable[[], Measurement]] = {}
        self._running: tuple[Part, Measurement] | None = None
        self._others = OtherPrograms()
        self.has_replied = False
        self.costs = CostModel(reads_weights_by_row(model.info))
        # A padded chain is never accepted whole, so recurrent state would be computed once more.
        self.planner = Planner(self.costs, padding=not KVCache(model.network).has_state)

    @property
    def trees(self) -> bool:
        """Whether the target verifies trees; otherwise it gets chains."""
        return self.model.capability.kind is DraftKind.TREE

    def estimates(self, sampling: SamplingParams) -> AcceptanceEstimates:
        """Return the acceptance estimates for a temperature: the higher it is, the fewer drafts are accepted."""
        return self._estimates.setdefault(round(sampling.temperature, 1), AcceptanceEstimates())

    def use_drafters(self, available: AvailableDrafters) -> None:
        """Use these drafters from now on, and read their measured costs."""
        if available != self.available:
            self.available = available
            self._estimates.clear()
            self._files.clear()
        if not self._files:
            self._look_up_costs()

    def draft_shape(self, draft: DraftModel, sampling: SamplingParams, draft_tokens: int, depth: int) -> DraftShape:
        """Return the shape of a draft model's drafts whose length is chosen by hand.

        The measured costs of calls decide the number of runner-ups; without them there are none.

        Args:
            draft: The draft model.
            sampling: Sampling parameters of the reply.
            draft_tokens: The depth of the drafts.
            depth: Tokens in the target's cache.
        """
        if not self.costs.measured or draft_tokens >= MAX_ROWS:
            return DraftShape(draft_tokens)
        known = draft is self.available.draft_model
        step_ms = self.costs.draft_model_step_ms if known else self._share_of(draft) * self.costs.plain_ms(depth)
        estimates = self.estimates(sampling)
        sizes = range(1 + draft_tokens, 1 + MAX_ROWS if self.trees else 2 + draft_tokens)
        shapes = [DraftShape.of_size(draft_tokens, size) for size in sizes]
        drafts = [(shape.nodes, estimates.chain(shape)) for shape in shapes]
        return shapes[self.planner.best_size(drafts, draft_tokens * step_ms, depth)]

    def look_up_costs(self) -> None:
        """Read the measured costs, unless that is done."""
        try:
            if not self._files:
                self._look_up_costs()
        except RdchatError as error:
            # The model's files are gone.
            _LOG.warning("The costs of the model's calls could not be read: %s", error)

    @property
    def measured_costs(self) -> dict[Part, Costs]:
        """Costs of each part that this machine has measured for the target and its drafters."""
        read = {part: file.read_costs()[0] for part, file in self._files.items()}
        return {part: costs for part, costs in read.items() if costs}

    def measure(self) -> bool:
        """Measure costs for a moment; return whether there is more to do now.

        Nothing is measured on battery, in Low Power Mode or in heat: the machine may be slower then, and measuring
        drains it.

        Raises:
            DeviceError: If the device failed; this part is not measured again before the next start.
            OutOfMemoryError: If memory ran out, likewise.
        """
        self.look_up_costs()
        if self.has_replied and self._running is None and self.costs.plain_is_doubtful:
            plainly = partial(measure_calls, self.model, [NEAR], (), self._others)
            self._missing = {Part.PLAIN: plainly, **self._missing}
        self.has_replied = False
        if not (self._running or self._missing) or _is_slowed_down():
            return False
        if self._running is None:
            part = next(iter(self._missing))
            self._running = part, self._missing.pop(part)()
        part, work = self._running
        try:
            next(work)
        except StopIteration as end:
            costs, quiet = end.value
            if part is not Part.PLAIN:
                self._use(part, self._files[part].add_measurement(costs, quiet))
            elif quiet:
                self.costs.use(part, costs)
            self._running = None
        except Exception as error:
            # A model may fail in its own way; it is not measured again before the next start.
            _LOG.exception("The costs of %s could not be measured", part.value)
            self._running = None
            if is_device_error(error):
                with device_errors("to measure"):
                    raise
        return self._running is not None or bool(self._missing)

    def _look_up_costs(self) -> None:
        model = self.model
        available = self.available
        others = self._others
        works: dict[Part, tuple[str, Callable[[], Measurement]]] = {
            Part.CALLS: ("", partial(measure_calls, model, [NEAR], NEAR_ROWS, others))
        }
        if depths := depths_of(model.info.context_length):
            works[Part.DEEP_CALLS] = "", partial(measure_calls, model, depths, DEEP_ROWS, others)
        if (head := available.head) and available.folder:
            width = WIDTH if self.trees else 1
            works[Part.BEAMS] = _fingerprint(available.folder), partial(measure_beams, model, head, width, others)
            if isinstance(head.head, BoundMtpHead) and len(head.head.readings) > 1:
                works[Part.READINGS] = _fingerprint(available.folder), partial(measure_readings, model, head)
        if draft := available.draft_model:
            works[Part.DRAFT_MODEL] = _identity(draft.model), partial(measure_draft_model, draft, others)
            self.costs.draft_model_share = self._share_of(draft)
        again: dict[Part, Callable[[], Measurement]] = {}
        self._running = None
        self._missing = {}
        for part in Part:
            self.costs.use(part, {})
            if part in works:
                drafter, work = works[part]
                self._files[part] = CostFile(
                    {"part": part.value, "target": _identity(model), "drafter": drafter, "mlx": version("mlx")}
                )
                known, measurements = self._files[part].read_costs()
                if not usable(part, known):
                    self._missing[part] = work
                    continue
                self._use(part, known)
                if measurements < MEASUREMENTS and part is not Part.READINGS:
                    again[part] = work
        # Parts without any costs come first.
        self._missing |= again

    def _use(self, part: Part, costs: Costs) -> None:
        """Use measured costs; those of MTP layers' readings decide for the one with the fewest wrong tokens."""
        if part is not Part.READINGS:
            self.costs.use(part, costs)
        elif self.available.head is not None:
            self.available.head.read_as({Reading(bool(a), bool(b)): wrong for (a, b), wrong in costs.items()})

    def _share_of(self, draft: DraftModel) -> float:
        """Guess the cost of a draft model's step, in plain steps."""
        target_bytes = self.model.info.weights_bytes
        return draft.model.info.weights_bytes / target_bytes if target_bytes else self.costs.draft_model_share


def _is_slowed_down() -> bool:
    return machine.on_battery() or machine.low_power_mode() or machine.is_hot()


def reads_weights_by_row(info: ModelInfo) -> bool:
    """Return whether a call reads the weights again for each of a few rows: quantised ones on M1 and M2.

    MLX's kernel that reads them once for several rows (`qmv_wide`) is for GPUs of generation 15, M3, and later.
    """
    return info.dtype.endswith("bit") and re.match(r"Apple M[12]\b", info.device) is not None


def _identity(model: LoadedModel) -> str:
    """Return a text that identifies a model, its precision and the device."""
    info = model.info
    return f"{target_hash(info.path)} {info.name} {info.dtype} {info.device}"


def _fingerprint(folder: Path) -> str:
    digest = hashlib.sha256()
    for path in entries_of(folder):
        # This also works for a broken link.
        status = path.lstat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
