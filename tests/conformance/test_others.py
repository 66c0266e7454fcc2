"""Programs of others against the server: client libraries and suites, where docs/conformance.md has them installed.

For all but llmprobe the engine is scripted, so that thoughts and calls come for certain.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rdchat.inference.api import GenerationRequest, Role, ToolCall
from rdchat.server.served_models import Stop
from rdchat.server.server import Server
from rdchat.server.server_settings import ServerSettings
from tests.server.fakes import KEY, Script, ScriptedGate

LIBRARIES = Path(__file__).resolve().parent / "libraries"
_PROBE = Path(__file__).resolve().parent / "llmprobe"
_ENVIRONMENT = Path(__file__).resolve().parents[2] / "build" / "conformance"
_THOUGHT = "THE THOUGHT"
_ANSWER = "THE ANSWER"
_PIECES = ("THE ", "THOUGHT</think>THE ANSWER")
_CALL = ToolCall("look", '{"at": "THE PLACE"}')
_PROVIDERS = {
    "ai": ("openai", "openai with summaries", "openai without a store", "openai.chat", "anthropic",
           "openai-compatible", "open-responses"),
    "agents": ("responses", "chat"),
    "langchain": ("responses", "chat", "anthropic"),
}  # fmt: skip
# Clients that never send a thought back.
DROP_THOUGHTS = {"agents chat", "ai openai.chat", "ai open-responses", "langchain chat"}
# Open Responses' tests of what rdchat says that it does not do, `/v1/responses/compact`; a missing model is the loaded
# one.
EXCUSED = {"compact-response", "error-handling"}
# Checks that may fail, since llmprobe wants all tokens of the prompt in `input_tokens`, where Anthropic's API has those
# that were not cached, and since the default model does not write the word that should stop it.
EXCUSED_OF_LLMPROBE = {
    "messages: prompt cache reporting",
    "messages: prefix cache reuses a growing conversation",
    "messages: stop_sequence is reported and echoed",
}
# Seconds of a tool loop, and of one request of llmprobe.
_SECONDS = 120
_PATIENCE_S = 600


class _CallingGate(ScriptedGate):
    """Calls the first tool of a request, unless a result is there already."""

    def generate(self, request: GenerationRequest, on_event: Callable[[Any], object]) -> Stop:
        """See `ServerEngine`."""
        thought = Script(_PIECES, in_thought=True)
        if request.tools and all(each.role is not Role.TOOL for each in request.messages):
            call = ToolCall(json.loads(request.tools)[0]["function"]["name"], _CALL.arguments)
            thought = Script((*_PIECES, "<call>{}</call>"), in_thought=True, calls=(call,), content="".join(_PIECES))
        self.scripts = [thought]
        return super().generate(request, on_event)


@contextmanager
def scripted() -> Iterator[tuple[ScriptedGate, str]]:
    """Run a server in front of a scripted engine; yield the engine and the address."""
    gate = _CallingGate()
    server = Server(ServerSettings(KEY, port=0), gate)
    server.listen()
    try:
        yield gate, server.address
    finally:
        server.stop_server(60)
        gate.close()


@pytest.mark.slow
@pytest.mark.parametrize("how", ["whole", "stream"])
@pytest.mark.parametrize(("library", "way"), [(name, way) for name, ways in _PROVIDERS.items() for way in ways])
def test_a_tool_loop_loses_nothing(library: str, way: str, how: str) -> None:
    client = f"{library} {way}"
    if library == "ai":
        command = [_program("node"), str(_there(LIBRARIES / "node_modules").with_name("tool_loop.mjs"))]
    else:
        command = [str(_there(_ENVIRONMENT / "bin" / "python")), str(LIBRARIES / "tool_loop.py")]
    with scripted() as (gate, address):
        run = _run([*command, address, KEY, way if library == "ai" else client, how])
        assert _lost(run, gate.requests, client) == ""


def _lost(run: subprocess.CompletedProcess[str], requests: list[GenerationRequest], client: str) -> str:
    """Return what is wrong with a tool loop."""
    if run.returncode or run.stdout.strip() != _ANSWER or len(requests) != 2:
        return f"{len(requests)} requests, exit {run.returncode}, {run.stdout.strip()[:200]!r} {run.stderr[-500:]}"
    sent = [each for each in requests[1].messages if each.role is not Role.SYSTEM]
    if [each.role for each in sent] != [Role.USER, Role.ASSISTANT, Role.TOOL]:
        return f"roles {[each.role.value for each in sent]}"
    question, reply, result = sent
    arguments = [json.loads(each.arguments) for each in reply.tool_calls]
    wrong = {
        "question": question.content != "THE QUESTION",
        "thought": reply.thought != ("" if client in DROP_THOUGHTS else _THOUGHT),
        "answer": reply.content != _ANSWER,
        "call": arguments != [json.loads(_CALL.arguments)],
        "result": not result.content.startswith("THE RESULT"),
    }
    return ", ".join(name for name, is_wrong in wrong.items() if is_wrong)


@pytest.mark.slow
def test_open_responses() -> None:
    """The project's own checks, as llm-comply has them, with the schemas of its specification."""
    # By this name it knows a model that thinks. Events with a thought have OpenAI's name here, not the specification's.
    options = ["--format", "open-responses", "-k", KEY, "-m", "gpt-5", "--json", "-i", "response.reasoning_text"]
    with scripted() as (_, address):
        run = _run([str(_there(_ENVIRONMENT / "bin" / "llm-comply")), "-u", f"{address}/v1", *options])
    tests: list[dict[str, Any]] = json.loads(run.stdout)["results"]
    # What not every server has is a warning.
    failed = {each["id"] for each in tests if each["status"] != "passed" or each.get("errors") or each.get("warnings")}
    assert tests
    assert failed <= EXCUSED, run.stdout


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_llmprobe(tmp_path: Path) -> None:
    """At full depth, with the default model; without its benchmark and its questions to the model."""
    program = _there(_PROBE / "node_modules" / "llmprobe" / "bin" / "dist" / "llmprobe.mjs")
    serve = [sys.executable, "-m", "rdchat", "serve", "--port", "0", "--api-key-file", str(tmp_path / "key")]
    own = os.environ | {"RDCHAT_DATA_DIR": str(tmp_path / "data")}
    with subprocess.Popen(serve, stdout=subprocess.PIPE, text=True, env=own) as server:
        assert server.stdout
        address = server.stdout.readline().partition(" at ")[2].partition("/v1 ")[0]
        key = (tmp_path / "key").read_text().strip()
        options = ["--full", "--no-bench", "--no-save", "--no-color", "--timeout", str(_PATIENCE_S)]
        outcomes = _probed([_program("node"), str(program), address, "-k", key, *options], tmp_path)
        server.send_signal(signal.SIGINT)
    failed = {line[2:].rpartition("  ")[0] or line[2:] for line in outcomes if line.startswith("✗")}
    assert any(line.startswith("✓") for line in outcomes)
    assert failed <= EXCUSED_OF_LLMPROBE


def _probed(command: list[str], folder: Path) -> list[str]:
    """Run llmprobe; return the lines of its checks. What follows is about the model, so it ends there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("LLMPROBE")}
    own = kept | {"HOME": str(folder), "NO_PROXY": "*"}
    outcomes: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=own) as probe:
        assert probe.stdout
        for line in probe.stdout:
            if " /v1/models: " in line or outcomes:
                if not line.strip():
                    break
                outcomes.append(line.strip())
        probe.terminate()
    return outcomes


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    own = os.environ | {"NO_PROXY": "*"}
    settings: dict[str, Any] = {"capture_output": True, "text": True, "env": own, "timeout": _SECONDS}
    return subprocess.run(command, check=False, cwd=LIBRARIES, **settings)


def _there(path: Path) -> Path:
    """Return a path of what is installed by hand; a test without it is left out."""
    if not path.exists():
        pytest.skip("not installed; see docs/conformance.md")
    return path


def _program(name: str) -> str:
    return str(_there(Path(shutil.which(name) or f"/nowhere/{name}")))
