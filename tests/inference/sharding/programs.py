"""Programs of ranks in tests, and how they are started: `python -m tests.inference.sharding.programs`."""

import rdchat.inference.blas  # before MLX

# isort: split
import json
import os
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import mlx.core as mx
import mlx.nn as nn
import psutil

from rdchat.errors import ModelError
from rdchat.inference.api import (
    ChatMessage,
    DraftKind,
    DraftSettings,
    Dtype,
    GenerationRequest,
    Mode,
    ReplyEnd,
    Role,
    SamplingParams,
    Stage,
    TokenEvent,
)
from rdchat.inference.local_engine import LocalEngine
from rdchat.inference.session import ChatSession
from rdchat.inference.sharding import rank_messages
from rdchat.inference.sharding.model_split import Split, shard
from rdchat.inference.sharding.rank_messages import Follower, Kind, Leader, join, receive, send
from rdchat.inference.verification.hooks import ModelHooks
from rdchat.inference.verification.kv_cache import KVCache
from rdchat.inference.verification.round_cache import AttentionRows, RoundArraysCache, leaves
from rdchat.inference.verification.target import LoadedModel
from tests.inference.fakes import ALPHABET, ScriptedDrafter, ask, loaded, reply_end, token_events
from tests.inference.families import HYBRIDS, TREES, network_of
from tests.inference.plain_replies import drafted
from tests.inference.ready_drafters import ready_session, settings_of
from tests.inference.threads import load_silently
from tests.kernels import prepared_marker

ROOT = Path(__file__).parents[3]
# Of processes that should have ended long before.
DEADLINE_S = 1700
MODES = [Mode.OFF, Mode.LOOKUP, Mode.SPECULATIVE, Mode.DRAFTER, Mode.AUTO]
QUESTION = "hello there hello there hello"


class StandIn(NamedTuple):
    """The first rank of so many."""

    ranks: int

    def size(self) -> int:
        return self.ranks

    def rank(self) -> int:
        return 0


def free_addresses(count: int) -> list[str]:
    """Return so many addresses of this machine at which nobody listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]


@contextmanager
def ranks(program: str, count: int, *arguments: Any) -> Iterator[list[subprocess.Popen[str]]]:
    """Start the ranks of a program; they are killed at the end."""
    addresses = free_addresses(count)
    command = [sys.executable, "-m", "tests.inference.sharding.programs", program]
    with ExitStack() as stack:
        started = list[subprocess.Popen[str]]()
        for rank in range(count):
            each = [*command, json.dumps([rank, addresses, *arguments])]
            process = subprocess.Popen(each, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
            started.append(stack.enter_context(process))
        # It runs before the processes are waited for.
        stack.callback(lambda: [each.kill() for each in started])
        yield started


def results(program: str, count: int, *arguments: Any) -> list[Any]:
    """Run the ranks of a program to their end; return what each of them returns."""
    with ranks(program, count, *arguments) as processes:
        ended = [process.communicate(timeout=DEADLINE_S) for process in processes]
        for process, (_, errors) in zip(processes, ended, strict=True):
            assert process.returncode == 0, "\n".join(part for _, part in ended) or errors
        return [json.loads(output) for output, _ in ended]


def quiet_ring(rank: int, addresses: list[str]) -> mx.distributed.Group:
    """Join a ring that sleeps until a message comes: MLX's looks for one all the time, and ranks share few cores."""
    ring = join(rank, addresses, "key")
    pause = struct.pack("ll", 0, 500)
    for connection in psutil.Process().net_connections("tcp"):
        with socket.socket(fileno=os.dup(connection.fd)) as each:
            # A send that is full goes on after a look at what arrived, as MLX's does.
            each.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, pause)
            each.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, pause)
            each.setblocking(True)
    return ring


def network(family: str) -> nn.Module:
    module, options = (TREES | HYBRIDS)[family]
    if "text_config" in options:
        # Its output could not be divided by the number of ranks.
        options = {**options, "text_config": {**options["text_config"], "tie_word_embeddings": True}}
    return network_of(module, {**options, "num_attention_heads": 6, "vocab_size": len(ALPHABET)} | _sizes(family))


