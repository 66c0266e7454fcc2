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
from dataclasses import dataclass
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import cast

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx
import numpy as np
from chips import CHIPS, Chip

from rdchat.files.atomic_file import atomic_file
from rdchat.inference.api.prompt_files import read_prompts
from rdchat.inference.api.requests import BeamShape, ChatMessage, GenerationRequest, Mode, Role, SamplingParams
from rdchat.inference.auto.acceptance_estimates import Acceptance
from rdchat.inference.auto.acceptance_file import read_acceptance
from rdchat.inference.auto.costs import CostModel
from rdchat.inference.auto.drafter import SHADOW, AutoDrafter
from rdchat.inference.auto.plan import LENGTHS, LONGEST, WIDTHS
from rdchat.inference.auto.planner import Planner
from rdchat.inference.auto.state import AutoState, Equipment, Followed
from rdchat.inference.decoding.autoregressive import Step
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import Clock, ReplyJob
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafting.drafter_folder import load_drafter
from rdchat.inference.drafting.drafter_search import find_drafter
from rdchat.inference.drafting.lookup import LookupDrafter, LookupIndex
from rdchat.inference.drafting.recurrent_beam import NodePool
from rdchat.inference.drafting.recurrent_drafter import RecurrentDrafter, RecurrentModel, RecurrentSettings
from rdchat.inference.models.fingerprint import target_hash
from rdchat.inference.models.loading import load_model
from rdchat.inference.target.kv_cache import KVCache
from rdchat.inference.target.packed_tree import PackedTree
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verified

NOTHING = Verified(mx.zeros((1, 1)), mx.zeros((1, 1)))
STEP = Step(0, mx.zeros((1, 1)), None, None, mx.array([0]), mx.array([True]), None)
AUTO = "auto"
FIXED = {"lookup": 0, **{f"W{width}": width for width in (1, 4, 8)}}  # beams; 0 for prompt lookup
BEAM_LENGTH, LOOKUP_TOKENS = 5, 4


@dataclass(frozen=True)
class Record:
    """A plain reply, and for each of its tokens but the last the drafts of all widths below it."""

    prompt: list[int]
    reply: list[int]
    pools: dict[int, list[NodePool]]

    @property
    def last(self) -> int:
        return len(self.reply) - 1


class Recorder(Drafter):
    """Offers nothing and keeps all drafts."""

    name = "recorder"

    def __init__(self, drafter: RecurrentDrafter) -> None:
        self._drafter = drafter
        self.pools: dict[int, list[NodePool]] = {width: [] for width in WIDTHS}

    def propose(self, root: int, limit: int) -> Draft:
        alone = self._drafter.propose(root, 0)
        for width, pools in self.pools.items():
            pool = self._drafter.search(root, BeamShape(width, LONGEST))
            mx.eval(pool.tokens, pool.parents, pool.scores)
            pools.append(pool)
        return alone

    def observe(self, tokens: list[int], verified: Verified, path: list[int]) -> None:
        self._drafter.observe(tokens, verified, path)


def record(model: LoadedModel, recurrent: RecurrentModel, request: GenerationRequest, file: Path) -> None:
    """Answer plainly and keep reply and drafts."""
    prompt = model.encode_chat(request.messages, continue_last=False)
    job = ReplyJob(model, KVCache(model.network), prompt, request, Ledger(), Clock())
    recorder = Recorder(recurrent.drafter(prompt, request, RecurrentSettings(lookup_branch=False), job.ledger))
    *_, end = RoundIterator(job, recorder)
    columns = {"prompt": np.array(prompt), "reply": np.array(end.token_ids)}  # type: ignore[union-attr]
    for width, pools in recorder.pools.items():
        for name in ("tokens", "parents", "scores"):
            columns[f"{name} {width}"] = np.array([np.array(getattr(pool, name)) for pool in pools])
    with atomic_file(file) as draft:
        np.savez(draft, **columns)  # type: ignore[arg-type]


