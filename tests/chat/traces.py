"""Made-up figures, events and traces of drafted replies."""

import zlib
from collections.abc import Sequence

from rdchat.chat.reply_trace import ReplyTrace
from rdchat.inference.api import LedgerEntry, RoundStatistics, RoundTree, Statistics, TokenEvent

STATISTICS = Statistics(
    prompt_tokens=9, generated_tokens=41, prefill_ms=20.0, ttft_ms=30.0, decode_ms=1000.0, rounds=10, drafted=20,
    accepted=15, target_calls=20, drafted_lengths=(0, 0, 10), accepted_lengths=(2, 1, 7),
    ledger=(LedgerEntry("prefill", "", 1, 20.0),),
)  # fmt: skip


def token_id(text: str) -> int:
    """Return an id that goes with one text only, as a tokenizer's do."""
    return zlib.crc32(text.encode()) % 250_000  # vocabularies go far beyond 65,536


def round_tree(accepted: Sequence[str], correction: str, rejected: Sequence[str] = ()) -> RoundTree:
    """Return a tree of a path that was accepted and, beside its first token, tokens that were not."""
    texts = ["root", *accepted, *rejected]
    parents = [*range(-1, len(accepted)), *[0] * len(rejected)]
    return RoundTree(
        tokens=tuple(token_id(text) for text in texts),
        parents=tuple(parents),
        drafters=("", *["drafter"] * len(accepted), *["lookup"] * len(rejected)),
        log_probs=(0.0, *[-0.5] * len(accepted), *[-3.0] * len(rejected)),
        path=tuple(range(len(accepted) + 1)),
        correction=token_id(correction),
        texts=tuple(texts),
        correction_text=correction,
        correction_log_prob=-0.25,
    )


def events_of_round(number: int, index: int, tree: RoundTree) -> list[TokenEvent]:
    """Return what the engine would send for a round whose accepted path is the beginning of the tree."""
    accepted = len(tree.path) - 1
    statistics = RoundStatistics(number, accepted, accepted, accepted + 1, len(tree.tokens))
    drafted = [
        TokenEvent(1, index + at, tree.tokens[at + 1], tree.texts[at + 1], tree.drafters[at + 1], at + 1, log_prob=-0.5)
        for at in range(accepted)
    ]
    last = TokenEvent(
        1, index + accepted, tree.correction, tree.correction_text, round=statistics, tree=tree, log_prob=-0.25
    )
    return [*drafted, last]


def drafted_events(rounds: int, words: Sequence[str] = (" one", " two", "\n", " three")) -> list[TokenEvent]:
    """Return a first token and rounds of a token more each, up to the number of words, then anew."""
    events = [TokenEvent(1, 0, token_id("First"), "First", log_prob=-0.1)]
    for number in range(1, rounds + 1):
        accepted = words[: number % len(words)]
        events += events_of_round(number, len(events), round_tree(accepted, f" c{number}", ["x", "y"]))
    return events


def drafted_trace(rounds: int) -> ReplyTrace:
    trace = ReplyTrace()
    trace.append_tokens(drafted_events(rounds))
    return trace
