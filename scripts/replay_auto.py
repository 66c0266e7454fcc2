"""Replays recorded replies with the automatic mode, in simulated time, on cost curves of other machines.

    python scripts/replay_auto.py PROMPTS --records FOLDER

Each prompt is answered once, plainly, at temperatures 0 and 0.9, and all that drafters offer at each token is stored
(see `replay_records.py`). So it is known without the model what any setting would offer, and what the target would
accept of it. The mode decodes the same replies in seconds: without noise, on any cost curve of `scripts/chips.py`, in
each of `SCENARIOS`. Figures are speeds over plain decoding, as geometric means by group.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx
import numpy as np
from chips import CHIPS, STEP_MS, Chip
from replay_records import MAX_DRAFTED, Record, Recorder

from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.model_facts import DraftKind
from rdchat.inference.api.prompt_files import first_of_each_group, read_prompts
from rdchat.inference.api.requests import BeamShape, GenerationRequest, Mode, SamplingParams
from rdchat.inference.auto.acceptance import AcceptanceEstimates
from rdchat.inference.auto.auto_drafter import AutoDrafter
from rdchat.inference.auto.cost_model import PLAIN_STEP, CostModel, Part
from rdchat.inference.auto.plan import LENGTHS, MAX_ROWS
from rdchat.inference.auto.planner import Planner
from rdchat.inference.auto.state import AutoState, AvailableDrafters
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.loop import Call, CallResult, decode
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.drafting.beam_search import NodePool
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import search_drafters
from rdchat.inference.drafting.draft_model import DraftModel
from rdchat.inference.drafting.draft_shape import DraftShape
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel
from rdchat.inference.drafting.heads.head import Head
from rdchat.inference.drafting.lookup_index import LookupTree
from rdchat.inference.models.loading import load_model
from rdchat.inference.models.model_files import target_hash
from rdchat.inference.verification.verifier import PackedTree, Verified

NOTHING = Verified(mx.zeros((1, 1)), mx.zeros((1, 1)))
NO_BRANCH = LookupTree()
# Share of plain decoding below which a reply counts as slower.
SLOWER = 0.98
# Tokens in the cache where deep calls are measured, and that a deep scenario adds.
FAR, DEEP = 4096, 6000
# Plain steps that a wait takes on a GPU.
WAIT_BEFORE_CALL, WAIT_BETWEEN_STEPS = 0.2, 0.08
# Plain steps that a GPU takes to read and write the recurrent state of all layers: 0.3 GB beside 15 GB of weights in a
# model of 27B and 4 bits, 0.1 beside 2.4 in one of 4B.
STATE = 0.03
# More tokens than this that are fed again get a call of their own.
MAX_PENDING = 8
# Plain steps that a draft model's call of 1 row and of 16 rows takes.
DRAFT_STEP, DRAFT_16 = 0.2, 0.35


@dataclass(frozen=True)
class Scenario:
    """What the machine has, and what is known of it.

    Attributes:
        head: Whether there is a drafter head.
        pair: Whether there is a draft model.
        temperature: Temperature of the replies.
        waits: Whether the device idles while the host waits for it in a round.
        depth: Tokens in the cache before the prompt.
        measured: Whether costs were measured before.
        dearer: Real cost of rounds over the measured one.
        state: How a target with recurrent state verifies; None for one without.
    """

    head: bool = True
    pair: bool = False
    temperature: float = 0.0
    waits: bool = False
    depth: int = 0
    measured: bool = True
    dearer: float = 1.0
    state: DraftKind | None = None


SCENARIOS = {
    "head": Scenario(),
    "head, T 0.9": Scenario(temperature=0.9),
    "head, waits": Scenario(waits=True),
    "head, T 0.9, waits, deep": Scenario(temperature=0.9, waits=True, depth=DEEP),
    "head, costs not measured": Scenario(measured=False),
    "head, rounds dearer": Scenario(dearer=1.3),
    "draft model": Scenario(head=False, pair=True),
    "draft model, T 0.9": Scenario(head=False, pair=True, temperature=0.9),
    "draft model, waits": Scenario(head=False, pair=True, waits=True),
    "draft model, T 0.9, deep": Scenario(head=False, pair=True, temperature=0.9, depth=DEEP),
    "both, waits": Scenario(pair=True, waits=True),
    "lookup": Scenario(head=False),
    "hybrid, fed again": Scenario(state=DraftKind.FED_AGAIN),
    "hybrid, chains": Scenario(state=DraftKind.CHAIN),
    "hybrid, trees": Scenario(state=DraftKind.TREE),
    "hybrid, fed again, T 0.9": Scenario(temperature=0.9, state=DraftKind.FED_AGAIN),
    "hybrid, chains, T 0.9": Scenario(temperature=0.9, state=DraftKind.CHAIN),
    "hybrid, trees, T 0.9": Scenario(temperature=0.9, state=DraftKind.TREE),
}


@dataclass(frozen=True)
class Tree:
    """A tree on the host, in place of a `PackedTree`."""

    tokens: Sequence[int]
    parents: Sequence[int]
    deepest: int

    def __len__(self) -> int:
        return len(self.tokens)


class NoLedger(Ledger):
    """Waits for nothing: all is on the host."""

    def wait(self, *arrays: Any) -> None: ...

    def queue(self, *arrays: Any) -> None: ...


class RecordedHead(HeadDrafter):
    """The head of a recorded reply, whose drafts are looked up instead of searched."""

    began_ahead = False
    max_drafted = MAX_DRAFTED  # read by `AutoDrafter`

    def __init__(self, record: Record) -> None:  # no network: nothing of the parent's is set up
        self._record, self._at = record, 0
        self._head = cast(Head, SimpleNamespace(max_drafted=MAX_DRAFTED, remembers=False))
        self.searched: BeamShape | None = None  # in this round
        self.begun: BeamShape | None = None  # ahead, in the round before

    def search(self, root: int, shape: BeamShape) -> NodePool:
        self.searched = shape
        self.began_ahead = self.begun == shape
        return self._record.pools[shape.width][self._at].cut(shape.length - 1)

    def offer(self, pool: Any, nodes: int, branch: LookupTree = NO_BRANCH) -> Draft:
        best = np.sort(np.argsort(-pool.scores, kind="stable")[:nodes])
        index_of = {-1: -1, **{int(node): n for n, node in enumerate(best)}}
        parents = [index_of[int(pool.parents[node])] for node in best]
        return Draft(cast(PackedTree, Tree(pool.tokens[best], parents, pool.levels)))

    def search_ahead(self, path: Any, verified: Verified, shape: BeamShape) -> Any:
        self.begun = shape
        nothing = mx.zeros(1)
        return NodePool(nothing, nothing, nothing, 1)

    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        self._at += len(tokens)

    def close(self, length: int) -> None: ...


class RecordedDraftModel(Drafter):
    """The draft model of a recorded reply; see `DraftModelDrafter`.

    Attributes:
        steps: Calls that it made for the last draft; 0 where it made none.
        fed: Rows that the first of these calls had.
        unread: Tokens before the root that its cache lacks.
    """

    name = "speculative"

    def __init__(self, record: Record) -> None:
        self._record, self._at = record, 0  # Index of the root in the reply.
        self.unread, self.steps, self.fed = 1, 0, 0
        self._shape = DraftShape(1)

    def take_shape(self, shape: DraftShape) -> None:
        self._shape = shape

    def propose(self, root: int, limit: int) -> Draft:
        record, at = self._record, self._at
        self.steps, self.fed = max(min(self._shape.draft_tokens, limit, record.last - at), 1), 1 + self.unread
        self.unread = 0
        ranked = [record.candidates[at + 1 + step][: self._shape.candidates(step)] for step in range(self.steps)]
        tokens = [root, *(tokens[0] for tokens in ranked), *(token for tokens in ranked for token in tokens[1:])]
        parents = [*range(-1, self.steps), *(step for step, tokens in enumerate(ranked) for _ in tokens[1:])]
        return Draft(cast(PackedTree, Tree(tokens, parents, self.steps)))

    def observe(self, root: int, tokens: list[int], verified: Verified, path: list[int]) -> None:
        self._at += len(tokens)
        if self.steps:
            self.unread = int(self.steps in path)  # the last token of the chain was never fed
        else:
            self.unread += len(tokens)
        self.steps = 0


class World:
    """Stands in for what serves all replies of a target, its head and its draft model.

    Args:
        costs: What it takes a machine to cost, and learns from.
        scenario: What there is.
    """

    def __init__(self, costs: CostModel, scenario: Scenario) -> None:
        self.trees, padding = scenario.state in (None, DraftKind.TREE), scenario.state is None
        self.costs, self.planner = costs, Planner(costs, padding)
        head = cast(HeadModel, self) if scenario.head else None
        pair = cast(DraftModel, SimpleNamespace(drafter=self._pair)) if scenario.pair else None
        self.available = AvailableDrafters(head, None, pair)
        self._estimates = AcceptanceEstimates()
        self.record: Record
        self.head: RecordedHead | None = None
        self.pair: RecordedDraftModel | None = None

    def estimates(self, sampling: SamplingParams) -> AcceptanceEstimates:
        return self._estimates

    def drafter(self, *_: object) -> RecordedHead:
        self.head = RecordedHead(self.record)
        return self.head

    def _pair(self, *_: object, **__: object) -> RecordedDraftModel:
        self.pair = RecordedDraftModel(self.record)
        return self.pair


class Replay:
    """The automatic mode's `Calls` on a recorded reply, in the time that a machine would take.

    Args:
        record: The reply.
        world: What the mode knows.
        costs: What the machine really costs.
        scenario: What else is true of it.
    """

    def __init__(self, record: Record, world: World, costs: CostModel, scenario: Scenario) -> None:
        world.record = record
        sampling = SamplingParams(temperature=scenario.temperature)
        request = GenerationRequest((ChatMessage(Role.USER, "?"),), sampling)
        prompt = [*range(-scenario.depth - 1, -1), *record.prompt]  # behind tokens of which no two are alike
        job = SimpleNamespace(prompt=prompt, request=request, ledger=NoLedger(), matcher=None)
        self.auto = AutoDrafter(cast(AutoState, world), cast(ReplyJob, job))
        self._record, self._world, self._costs, self._scenario = record, world, costs, scenario
        self._prompt = len(prompt)
        self._at = -1  # Index of the last token in the reply.
        self._queued = False
        # Accepted tokens to feed again.
        self._pending = 0
        self.ms = 0.0

    @property
    def room(self) -> int | None:
        return self._record.last - self._at - 1 if self._at < self._record.last else None

    def first(self) -> CallResult[None]:
        return replace(self.step(queue=False), call=Call.FIRST)

    def round(self) -> CallResult[None]:
        world, record, at = self._world, self._record, self._at
        limit = record.last - at - 1
        begun = world.head.begun if world.head else None
        if world.head:
            world.head.searched = None
        draft = self.auto.propose(record.reply[at], limit)
        path = accepted(draft.tree, record.reply[at + 1 : at + 1 + limit])
        tokens = record.reply[at + 1 : at + 1 + len(path)]
        ms = self._draft_ms(Mode(draft.drafter)) + self._in_vain(begun)
        if self._pending > MAX_PENDING:
            ms += self._catch_up()
        rows = self._pending + max(draft.rows, len(draft.tree))
        calls_ms = self._costs.calls_ms(Mode(draft.drafter), self._prompt + at)
        ms += float(calls_ms[min(rows, MAX_ROWS)]) * self._scenario.dearer
        ms += self._commit(len(path), rows)
        if world.head:
            world.head.begun = None
        if self.auto.drafts_ahead(record.last - at - 1 - len(tokens)):
            self.auto.draft_ahead(cast(Any, None), NOTHING)
        for part in self.auto.parts:
            part.observe(record.reply[at], tokens, NOTHING, path)
        self._at, self.ms = at + len(tokens), self.ms + ms
        return CallResult(Call.ROUND, (), tokens, ms, usual=self.auto.usual)

    def _commit(self, accepted: int, rows: int) -> float:
        """Return what committing the accepted part of recurrent state takes; note what is fed again instead."""
        state, whole = self._scenario.state, self._pending + accepted == rows
        self._pending = self._pending + accepted if state is DraftKind.FED_AGAIN and not whole else 0
        return STATE * STEP_MS if state in (DraftKind.CHAIN, DraftKind.TREE) and not whole else 0.0

    def _catch_up(self) -> float:
        """Return what a call takes that feeds accepted tokens again; nothing waits for it."""
        rows, self._pending = self._pending, 0
        depth = self._prompt + self._at
        calls_ms = self._costs.calls_ms(Mode.OFF, depth)
        return float(calls_ms[min(rows, MAX_ROWS)] - calls_ms[1]) + self._costs.plain_ms(depth) if rows else 0.0

    def _draft_ms(self, mode: Mode) -> float:
        """Return what the round's draft takes: what was measured holds waits that a round does not have."""
        before_call = WAIT_BEFORE_CALL * STEP_MS if self._scenario.waits else 0.0
        between_steps = WAIT_BETWEEN_STEPS * STEP_MS if self._scenario.waits else 0.0
        head, pair = self._world.head, self._world.pair
        if mode is Mode.DRAFTER:
            assert head
            assert head.searched
            return max(self._beam_ms(head.searched) - before_call * (1 + head.began_ahead), -before_call)
        if mode is Mode.SPECULATIVE:
            assert pair
            return self._costs.draft_model_ms(pair.steps, pair.fed - 1) - between_steps * (pair.steps - 1)
        return 0.0

    def _beam_ms(self, shape: BeamShape) -> float:
        return float(self._costs.beams_ms(shape.width)[np.searchsorted(LENGTHS, shape.length)])

    def _in_vain(self, begun: BeamShape | None) -> float:
        """Return what a draft took that was begun ahead and is of no use."""
        used = self._world.head and self._world.head.searched
        return self._beam_ms(begun) if begun and not used else 0.0

    def step(self, queue: bool) -> CallResult[None]:
        ms, head = self._catch_up(), self._world.head
        if self._at >= 0:
            costs, depth = self._costs, self._prompt + self._at
            ms += costs.plain_ms(depth) if self._queued else float(costs.calls_ms(Mode.OFF, depth)[1])
            for part in self.auto.parts:
                part.observe(self._record.reply[self._at], [self._record.reply[self._at + 1]], NOTHING, [0])
        if head:
            head.searched = None
            ms += self._in_vain(head.begun)
            head.begun = None
        self._at, self._queued, self.ms = self._at + 1, queue, self.ms + ms
        return CallResult(Call.STEP, (), [self._record.reply[self._at]], ms, queue)


