"""Measures prompt lookup with a full store of earlier replies: host time for each token and each draft, and memory.

    python scripts/bench_lookup.py [--tokens 5000000] [--json]

The texts are made up: words as frequent as in a language, in phrases that come again. Memory is what the resident size
of a process of its own grows by: it opens the store, looks up so many endings that nearly all of it is read, and adds
as many replies since as the store takes.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil

from rdchat.inference.drafting.lookup_index import LookupIndex, most_nodes
from rdchat.inference.drafting.reply_store import MOST_SINCE, MOST_TOKENS, ReplyStore, write_store

DRAFT_TOKENS = 4  # as in the window
PHRASES, PHRASE, REPLY = 50_000, 12, 400  # phrases in all, their tokens, and those of a reply
VOCABULARY = 49_152
TOKEN_US, DRAFT_US, GROWTH_MB = 50, 300, 100  # limits
ENDINGS = 20_000  # looked up before the memory is measured


def texts(tokens: int, rng: np.random.Generator) -> list[list[int]]:
    """Return replies of some phrases, of so many tokens in all."""
    phrases = rng.zipf(1.3, (PHRASES, PHRASE)) % VOCABULARY
    chosen = rng.zipf(1.2, tokens // PHRASE + 1) % PHRASES
    stream = phrases[chosen].reshape(-1)[:tokens]
    return [stream[start : start + REPLY].tolist() for start in range(0, tokens, REPLY)]


def growth_bytes(path: Path) -> int:
    """Return what a process's resident size grows by with a store; runs in a fresh process."""
    rng = np.random.default_rng(1)
    replies = texts(ENDINGS, rng)
    since = rng.integers(0, VOCABULARY, (MOST_SINCE // REPLY, REPLY)).tolist()  # hardly anything of it repeats
    LookupIndex(replies[0]).draft(1)  # imports and allocates what lookup alone needs
    process = psutil.Process()
    before = process.memory_info().rss
    store = ReplyStore(path)
    for reply in replies:
        for end in range(1, len(reply)):
            store.places(reply[:end])
    for reply in since:
        store.add(reply)
    store.places(replies[0])  # indexes what was added
    return int(process.memory_info().rss - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=MOST_TOKENS, help="of the store")
    parser.add_argument("--count", type=int, default=2000, help="drafts to make")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    replies = texts(args.tokens, rng)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "replies"
        began = time.perf_counter()
        write_store(path, replies)
        writing_s = time.perf_counter() - began
        store = ReplyStore(path, grows=False)
        index, drafts, tokens = LookupIndex(replies[0], earlier=store), list[float](), list[float]()
        for token in [token for reply in texts(args.count, rng) for token in reply]:
            began = time.perf_counter()
            index.draft(most_nodes(DRAFT_TOKENS), least=1 / (1 + DRAFT_TOKENS))
            drafted = time.perf_counter()
            index.extend([token])
            drafts.append(drafted - began)
            tokens.append(time.perf_counter() - drafted)
        with get_context("spawn").Pool(1) as fresh:
            growth = fresh.apply(growth_bytes, (path,))
    data = {
        "stored_tokens": store.tokens,
        "store_bytes": store.memory_bytes,
        "writing_s": writing_s,
        "growth_bytes": growth,
        "token_us": statistics.median(tokens) * 1e6,
        "draft_us": statistics.median(drafts) * 1e6,
    }
    if args.json:
        print(json.dumps(data, indent=1))
    else:
        print(f"{store.tokens:,} tokens in {store.memory_bytes / 2**20:.0f} MB, written in {writing_s:.1f} s")
        print(f"a token: {data['token_us']:.0f} us (limit {TOKEN_US}); a draft: {data['draft_us']:.0f} us ({DRAFT_US})")
        print(f"a process that uses it grows by {growth / 2**20:.0f} MB (limit {GROWTH_MB})")
    sys.exit(data["token_us"] > TOKEN_US or data["draft_us"] > DRAFT_US or growth > GROWTH_MB * 2**20)


if __name__ == "__main__":
    main()
