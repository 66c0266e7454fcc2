"""Replies over HTTP: `rdchat serve` against the same engine in this process, and against `mlx_lm.server`.

    python scripts/bench_server.py [--model MODEL] [--tokens 64] [--prefix 2000] [--turns 10]

All three have the same weights in the same precision and the same BLAS, decode greedily and take turns, so only one of
them works at a time; each carries on its own conversations. rdchat drafts as `auto` does, with costs that are measured
first; `mlx_lm.server` has its prompt cache and does not draft. First tokens and tokens/s are as the client sees them.
Let nothing else run.
"""

import argparse
import http.client
import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import monotonic, perf_counter
from typing import Any
from urllib.parse import urlsplit

import rdchat.inference.blas  # noqa: F401  picks the fast BLAS, which must precede every import of MLX

# isort: split
from mlx_lm import convert

from rdchat.inference.api import ChatMessage, Dtype, GenerationRequest, ReplyEnd, Role, SamplingParams, TokenEvent
from rdchat.inference.local_engine import LocalEngine

# Seconds for a server to load the model, on a busy machine.
START_S = 300.0
MLX_LM_SERVER = "import rdchat.inference.blas; from mlx_lm.server import main; main()"
QUESTIONS = (
    "What is a tide?", "Name three uses of salt.", "Write a short letter to a neighbour.", "Why do leaves fall?",
    "Explain how a bicycle stays upright.", "List five animals and their sounds.", "What is a good breakfast?",
    "Tell me about the moon.", "How does a kettle work?", "Write a poem about rain.",
)  # fmt: skip

RULE = "Chapter {}: the traveller crosses a river, meets somebody who asks for help, and writes a letter home. "


@dataclass(frozen=True)
class Turn:
    """One reply.

    Attributes:
        cached: Prompt tokens that were not read again.
        first_ms: Time from the request to the first token.
        decode_s: Time from the first token to the last.
    """

    text: str
    tokens: int
    cached: int
    first_ms: float
    decode_s: float


Speaker = Callable[[GenerationRequest], Turn]


def engine_speaker(engine: LocalEngine) -> Speaker:
    """Return what the server's requests go through, without HTTP."""

    def answer(turn_request: GenerationRequest) -> Turn:
        began = perf_counter()
        moments = list[float]()
        end = None
        for event in engine.generate(turn_request):
            if isinstance(event, TokenEvent):
                moments.append(perf_counter())
            elif isinstance(event, ReplyEnd):
                end = event
        assert end is not None
        cached = end.statistics.cached_prompt_tokens
        return Turn(end.text, len(end.token_ids), cached, (moments[0] - began) * 1000, moments[-1] - moments[0])

    return answer


def prefix_of(engine: LocalEngine, tokens: int) -> str:
    """Return a text of about so many tokens, such as an agent's instructions."""
    each = engine.count_tokens([ChatMessage(Role.USER, RULE.format(100) * 10)]) / 10
    return "".join(RULE.format(number) for number in range(round(tokens / each)))


