"""The automatic mode of one target: its state between replies, and the drafter of each reply.

`AutoState` learns acceptance from all replies, and measures the costs of calls and drafts while the app is idle, in
parts (`Part`), slice by slice on the engine thread. `AutoDrafter` makes the drafts that its `Controller` plans.
"""

import hashlib
import logging
import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import override

from rdchat import machine
from rdchat.errors import RdchatError
from rdchat.files import entries_of
from rdchat.inference.api import (
    BeamShape,
    DraftKind,
    GenerationRequest,
    Mode,
    NodeSource,
    SamplingParams,
    Stage,
)
from rdchat.inference.auto.controller import ChosenRound, Controller
from rdchat.inference.auto.cost_model import (
    MAX_ROWS,
    MEASUREMENTS,
    NEAR,
    CostFile,
    CostModel,
    Costs,
    Part,
    WeightReads,
    usable,
)
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
from rdchat.inference.auto.planner import WIDTH, AcceptanceEstimates, Planner, Source, draft_model_source, head_source
from rdchat.inference.decoding.draft import BegunDraft, Draft, Drafter, LazyPath
from rdchat.inference.decoding.ledger import Ledger, TimedPolicy
from rdchat.inference.decoding.loop import RoundPlan
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.device import device_errors, is_device_error
from rdchat.inference.drafting.draft_model import DraftModel, DraftModelDrafter
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel
from rdchat.inference.drafting.heads.mtp_head import BoundMtpHead, Reading
from rdchat.inference.drafting.lookup import lookup_draft
from rdchat.inference.drafting.lookup_index import NgramModel
from rdchat.inference.models.safetensors_file import target_hash
from rdchat.inference.verification import KVCache, LoadedModel, Verified
from rdchat.machine import OtherPrograms