def read(file: Path) -> Record | None:
    """Read what `record` kept; None where nothing could be drafted in the reply."""
    with np.load(file) as data:
        if len(data["reply"]) < 2:
            return None
        pools: dict[int, list[NodePool]] = {}
        for width in WIDTHS:
            columns = [data[f"{name} {width}"] for name in ("tokens", "parents", "scores")]
            size = (columns[0].shape[1] - 1) // (LONGEST - 1)
            pools[width] = [
                NodePool(mx.array(tokens), mx.array(parents), mx.array(scores), size, LONGEST - 1)
                for tokens, parents, scores in zip(*columns, strict=True)
            ]
        return Record(data["prompt"].tolist(), data["reply"].tolist(), pools)


class Recorded(RecurrentDrafter):
    """The recurrent drafter of a recorded reply, whose drafts are looked up instead of searched."""

    def __init__(self, record: Record, width: int = 1) -> None:  # no network: nothing of the parent's is set up
        self._record, self._at = record, 0
        self._settings = RecurrentSettings(BeamShape(width, BEAM_LENGTH))
        self.searched: BeamShape | None = None  # since this was last set to None
        self._hidden = NOTHING.hidden
        self._ledger, self._trees = Ledger(), True
        self._index = LookupIndex([*record.prompt, record.reply[0]])

    def search(self, root: int, shape: BeamShape) -> NodePool:
        self.searched = shape
        pool, levels = self._record.pools[shape.width][self._at], shape.length - 1
        kept = 1 + levels * pool.level_size
        return NodePool(pool.tokens[:kept], pool.parents[:kept], pool.scores[:kept], pool.level_size, levels)

    def observe(self, tokens: list[int], verified: Verified, path: list[int]) -> None:
        self._at += len(tokens)
        self._index.extend(tokens)


class World:
    """Stands in for what serves all replies of a target that takes trees.

    Args:
        costs: What it takes a machine to cost, and learns from.
        followed: What it knows of drafts.
    """

    def __init__(self, costs: CostModel, followed: Followed) -> None:
        self.costs, self.planner = costs, Planner(costs)
        self.equipment = Equipment(cast(RecurrentModel, self))
        self._followed = followed
        self.record: Record
        self.recorded: Recorded  # the drafter of its reply

    def followed(self, sampling: SamplingParams) -> Followed:
        return self._followed

    def drafter(self, *_: object) -> Recorded:
        self.recorded = Recorded(self.record)
        return self.recorded


def accepted(tree: PackedTree, text: list[int]) -> int:
    """Return how far a tree goes along a text."""
    tokens, parents, node = np.array(tree.tokens), np.array(tree.parents), 0
    for depth, token in enumerate(text):
        right = np.flatnonzero((parents == node) & (tokens == token))
        if not right.size:
            return depth
        node = int(right[0])
    return len(text)


def round_of(drafter: Drafter, record: Record, at: int) -> tuple[Draft, int]:
    """Make a round below token `at`; return what was offered and how many tokens came."""
    limit = record.last - at - 1
    draft = drafter.propose(record.reply[at], limit)
    length = accepted(draft.tree, record.reply[at + 1 : at + 1 + limit])
    drafter.observe(record.reply[at + 1 : at + 2 + length], NOTHING, list(range(length + 1)))
    return draft, length + 1


def beams_ms(costs: CostModel, shape: BeamShape) -> float:
    """Return what a recurrent draft costs."""
    return float(costs.beams_ms()[WIDTHS.index(shape.width), int(np.searchsorted(LENGTHS, shape.length))])


def round_ms(costs: CostModel, mode: Mode, depth: int, draft: Draft, shape: BeamShape | None) -> float:
    """Return what a round costs with so many tokens in the cache; `shape` is that of its beams, if it had any."""
    rows = max(draft.rows, len(draft.tree))
    return (beams_ms(costs, shape) if shape else 0.0) + float(costs.calls_ms(mode, depth)[rows])


