"""Measures the cost of a round beyond its model calls: a part of `make bench`.

Rounds of a drafter, as `RoundIterator` runs them, are compared with their two halves: the draft graph alone, and the
target's call on the same packed rows alone, evaluated one after the other. The two take turns in one process, with the
order changing from round to round. The cost beyond 1.00 is choosing, accepting, committing and the host's work.

It also measures a commit with a short and with a long context: closing the round on every layer's cache and writing the
accepted rows.
"""

import argparse
import json
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx
import numpy as np

from rdchat.inference.api.events import TokenEvent
from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.requests import DraftSettings, GenerationRequest, SamplingParams
from rdchat.inference.decoding.accepted_path import accepted_path
from rdchat.inference.decoding.draft import Draft, Drafter
from rdchat.inference.decoding.ledger import Ledger
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import read_prompt
from rdchat.inference.decoding.rounds import RoundIterator
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import search_drafters
from rdchat.inference.drafting.head_drafter import HeadModel
from rdchat.inference.models.loading import load_model
from rdchat.inference.models.model_files import target_hash
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.prefix_tree import PrefixTree
from rdchat.inference.verification.target import LoadedModel
from rdchat.inference.verification.verifier import PackedTree, Verified, Verifier

CONTEXT, LONG_CONTEXT = 512, 8192
_SHAPE = DraftSettings().shape
REPLY = 48  # tokens of a reply, so that the context stays near its length
SAMPLINGS = {
    "greedy": (SamplingParams(temperature=0, max_tokens=REPLY), 1.05),
    "temperature 0.7, top-k 40, top-p 0.95": (SamplingParams(0.7, top_p=0.95, top_k=40, max_tokens=REPLY), 1.15),
}
TEXT = Path(__file__).parents[1] / "LICENSE"  # long enough, and always there


@dataclass(frozen=True)
class Timing:
    """One round, in milliseconds."""

    whole: float
    draft: float
    verify: float

    @property
    def ratio(self) -> float:
        return self.whole / (self.draft + self.verify)


class SplitRounds:
    """Makes the rounds of a reply again, each as a draft and a target call that are evaluated one after the other.

    Args:
        model: The target.
        drafter: Fresh, for this prompt; a draft model's KV cache is empty.
        prompt: Token ids.
    """

    def __init__(self, model: LoadedModel, drafter: Drafter, prompt: list[int]) -> None:
        self._cache = KVCache(model.network)
        self._drafter = drafter
        logits = read_prompt(model, self._cache, prompt)
        mx.eval(logits, model.hooks.hidden)  # what the first draft reads
        for _ in drafter.prefill(lambda: False, Ledger()):
            pass
        self._verifier = Verifier(model, self._cache)
        self._open: tuple[int, Draft, Verified] | None = None

    def run(self, root: int, limit: int) -> tuple[float, float]:
        """Open a round.

        Args:
            root: The reply's last token.
            limit: The most tokens that may be drafted.

        Returns:
            Milliseconds of its draft, and of its target call.
        """
        began = time.perf_counter()
        draft = self._drafter.propose(root, limit)
        mx.eval(*draft.tree.arrays, draft.lazy_sources)
        drafted = time.perf_counter()
        verified = self._verifier.verify(draft.tree, draft.rows or len(draft.tree))
        mx.eval(verified.logits, verified.hidden)
        self._open = root, draft, verified
        return (drafted - began) * 1e3, (time.perf_counter() - drafted) * 1e3

    def follow(self, tokens: Sequence[int]) -> bool:
        """Close the round with the tokens that it brought; False where its tree could not have brought them."""
        assert self._open is not None
        root, draft, verified = self._open
        tree = draft.tree.fetch()
        path = _path_along(tree, tokens)
        if len(path) != len(tokens):
            return False
        self._verifier.commit([root, *tokens[:-1]], path)
        self._cache.evaluate()
        self._drafter.observe(root, list(tokens), verified, path)
        return True


def _path_along(tree: PrefixTree, tokens: Sequence[int]) -> list[int]:
    """Return the nodes, the root first, that hold the tokens but for the last, which is the target's own."""
    known = min(len(tokens), int(tree.depths.max()) + 1)
    following = np.full(int(tree.depths.max()) + 1, -1)  # by depth
    following[:known] = tokens[:known]
    return accepted_path(tree, following[tree.depths])[: len(tokens)]


def next_round(events: Iterator[object]) -> list[TokenEvent]:
    """Return the events of the next round, or of the end."""
    found = []
    for event in events:
        if isinstance(event, TokenEvent):
            found.append(event)
            if event.round is not None:
                break
    return found


def measure_reply(
    model: LoadedModel, drafter: HeadModel, prompt: list[int], request: GenerationRequest
) -> Iterator[Timing]:
    """Yield the timings of a reply's rounds of full depth but for the first one."""
    job = ReplyJob.fresh(model, prompt, request)
    iterator = RoundIterator(job, drafter.drafter(prompt, request))
    events: Iterator[object] = iter(iterator)
    first, *others = next_round(events)
    halves = SplitRounds(model, drafter.drafter(prompt, request), prompt)
    tokens = [first.token_id, *(event.token_id for event in others)]
    halves.run(tokens[0], request.sampling.max_tokens - 2)
    halves.follow(tokens[1:])
    while others:
        limit, whole_first = request.sampling.max_tokens - 1 - len(tokens), len(tokens) % 2 == 0
        parts = None if whole_first else halves.run(tokens[-1], limit)
        began = time.perf_counter()
        others = next_round(events)
        whole = (time.perf_counter() - began) * 1e3
        if not others:
            break
        parts = parts or halves.run(tokens[-1], limit)
        added = [event.token_id for event in others]
        if not halves.follow(added):
            break  # the reply ended inside the round
        tokens += added
        if others[-1].round is not None and others[-1].round.drafted == _SHAPE.length - 1:
            yield Timing(whole, *parts)
    iterator.close()


