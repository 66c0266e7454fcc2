"""Measures plain and drafted decoding over ranks on this machine, by the latency of a message between two of them.

    python scripts/bench_ranks.py --latencies 0,1,5,20 --tokens 16

Every rank is a process, and reaches each other one through a proxy that holds back all bytes for the latency. All
replies are of the same question at temperature 0, and the proxies stay the same, so only the latency changes. The ranks
share this machine's processors: times without latency say nothing about several Macs, the differences by latency do.
"""

import argparse
import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from contextlib import ExitStack, suppress
from time import monotonic

from rdchat import paths
from rdchat.inference.api import Mode

QUESTION = "List the months of the year."


class Proxy:
    """Forwards connections to a port of this machine, and delays every message in both directions.

    Attributes:
        seconds: The delay; it may change at any time.
        port: Where it listens.
    """

    def __init__(self, target: int) -> None:
        self.seconds = 0.0
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]

    async def serve(self) -> None:
        await asyncio.start_server(self._connect, sock=self._listener)

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            # A rank may try before the other one listens.
            with suppress(ConnectionRefusedError):
                there, back = await asyncio.open_connection("127.0.0.1", self._target)
                break
            await asyncio.sleep(0.05)
        await asyncio.gather(self._pump(reader, back), self._pump(there, writer))

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        messages = asyncio.Queue[tuple[float, bytes]]()
        delivery = asyncio.create_task(self._deliver(messages, sink))
        with suppress(ConnectionError):
            while data := await source.read(2**16):
                messages.put_nowait((monotonic() + self.seconds, data))
        messages.put_nowait((0.0, b""))
        await delivery

    async def _deliver(self, messages: asyncio.Queue[tuple[float, bytes]], sink: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while (message := await messages.get())[1]:
                await asyncio.sleep(message[0] - monotonic())
                sink.write(message[1])
                await sink.drain()
        sink.close()


def start(proxies: list[Proxy]) -> None:
    """Serve the proxies on a thread of their own, until this program ends."""

    async def serve() -> None:
        await asyncio.gather(*(proxy.serve() for proxy in proxies))
        await asyncio.Event().wait()

    threading.Thread(target=asyncio.run, args=[serve()], daemon=True).start()


def run_rank(rank: int, addresses: list[str], model: str) -> None:
    """Be a rank; the first one answers each line of standard input, a mode and a number of tokens."""
    import rdchat.inference.blas  # noqa: F401, PLC0415  before MLX
    from rdchat.inference.api import (  # noqa: PLC0415
        ChatMessage,
        DraftSettings,
        Dtype,
        GenerationRequest,
        ReplyEnd,
        Role,
        SamplingParams,
    )
    from rdchat.inference.local_engine import LocalEngine  # noqa: PLC0415
    from rdchat.inference.sharding import rank_messages  # noqa: PLC0415

    ring = rank_messages.join(rank, addresses, "")
    if rank:
        rank_messages.run(ring, model, lambda: None)
        return
    engine = LocalEngine(ring)
    engine.load(model, Dtype.AUTO, lambda _: None)
    for line in sys.stdin:
        mode, tokens = json.loads(line)
        draft = DraftSettings(Mode(mode))
        sampling = SamplingParams(temperature=0, max_tokens=tokens)
        request = GenerationRequest((ChatMessage(Role.USER, QUESTION),), sampling, draft=draft)
        *_, end = engine.generate(request)
        assert isinstance(end, ReplyEnd)
        statistics = end.statistics
        print(json.dumps([statistics.decode_tps, statistics.target_calls, *end.token_ids]), flush=True)


def free_ports(count: int) -> list[int]:
    """Return so many ports at which nobody listens."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [each.getsockname()[1] for each in sockets]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default=str(paths.default_model_dir()), help="a folder; the default model without")
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--latencies", default="0,1,5,20", help="milliseconds of a message in one direction")
    parser.add_argument("--mode", default=Mode.DRAFTER.value, help="the drafting mode that is compared with plain")
    parser.add_argument("--rank", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.rank:
        run_rank(*json.loads(args.rank))
        return
    ports = free_ports(args.ranks)
    proxies = [Proxy(port) for port in ports]
    start(proxies)
    with ExitStack() as stack:
        ranks = list[subprocess.Popen[str]]()
        for rank in range(args.ranks):
            seen = [ports[each] if each == rank else proxies[each].port for each in range(args.ranks)]
            mine = json.dumps([rank, [f"127.0.0.1:{port}" for port in seen], args.model])
            command = [sys.executable, __file__, "--rank", mine]
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            pipe = subprocess.PIPE if rank == 0 else None
            process = subprocess.Popen(command, text=True, env=environment, stdin=pipe, stdout=pipe)
            ranks.append(stack.enter_context(process))
            # At the end each is killed before it is waited for.
            stack.callback(process.kill)
        print(f"{args.ranks} ranks, {args.tokens} tokens")
        print(f"| latency, ms | plain, tokens/s | {args.mode}, tokens/s | gain | tokens a call |")
        print("|---|---|---|---|---|", flush=True)
        for latency in map(float, args.latencies.split(",")):
            for proxy in proxies:
                proxy.seconds = latency / 1000
            plain, drafted = (ask(ranks[0], mode, args.tokens) for mode in (Mode.OFF.value, args.mode))
            if plain[2:] != drafted[2:]:
                raise SystemExit("The texts differ.")
            gain = drafted[0] / plain[0]
            calls = (len(drafted) - 3) / drafted[1]
            print(f"| {latency:g} | {plain[0]:.2f} | {drafted[0]:.2f} | {gain:.2f} | {calls:.2f} |", flush=True)


def ask(leader: subprocess.Popen[str], mode: str, tokens: int) -> list[float]:
    """Return tokens per second, calls and token ids of a reply."""
    assert leader.stdin is not None
    assert leader.stdout is not None
    print(json.dumps([mode, tokens]), file=leader.stdin, flush=True)
    line = leader.stdout.readline()
    if not line:
        raise SystemExit("A rank ended.")
    answer: list[float] = json.loads(line)
    return answer


if __name__ == "__main__":
    main()