def _sizes(family: str) -> dict[str, Any]:
    """Return sizes that can be divided by two and by three."""
    return (
        {"num_key_value_heads": 6, "intermediate_size": 96, "moe_intermediate_size": 48} if family != "qwen3_5" else {}
    )


def families(rank: int, addresses: list[str], split: str, names: list[str], modes: list[str]) -> list[dict[str, Any]]:
    """Hold the same conversation with each family over ranks and on one; return what differs."""
    group = quiet_ring(rank, addresses)
    return [_follow(group, name, split) if rank else _lead(group, name, split, modes) for name in names]


def _follow(group: mx.distributed.Group, family: str, split: str) -> dict[str, Any]:
    """Repeat calls; compare the last cache with the others at each `UNLOAD`."""
    part = network(family)
    shard(part, group, Split(split))
    worker = Follower(part, ModelHooks(part), group)
    errors = list[float]()
    while (received := receive(group))[0] is not Kind.END:
        if received[0] is Kind.CALL:
            worker.repeat_call(received[1])
        else:
            *others, fresh = worker._caches.values()
            errors.append(min(difference(fresh, each) for each in others))
    return {"caches": errors}


def _lead(group: mx.distributed.Group, family: str, split: str, modes: list[str]) -> dict[str, Any]:
    alone = loaded(network(family))
    part = network(family)
    shard(part, group, Split(split))
    model = loaded(part)
    Leader(part, model.hooks, group)
    errors: list[float] = []

    def compare(cache: KVCache) -> None:
        fresh = KVCache(part)
        part(mx.array([cache.tokens]), cache=fresh.layers)
        fresh.tokens = [*cache.tokens]
        errors.append(difference(fresh, cache))
        send(group, Kind.UNLOAD)

    expected = conversation(alone, lambda _: None, modes)
    actual = conversation(model, compare, modes)
    exact = replace(ask(QUESTION, max_tokens=8), draft=DraftSettings(Mode(modes[0]), profile=True))
    end = reply_end(ready_session(model).generate(exact))
    actual["with exact times"], expected["with exact times"] = [*end.token_ids], _ids(ready_session(alone), exact)
    exchanges = [[entry.parent, entry.calls] for entry in end.statistics.ledger if entry.name == Stage.LINK]
    send(group, Kind.END)
    kinds = alone.capability.kind.name, model.capability.kind.name
    return {"expected": expected, "actual": actual, "caches": errors, "kinds": kinds, "exchanges": exchanges}


def conversation(
    model: LoadedModel, compare: Callable[[KVCache], None], modes: Sequence[str] = MODES
) -> dict[str, list[int]]:
    """Return the token ids of replies in some modes, and around stops, edits and pauses; compare each one's cache."""
    chat = ready_session(model)
    ids = dict[str, list[int]]()

    def reply(name: str, request: GenerationRequest, tokens: int | None = None) -> None:
        ids[name] = _ids(chat, request, tokens)
        compare(chat.cache)

    for mode in map(Mode, modes):
        for temperature in (0, 0.9):
            request = replace(ask(QUESTION, temperature=temperature, max_tokens=12, seed=3), draft=settings_of(mode))
            reply(f"{mode.value} {temperature}", request)
    question = ChatMessage(Role.USER, QUESTION)
    answer = ChatMessage(Role.ASSISTANT, "abc")
    reply("next turn", replace(request, messages=(question, answer, ChatMessage(Role.USER, "and then"))))
    reply("edit", replace(request, messages=(question, answer, ChatMessage(Role.USER, "and now"))))
    reply("stop", request, tokens=3)
    reply("again", replace(request, seed=8))
    running = chat.generate(request)
    first = [event.token_id for _, event in zip(range(5), running, strict=False) if isinstance(event, TokenEvent)]
    with running.paused():
        ids["in a pause"] = _ids(chat, replace(request, seed=10))
    ids["paused"] = first + [event.token_id for event in token_events(running)]
    compare(chat.cache)
    scripted = replace(request, draft=DraftSettings(Mode.OFF))
    width = 3 if model.capability.kind is DraftKind.TREE else 1
    (*_, end), cache = drafted(model, scripted, ScriptedDrafter(ids[f"{modes[-1]} 0.9"], width, 4))
    assert isinstance(end, ReplyEnd)
    ids["scripted"] = [*end.token_ids]
    compare(cache)
    return ids


