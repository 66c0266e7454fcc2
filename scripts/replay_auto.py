"""The automatic mode beside fixed settings on real texts and drafts, on the cost curves of machines that are not here.

    python scripts/replay_auto.py PROMPTS --records FOLDER [--tokens 64] [--temperature 0]

Each prompt is answered once, plainly, and at each token a draft of every width is searched and kept. What any setting
would have offered, and what of it the target would have accepted, is then known without the model. So every mode
decodes the same replies again in seconds, in simulated time: without noise, on any cost curve of
`scripts/chips.py`. Records are kept; an interrupted run goes on where it was.
"""

import argparse
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx
import numpy as np
from chips import CHIPS, Chip

from rdchat.files.atomic_file import atomic_file
from rdchat.inference.api.prompt_files import read_prompts
from rdchat.inference.api.requests import BeamShape, ChatMessage, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.auto.auto_drafter import AutoDrafter
from rdchat.inference.auto.control_loop import Done, decode
from rdchat.inference.auto.controller import OFF_PATH
from rdchat.inference.auto.costs.cost_model import CostModel
from rdchat.inference.auto.estimates.acceptance_calibration import record_drafts
from rdchat.inference.auto.estimates.acceptance_estimates import Acceptance, AcceptanceEstimates
from rdchat.inference.auto.estimates.acceptance_file import read_acceptance
from rdchat.inference.auto.plan import LONGEST, WIDTHS
from rdchat.inference.auto.planner import Planner
from rdchat.inference.auto.state import AutoState, AvailableDrafters
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.drafting.beam_search import DevicePool
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.drafter_search import find_drafter
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel, HeadSettings
from rdchat.inference.drafting.heads.head import Head
from rdchat.inference.drafting.lookup import LookupDrafter
from rdchat.inference.drafting.lookup_index import LookupIndex
from rdchat.inference.models.fingerprint import target_hash
from rdchat.inference.models.loading import load_model
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verified

NOTHING = Verified(mx.zeros((1, 1)), mx.zeros((1, 1)))
AUTO = "auto"
MOST_DRAFTED = LONGEST - 1  # behind a root, by the recorded drafter
FIXED = {"lookup": 0, **{f"W{width}": width for width in (1, 4, 8)}}  # beams; 0 for prompt lookup
BEAM_LENGTH, LOOKUP_TOKENS = 5, 4
SLOWER = 0.98  # of plain decoding: below is slower


@dataclass(frozen=True)
class Record:
    """A plain reply, and for each of its tokens but the last the drafts of all widths below it."""

    prompt: list[int]
    reply: list[int]
    pools: dict[int, list[DevicePool]]

    @property
    def last(self) -> int:
        return len(self.reply) - 1


def record(model: LoadedModel, recurrent: HeadModel, request: GenerationRequest, file: Path) -> None:
    """Answer plainly and keep reply and drafts."""
    prompt, reply, pools = record_drafts(model, recurrent, request, WIDTHS)
    columns = {"prompt": np.array(prompt), "reply": np.array(reply)}
    for width, of_width in pools.items():
        for name in ("tokens", "parents", "scores"):
            columns[f"{name} {width}"] = np.array([getattr(pool, name) for pool in of_width])
    with atomic_file(file) as temporary:
        np.savez(temporary, **columns)  # type: ignore[arg-type]


def read(file: Path) -> Record | None:
    """Read what `record` kept; None where nothing could be drafted in the reply."""
    with np.load(file) as data:
        if len(data["reply"]) < 2:
            return None
        pools = dict[int, list[DevicePool]]()
        for width in WIDTHS:
            columns = [data[f"{name} {width}"] for name in ("tokens", "parents", "scores")]
            pools[width] = [
                DevicePool(mx.array(tokens), mx.array(parents), mx.array(scores), MOST_DRAFTED, width)
                for tokens, parents, scores in zip(*columns, strict=True)
            ]
        return Record(data["prompt"].tolist(), data["reply"].tolist(), pools)


class Recorded(HeadDrafter):
    """The recurrent drafter of a recorded reply, whose drafts are looked up instead of searched."""

    def __init__(self, record: Record, width: int = 1) -> None:  # no network: nothing of the parent's is set up
        self._record, self._at = record, 0
        self._head = cast(Head, SimpleNamespace(most_drafted=MOST_DRAFTED, remembers=False, drafts_ahead=True))
        self._settings = HeadSettings(BeamShape(width, BEAM_LENGTH))
        self.searched: BeamShape | None = None  # since this was last set to None
        self._hidden = NOTHING.hidden
        self._ledger, self._trees = Ledger(), True
        self._index = LookupIndex([*record.prompt, record.reply[0]])

    def search(self, root: int, shape: BeamShape) -> DevicePool:
        self.searched = shape
        return self._record.pools[shape.width][self._at].cut(shape.length - 1)

    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        self._at += len(tokens)
        self._index.extend(tokens)


