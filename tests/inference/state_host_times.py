"""Prints the host's time in rounds on recurrent state: `make bench`, or `python -m tests.inference.state_host_times`.

There are as many layers as usual, small and with random weights, drafts that are right for a while, and a stand-in for
a GPU on which a call takes 10 ms, and each further row 0.3 ms.
"""

import sys
from itertools import pairwise
from statistics import median
from typing import Any

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from rdchat.inference.api import DraftKind
from rdchat.inference.decoding.reply import ReplyJob
from rdchat.inference.decoding.reply_iterator import ReplyIterator
from rdchat.inference.session import ChatSession
from tests.inference.device_stand_in import DeviceStandIn, Event, decoding
from tests.inference.fakes import ALPHABET, ScriptedDrafter, ask, loaded, reply_end
from tests.inference.families import HYBRIDS, network_of

# Tokens of a reply on the stand-in.
HOST_TOKENS = 24
# Families whose host time is measured, with a name and their layers.
DEEP: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("qwen3_5", "24 gated delta, 8 attention", {"num_hidden_layers": 32, "full_attention_interval": 4}),
    ("nemotron_h", "24 Mamba-2, 4 attention, 24 MLP",
     {"num_hidden_layers": 52, "hybrid_override_pattern": [*"M-M-M-M-M-M-*"] * 4}),
)  # fmt: skip
WAYS = (DraftKind.FED_AGAIN, DraftKind.CHAIN, DraftKind.TREE)


def host_times() -> None:
    """Print the host's time in a round, and how long the device has nothing to do, for each family and way."""
    columns = ["layers", "way", "host, ms", "idle, ms", "tokens a round", "ms a token"]
    sys.stdout.write(f"\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    for name, text, layers in DEEP:
        module, options = HYBRIDS[name]
        changed = {"text_config": options["text_config"] | layers} if "text_config" in options else options | layers
        model = loaded(network_of(module, {**changed, "vocab_size": len(ALPHABET)}))
        request = ask(seed=5, max_tokens=HOST_TOKENS, temperature=0)
        prompt = model.encode_chat(request.messages)
        plain = reply_end(ChatSession(model).generate(request))
        reply = list(plain.token_ids)
        for kind, width in ((None, 0), *((way, 3 if way is DraftKind.TREE else 1) for way in WAYS)):
            model.hooks.states.recorded = kind is not DraftKind.FED_AGAIN
            found = []
            for seed in range(2):
                job = ReplyJob.fresh(model, prompt, request)
                drafter = ScriptedDrafter([*reply, *[1] * HOST_TOKENS], width, 5, seed)
                iterator = ReplyIterator(job, None if kind is None else drafter)
                end, events = decoding(DeviceStandIn(model.network), iterator)
                assert end.token_ids == plain.token_ids
                calls = end.statistics.target_calls
                host, idle, ms = times_of(events)
                tokens = end.statistics.generated_tokens - 1
                found.append((host / calls, idle / calls, tokens / calls, ms / tokens))
            figures = " | ".join(f"{median(column):.2f}" for column in zip(*found, strict=True))
            sys.stdout.write(f"| {text} | {'plain' if kind is None else kind.value} | {figures} |\n")
            sys.stdout.flush()


def times_of(events: list[Event]) -> tuple[float, float, float]:
    """Return the milliseconds in which the host worked, in which the device did not, and all."""
    all_ms = events[-1].ended - events[0].began
    waited = sum(event.ended - event.began for event in events if event.what == "wait")
    queued = [event for event in events if event.what == "queue"]
    idle = sum(max(later.began - before.ended, 0) for before, later in pairwise(queued))
    return all_ms - waited, idle, all_ms


if __name__ == "__main__":
    host_times()