def http_speaker(address: str, key: str) -> Speaker:
    """Return what a client of a server sees."""
    url = urlsplit(address)

    def answer(turn_request: GenerationRequest) -> Turn:
        assert url.hostname is not None
        connection = http.client.HTTPConnection(url.hostname, url.port, timeout=600)
        body = {
            "messages": [{"role": each.role.value, "content": each.content} for each in turn_request.messages],
            "max_tokens": turn_request.sampling.max_tokens,
            "temperature": 0,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        began = perf_counter()
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
        answer = connection.getresponse()
        if answer.status != 200:
            raise SystemExit(f"{address} answered {answer.status}: {answer.read()[:500]!r}")
        text = ""
        moments = list[float]()
        usage = dict[str, Any]()
        for data in events(answer):
            usage = data.get("usage") or usage
            for choice in data["choices"]:
                if piece := choice["delta"].get("content"):
                    moments.append(perf_counter())
                    text += piece
        connection.close()
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        return Turn(text, usage["completion_tokens"], cached, (moments[0] - began) * 1000, moments[-1] - moments[0])

    return answer


def events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the data of server-sent events."""
    for line in answer:
        if line.startswith(b"data: ") and not line.startswith(b"data: [DONE]"):
            yield json.loads(line[len(b"data: ") :])


@contextmanager
def server(command: Sequence[str], port: int) -> Iterator[str]:
    """Run a server until the end of the block; yield its address once it listens."""
    with tempfile.TemporaryFile() as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            until = monotonic() + START_S
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    if process.poll() is not None or monotonic() > until:
                        log.seek(0)
                        raise SystemExit(f"{command[1:4]} did not start:\n{log.read().decode()}") from None
                    with suppress(subprocess.TimeoutExpired):
                        process.wait(0.25)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port: int = listener.getsockname()[1]
        return port


@contextmanager
def all_speakers(name: str | None, model_folder: Path, in_process: Speaker) -> Iterator[dict[str, Speaker]]:
    """Start both servers, the second on a float32 copy of the model."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        key_file = Path(folder) / "key"
        port = free_port()
        ours = [sys.executable, "-m", "rdchat", "serve", "--port", str(port), "--api-key-file", str(key_file)]
        ours_at = stack.enter_context(server(ours + (["--model", name] if name else []), port))
        copy = Path(folder) / "float32"
        convert(str(model_folder), str(copy), dtype="float32", dequantize=True)
        port = free_port()
        theirs = [sys.executable, "-c", MLX_LM_SERVER, "--model", str(copy), "--port", str(port)]
        theirs_at = stack.enter_context(server(theirs, port))
        key = key_file.read_text().strip()
        yield {
            "in process": in_process,
            "rdchat serve": http_speaker(ours_at, key),
            "mlx_lm.server": http_speaker(theirs_at, key),
        }


def take_turns(speakers: dict[str, Speaker], requests: dict[str, GenerationRequest], number: int) -> dict[str, Turn]:
    """Have each speaker answer its request, another one first each time."""
    names = list(speakers)
    first = number % len(names)
    return {name: speakers[name](requests[name]) for name in names[first:] + names[:first]}


def show(title: str, turns: dict[str, list[Turn]]) -> None:
    """Print medians, and ratios to the session in this process, which are medians over the turns of one request."""
    print(title)
    base = turns["in process"]
    for name, each in turns.items():
        pairs = list(zip(each, base, strict=True))
        first = median(turn.first_ms / other.first_ms for turn, other in pairs)
        speed = median(speed_of(turn) / speed_of(other) for turn, other in pairs)
        same = sum(turn.text == other.text for turn, other in pairs)
        print(
            f"{name:>14}: first token {median(turn.first_ms for turn in each):6.0f} ms ({first:5.3f}), "
            f"{median(map(speed_of, each)):6.1f} tokens/s ({speed:5.3f}), cached at last {each[-1].cached}, "
            f"same text {same} of {len(each)}"
        )


def speed_of(turn: Turn) -> float:
    """Return the tokens a second behind the first."""
    return (turn.tokens - 1) / max(turn.decode_s, 1e-6)


def request(tokens: int, *messages: ChatMessage) -> GenerationRequest:
    return GenerationRequest(messages, SamplingParams(temperature=0, max_tokens=tokens))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="model folder or hub id; the default model by default")
    parser.add_argument("--tokens", type=int, default=64, help="tokens of a reply")
    parser.add_argument("--prefix", type=int, default=2000, help="tokens of the repeated prefix")
    parser.add_argument("--turns", type=int, default=10)
    args = parser.parse_args()
    engine = LocalEngine()
    info = engine.load(args.model, Dtype.AUTO, lambda _progress: None)
    while engine.idle():  # until the costs are measured; the server reads them from their file
        pass
    with all_speakers(args.model, info.path, engine_speaker(engine)) as speakers:
        print(f"{info.name}, {info.dtype}, {info.device}; in brackets: beside the same in process")
        for speak in speakers.values():
            speak(request(8, ChatMessage(Role.USER, "Say hello.")))  # warms it up
        singles: dict[str, list[Turn]] = {name: [] for name in speakers}
        for number, question in enumerate(QUESTIONS):
            turn_request = request(args.tokens, ChatMessage(Role.USER, question))
            for name, turn in take_turns(speakers, dict.fromkeys(speakers, turn_request), number).items():
                singles[name].append(turn)
        show(f"{len(QUESTIONS)} single questions", singles)
        prefix = ChatMessage(Role.SYSTEM, prefix_of(engine, args.prefix))
        begin = request(args.tokens, prefix, ChatMessage(Role.USER, "Tell me the story of chapter 1."))
        chats = dict.fromkeys(speakers, begin)
        turns: dict[str, list[Turn]] = {name: [] for name in speakers}
        for number in range(args.turns):
            for name, turn in take_turns(speakers, chats, number).items():
                turns[name].append(turn)
                said = ChatMessage(Role.ASSISTANT, turn.text)
                more = ChatMessage(Role.USER, f"Now tell me that of chapter {number + 2}.")
                chats[name] = request(args.tokens, *chats[name].messages, said, more)
        show("The first turn behind the prefix", {name: each[:1] for name, each in turns.items()})
        show("The later turns", {name: each[1:] for name, each in turns.items()})


if __name__ == "__main__":
    main()