def plain_ms(record: Record, costs: CostModel) -> float:
    """Return the time of a reply decoded plainly."""
    return sum(costs.plain_ms(len(record.prompt) + at) for at in range(record.last))


def fixed_ms(record: Record, costs: CostModel, width: int) -> float:
    """Return the time of a reply with fixed settings: so many beams, or prompt lookup."""
    mode = Mode.RECURRENT if width else Mode.LOOKUP
    drafter = Recorded(record, width) if width else LookupDrafter(list(record.prompt), LOOKUP_TOKENS)
    total, at = 0.0, 0
    while at < record.last:
        draft, tokens = round_of(drafter, record, at)
        shape = drafter.searched if isinstance(drafter, Recorded) else None
        total += round_ms(costs, mode, len(record.prompt) + at, draft, shape)
        at += tokens
    return total


def automatic_ms(record: Record, world: World, costs: CostModel) -> float:
    """Return the time of a reply decoded automatically, in the order of `AutoIterator`, where these are the costs."""
    world.record = record
    request = GenerationRequest((ChatMessage(Role.USER, "?"),), SamplingParams(temperature=0))
    auto = AutoDrafter(cast(AutoState, world), record.prompt, request, Ledger())
    auto.begin(record.reply[0])
    queued, total, at, mixed = False, 0.0, 0, 2
    while at < record.last:
        room, depth = record.last - at - 1, len(record.prompt) + at
        if not queued and auto.wants_round(room):
            world.recorded.searched = None
            draft, tokens = round_of(auto, record, at)
            ms = round_ms(costs, Mode(auto.name), depth, draft, world.recorded.searched)
            auto.took_round(ms, usual=True)
            at, total, mixed = at + tokens, total + ms, max(mixed, 1)
            continue
        ms = costs.plain_ms(depth) if queued else float(costs.calls_ms(Mode.OFF, depth)[1])
        queued = room > 0 and not auto.wants_to_stop(room - 1)
        usual, mixed = queued and not mixed, max(mixed - 1, 0)
        auto.took_step(ms, usual)
        auto.follow(record.reply[at], record.reply[at + 1], STEP)
        at, total = at + 1, total + ms
        shadow = auto.shadow() if usual else None
        if shadow and auto.draft_in_shadow():
            total, mixed = total + SHADOW * beams_ms(costs, shadow[0]), 2
    auto.close(len(record.prompt) + record.last)
    return total


def compare(records: dict[str, list[Record]], chip: Chip, known: Acceptance | None) -> Iterator[str]:
    """Yield the cells of a machine's row: over all, then by group."""
    world, costs = World(chip.costs(), Followed.beginning_with(known)), chip.costs()
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
        medians = {name: float(np.median(values)) for name, values in of_group.items()}
        best = max(FIXED, key=lambda name: medians[name])
        best_of_all = f"{best} {medians[best]:.2f}" if medians[best] > 1 else "off 1.00"
        yield f"{medians[AUTO]:.2f} ({best_of_all}; {medians[AUTO] / max(medians[best], 1.0):.2f})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--records", type=Path, required=True, help="folder that keeps the replies and drafts")
    parser.add_argument("--model")
    parser.add_argument("--tokens", type=int, default=64, help="of a reply")
    parser.add_argument("--temperature", type=float, default=0.0)
    args = parser.parse_args()
    model = load_model(args.model)
    folder = find_drafter(model)
    if folder is None:
        sys.exit(f"{model.info.name} has no recurrent drafter.")
    recurrent = RecurrentModel(model, load_drafter(folder, model))
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
    for chip in CHIPS:
        print(f"| {chip.name} | {' | '.join(compare(records, chip, read_acceptance(folder)))} |", flush=True)


if __name__ == "__main__":
    main()
