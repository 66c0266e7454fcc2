"""`rdchat serve` with the real default model, and the clients of OpenAI and Anthropic."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest
from httpx2 import HTTPError
from PySide6.QtWidgets import QApplication
from pytestqt.qtbot import QtBot

from rdchat import paths
from rdchat.app import App
from rdchat.chat.settings import Settings, SettingsStore
from rdchat.inference.api import SamplingParams, reply_seed
from rdchat.services.engine.engine_request import EngineState
from tests.e2e.windows import running_app
from tests.late_module import LateModule
from tests.services.fakes import Gate
from tests.services.ports import any_port  # noqa: F401  a fixture of each test
from tests.slow_replies import slow_replies

if TYPE_CHECKING:
    from openai import OpenAI

pytestmark = pytest.mark.slow
openai_module = LateModule("openai")
PROMPT = "Name three colours."
CLIENTS = int(os.environ.get("CLIENTS", "15"))
ASK: dict[str, Any] = {"model": "smollm2-135m-instruct", "messages": [{"role": "user", "content": PROMPT}]}


@dataclass
class Served:
    """A server in a process of its own."""

    process: subprocess.Popen[str]
    address: str
    key: str
    data: Path


@pytest.fixture(scope="module")
def served(default_model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """`rdchat serve`, until Ctrl-C ends it in order."""
    place = tmp_path_factory.mktemp("served")
    models = place / "cache" / "models"
    models.mkdir(parents=True)
    (models / "smollm2-135m-instruct").symlink_to(default_model_folder, target_is_directory=True)
    folders = {"RDCHAT_DATA_DIR": str(place / "data"), "RDCHAT_CACHE_DIR": str(place / "cache"), "NO_PROXY": "*"}
    command = [sys.executable, "-m", "rdchat", "serve", "--port", "0", "--api-key-file", str(place / "key")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ | folders)
    assert process.stdout
    line = process.stdout.readline()
    address = line.partition(" at ")[2].partition("/v1 ")[0]
    assert address.startswith("http://127.0.0.1:"), line
    yield Served(process, address, (place / "key").read_text().strip(), place / "data")
    process.send_signal(signal.SIGINT)
    assert process.wait(60) == 130
    process.stdout.close()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
def openai(served: Served) -> Iterator[OpenAI]:
    with openai_module.OpenAI(
        base_url=f"{served.address}/v1", api_key=served.key, max_retries=0, timeout=250
    ) as client:
        yield client


def asked(seed: int, *options: str) -> dict[str, Any]:
    """Return the report of `rdchat ask` for the same prompt; it drafts nothing, and the server whatever pays."""
    command = [sys.executable, "-m", "rdchat", "ask", PROMPT, "--json", "--seed", str(seed), "--mode", "off", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize(("temperature", "sibling"), [(0.0, 0), (0.9, 1)])
def test_token_ids_are_those_of_rdchat_ask(
    openai: OpenAI, default_model: Path, temperature: float, sibling: int
) -> None:
    more = {"return_token_ids": True}
    reply = openai.chat.completions.create(
        **ASK, seed=11, temperature=temperature, max_tokens=8, n=2, logprobs=True, top_logprobs=3, extra_body=more
    )
    choice = reply.choices[sibling]
    options = ("--temperature", str(temperature), "--max-tokens", "8")
    report = asked(reply_seed(11, 1, sibling), *options)
    assert choice.to_dict()["token_ids"] == report["token_ids"]
    assert choice.message.content == report["text"]
    assert reply.usage
    assert reply.usage.to_dict()["rdchat"]["reply_seeds"][sibling] == report["seed"]  # type: ignore[index]
    assert choice.logprobs
    listed = choice.logprobs.content or []
    written = b"".join(bytes(token.bytes or ()) for token in listed)
    assert written.decode() == report["text"]
    assert all(-token.logprob < 30 and len(token.top_logprobs) == 3 for token in listed)
    chunks = openai.chat.completions.create(**ASK, seed=11, temperature=temperature, max_tokens=8, stream=True)
    streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
    assert streamed == reply.choices[0].message.content


def test_later_turns_read_only_what_is_new(served: Served, openai: OpenAI) -> None:
    first = openai.chat.completions.create(**ASK, max_tokens=16, temperature=0)
    messages: Any = [
        *ASK["messages"],
        {"role": "assistant", "content": first.choices[0].message.content},
        {"role": "user", "content": "Now three fruits."},
    ]
    second = openai.chat.completions.create(**(ASK | {"messages": messages}), max_tokens=4, temperature=0)
    assert second.usage
    assert second.usage.prompt_tokens_details
    assert (second.usage.prompt_tokens_details.cached_tokens or 0) > 30


def test_many_clients_leave_memory_and_folders_as_they_were(served: Served, openai: OpenAI) -> None:
    def ask(number: int) -> None:
        stream = openai.chat.completions.create(**ASK, max_tokens=3, stream=True, user=str(number))
        for chunk in stream:
            if number % 5 == 0 and chunk.choices:  # leaves in the middle
                break
        stream.close()

    def run() -> int:
        with ThreadPoolExecutor(CLIENTS) as clients:
            list(clients.map(ask, range(CLIENTS)))
        return psutil.Process(served.process.pid).memory_info().rss

    taken = [run(), run()]
    # Each round would leave caches of 40 tokens, which take more. What drafting needs is compiled once, and MLX keeps
    # freed buffers until they are too many, so single rounds grow without a leak.
    while taken[-1] - taken[-2] > CLIENTS * 500_000:
        assert len(taken) < 12, taken
        taken.append(run())
    assert not [each for each in served.data.rglob("*") if each.suffix == ".db"]
    log = served.data / "logs" / "rdchat.log"
    assert PROMPT not in (log.read_text() if log.exists() else "")


def test_answers_in_a_shape_and_calls_that_must_be(openai: OpenAI) -> None:
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}, "rank": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["colour", "rank"],
        "additionalProperties": False,
    }
    shape: Any = {"type": "json_schema", "json_schema": {"name": "answer", "schema": schema}}
    reply = openai.chat.completions.create(**ASK, max_tokens=60, seed=2, response_format=shape)
    assert reply.choices[0].finish_reason == "stop"
    assert set(json.loads(reply.choices[0].message.content or "")) == {"colour", "rank"}
    tool: Any = {"type": "function", "function": {"name": "paint", "parameters": schema}}
    called = openai.chat.completions.create(**ASK, max_tokens=80, seed=2, tools=[tool], tool_choice="required")
    (call,) = called.choices[0].message.tool_calls or []
    assert call.type == "function"
    assert (call.function.name, called.choices[0].finish_reason) == ("paint", "tool_calls")
    assert set(json.loads(call.function.arguments)) == {"colour", "rank"}


WEATHER = {
    "name": "weather",
    "description": "Return the weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
QUESTION = "Call the tool weather for {}."
# The default model was not trained for tools, and calls one only after examples.
EXAMPLES = {"Rome": "c1", "Oslo": "c2", "Berlin": "c3"}


def _to_paris(call: Any) -> bool:
    return (call.name, json.loads(call.arguments)) == ("weather", {"city": "Paris"})


def test_tools_of_chat_completions_on_a_template_without_tools(openai: OpenAI) -> None:
    messages: list[Any] = []
    for city, name in EXAMPLES.items():
        function = {"name": "weather", "arguments": json.dumps({"city": city})}
        call = {"id": name, "type": "function", "function": function}
        messages += [
            {"role": "user", "content": QUESTION.format(city)},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": name, "content": "sunny"},
        ]
    messages.append({"role": "user", "content": QUESTION.format("Paris")})
    asked: Any = {"model": "", "tools": [{"type": "function", "function": WEATHER}], "temperature": 0, "max_tokens": 60}
    reply = openai.chat.completions.create(messages=messages, **asked)
    (called,) = reply.choices[0].message.tool_calls or []
    assert called.type == "function"
    assert _to_paris(called.function)
    assert reply.choices[0].finish_reason == "tool_calls"
    chunks = openai.chat.completions.create(messages=messages, stream=True, **asked)
    deltas = [chunk.choices[0].delta for chunk in chunks]
    assert not "".join(delta.content or "" for delta in deltas)
    (streamed,) = [call for delta in deltas for call in delta.tool_calls or []]
    assert _to_paris(streamed.function)


@pytest.mark.parametrize("stream", [False, True])
def test_a_stop_text_ends_the_answer_and_not_the_thought_before_it(openai: OpenAI, stream: bool) -> None:
    question = {"role": "user", "content": "What is the capital of France? Think first."}
    asked: Any = ASK | {"messages": [question, {"role": "assistant", "content": "<think>\n"}], "stop": [" is"]}
    reply: Any = openai.chat.completions.create(**asked, temperature=0, max_tokens=40, stream=stream)
    parts = [chunk.choices[0].delta for chunk in reply if chunk.choices] if stream else [reply.choices[0].message]
    thought = "".join(getattr(part, "reasoning_content", None) or "" for part in parts)
    # This model ends inside its thought, which is the answer of a whole reply.
    assert " is" in (thought if stream else parts[0].content)


_TOKENS = 16
_PROMPT = "Write a story about the sea."


class Client:
    """OpenAI's client on a thread; `text` grows as the reply streams in."""

    def __init__(self, app: App, max_tokens: int = _TOKENS) -> None:
        self._max_tokens = max_tokens
        server = app.controller.server
        self._client = openai_module.OpenAI(
            base_url=f"{server.address}/v1", api_key=server.key, max_retries=0, timeout=120
        )
        self._model = app.controller.model_slot.name or ""
        self.text = ""
        self.done = False
        self.problem = ""
        self._thread = threading.Thread(target=self._ask)

    def start(self) -> Client:
        self._thread.start()
        return self

    def _ask(self) -> None:
        chunks = self._client.chat.completions.create(
            model=self._model,
            messages=[{"role": "user", "content": _PROMPT}],
            max_tokens=self._max_tokens,
            temperature=0.8,
            seed=5,
            stream=True,
        )
        try:
            for chunk in chunks:
                self.text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
            self.done = True
        except (openai_module.OpenAIError, HTTPError) as error:
            self.problem = str(error)
        self._client.close()

    def wait(self, qtbot: QtBot) -> str:
        qtbot.waitUntil(lambda: not self._thread.is_alive(), timeout=180_000)
        assert self.done, self.problem
        return self.text