class World:
    """Stands in for what serves all replies of a target that takes trees.

    Args:
        costs: What it takes a machine to cost, and learns from.
        estimates: What it knows of drafts.
    """

    trees = padding = drafts_ahead = True
    most_drafted = MOST_DRAFTED

    def __init__(self, costs: CostModel, estimates: AcceptanceEstimates) -> None:
        self.costs, self.planner = costs, Planner(costs)
        self.available = AvailableDrafters(cast(HeadModel, self))
        self._estimates = estimates
        self.record: Record
        self.recorded: Recorded  # the drafter of its reply

    def estimates(self, sampling: SamplingParams) -> AcceptanceEstimates:
        return self._estimates

    def drafter(self, *_: object) -> Recorded:
        self.recorded = Recorded(self.record)
        return self.recorded


class Replay:
    """The automatic mode's `Work` on a recorded reply, in the time that a machine would take.

    Args:
        record: The reply.
        world: What the mode knows.
        costs: The machine's.
    """

    exact = False

    def __init__(self, record: Record, world: World, costs: CostModel) -> None:
        world.record = record
        request = GenerationRequest((ChatMessage(Role.USER, "?"),), SamplingParams(temperature=0))
        self.auto = AutoDrafter(cast(AutoState, world), record.prompt, request, Ledger())
        self._record, self._world, self._costs = record, world, costs
        self._at = -1  # place of the last token in the reply
        self._queued = False
        self.ms = 0.0

    @property
    def room(self) -> int | None:
        return self._record.last - self._at - 1 if self._at < self._record.last else None

    @property
    def depth(self) -> int:
        return len(self._record.prompt) + self._at

    def stage(self, name: str) -> AbstractContextManager[object]:
        return nullcontext()

    def round(self) -> Done[None]:
        recorded = self._world.recorded
        recorded.searched = None
        draft, tokens = round_of(self.auto, self._record, self._at)
        ms = round_ms(self._costs, Mode(draft.drafter), self.depth, draft, recorded.searched)
        self._at, self.ms = self._at + len(tokens), self.ms + ms
        return Done((), tokens, ms)

    def step(self, queue: bool) -> Done[None]:
        ms = 0.0
        if self._at >= 0:
            costs = self._costs
            ms = costs.plain_ms(self.depth) if self._queued else float(costs.calls_ms(Mode.OFF, self.depth)[1])
            self.auto.follow(self._record.reply[self._at], self._record.reply[self._at + 1], NOTHING)
        self._at, self._queued, self.ms = self._at + 1, queue, self.ms + ms
        return Done((), [self._record.reply[self._at]], ms, queue)

    def draft_off_path(self, shape: BeamShape) -> None:
        self.auto.draft_off_path(shape)
        self.ms += OFF_PATH * self._costs.beam_ms(shape)


def accepted(tree: PackedTree, text: list[int]) -> int:
    """Return how far a tree goes along a text."""
    tokens, parents, node = np.array(tree.tokens), np.array(tree.parents), 0
    for depth, token in enumerate(text):
        right = np.flatnonzero((parents == node) & (tokens == token))
        if not right.size:
            return depth
        node = int(right[0])
    return len(text)


def round_of(drafter: Drafter, record: Record, at: int) -> tuple[Draft, list[int]]:
    """Make a round below token `at`; return what was offered and the tokens that came."""
    limit = record.last - at - 1
    draft = drafter.propose(record.reply[at], limit)
    length = accepted(draft.tree, record.reply[at + 1 : at + 1 + limit])
    tokens = record.reply[at + 1 : at + 2 + length]
    drafter.observe(record.reply[at], tokens, NOTHING, list(range(length + 1)))
    return draft, tokens


def round_ms(costs: CostModel, mode: Mode, depth: int, draft: Draft, shape: BeamShape | None) -> float:
    """Return what a round costs with so many tokens in the cache; `shape` is that of its beams, if it had any."""
    rows = max(draft.rows, len(draft.tree))
    draft_ms = costs.beam_ms(shape) if shape else 0.0
    return draft_ms + float(costs.calls_ms(mode, depth)[rows])