def accepted(tree: PackedTree, text: list[int]) -> list[int]:
    """Return the nodes of a tree that a text takes, the root first."""
    tokens, parents, path = np.array(tree.tokens).tolist(), np.array(tree.parents).tolist(), [0]
    for token in text:
        below = (node for node, parent in enumerate(parents) if parent == path[-1])
        right = [node for node in below if tokens[node] == token]
        if not right:
            break
        path.append(right[0])
    return path


def costs_of(chip: Chip, state: DraftKind | None) -> CostModel:
    """Return the cost model that measuring the machine would give; trees with half as many leaves as nodes."""
    costs = chip.costs()
    near = costs.calls_ms(Mode.OFF, 128)
    if state is DraftKind.TREE:  # a state for each further path
        near = near + STATE * STEP_MS * np.maximum(np.arange(MAX_ROWS + 1) // 2 - 1, 0)
        calls = {(rows, 128): float(near[rows]) for rows in range(1, MAX_ROWS + 1)}
        costs.use(Part.CALLS, {(PLAIN_STEP, 128): STEP_MS, **calls})
    far = near + STEP_MS * (0.25 + 0.05 * np.maximum(np.arange(MAX_ROWS + 1) - 8, 0))  # fused attention takes 8 rows
    calls = {(rows, FAR): float(far[rows]) for rows in range(1, MAX_ROWS + 1)}
    costs.use(Part.DEEP_CALLS, {(PLAIN_STEP, FAR): 1.25 * STEP_MS, **calls})
    costs.use(Part.DRAFT_MODEL, {(1, 0): DRAFT_STEP * STEP_MS, (16, 0): DRAFT_16 * STEP_MS})
    return costs


def plain_ms(record: Record, costs: CostModel, depth: int) -> float:
    """Return the time of a reply decoded plainly."""
    return sum(costs.plain_ms(depth + len(record.prompt) + at) for at in range(record.last))


def speeds(records: dict[str, list[Record]], chip: Chip, scenario: Scenario) -> dict[str, list[float]]:
    """Return by group the speed of each reply over plain decoding; what one reply teaches serves the next."""
    costs = costs_of(chip, scenario.state)
    believed = costs_of(chip, scenario.state) if scenario.measured else CostModel()
    world = World(believed, scenario)
    by_group = dict[str, list[float]]()
    for turn in range(max(map(len, records.values()))):
        for group, of_group in records.items():
            if turn < len(of_group):
                record = of_group[turn]
                replay = Replay(record, world, costs, scenario)
                list(decode(replay, replay.auto.controller))
                for part in replay.auto.parts:
                    part.close(len(record.prompt) + record.last)
                by_group.setdefault(group, []).append(plain_ms(record, costs, scenario.depth) / replay.ms)
    return by_group


def mean(values: Sequence[float]) -> float:
    """Return the geometric mean."""
    return float(np.exp(np.mean(np.log(values))))


def row(name: str, by_group: dict[str, list[float]]) -> str:
    """Return a line of the table: over all, how many replies were slower than plain decoding, and by group."""
    every = [speed for of_group in by_group.values() for speed in of_group]
    slower = sum(speed < SLOWER for speed in every)
    cells = [
        f"{mean(every):.3f}, {slower} below {SLOWER}",
        *(f"{mean(of_group):.3f}" for of_group in by_group.values()),
    ]
    return f"| {name} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--records", type=Path, required=True, help="folder that keeps the replies and drafts")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=48, help="of a reply")
    parser.add_argument("--count", type=int, default=3, help="prompts of each group")
    parser.add_argument("--machines", nargs="+", default=[chip.name for chip in CHIPS], help="of `scripts/chips.py`")
    parser.add_argument("--scenarios", nargs="+", default=list(SCENARIOS))
    args = parser.parse_args()
    model = load_model(args.model)
    folder = search_drafters(target_hash(model.info.path)).folder
    if folder is None:
        sys.exit(f"{model.info.name} has no drafter.")
    head = HeadModel(model, load_drafter(folder, model))
    recorder = Recorder(model, head, args.records, (folder / "model.safetensors").read_bytes())
    prompts = first_of_each_group(read_prompts(args.prompts), args.count)
    records = dict[float, dict[str, list[Record]]]()
    for temperature in sorted({SCENARIOS[name].temperature for name in args.scenarios}):
        for prompt in prompts:
            message = ChatMessage(Role.USER, prompt.text)
            request = GenerationRequest((message,), SamplingParams(temperature, max_tokens=args.tokens))
            if (record := recorder.record(request)) is not None:
                records.setdefault(temperature, {}).setdefault(prompt.group, []).append(record)
    for name in args.scenarios:
        scenario = SCENARIOS[name]
        groups = records[scenario.temperature]
        print(f"\n| {name} | all | {' | '.join(groups)} |\n{'|---' * (2 + len(groups))}|")
        for chip in (chip for chip in CHIPS if chip.name in args.machines):
            by_group = speeds(groups, chip, scenario)
            print(row(chip.name, by_group), flush=True)


if __name__ == "__main__":
    main()
