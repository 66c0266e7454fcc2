"""A reply's statistics, as they are stored."""

from rdchat.inference.api import LedgerEntry, Statistics

STATISTICS = Statistics(
    prompt_tokens=12,
    cached_prompt_tokens=3,
    generated_tokens=40,
    prefill_ms=10.5,
    ttft_ms=11.25,
    decode_ms=400.125,
    target_calls=39,
    host_syncs=40,
    peak_memory_bytes=2**40,
    context_tokens=52,
    ledger=(LedgerEntry("prefill", "", 1, 10.5), LedgerEntry("verify", "decode", 39, 390.0)),
)
