"""Replays greedy replies with prompt lookup: tokens a call and verified rows, without the model.

    python scripts/replay_lookup.py PROMPTS --records FILE.jsonl [--every 5] [--store] [--draft-tokens 4]

Each prompt is answered once, plainly, several at a time, and kept in a file. Of every 5 prompts the first is measured;
with --store lookup also has the replies to the others. Replies that loop, with a fifth of their runs of 8 tokens
repeated, are shown apart.
"""

import argparse
import json
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rdchat.inference.api.messages import ChatMessage, Role
from rdchat.inference.api.prompt_files import Prompt, read_prompts
from rdchat.inference.drafting.lookup_index import LookupIndex, LookupTree, max_nodes
from rdchat.inference.drafting.reply_index import ReplyIndex

if TYPE_CHECKING:
    from rdchat.inference.verification.target import LoadedModel

LOOPS, RUN = 0.2, 8
BATCH = 16  # replies made at once
Record = dict[str, Any]  # text and group of a prompt; token ids of prompt and reply


def recorded(prompts: Sequence[Prompt], file: Path, tokens: int, model_name: str | None) -> list[Record]:
    """Return a model's replies, made where the file lacks them; an interrupted run goes on where it was."""
    kept = (
        {record["text"]: record for record in map(json.loads, file.read_text().splitlines())} if file.exists() else {}
    )
    if missing := [prompt for prompt in prompts if prompt.text not in kept]:
        from rdchat.inference.models.loading import load_model  # noqa: PLC0415  MLX: only where it is needed

        model = load_model(model_name)
        asked: list[Record] = []
        for prompt in missing:
            ids = model.encode_chat((ChatMessage(Role.USER, prompt.text),), continue_last=False)
            asked.append({"text": prompt.text, "group": prompt.group, "prompt": ids})
        asked.sort(key=lambda record: len(record["prompt"]))  # so that a batch needs little padding
        with file.open("a") as lines:
            for batch in (asked[at : at + BATCH] for at in range(0, len(asked), BATCH)):
                for record, reply in zip(
                    batch, answers(model, [each["prompt"] for each in batch], tokens), strict=True
                ):
                    kept[record["text"]] = {**record, "reply": reply}
                    lines.write(json.dumps(kept[record["text"]]) + "\n")
                lines.flush()
    return [kept[prompt.text] for prompt in prompts]


def answers(model: "LoadedModel", prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
    """Return the greedy replies to a batch of prompts, a token of each per call."""
    import mlx.core as mx  # noqa: PLC0415

    from rdchat.inference.training.data.batched_decoding import BatchedDecoder  # noqa: PLC0415
    from rdchat.inference.verification.fetch import fetch  # noqa: PLC0415

    columns = zip(*(prompt[:-1] for prompt in prompts), strict=False)
    shared = len(list(takewhile(lambda column: len(set(column)) == 1, columns)))
    decoder = BatchedDecoder.read(model, prompts[0][:shared], [prompt[shared:-1] for prompt in prompts])
    replies: list[list[int]] = [[] for _ in prompts]
    running, fed = list(range(len(prompts))), [prompt[-1] for prompt in prompts]
    while running:
        chosen = fetch(mx.argmax(decoder.step(fed)[0], axis=-1)).tolist()
        for number, token in zip(running, chosen, strict=True):
            replies[number].append(token)
        rows = [
            row
            for row, number in enumerate(running)
            if chosen[row] not in model.end_tokens and len(replies[number]) < tokens
        ]
        if rows and len(rows) < len(running):
            decoder.keep(rows)
        running, fed = [running[row] for row in rows], [chosen[row] for row in rows]
    return replies


def accepted(tree: LookupTree, text: Sequence[int]) -> int:
    """Return how many tokens of a tree a text takes."""
    children = dict(zip(zip(tree.parents, tree.tokens, strict=True), range(1, 1 + len(tree.tokens)), strict=True))
    node = count = 0
    while count < len(text) and (node, text[count]) in children:
        node, count = children[node, text[count]], count + 1
    return count


def replay(record: Record, draft_tokens: int, earlier: ReplyIndex | None) -> tuple[int, int, int]:
    """Return the tokens after the first, the calls and the verified rows of a reply."""
    reply, index = record["reply"], LookupIndex(record["prompt"], earlier=earlier)
    index.extend(reply[:1])
    at, calls, rows = 1, 0, 0
    while at < len(reply):
        tree = index.draft(max_nodes(draft_tokens), len(reply) - at - 1, 1 / (1 + draft_tokens))
        taken = 1 + accepted(tree, reply[at:-1])
        index.extend(reply[at : at + taken])
        at, calls, rows = at + taken, calls + 1, rows + 1 + len(tree.tokens)
    return len(reply) - 1, calls, rows


def loops(reply: Sequence[int]) -> bool:
    runs = [tuple(reply[at : at + RUN]) for at in range(len(reply) - RUN + 1)]
    return bool(runs) and 1 - len(set(runs)) / len(runs) >= LOOPS


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", type=Path)
    parser.add_argument("--model", help="whose replies are made (default: the default model's)")
    parser.add_argument("--records", type=Path, required=True, help="file that keeps the replies")
    parser.add_argument("--tokens", type=int, default=128, help="of a reply")
    parser.add_argument("--every", type=int, default=5, help="1 measures all")
    parser.add_argument("--store", action="store_true", help="also look in the replies to the other prompts")
    parser.add_argument("--draft-tokens", type=int, default=4)
    args = parser.parse_args()
    prompts = read_prompts(args.prompts)
    measured = recorded(prompts[:: args.every], args.records, args.tokens, args.model)
    earlier = None
    if args.store:
        others = [prompt for number, prompt in enumerate(prompts) if number % args.every]
        records = recorded(others, args.records, args.tokens, args.model)
        earlier = ReplyIndex({number: each["reply"] for number, each in enumerate(records)})
    found: dict[str, list[tuple[int, int, int]]] = {}
    for record in measured:
        figures = replay(record, args.draft_tokens, earlier)
        for group in ("all", "loops" if loops(record["reply"]) else "few loops", record["group"]):
            found.setdefault(group, []).append(figures)
    print("| | replies | tokens a call | rows a token |\n|---|---|---|---|")
    for group, figures_of in found.items():
        tokens, calls, rows = (sum(column) for column in zip(*figures_of, strict=True))
        print(f"| {group} | {len(figures_of)} | {tokens / calls:.2f} | {rows / tokens:.2f} |")


if __name__ == "__main__":
    main()