def measure_rounds(model: LoadedModel, drafter: HeadModel, sampling: SamplingParams, count: int) -> list[Timing]:
    """Time rounds of as many replies as it takes."""
    timings: list[Timing] = []
    seed = 0
    while len(timings) < count:
        text = TEXT.read_text(encoding="utf-8")[1000 * seed % 8000 :]
        request = GenerationRequest((ChatMessage(Role.USER, f"Explain this text.\n\n{text}"),), sampling, seed)
        prompt = model.encode_chat(request.messages, False)
        half = CONTEXT // 2
        prompt = prompt[:half] + prompt[half - CONTEXT :]
        timings += measure_reply(model, drafter, prompt, request)
        seed += 1
        print(f"{len(timings)} of {count} rounds", file=sys.stderr)
    return timings[:count]


def measure_commits(model: LoadedModel, context: int, count: int) -> list[float]:
    """Return the milliseconds of commits whose accepted rows are not contiguous, with so many tokens in the cache."""
    rng = np.random.default_rng(0)
    cache = KVCache(model.network)
    fill(model, cache, context)
    verifier = Verifier(model, cache)
    times = []
    for _ in range(count):
        beams = rng.integers(0, model.info.vocabulary_size, (_SHAPE.width, _SHAPE.length))
        beams[:, 0] = 1
        tree = PrefixTree.from_beams(beams)
        path = tree.beam_nodes[-1].tolist()
        verified = verifier.verify(PackedTree.of(tree))
        mx.eval(verified.logits)
        began = time.perf_counter()
        verifier.commit(tree.tokens[path].tolist(), path)
        cache.evaluate()
        times.append((time.perf_counter() - began) * 1e3)
        cache.trim_to(context)
    return times


def fill(model: LoadedModel, cache: KVCache, context: int) -> None:
    """Give a cache so many tokens; what its rows hold does not matter, so the same 512 are repeated."""
    tokens = list(range(1, 1 + CONTEXT))
    trial = KVCache(model.network)
    mx.eval(model.network(mx.array([tokens]), cache=trial.layers))
    for layer, source in zip(cache.layers, trial.layers, strict=True):
        for _ in range(context // CONTEXT):
            layer.update_and_fetch(*source.buffer.view(0))
            mx.eval(layer.state)
    cache.tokens += tokens * (context // CONTEXT)


def report(timings: dict[str, list[Timing]], commits: dict[int, list[float]]) -> dict[str, Any]:
    """Return the medians."""
    rounds = []
    for name, found in timings.items():
        low, median, high = statistics.quantiles([timing.ratio for timing in found], n=4)
        parts = {
            f"{part}_ms": statistics.median(getattr(timing, part) for timing in found)
            for part in ("whole", "draft", "verify")
        }
        ratio = {"median": median, "low": low, "high": high}
        rounds.append({"sampling": name, "rounds": len(found), **parts, "ratio": ratio, "limit": SAMPLINGS[name][1]})
    medians = {context: statistics.median(times) for context, times in commits.items()}
    return {"rounds": rounds, "commit_ms": medians, "commit_ratio": medians[LONG_CONTEXT] / medians[CONTEXT]}


def show(data: dict[str, Any]) -> None:
    """Print the medians as Markdown."""
    print("| W4 L5 with the lookup branch | rounds | whole ms | draft ms | verify ms | ratio (quartiles) | limit |")
    print("|---|---|---|---|---|---|---|")
    for row in data["rounds"]:
        figures = " | ".join(f"{row[part]:.1f}" for part in ("whole_ms", "draft_ms", "verify_ms"))
        ratio = "{median:.3f} ({low:.3f} to {high:.3f})".format(**row["ratio"])
        print(f"| {row['sampling']} | {row['rounds']} | {figures} | {ratio} | {row['limit']:.2f} |")
    commits = ", ".join(f"{ms:.2f} ms at {context:,} tokens" for context, ms in data["commit_ms"].items())
    print(f"\nA commit: {commits}; ratio {data['commit_ratio']:.2f}.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model")
    parser.add_argument("--drafter", type=Path, help="drafter folder (default: the one made for the model)")
    parser.add_argument("--dtype", default="auto")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    model = load_model(args.model, args.dtype)
    folder = args.drafter or search_drafters(target_hash(model.info.path)).folder
    if folder is None:
        sys.exit(f"There is no drafter for {model.info.name}.")
    drafter = HeadModel(model, load_drafter(folder, model))
    timings = {name: measure_rounds(model, drafter, sampling, args.rounds) for name, (sampling, _) in SAMPLINGS.items()}
    commits = {context: measure_commits(model, context, args.rounds) for context in (CONTEXT, LONG_CONTEXT)}
    data = report(timings, commits)
    if args.json:
        print(json.dumps(data, indent=1))
    else:
        show(data)


if __name__ == "__main__":
    main()