def plain_ms(record: Record, costs: CostModel) -> float:
    """Return the time of a reply decoded plainly."""
    return sum(costs.plain_ms(len(record.prompt) + at) for at in range(record.last))


def fixed_ms(record: Record, costs: CostModel, width: int) -> float:
    """Return the time of a reply with fixed settings: so many beams, or prompt lookup."""
    mode = Mode.DRAFTER if width else Mode.LOOKUP
    drafter = Recorded(record, width) if width else LookupDrafter(list(record.prompt), LOOKUP_TOKENS)
    total, at = 0.0, 0
    while at < record.last:
        draft, tokens = round_of(drafter, record, at)
        shape = drafter.searched if isinstance(drafter, Recorded) else None
        total += round_ms(costs, mode, len(record.prompt) + at, draft, shape)
        at += len(tokens)
    return total


def automatic_ms(record: Record, world: World, costs: CostModel) -> float:
    """Return the time of a reply decoded automatically, where these are the costs."""
    replay = Replay(record, world, costs)
    list(decode(replay, replay.auto.controller))
    replay.auto.close(len(record.prompt) + record.last)
    return replay.ms


def compare(records: dict[str, list[Record]], chip: Chip, known: Acceptance | None) -> Iterator[str]:
    """Yield the cells of a machine's row, over all, then by group: geometric means of speed over plain decoding.

    Those are auto's; in brackets the best fixed setting's, or off where none is faster, and auto over that one. Over
    all it says how many replies were slower than plain decoding, and by how much.
    """
    world, costs = World(chip.costs(), AcceptanceEstimates(known)), chip.costs()
    ratios: dict[str, dict[str, list[float]]] = {group: {name: [] for name in (AUTO, *FIXED)} for group in records}
    for turn in zip_longest(*records.values()):
        for group, record in zip(records, turn, strict=True):
            if record is not None:
                plain = plain_ms(record, costs)
                ratios[group][AUTO].append(plain / automatic_ms(record, world, costs))
                for name, width in FIXED.items():
                    ratios[group][name].append(plain / fixed_ms(record, costs, width))
    everything = {name: [ratio for of_group in ratios.values() for ratio in of_group[name]] for name in (AUTO, *FIXED)}
    for of_group in (everything, *ratios.values()):
        means = {name: float(np.exp(np.mean(np.log(values)))) for name, values in of_group.items()}
        best = max(FIXED, key=lambda name: means[name])
        best_of_all = f"{best} {means[best]:.2f}" if means[best] > 1 else "off 1.00"
        cell = f"{means[AUTO]:.2f} ({best_of_all}; {means[AUTO] / max(means[best], 1.0):.2f})"
        if of_group is everything:
            slower = sum(ratio < SLOWER for ratio in of_group[AUTO])
            cell += f", {slower} below {SLOWER}, lowest {min(of_group[AUTO]):.2f}"
        yield cell


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--records", type=Path, required=True, help="folder that keeps the replies and drafts")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=64, help="of a reply")
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--machines", nargs="+", default=[chip.name for chip in CHIPS], help="of `scripts/chips.py`")
    args = parser.parse_args()
    model = load_model(args.model)
    folder = find_drafter(model)
    if folder is None:
        sys.exit(f"{model.info.name} has no recurrent drafter.")
    recurrent = HeadModel(model, load_drafter(folder, model))
    weights = (folder / "model.safetensors").read_bytes()
    made_with = f"{target_hash(model.info.path)} {model.info.dtype} {sha256(weights).hexdigest()} {args.temperature}"
    args.records.mkdir(parents=True, exist_ok=True)
    records: dict[str, list[Record]] = {}
    prompts = read_prompts(args.prompts)
    for number, prompt in enumerate(prompts, start=1):
        message = ChatMessage(Role.USER, prompt.text)
        request = GenerationRequest((message,), SamplingParams(args.temperature, max_tokens=args.tokens))
        file = args.records / f"{sha256(f'{made_with} {args.tokens} {prompt.text}'.encode()).hexdigest()[:16]}.npz"
        if not file.exists():
            print(f"Reply {number} of {len(prompts)}", file=sys.stderr)
            record(model, recurrent, request, file)
        if (kept := read(file)) is not None:
            records.setdefault(prompt.group, []).append(kept)
    print(f"| machine | all | {' | '.join(records)} |\n{'|---' * (2 + len(records))}|")
    for chip in (chip for chip in CHIPS if chip.name in args.machines):
        print(f"| {chip.name} | {' | '.join(compare(records, chip, read_acceptance(folder)))} |", flush=True)


if __name__ == "__main__":
    main()
