"""Counts the MLX primitives of a beam search step, of a node selection, of a choice, and of rounds as they fall.

    python scripts/count_primitives.py [--model FOLDER]

MLX exports the graph. On a GPU each primitive is a launch, except those that only make views; a sort of more than 2,048
columns is several launches. The graph counted is that for a GPU.
"""

import argparse
import io
import re
import sys
from collections import Counter
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
import mlx.core as mx

from rdchat.inference.api.events import ReplyEnd, TokenEvent
from rdchat.inference.api.requests import (
    BeamShape,
    ChatMessage,
    DraftSettings,
    GenerationRequest,
    Mode,
    Role,
    SamplingParams,
)
from rdchat.inference.decoding import reductions
from rdchat.inference.decoding.sampling import TokenChooser
from rdchat.inference.drafting.beam_search import best_nodes
from rdchat.inference.drafting.checkpoints.drafter_folder import load_drafter
from rdchat.inference.drafting.checkpoints.installed_drafters import search_drafters
from rdchat.inference.drafting.head_drafter import HeadDrafter, HeadModel
from rdchat.inference.models.loading import load_model
from rdchat.inference.models.model_files import target_hash
from rdchat.inference.session import ChatSession
from rdchat.inference.target.target import LoadedModel
from rdchat.inference.target.verifier import Verifier

VIEWS = {  # these compute nothing, they only describe where data is
    "AsStrided",
    "Broadcast",
    "BroadcastAxes",
    "Depends",
    "ExpandDims",
    "Flatten",
    "Reshape",
    "Slice",
    "Split",
    "Squeeze",
    "StopGradient",
    "Transpose",
    "Unflatten",
    "View",
}

SAMPLINGS = {
    "greedy": SamplingParams(temperature=0),
    "temperature 1, no filter": SamplingParams(temperature=1, top_p=1),
    "temperature 0.7, top-p 0.95": SamplingParams(),
    "temperature 0.7, top-k 40, top-p 0.95": SamplingParams(top_k=40),
}

ROUNDS = {
    "drafter, W4 L5 with branch": DraftSettings(Mode.DRAFTER),
    "drafter, W4 L5": DraftSettings(Mode.DRAFTER, lookup_branch=False),
    "prompt lookup": DraftSettings(Mode.LOOKUP),
}
PROMPTS = (
    "Explain in three sentences how a hash table works.",
    "Write a haiku about the sea, then write it again.",
    "List the planets of the solar system with one fact each.",
    "Correct the spelling of this text and repeat it: The wheather was lovly on the morning that we left the harbor.",
)


def primitives(*arrays: mx.array | None) -> Counter[str]:
    """Return the primitives that evaluating lazy arrays would run, by name, without those that only make views."""
    dot = io.StringIO()
    mx.export_to_dot(dot, *(array for array in arrays if array is not None))
    names = re.findall(r'label ="(\w+)", shape=rectangle', dot.getvalue())
    return Counter(name for name in names if name not in VIEWS)


def drafter(model: LoadedModel, recurrent: HeadModel, sampling: SamplingParams) -> HeadDrafter:
    request = GenerationRequest((ChatMessage(Role.USER, "-"),), sampling)
    made = recurrent.drafter([0], request)
    mx.eval(model.network(mx.array([[0]])), model.hooks.hidden)
    return made


def rounds(model: LoadedModel, settings: DraftSettings, temperature: float) -> tuple[float, float, float]:
    """Return what a round of real replies has: tokens, primitives, and the share whose accepted rows are in place."""
    session, counted, in_place = ChatSession(model), [], []

    def counting(plain: Callable[..., None]) -> Callable[..., None]:
        def run(*groups: Any) -> None:
            arrays = [array for group in groups for array in (group if isinstance(group, list | tuple) else [group])]
            counted.append(primitives(*(each for each in arrays if isinstance(each, mx.array))).total())
            plain(*groups)

        return run

    def noted(verifier: Verifier, tokens: list[int], path: list[int]) -> None:
        in_place.append(path == list(range(len(path))))
        commit(verifier, tokens, path)

    commit, tokens, calls = Verifier.commit, 0, 0
    for prompt in PROMPTS:
        messages, sampling = (ChatMessage(Role.USER, prompt),), SamplingParams(temperature, max_tokens=48)
        events = session.generate(GenerationRequest(messages, sampling, seed=7, draft=settings))
        next(event for event in events if isinstance(event, TokenEvent))
        with (
            patch.object(mx, "eval", counting(mx.eval)),
            patch.object(mx, "async_eval", counting(mx.async_eval)),
            patch.object(Verifier, "commit", noted),
        ):
            *_, end = events
        assert isinstance(end, ReplyEnd)
        tokens, calls = tokens + end.statistics.generated_tokens - 1, calls + end.statistics.rounds
    return tokens / calls, sum(counted) / calls, sum(in_place) / calls


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model")
    args = parser.parse_args()
    model = load_model(args.model)
    folder = search_drafters(target_hash(model.info.path)).folder
    if folder is None:
        sys.exit(f"{model.info.name} has no drafter.")
    recurrent = HeadModel(model, load_drafter(folder, model))
    vocabulary = model.info.vocabulary_size
    print("| sampling | beam step, W 1 | beam step, W 4 | choice, 1 row | choice, chain of 5 | choice, tree of 13 |")
    print("|---|---|---|---|---|---|")
    with patch.object(reductions, "on_gpu", lambda: True):
        for name, sampling in SAMPLINGS.items():
            cells = []
            for width in (1, 4):
                made = drafter(model, recurrent, sampling)
                pools = [made.search(7, BeamShape(width, length)) for length in (4, 5)]
                # along one beam its score is not asked for
                wanted = [(p.tokens, p.parents) if width == 1 else (p.tokens, p.parents, p.scores) for p in pools]
                short, long = (primitives(*arrays) for arrays in wanted)
                cells.append((long - short).total())
            chooser = TokenChooser(sampling, 1, vocabulary)
            mx.eval(chooser._token_ids)
            for rows, deepest in ((1, 0), (5, 4), (13, 4)):
                logits, depths = mx.zeros((rows, vocabulary)), mx.array([min(i, deepest) for i in range(rows)])
                mx.eval(logits, depths)
                cells.append(primitives(*chooser.choose_quickly(logits, 40, depths, deepest)).total())
            print(f"| {name} | {' | '.join(map(str, cells))} |")
        pool = drafter(model, recurrent, SAMPLINGS["greedy"]).search(7, BeamShape(4, 5))
        mx.eval(pool.tokens, pool.parents, pool.scores)
        selected = [primitives(*best_nodes(pool, 16, branch)[0].arrays).total() for branch in ([], [5, 6, 7, 8])]
        print(f"\nSelecting 16 nodes: {selected[0]}; with a branch of 4 tokens: {selected[1]}.")
        print("\n| rounds of real replies | temperature | tokens | primitives | accepted rows in place |")
        print("|---|---|---|---|---|")
        for name, settings in ROUNDS.items():
            for temperature in (0, 0.9):
                found, launched, placed = rounds(model, settings, temperature)
                print(f"| {name} | {temperature} | {found:.2f} | {launched:.0f} | {100 * placed:.0f} % |", flush=True)


if __name__ == "__main__":
    main()
