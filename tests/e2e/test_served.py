"""`rdchat serve` with the real default model, asked by OpenAI's and Anthropic's own clients."""

import hashlib
import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from anthropic import Anthropic
from openai import BadRequestError, NotFoundError, OpenAI

from rdchat.inference.api.requests import reply_seed
from tests.commands.running import printed_json

pytestmark = [pytest.mark.slow, pytest.mark.across_rows]

QUESTION = "Count from one to ten in words."
ASKED = [{"role": "user", "content": QUESTION}]
SEED = 7
SAMPLING = {"temperature": 0.8, "top_p": 0.9, "max_tokens": 24}


@dataclass(frozen=True)
class Served:
    """A server that runs."""

    address: str
    key: str
    folder: Path  # its data folder

    @property
    def openai(self) -> OpenAI:
        return OpenAI(base_url=f"{self.address}/v1", api_key=self.key, max_retries=0, timeout=300)

    @property
    def anthropic(self) -> Anthropic:
        return Anthropic(base_url=self.address, api_key=self.key, max_retries=0, timeout=300)

    def files(self) -> dict[str, str]:
        """Return a hash of each file that it could write to, logs apart."""
        files = (path for path in self.folder.glob("**/*") if path.is_file() and path.suffix != ".log")
        return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, default_model_folder: Path) -> Iterator[Served]:
    """The server's process; Ctrl-C ends it."""
    place = tmp_path_factory.mktemp("served")
    folders = {"RDCHAT_DATA_DIR": str(place / "data"), "RDCHAT_CACHE_DIR": str(place / "cache")}
    command = [sys.executable, "-m", "rdchat", "serve", "--port", "0", "--model", str(default_model_folder)]
    command += ["--api-key-file", str(place / "key")]
    with subprocess.Popen(
        command, env=os.environ | folders, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        line = process.stdout.readline()
        address = next((word for word in line.split() if word.startswith("http://")), "").rstrip(".")
        assert address, process.stderr.read()
        key = (place / "key").read_text().strip()
        assert key not in line
        yield Served(address.removesuffix("/v1"), key, place / "data")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stdout.read() == ""
        assert "Traceback" not in process.stderr.read()


@pytest.fixture(scope="module")
def stored(served: Served) -> dict[str, str]:
    """The files before the first request."""
    return served.files()


@pytest.fixture
def asked(capsys: pytest.CaptureFixture[str], default_model_folder: Path) -> Callable[[int], dict[str, Any]]:
    """What `rdchat ask` answers with a reply seed."""

    def ask(seed: int) -> dict[str, Any]:
        options = [f"--{name.replace('_', '-')}={value}" for name, value in SAMPLING.items()]
        return printed_json(capsys, "ask", QUESTION, f"--model={default_model_folder}", f"--seed={seed}", *options)

    return ask


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


def test_replies_are_those_of_rdchat_ask(
    served: Served, stored: dict[str, str], asked: Callable[[int], dict[str, Any]]
) -> None:
    more = {"return_token_ids": True}
    with served.openai as client:
        (model,) = client.models.list().data
        whole = client.chat.completions.create(
            model=model.id,
            messages=ASKED,
            seed=SEED,
            n=2,
            extra_body=more,
            **SAMPLING,  # type: ignore[call-overload]
        )
        stream = client.chat.completions.create(
            model=model.id,
            messages=ASKED,
            seed=SEED,
            stream=True,
            stream_options={"include_usage": True},
            **SAMPLING,  # type: ignore[call-overload]
        )
        chunks = list(stream)
    with served.anthropic as other:
        options = more | SAMPLING | {"seed": SEED}  # not all of them are named in this client
        message = other.messages.create(
            model=model.id,
            messages=ASKED,
            max_tokens=SAMPLING["max_tokens"],
            extra_body=options,  # type: ignore[call-overload]
        )
    said = [asked(reply_seed(SEED, 1, sibling)) for sibling in range(2)]
    assert whole.usage.rdchat["reply_seeds"] == [each["seed"] for each in said]
    assert [choice.token_ids for choice in whole.choices] == [each["token_ids"] for each in said]
    assert [choice.message.content for choice in whole.choices] == [each["text"] for each in said]
    assert said[0]["text"] != said[1]["text"]
    deltas = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(deltas) == said[0]["text"]
    assert len(deltas) > 3
    assert chunks[-1].usage.completion_tokens == len(said[0]["token_ids"])
    assert chunks[-1].usage.rdchat["cached_tokens"] > 0, "the prompt was read before"
    assert (message.content[0].text, message.token_ids) == (said[0]["text"], said[0]["token_ids"])
    assert served.files() == stored


def test_a_client_that_leaves_and_one_that_comes(served: Served, stored: dict[str, str]) -> None:
    with served.openai as client:
        stream = client.chat.completions.create(model="", messages=ASKED, stream=True, max_tokens=8000)
        next(iter(stream))
        stream.close()
        text = client.completions.create(model="", prompt="The capital of France is", max_tokens=3, temperature=0)
        assert "Paris" in text.choices[0].text
        listed = client.chat.completions.create(
            model="", messages=ASKED, max_tokens=4, temperature=0, logprobs=True, top_logprobs=20
        )
    entries = listed.choices[0].logprobs.content
    assert "".join(entry.token for entry in entries).startswith(listed.choices[0].message.content)
    assert all(entry.top_logprobs[0].logprob == pytest.approx(entry.logprob, abs=1e-3) for entry in entries)
    assert all(len(entry.top_logprobs) == 20 for entry in entries)
    assert served.files() == stored


def test_refusals(served: Served) -> None:
    tool = {"type": "function", "function": {"name": "find", "parameters": {"type": "object", "properties": {}}}}
    with served.openai as client:
        with pytest.raises(NotFoundError, match="no model named"):
            client.chat.completions.create(model="../secret", messages=ASKED)
        with pytest.raises(BadRequestError, match="no tool calls"):
            client.chat.completions.create(model="", messages=ASKED, tools=[tool])
        with pytest.raises(BadRequestError, match="context"):
            client.chat.completions.create(model="", messages=[{"role": "user", "content": "word " * 20_000}])


def test_a_page_in_a_browser_learns_nothing(served: Served) -> None:
    place = urlsplit(served.address)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=60)
    for headers in ({"Origin": "https://evil.example"}, {"Host": "evil.example"}):
        connection.request("GET", "/v1/models", headers=headers | {"Authorization": f"Bearer {served.key}"})
        answer = connection.getresponse()
        assert answer.status == 403
        assert b"smollm" not in answer.read().lower()
        assert not [name for name, _ in answer.getheaders() if name.lower().startswith("access-control")]
    connection.close()


def test_the_log_holds_no_text(served: Served) -> None:
    secret = "a walrus plays the trombone"
    with served.openai as client:
        client.chat.completions.create(model="", messages=[{"role": "user", "content": secret}], max_tokens=2)
    texts = [path.read_text() for path in served.folder.glob("**/*") if path.suffix == ".log"]
    assert all("walrus" not in text and served.key not in text for text in texts)