def test_a_prompt_in_the_window_pauses_a_client_s_reply_which_goes_on_with_the_same_text(
    qapp: QApplication, qtbot: QtBot, default_model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sampling = SamplingParams(temperature=0, max_tokens=16)
    settings = Settings(sampling=sampling, titles_by_model=False, server_at_start=True)
    SettingsStore(paths.settings_path()).save_settings(settings)
    with running_app(qapp, qtbot) as app:
        controller = app.controller
        qtbot.waitUntil(lambda: bool(controller.server.address), timeout=120_000)
        qtbot.waitUntil(lambda: controller.replies.state is EngineState.IDLE, timeout=120_000)
        alone = Client(app).start().wait(qtbot)
        gate = Gate()
        slow_replies(monkeypatch, 0, gate.wait)
        gate.shut()
        gate.allow(8)
        paused = Client(app).start()
        qtbot.waitUntil(lambda: len(paused.text) > 5, timeout=120_000)
        controller.send("What is the capital of France?")

        def begins() -> bool:
            """Let one event of a reply come, or see that the window's reply has a text."""
            if gate.is_waiting:
                gate.allow(1)
            return bool(controller.chat.path[-1].text)

        qtbot.waitUntil(begins, timeout=120_000)
        assert not paused.done  # the window's reply is written in between
        assert app.window.panel.server.doing.text().startswith("Waits until the current reply is finished")
        gate.open()
        assert paused.wait(qtbot) == alone
        qtbot.waitUntil(lambda: controller.chat.streaming_id is None, timeout=120_000)
        assert "Paris" in controller.chat.path[-1].text
        control = controller.settings
        control.change(replace(control.values, server_at_start=False))
        slow_replies(monkeypatch, 0.05)
        last = Client(app, 400).start()  # more than it is given time for
        qtbot.waitUntil(lambda: len(last.text) > 5, timeout=120_000)
    qtbot.waitUntil(lambda: bool(last.problem), timeout=60_000)  # quitting ended it, and says so
