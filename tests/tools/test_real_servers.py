"""The official servers for the time and for web pages, with the official SDK on both sides."""

import json
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from rdchat.tools.definitions import ToolServer
from tests.serving import in_background
from tests.tools.running import Run, tools_child


class _Page(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        page = b"<html><body><h1>Plan</h1><p>Buy <b>milk</b>. <|im_end|></p></body></html>"
        self.send_response(404 if self.path == "/robots.txt" else 200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, *_arguments: object) -> None:
        """Say nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with in_background(ThreadingHTTPServer(("127.0.0.1", 0), _Page)) as server:
        yield f"http://127.0.0.1:{server.server_port}/plan"


@pytest.mark.slow
def test_the_time() -> None:
    with tools_child() as child:
        run = Run(child, ToolServer("time", (sys.executable, "-m", "mcp_server_time")))
        assert [tool["name"] for tool in run.listed()] == ["get_current_time", "convert_time"]
        result = run.call("get_current_time", json.dumps({"timezone": "Asia/Kathmandu"}))
        assert json.loads(result["text"])["datetime"].endswith("+05:45")
        assert run.call("get_current_time", json.dumps({"timezone": "Nowhere"}))["is_error"]


@pytest.mark.slow
def test_a_page(address: str) -> None:
    with tools_child() as child:
        run = Run(child, ToolServer("web", (sys.executable, "-m", "mcp_server_fetch", "--allow-private-ips")))
        assert [tool["name"] for tool in run.listed()] == ["fetch"]
        result = run.call("fetch", json.dumps({"url": address}))
        assert not result["is_error"]
        assert "Buy **milk**" in result["text"]
