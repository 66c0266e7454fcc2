"""A local hub for benchmarks: it finds as many models as requested, each with a card.

It prints its address, and serves until its standard input ends.
"""

import hashlib
import json
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

CARD = b"---\nlicense: apache-2.0\n---\n# A model\n\nSome **words** about it.\n\n- one\n- two\n"
FILES = {"README.md": len(CARD), "config.json": 700, "tokenizer.json": 9_000_000, "model.safetensors": 4_500_000_000}
COMMIT = "0123456789abcdef0123456789abcdef01234567"


class Hub(BaseHTTPRequestHandler):
    """Answers searches, questions about a model, and for its card."""

    protocol_version = "HTTP/1.1"
    results = 0

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        words = [unquote(word) for word in parts.path.strip("/").split("/")]
        if words == ["api", "models"]:
            query = parse_qs(parts.query)
            found = [_told(number) for number in range(self.results)]
            wanted = query.get("search", [""])[0].lower()
            matching = [model for model in found if wanted in str(model["id"])]
            self._answer(json.dumps(matching[: int(query.get("limit", ["100"])[0])]).encode())
        elif words[:2] == ["api", "models"]:
            siblings = [_file(name, size) for name, size in FILES.items()]
            told = {"id": "/".join(words[2:4]), "sha": COMMIT, "siblings": siblings}
            self._answer(json.dumps(told).encode())
        else:
            self._answer(CARD)

    def _answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", '"card"')
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(body)

    def do_HEAD(self) -> None:
        self.do_GET()


def _told(number: int) -> dict[str, object]:
    return {
        "id": f"org-{number % 9}/model-{number:03}-8B-Instruct-4bit",
        "downloads": 100_000 - number,
        "likes": number % 50,
        "gated": False,
        "lastModified": "2026-11-01T10:00:00.000Z",
        "tags": ["mlx", "license:apache-2.0"],
        "config": {"model_type": "llama", "quantization_config": {"bits": 4}},
        "safetensors": {"parameters": {"U32": 10**9, "BF16": 10**8}, "total": 11 * 10**8},
    }


def _file(name: str, size: int) -> dict[str, object]:
    digest = hashlib.sha256(name.encode()).hexdigest()
    told: dict[str, object] = {"rfilename": name, "size": size, "blobId": digest[:40]}
    return told | ({"lfs": {"size": size, "sha256": digest, "pointerSize": 134}} if size > 10**6 else {})


def main() -> None:
    """Serve."""
    Hub.results = int(sys.argv[1])
    server = ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(f"http://127.0.0.1:{server.server_port}", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