_LOG = logging.getLogger(__name__)
# A draft model first reads the tokens that were not drafted with it. Where these are more, the round's time is not
# typical, and nothing is learnt from it.
_MAX_UNREAD = 4


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
        has_replied: Whether there was a reply since the last `measure`, which clears it; `ChatSession` sets it.
    """

    def __init__(self, model: LoadedModel) -> None:
        self.model = model
        self.available = AvailableDrafters()
        # By temperature.
        self._estimates: dict[float, AcceptanceEstimates] = {}
        # The files of measured costs; only of parts that this target and its drafters have. Empty until they are read,
        # and again after `use_drafters` had other drafters.
        self._files: dict[Part, CostFile] = {}
        # What starts each measurement that is still to be made, in order. One that begins is taken out.
        self._missing: dict[Part, Callable[[], Measurement]] = {}
        # The measurement that goes on at the next `measure`.
        self._running: tuple[Part, Measurement] | None = None
        self._others = OtherPrograms()
        self.has_replied = False
        self.costs = CostModel(weight_reads(model))
        # A padded chain is never accepted whole, and then recurrent state is computed once more.
        self.planner = Planner(self.costs, padding=not KVCache(model.network).has_state)

    @property
    def trees(self) -> bool:
        """Whether the target verifies trees; otherwise it gets chains."""
        return self.model.capability.kind is DraftKind.TREE

    @property
    def width(self) -> int:
        """Beams of a head's draft."""
        return WIDTH if self.trees else 1

    def estimates(self, sampling: SamplingParams) -> AcceptanceEstimates:
        """Return the acceptance estimates for a temperature: the higher it is, the fewer drafts are accepted."""
        return self._estimates.setdefault(round(sampling.temperature, 1), AcceptanceEstimates())

    def use_drafters(self, available: AvailableDrafters) -> None:
        """Use these drafters from now on, and read their measured costs."""
        # Other drafters have other costs and acceptance, so `look_up_costs` reads all again.
        if available != self.available:
            self.available = available
            self._estimates.clear()
            self._files.clear()
        self.look_up_costs()

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
        # The root and the chain, then one runner-up more each time; a target that takes no trees has the chain alone.
        sizes = range(1 + draft_tokens, 1 + MAX_ROWS if self.trees else 2 + draft_tokens)
        shapes = [DraftShape.of_size(draft_tokens, size) for size in sizes]
        drafts = [(shape.nodes, estimates.chain(shape)) for shape in shapes]
        return shapes[self.planner.best_size(drafts, draft_tokens * step_ms, depth)]

    def look_up_costs(self) -> None:
        """Read the measured costs, unless that is done. Where the model's files are gone, none are known."""
        try:
            if not self._files:
                self._read_costs()
        except RdchatError as error:
            # The model's files are gone.
            _LOG.warning("The costs of the model's calls could not be read: %s", error)

    @property
    def measured_costs(self) -> dict[Part, Costs]:
        """Costs of each part that this machine has measured for the target and its drafters."""
        return {part: costs for part, file in self._files.items() if (costs := file.read_costs()[0])}

    @property
    def unmeasured(self) -> int:
        """Number of measurements that `measure` has not ended yet."""
        return len(self._missing) + bool(self._running)

    def measure(self) -> bool:
        """Measure costs for a moment; return whether there is more to do now.

        The measurement under way goes on. Otherwise the next one begins: plain steps if a reply left them in doubt,
        then the parts without costs, then those with too few measurements.

        Nothing is measured on battery, in Low Power Mode or in heat: the machine may be slower then, and measuring
        drains it.

        Raises:
            DeviceError: If the device failed; this part is not measured again before the next start.
            OutOfMemoryError: If memory ran out, likewise.
        """
        self.look_up_costs()
        if self.has_replied and self._running is None and self.costs.plain_is_doubtful:
            # Plain steps again, before all else.
            measure_plain = partial(measure_calls, self.model, [NEAR], (), self._others)
            self._missing = {Part.PLAIN: measure_plain, **self._missing}
        self.has_replied = False
        if not (self._running or self._missing) or machine.slowed_by():
            return False
        if self._running is None:
            part = next(iter(self._missing))
            self._running = part, self._missing.pop(part)()
        part, measurement = self._running
        try:
            next(measurement)
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
                # `device_errors` turns it into one of the errors above.
                with device_errors("to measure"):
                    raise
        return self._running is not None or bool(self._missing)

    def _read_costs(self) -> None:
        """Use the measured costs of each part that the target and its drafters have; list what is to be measured."""
        model = self.model
        available = self.available
        others = self._others
        # For each part the identity of its drafter, and what starts its measurement.
        works: dict[Part, tuple[str, Callable[[], Measurement]]] = {
            Part.CALLS: ("", partial(measure_calls, model, [NEAR], NEAR_ROWS, others))
        }
        if depths := depths_of(model.info.context_length):
            works[Part.DEEP_CALLS] = "", partial(measure_calls, model, depths, DEEP_ROWS, others)
        if (head := available.head) and available.folder:
            fingerprint = _fingerprint(available.folder)
            works[Part.BEAMS] = fingerprint, partial(measure_beams, model, head, self.width, others)
            if isinstance(head.head, BoundMtpHead) and len(head.head.readings) > 1:
                works[Part.READINGS] = fingerprint, partial(measure_readings, model, head)
        if draft := available.draft_model:
            works[Part.DRAFT_MODEL] = _identity(draft.model), partial(measure_draft_model, draft, others)
            self.costs.draft_model_share = self._share_of(draft)
        # Parts with too few measurements.
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
                # Readings are no times, so other work cannot have disturbed them, and once is enough.
                if measurements < MEASUREMENTS and part is not Part.READINGS:
                    again[part] = work
        # Parts without any costs come first.
        self._missing |= again

    def _use(self, part: Part, costs: Costs) -> None:
        """Use measured costs of a part.

        Those of `Part.READINGS` are no times but wrong tokens in a hundred: the head takes the reading with the fewest.
        """
        if part is not Part.READINGS:
            self.costs.use(part, costs)
        elif self.available.head is not None:
            self.available.head.read_as({Reading(bool(a), bool(b)): wrong for (a, b), wrong in costs.items()})

    def _share_of(self, draft: DraftModel) -> float:
        """Guess the cost of a draft model's step, in plain steps: as its weights to the target's."""
        target_bytes = self.model.info.weights_bytes
        return draft.model.info.weights_bytes / target_bytes if target_bytes else self.costs.draft_model_share


