"""Libraries of others against the server with a scripted engine, so that thoughts and calls come for certain.

`npm` installs them beside `libraries/tool_loop.mjs`, and `pip` into an environment of their own in `build`.
"""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rdchat.inference.api.messages import Role, ToolCall
from rdchat.inference.api.requests import GenerationRequest
from rdchat.server.served_models import Stop
from rdchat.server.server import Server
from rdchat.server.settings import ServerSettings
from tests.server.fakes import KEY, Script, ScriptedGate

LIBRARIES = Path(__file__).resolve().parent / "libraries"
_ENVIRONMENT = Path(__file__).resolve().parents[2] / "build" / "conformance"
_THOUGHT, _ANSWER = "THE THOUGHT", "THE ANSWER"
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
# Open Responses' tests of what rdchat says that it does not do: images, and `/v1/responses/compact`. A missing model is
# the loaded one.
EXCUSED = {"image-input", "compact-response", "error-handling"}
_SECONDS = 120


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
    server.start()
    try:
        yield gate, server.address
    finally:
        server.stop(60)
        gate.close()


def check_clients() -> bool:
    """Run a tool loop with each library, whole and streamed, and look at its second request."""
    commands: dict[str, list[str]] = {}
    if installed := _node():
        commands["ai"] = installed
    else:
        print("\nVercel's AI SDK is left out: install Node 20 or newer.")
    python = [str(_python()), str(LIBRARIES / "tool_loop.py")]
    commands |= dict.fromkeys(("agents", "langchain"), python)
    failed, passed = [], 0
    print()
    with scripted() as (gate, address):
        for library, command in commands.items():
            for provider in _PROVIDERS[library]:
                client = f"{library} {provider}"
                for how in ("whole", "stream"):
                    gate.requests.clear()
                    name = provider if library == "ai" else client
                    lost = _lost(_run([*command, address, KEY, name, how]), gate.requests, client)
                    print(f"  {client}, {how}: {lost or 'nothing is lost'}", flush=True)
                    passed += not lost
                    failed += [client] if lost else []
    print(
        f"Clients: {passed} tool loops passed, {len(failed)} failed; {', '.join(sorted(DROP_THOUGHTS))} drop thoughts"
    )
    return bool(passed) and not failed


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


def check_responses() -> bool:
    """Run Open Responses' checks, as llm-comply has them, with the schemas of its specification."""
    # By this name it knows a model that thinks. Events with a thought have OpenAI's name here, not the specification's.
    options = ["--format", "open-responses", "-k", KEY, "-m", "gpt-5", "--json", "-i", "response.reasoning_text"]
    program = _python().with_name("llm-comply")
    with scripted() as (_, address):
        run = _run([str(program), "-u", f"{address}/v1", *options])
    tests: list[dict[str, Any]] = json.loads(run.stdout)["results"]
    failed = set()
    print()
    for each in tests:
        why = [*each.get("errors", ()), *each.get("warnings", ())]
        print(f"  {each['id']}: {each['status']} {'; '.join(why)}".rstrip())
        # What not every server has is a warning.
        failed |= {each["id"]} if why or each["status"] != "passed" else set()
    print(f"Open Responses: {len(tests) - len(failed)} checks passed, {len(failed & EXCUSED)} are let pass")
    print("".join(f"  {name} failed\n" for name in sorted(failed - EXCUSED)), end="")
    return bool(tests) and failed <= EXCUSED


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    own = os.environ | {"NO_PROXY": "*"}
    settings: dict[str, Any] = {"capture_output": True, "text": True, "env": own, "timeout": _SECONDS}
    return subprocess.run(command, check=False, cwd=LIBRARIES, **settings)


def _node() -> list[str]:
    """Install Vercel's AI SDK; return the command of its tool loop, or nothing without Node."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return []
    install = [npm, "ci", "--prefix", str(LIBRARIES), "--ignore-scripts", "--no-audit", "--no-fund"]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    return [node, str(LIBRARIES / "tool_loop.mjs")]


def _python() -> Path:
    """Return the Python of an environment with the libraries, which is made where it is not there."""
    python = _ENVIRONMENT / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", _ENVIRONMENT], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "-r", LIBRARIES / "requirements.txt"]
    subprocess.run(install, check=True, stdout=subprocess.DEVNULL)
    return python