def _ids(chat: ChatSession, request: GenerationRequest, tokens: int | None = None) -> list[int]:
    """Return the token ids of a reply, stopped after some tokens."""
    ids = list[int]()
    running = chat.generate(request)
    for event in running:
        if isinstance(event, TokenEvent):
            ids.append(event.token_id)
            if len(ids) == tokens:
                running.cancel()
    return ids


def difference(one: KVCache, other: KVCache) -> float:
    """Return how far the rows of two caches are apart, as a share of their largest value; infinite for other rows."""
    worst = 0.0
    for mine, theirs in zip(leaves(one.layers), leaves(other.layers), strict=True):
        if isinstance(mine, AttentionRows):
            if mine.offset != theirs.offset:
                return float("inf")
            start = max(mine.buffer.first, theirs.buffer.first)
            pairs = zip(mine.buffer.view(start), theirs.buffer.view(start), strict=True)
        else:
            assert isinstance(mine, RoundArraysCache)
            pairs = zip(mine.cache, theirs.cache, strict=True)
        for left, right in pairs:
            if left.size:
                worst = max(worst, float(mx.abs(left - right).max() / (mx.abs(left).max() + 1e-6)))
    return worst


def engine(
    rank: int, addresses: list[str], folder: str, tokens: int, replies: list[tuple[str, float]], draft_model: str
) -> dict[str, list[int]]:
    """Return the token ids of replies of an engine, over ranks or, with one address, alone.

    Without a draft model it also sleeps, and is loaded in another precision.
    """
    group = quiet_ring(rank, addresses) if len(addresses) > 1 else None
    if rank:
        assert group is not None
        rank_messages.run(group, folder, lambda: None)
        return {}
    served = LocalEngine(group)
    ids = dict[str, list[int]]()

    def reply(name: str, request: GenerationRequest) -> None:
        end = reply_end(served.generate(request))
        assert end.mode is request.draft.mode, end.mode_reason
        ids[name] = [*end.token_ids]

    load_silently(served, folder)
    for mode, temperature in replies:
        sampling = SamplingParams(temperature=temperature, max_tokens=tokens)
        draft = DraftSettings(Mode(mode), draft_model=draft_model or None)
        question = (ChatMessage(Role.USER, "List the months of the year."),)
        request = GenerationRequest(question, sampling, 7, draft=draft)
        reply(f"{mode} {temperature}", request)
    if not draft_model:
        served.sleep()
        reply("after sleep", request)
        served.load(folder, Dtype.BFLOAT16, lambda _: None)
        reply("in another precision", request)
    served.close()
    return ids


def late(rank: int, addresses: list[str], folder: str, marker: str) -> float:
    """Load on rank 1 after rank 0 has; return when its load began, and when rank 0 queued its network.

    Then a load fails on rank 0, and another one succeeds.
    """
    group = quiet_ring(rank, addresses)
    loaded_file = Path(marker)
    times = list[float]()
    if rank:
        load_part = rank_messages.load_part

        def load_late(*arguments: Any) -> nn.Module:
            while not loaded_file.exists():
                time.sleep(0.05)
            time.sleep(2)
            times.append(time.monotonic())
            return load_part(*arguments)

        rank_messages.load_part = load_late
        rank_messages.run(group, folder, lambda: None)
        return times[0]
    load_model = rank_messages.load_model
    call = Leader._call
    served = LocalEngine(group)

    def load(*arguments: Any, **options: Any) -> LoadedModel:
        loaded = load_model(*arguments, **options)
        loaded_file.touch()
        return loaded

    def timed(self: Leader, *arguments: Any, **options: Any) -> mx.array:
        times.append(time.monotonic())
        return call(self, *arguments, **options)

    def fail(_progress: object) -> None:
        raise ModelError("No.")

    rank_messages.load_model = load  # type: ignore[method-assign]
    Leader._call = timed
    load_silently(served, folder)
    with suppress(ModelError):
        served.load(folder, Dtype.AUTO, fail)
        raise AssertionError
    load_silently(served, folder)
    served.close()
    return times[0]


if __name__ == "__main__":
    rdchat.inference.blas.compiled_marker = prepared_marker
    result = globals()[sys.argv[1]](*json.loads(sys.argv[2]))
    sys.stdout.write(json.dumps(result))