class AutoDrafter(Drafter):
    """Drafts for one reply as its controller plans; see `Drafter`.

    Args:
        state: Costs and estimates of the target and its drafters.
        job: Prompt and request.
        ngrams_for: Returns what an n-gram table expects in a reply; asked where there is no other drafter.

    Attributes:
        controller: Plans each call.
    """

    name = "auto"

    def __init__(
        self,
        state: AutoState,
        job: ReplyJob,
        ngrams_for: Callable[[GenerationRequest], NgramModel | None] = lambda _: None,
    ) -> None:
        prompt = job.prompt
        request = job.request
        self._ledger = job.ledger
        estimates = state.estimates(request.sampling)
        head = state.available.head
        draft_model = state.available.draft_model
        self._head = head.drafter(prompt, request, job.ledger) if head else None
        model = DraftModelDrafter(draft_model, prompt, request, job.ledger) if draft_model else None
        self._draft_model = model
        sources: list[Source] = []
        if model:
            sources.append(draft_model_source(estimates.chains, state.costs, lambda: model.unread, state.trees))
        if head:
            sources.append(head_source(estimates.head, state.costs, state.width, head.head.max_drafted))
        # Beside a head or a draft model, n-grams were measured to gain nothing: docs/adr/0045.
        ngrams = None if sources else ngrams_for(request)
        self.controller = Controller(
            state.planner,
            estimates,
            prompt,
            sources,
            trees=state.trees,
            earlier=request.earlier,
            ngrams=ngrams,
            forced=job.matcher.forced if job.matcher else lambda _limit: (),
        )
        self.policy = TimedPolicy(self.controller, job.ledger)

    @property
    @override
    def parts(self) -> Sequence[Drafter]:
        return [part for part in (self._head, self._draft_model) if part]

    @override
    def planned(self, plan: RoundPlan) -> Drafter:
        assert isinstance(plan, ChosenRound)
        mode = plan.choice.plan.mode
        drafter = self._head if mode is Mode.DRAFTER else self._draft_model if mode is Mode.SPECULATIVE else None
        return _PlannedDrafter(plan, self.controller, self._ledger, drafter)

    @override
    def stop_source(self, source: str) -> None:
        self.controller.stop_drafter(Mode(source))


@dataclass(frozen=True, slots=True)
class _PlannedDrafter(Drafter):
    """Makes the draft of one round.

    Attributes:
        chosen: The round's plan.
        controller: Says whether the next draft begins ahead.
        ledger: Takes the time of prompt lookup.
        drafter: Drafts; None for prompt lookup.
    """

    chosen: ChosenRound
    controller: Controller
    ledger: Ledger
    drafter: HeadDrafter | DraftModelDrafter | None

    @override
    def propose(self, root: int, limit: int) -> Draft:
        plan = self.chosen.choice.plan
        rows = plan.rows
        usual = True
        match self.drafter:
            case HeadDrafter() as head:
                draft = head.draft_in_shape(root, BeamShape(plan.width, min(plan.length, 1 + limit)), plan.nodes)
            case DraftModelDrafter() as model:
                usual = model.unread <= _MAX_UNREAD
                draft = model.draft_in_shape(root, limit, DraftShape.of_size(plan.length - 1, plan.nodes))
                # Fewer are drafted where the draft model's context is nearly full. Then the plan's rows do not fit, and
                # 0 has them chosen for the nodes there are (see `Draft.rows`).
                rows = rows if draft.tree.deepest + 1 >= plan.length else 0
            case None:
                with self.ledger.stage(Stage.LOOKUP):
                    draft = lookup_draft(root, self.chosen.looked_up.cut(plan.nodes - 1))
                    if self.chosen.is_forced:
                        draft = replace(draft, sources=[NodeSource.SHAPE] * len(draft.tree))
        return replace(draft, rows=rows, drafter=plan.mode.value, usual=usual)

    @override
    def drafts_ahead(self, limit: int) -> bool:
        return self.controller.begins_ahead(self.chosen.choice.plan, limit)

    @override
    def draft_ahead(self, path: LazyPath, verified: Verified) -> BegunDraft | None:
        assert isinstance(self.drafter, HeadDrafter)
        plan = self.chosen.choice.plan
        return self.drafter.search_ahead(path, verified, BeamShape(plan.width, plan.length))


def weight_reads(model: LoadedModel) -> WeightReads:
    """Return how a call with a few rows reads the weights; only on M1 and M2 not once for several rows.

    MLX has kernels that do, but below GPUs of generation 15, M3, only for MXFP4 and the other floating-point modes of
    quantisation (`qmv_wide`), not for affine ones, nor for 16 bits (`gemv_wide`).
    """
    if not re.match(r"Apple M[12]\b", model.info.device):
        return WeightReads.SHARED
    # Bytes of the quantised weights, by mode.
    sizes = Counter[str]()
    for layer in model.network.modules():
        if "scales" in layer:
            sizes[getattr(layer, "mode", "affine")] += layer.weight.nbytes
    if not sizes:
        return WeightReads.TILED
    mode, _ = sizes.most_common(1)[0]
    return WeightReads.BY_ROW if mode == "affine" else WeightReads.SHARED


def _identity(model: LoadedModel) -> str:
    """Return a text that identifies a model, its precision, the device, and a CPU's kernels."""
    info = model.info
    return f"{target_hash(info.path)} {info.name} {info.dtype} {info.computed_with}"


def _fingerprint(folder: Path) -> str:
    """Return a hash of names, sizes and times of a folder's files, which identifies a drafter head."""
    digest = hashlib.sha256()
    for path in entries_of(folder):
        # This also works for a broken link.
        status = path.lstat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}\n".encode("utf-8", "surrogateescape"))
    return digest.hexdigest()
