"""Measures how smooth the window stays while its server answers other programs.

The whole app, offscreen, with the speed panel open and an engine that writes 150 tokens a second. Clients in another
process send 1,000 requests for 4 tokens, 50 at once, over loopback.
"""

import argparse
import json
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace

import psutil
from bench_transcript import Meter, wait
from PySide6.QtCore import QEventLoop, QProcess
from stand_in_app import own_folder, running_app
from stand_in_engine import StandInReply

from rdchat import paths
from rdchat.chat.settings import SettingsStore
from rdchat.inference.api.events import FinishReason, GenerationEvent, PrefillProgress, ReplyEnd, TokenEvent
from rdchat.inference.api.reply_statistics import Statistics

TOKENS_PER_SECOND, TOKENS = 150, 4
CLIENTS = """
import http.client, json, sys, threading
port, key, count, at_once = int(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
messages = [{"role": "user", "content": "Hi"}]
body = json.dumps({"model": "stand-in", "messages": messages, "max_tokens": 4, "stream": True})
left, lock, answered = iter(range(count)), threading.Lock(), []
def ask():
    while True:
        with lock:
            if next(left, None) is None:
                return
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=120)
        headers = {"Authorization": f"Bearer {key}", "User-Agent": threading.current_thread().name}
        while True:
            connection.request("POST", "/v1/chat/completions", body, headers)
            answer = connection.getresponse()
            text = answer.read()
            if answer.status != 429:
                break
        answered.append(answer.status == 200 and text.endswith(b"data: [DONE]\\n\\n"))
        connection.close()
threads = [threading.Thread(target=ask, name=f"client-{n}") for n in range(at_once)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
print(sum(answered))
"""


class ShortReply(StandInReply):
    """A few tokens at a steady pace."""

    def _make(self, request_id: int) -> Iterator[GenerationEvent]:
        yield PrefillProgress(request_id, 8, 8, 0)
        for number in range(TOKENS):
            self._device.wait(1 / TOKENS_PER_SECOND)
            yield TokenEvent(request_id, number, number, " word")
        yield ReplyEnd(request_id, TOKENS * " word", (0,) * TOKENS, "", FinishReason.LENGTH, self.statistics)

    @property
    def statistics(self) -> Statistics:
        return Statistics(prompt_tokens=8, generated_tokens=TOKENS, decode_ms=1000 * TOKENS / TOKENS_PER_SECOND)


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        return int(listening.getsockname()[1])


def measure(qt: Meter, requests: int, at_once: int) -> dict[str, object]:
    """Serve from the app, in a fresh folder."""
    with own_folder():
        os.environ["PYTHON_KEYRING_BACKEND"] = "keyring.backends.null.Keyring"
        settings = SettingsStore(paths.settings_path())
        settings.save(replace(settings.settings, server_at_start=True, server_port=free_port()))
        with running_app(qt, ShortReply) as app:
            server = app.controller.server
            while not server.address:
                wait(0.1)
            app.window.resize(1280, 800)
            wait(1.0)
            port = server.address.rpartition(":")[2]
            memory, loop, clients = psutil.Process().memory_info().rss, QEventLoop(), QProcess()
            clients.finished.connect(loop.quit)
            clients.start(sys.executable, ["-c", CLIENTS, port, server.key, str(requests), str(at_once)])
            found = qt.measure(loop)
            answered = int(bytes(clients.readAllStandardOutput().data()) or b"0")
            grown = psutil.Process().memory_info().rss - memory
    return asdict(found) | {
        "requests": requests,
        "answered": answered,
        "requests_per_second": round(requests / found.seconds, 1),
        "grown_mb": round(grown / 2**20, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--requests", type=int, default=1000)
    parser.add_argument("--at-once", type=int, default=50)
    options = parser.parse_args()
    print(json.dumps(measure(Meter(sys.argv[:1]), options.requests, options.at_once), indent=2))


if __name__ == "__main__":
    main()
