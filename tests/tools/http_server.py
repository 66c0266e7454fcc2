"""A server of tools over HTTP that misbehaves in many ways; the path of its address names how."""

import gzip
import json
import socket
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

_CHUNK = b"x" * 65_536
_NOTIFICATION = (
    b'data: {"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": 1}}\n\n'
)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: "HttpToolServer"

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.headers.append(dict(self.headers))
        method = request["method"]
        mode = self.path.strip("/").replace("%20", " ")
        if mode == "elsewhere":
            self._send(307, location=f"http://localhost:{self.server.server_port}/good")
        elif mode == "slash" and not self.path.endswith("/"):
            self._send(307, location=f"http://127.0.0.1:{self.server.server_port}/slash/")
        elif mode == "key" and self.headers.get("Authorization") != "Bearer sesame":
            self._send(401)
        elif mode.startswith("ends") and self._has_ended(mode, request):
            self._send(404, b"Session not found")
        elif "id" not in request:
            self._send(202)
        elif mode == "half at start":
            self._json(b'{"sk-hostile-0123": "\\ud800"}')
        elif method == "tools/call":
            self._call(mode, self._answer(request, {"content": [{"type": "text", "text": "done"}]}))
        elif method == "tools/list":
            about = f"Session {self.server.session}" if mode == "ends with other tools" else ""
            tool = {"name": "do", "description": about, "inputSchema": {"type": "object"}}
            self._json(self._answer(request, {"tools": [tool]}))
        elif mode == "ends for good" and self.server.session > 1:
            self._send(403, b"Forbidden")
        else:
            info = {"name": "http", "version": "1"}
            version = request["params"]["protocolVersion"]
            answer = self._answer(request, {"protocolVersion": version, "capabilities": {}, "serverInfo": info})
            session = {"mcp_session_id": str(self.server.session)} if mode.startswith("ends") else {}
            self._send(200, answer, content_type="application/json", **session)

    def _has_ended(self, mode: str, request: dict[str, Any]) -> bool:
        """Begin a session, or say whether the request's has ended: before each call in it, or after the first one."""
        server = self.server
        given = self.headers.get("Mcp-Session-Id")
        if request["method"] == "initialize":
            server.session += 1
            return given is not None
        if given != str(server.session):
            return True
        if request["method"] == "tools/call":
            server.calls += 1
            if mode == "ends at each call":
                return True
            server.session += server.calls == 1
        return False

    def do_GET(self) -> None:
        self._send(405)

    def _answer(self, request: dict[str, Any], result: dict[str, Any]) -> bytes:
        return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()

    def _call(self, mode: str, answer: bytes) -> None:  # noqa: C901
        match mode:
            case "events":
                self._stream([_NOTIFICATION, b"event: message\ndata: " + answer + b"\n\n"])
            case "flood":
                self._stream(_NOTIFICATION * 100 for _ in range(100_000))
            case "large event":
                self._stream(b"data: " + _CHUNK if number == 0 else _CHUNK for number in range(1_000))
            case "large":
                self._begin(200, "application/json", 65_536 * 1_000)
                self._write(_CHUNK for _ in range(1_000))
            case "half":
                self._json(answer.replace(b"done", b"sk-hostile-0123 \\ud800"))
            case "half event":
                half, rest = answer.replace(b"done", b"sk-hostile-0123 \\ud800\xff").split(b"d8")
                self._stream([b"data: " + half, b"d8" + rest + b"\r\r"])
            case "packed":
                self._send(200, gzip.compress(answer), content_type="application/json", content_encoding="gzip")
            case "leaves":
                self.connection.shutdown(socket.SHUT_RDWR)
            case "breaks":
                self._stream([])
            case "page":
                self._send(200, b"<html>", content_type="text/html")
            case "list":
                self._json(b"\xef\xbb\xbf[null, " + answer + b"]")
            case "own error" | "own error event" | "closed event" | "no such session":
                code, said = (-32001, "Session not found") if mode == "no such session" else (-32000, "No such city")
                said, data = ("Connection closed", None) if mode == "closed event" else (said, 7)
                self.server.calls += 1
                error = json.dumps({"jsonrpc": "2.0", "id": 2, "error": {"code": code, "message": said, "data": data}})
                if mode.endswith("event"):
                    self._stream([f"data: {error}\n\n".encode()])
                else:
                    self._json(error.encode())
            case "400":
                body = b'{"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "No such city"}}'
                self._send(400, body, content_type="application/json")
            case "403":
                self._send(403, b'{"error": "invalid_scope"}', content_type="application/json")
            case "429":
                self._send(429, b"slow down")
            case "500":
                self._send(500, b"<html>")
            case _:
                self._json(answer)

    def _json(self, body: bytes) -> None:
        self._send(200, body, content_type="application/json")

    def _stream(self, pieces: Any) -> None:
        self._begin(200, "text/event-stream")
        self._write(pieces)

    def _write(self, pieces: Any) -> None:
        try:
            for piece in pieces:
                self.wfile.write(piece)
        except OSError:
            pass
        self.close_connection = True

    def _begin(self, status: int, content_type: str, length: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Connection", "close")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def _send(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


class HttpToolServer(ThreadingHTTPServer):
    """The server.

    Attributes:
        headers: Those of each request.
        session: The number of the session.
        calls: The number of calls in sessions, and of those with a mode of their own.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.headers: list[dict[str, str]] = []
        self.session = 0
        self.calls = 0

    def url(self, mode: str) -> str:
        return f"http://127.0.0.1:{self.server_port}/{mode.replace(' ', '%20')}"

    def handle_error(self, *_arguments: object) -> None:
        """Say nothing of clients that leave."""
