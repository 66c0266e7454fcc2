"""Models of a remote server: rdchat's own, over loopback and TLS, and servers that lie."""

import errno
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from rdchat import paths
from rdchat.errors import (
    InvalidSettingError,
    ModelError,
    NetworkError,
    PromptTooLongError,
    RdchatError,
    UntrustedCertificateError,
)
from rdchat.inference.api import (
    UNKNOWN_LENGTH,
    AnswerShape,
    ChatImage,
    ChatMessage,
    Dtype,
    Engine,
    FinishReason,
    GenerationEvent,
    GenerationRequest,
    Mode,
    PrefillProgress,
    RemoteServer,
    ReplyEnd,
    Role,
    SamplingParams,
    ShapeKind,
    ThinkingChoice,
    TokenEvent,
    ToolCall,
    fingerprint_of,
    needs_confirmation,
)
from rdchat.inference.engines import EnginesByAddress
from rdchat.inference.remote import server_connection, server_keys
from rdchat.inference.remote.remote_engine import list_models
from rdchat.inference.remote.remote_reply import RemoteReply
from rdchat.inference.remote.server_connection import Connection
from rdchat.inference.remote.server_keys import key_of, store_key
from rdchat.server import credentials
from rdchat.server.credentials import fingerprint, own_certificate
from rdchat.server.interfaces.fields import CONTEXT_FULL, ApiError
from rdchat.server.server import Server
from tests.server.conftest import MakeServer, wait_until
from tests.server.fakes import KEY, MODEL, Script, ScriptedGate
from tests.server.lying_server import Write, answer, lying_server

HELLO = (ChatMessage(Role.SYSTEM, "Be brief."), ChatMessage(Role.USER, "Hi"))
MODELS = answer(json.dumps({"data": [{"id": "m"}]}).encode())


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_keys, "_KEYS", {})
    monkeypatch.setenv("RDCHAT_KEY_STUDIO", KEY)


@contextmanager
def loaded(address: str, model: str = MODEL.name, **fields: Any) -> Iterator[Engine]:
    engines = EnginesByAddress(lambda: [RemoteServer("studio", address, **fields)])
    with closing(engines):
        engines.load(f"remote:studio/{model}", Dtype.AUTO, lambda _: None)
        yield engines.chosen


def reply(engine: Engine, messages: tuple[ChatMessage, ...] = HELLO, **fields: Any) -> list[GenerationEvent]:
    with closing(engine.generate(GenerationRequest(messages, request_id=7, **fields))) as events:
        return list(events)


def end_of(events: list[GenerationEvent]) -> ReplyEnd:
    assert isinstance(events[-1], ReplyEnd)
    streamed = "".join(each.text for each in events if isinstance(each, TokenEvent)) + events[-1].trailing_text
    assert streamed == events[-1].text
    assert all(each.request_id == 7 for each in events)
    return events[-1]


@pytest.fixture
def engine(server: Server) -> Iterator[Engine]:
    with loaded(server.address) as engine:
        yield engine


def test_a_reply_comes_as_the_server_writes_it(engine: Engine, gate: ScriptedGate) -> None:
    sampling = SamplingParams(0.5, 0.9, 40, 0.1, 1.1, 0.2, 0.3, 99, ("END",))
    events = reply(engine, sampling=sampling, seed=2**63 + 5)
    end = end_of(events)
    assert (end.text, end.finish_reason, end.token_ids) == ("Hello, you!", FinishReason.EOS, (0, 1, 2, 3, 99))
    counters = end.statistics
    assert (counters.prompt_tokens, counters.cached_prompt_tokens, counters.generated_tokens) == (8, 2, 5)
    assert (counters.rounds, counters.drafted, counters.accepted, counters.target_calls) == (2, 4, 3, 2)
    assert counters.decode_ms == pytest.approx(500)
    assert end.mode in Mode, "rdchat says it"
    assert counters.ttft_ms > 0
    asked = gate.requests[0]
    assert (asked.messages, asked.sampling) == (HELLO, sampling)


def test_a_model_says_where_it_runs_and_what_its_server_says_of_it(make_server: MakeServer, gate: ScriptedGate) -> None:
    gate.model = replace(MODEL, thinking=(ThinkingChoice.OFF, ThinkingChoice.ON), thinking_default=ThinkingChoice.OFF)
    server = make_server(may_load_models=True)
    own, other = list_models(RemoteServer("studio", server.address), KEY)
    assert (own.name, own.context_length, own.thinking) == (MODEL.name, 2048, (ThinkingChoice.OFF, ThinkingChoice.ON))
    assert (other.name, other.context_length, len(other.thinking)) == ("other/model", UNKNOWN_LENGTH, 5)
    assert (own.thinking_default, other.thinking_default) == (ThinkingChoice.OFF, None)
    assert all(each.is_rdchat for each in (own, other))
    engines = EnginesByAddress(lambda: [RemoteServer("studio", server.address)])
    info = engines.load("remote:studio/tiny/model", Dtype.AUTO, lambda _: None)
    assert (info.server, info.device, str(info.path)) == ("studio", server.address, "remote:studio/tiny/model")


def test_a_thought_is_put_before_the_answer_as_the_window_reads_it(engine: Engine, gate: ScriptedGate) -> None:
    gate.scripts = [Script(("Hm", " </think", "> no", "</think>", "The", " <think> is"), in_thought=True, control=(3,))]
    gate.model = replace(MODEL, token_markers=frozenset({"<think>", "</think>"}))
    events = reply(engine)
    first = events[0]
    end = end_of(events)
    assert isinstance(first, PrefillProgress)
    assert first.in_thought
    assert (end.told.thought, end.told.answer) == ("Hm </think> no", "The <think> is")


def test_thoughts_of_earlier_turns_stay_here(engine: Engine, gate: ScriptedGate) -> None:
    text = "<think>\nsecret\n</think>\n\nYes."
    messages = (
        *HELLO,
        ChatMessage(Role.ASSISTANT, text, answer=((text.index("Yes"), len(text)),)),
        ChatMessage(Role.USER, "Why?"),
    )
    reply(engine, messages)
    assert gate.requests[0].messages == (*HELLO, ChatMessage(Role.ASSISTANT, "Yes."), ChatMessage(Role.USER, "Why?"))
    with pytest.raises(ModelError, match="cannot continue a thought"):
        reply(engine, (*HELLO, ChatMessage(Role.ASSISTANT, "<think>\nHm", answer=())), continue_last=True)


def test_a_reply_is_continued(engine: Engine, gate: ScriptedGate) -> None:
    begun = ChatMessage(Role.ASSISTANT, "Once upon")
    assert end_of(reply(engine, (*HELLO, begun), continue_last=True)).text == "Hello, you!"
    assert gate.requests[0].continue_last
    assert gate.requests[0].messages[-1] == begun


def test_tools_are_called_and_their_results_go_back(engine: Engine, gate: ScriptedGate) -> None:
    call = ToolCall("clock", '{"zone": "UTC"}', "c1")
    gate.scripts = [Script(("Let me see", "<call>…</call>"), calls=(call,), content="Let me see")]
    tools = json.dumps([{"type": "function", "function": {"name": "clock", "parameters": {"type": "object"}}}])
    end = end_of(reply(engine, tools=tools))
    assert (end.tool_calls, end.told.text, end.finish_reason) == ((call,), "Let me see", FinishReason.EOS)
    messages = (*HELLO, ChatMessage(Role.ASSISTANT, "", tool_calls=(call,)),
                ChatMessage(Role.TOOL, "12:00", tool_call_id="c1", name="clock"))  # fmt: skip
    gate.scripts = [Script()]
    reply(engine, messages, tools=tools)
    said = gate.requests[-1].messages
    assert (said[2].tool_calls, said[3].content, said[3].tool_call_id) == ((call,), "12:00", "c1")


@pytest.mark.parametrize(
    "shape",
    [
        AnswerShape(ShapeKind.JSON),
        AnswerShape(ShapeKind.SCHEMA, '{"type": "object"}'),
        AnswerShape(ShapeKind.REGEX, "[ab]+"),
        AnswerShape(ShapeKind.GRAMMAR, 'start: "a"'),
    ],
)
def test_an_answer_format_goes_to_the_server(shape: AnswerShape, engine: Engine, gate: ScriptedGate) -> None:
    reply(engine, shape=shape, thinking=ThinkingChoice.OFF, thinking_tokens=0)
    sent = gate.requests[0].shape
    assert sent is not None
    assert (sent.kind, sent.source) == (shape.kind, shape.source)
    assert gate.requests[0].thinking_tokens == 0


def test_stop_ends_the_reply_here_and_there(engine: Engine, gate: ScriptedGate) -> None:
    gate.gate.shut()
    gate.gate.allow(2)
    events = engine.generate(GenerationRequest(HELLO, request_id=7))
    with closing(events):
        taken = [next(events), next(events)]
        timer = threading.Timer(0.1, events.cancel)
        timer.start()
        taken += list(events)
        timer.join()
    end = end_of(taken)
    assert (end.finish_reason, end.token_ids) == (FinishReason.CANCELLED, ())
    assert "Hello, you!".startswith(end.text)
    wait_until(lambda: gate.cancelled)


def test_a_reply_that_was_stopped_before_it_began_is_empty(engine: Engine) -> None:
    with closing(engine.generate(GenerationRequest(HELLO, request_id=7))) as events:
        events.cancel()
        assert end_of(list(events)).text == ""


def test_refusals_are_named(engine: Engine, gate: ScriptedGate) -> None:
    gate.scripts = [Script(refusal=ApiError(400, "The prompt has 9 tokens.", code=CONTEXT_FULL)),
                    Script(failure=ApiError(500, "The disk is full.")),
                    Script(refusal=ApiError(429, "Too many.")),
                    Script(refusal=ApiError(400, "No such field."))]  # fmt: skip
    for kind, words in (
        (PromptTooLongError, "too long.*9 tokens"),
        (ModelError, "disk is full"),
        (NetworkError, "busy.*Too many"),
        (ModelError, "refused the request.*No such field"),
    ):
        with pytest.raises(kind, match=words):
            reply(engine)


def test_a_wrong_key_and_an_unknown_model_are_named(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ModelError, match="no model nothing now"), loaded(server.address, "nothing"):
        pass
    monkeypatch.setenv("RDCHAT_KEY_STUDIO", "wrong-key-of-mine")
    with pytest.raises(ModelError, match="refused the key") as error, loaded(server.address):
        pass
    assert "wrong-key" not in str(error.value)
    monkeypatch.delenv("RDCHAT_KEY_STUDIO")
    with pytest.raises(ModelError, match="needs a key"), loaded(server.address):
        pass


def test_a_server_that_is_gone_is_named(make_server: MakeServer, gate: ScriptedGate) -> None:
    server = make_server()
    with loaded(server.address) as engine:
        gate.gate.shut()
        gate.gate.allow(1)
        with closing(engine.generate(GenerationRequest(HELLO))) as events:
            taken = [next(events), next(events)]
            server.stop_server()
            with pytest.raises(RdchatError):
                taken += list(events)
        with pytest.raises(NetworkError, match="cannot be reached"):
            reply(engine)


def test_what_a_remote_engine_lacks_is_empty_or_refused(engine: Engine) -> None:
    assert engine.draft_options(None, ()).modes == ()  # type: ignore[arg-type]
    assert engine.prefix_caches(5).held_bytes == 0
    assert engine.idle() is False
    for nothing in (engine.rest, engine.sleep, engine.wake):
        nothing()
    with pytest.raises(InvalidSettingError, match="cannot be measured"):
        engine.benchmark(None)  # type: ignore[arg-type]
    assert engine.count_tokens(HELLO) == 16  # estimated
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(engine, "_count", len)
        assert engine.count_tokens(HELLO) == len("Be brief.Hi") + 3 * 4, "by a tokenizer that is here"
    with pytest.raises(PromptTooLongError):
        engine.count_tokens([ChatMessage(Role.USER, "x" * 2**16)])
    assert engine.unload() == 0
    with pytest.raises(ModelError, match="No model"):
        engine.generate(GenerationRequest(HELLO))


def test_a_self_signed_certificate_is_accepted_by_its_fingerprint_only(make_server: MakeServer) -> None:
    server = make_server(certificate=own_certificate())
    assert server.address.startswith("https://")
    with pytest.raises(UntrustedCertificateError) as error:
        list_models(RemoteServer("studio", server.address), KEY)
    shown = fingerprint(paths.server_certificate_path())
    assert error.value.fingerprint == shown
    with loaded(server.address, fingerprint=shown) as engine:
        assert end_of(reply(engine)).text == "Hello, you!"
    other = shown[:-1] + ("0" if shown[-1] != "0" else "1")
    with pytest.raises(NetworkError, match="another certificate"), loaded(server.address, fingerprint=other):
        pass


class MacTrust(ssl.SSLContext):
    """Refuses a certificate as macOS does, through truststore: after the handshake, in words of its own."""

    class Object(ssl.SSLObject):
        def do_handshake(self) -> None:
            super().do_handshake()
            raise ssl.SSLCertVerificationError("“studio.local” certificate is not trusted")

    sslobject_class = Object


def test_a_self_signed_certificate_is_offered_by_its_fingerprint_on_a_mac_too(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    trust = MacTrust(ssl.PROTOCOL_TLS_CLIENT)
    trust.check_hostname = False
    trust.verify_mode = ssl.CERT_NONE
    monkeypatch.setattr(server_connection, "tls_context", lambda: trust)
    server = make_server(certificate=own_certificate())
    with pytest.raises(UntrustedCertificateError) as error:
        list_models(RemoteServer("studio", server.address), KEY)
    assert error.value.fingerprint == fingerprint(paths.server_certificate_path())


def test_a_certificate_that_changes_between_the_look_and_the_connection_is_named(
    make_server: MakeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = own_certificate().read_text()
    paths.server_certificate_path().unlink()
    server = make_server(certificate=own_certificate())
    looked = shown[shown.index("-----BEGIN CERT") :]

    async def look(_: Connection) -> str:
        return looked

    monkeypatch.setattr(Connection, "_certificate", look)
    with pytest.raises(NetworkError, match="another certificate than the one you accepted, so nothing was sent"):
        list_models(RemoteServer("studio", server.address, fingerprint_of(looked)), KEY)


def test_a_certificate_that_has_ended_is_named(make_server: MakeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(credentials, "_VALID", timedelta(hours=23))
    server = make_server(certificate=own_certificate())
    with (
        pytest.raises(NetworkError, match="no longer valid"),
        loaded(server.address, fingerprint=fingerprint(paths.server_certificate_path())),
    ):
        pass


def test_stop_does_not_wait_for_a_handshake(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server takes the connection, and says nothing."""
    accepted = ":".join(["AB"] * 32)
    with closing(socket.create_server(("127.0.0.1", 0))) as listener:
        address = f"https://127.0.0.1:{listener.getsockname()[1]}"
        monkeypatch.setattr(server_connection, "_CONNECT_S", 600.0)
        request = GenerationRequest(HELLO, request_id=7)
        silent = Connection(RemoteServer("studio", address, accepted), KEY)
        with closing(RemoteReply(silent, request, {}, is_rdchat=False)) as events:

            def stop() -> None:
                client, _ = listener.accept()
                with client:
                    assert client.recv(1)  # the first byte of the handshake
                    events.cancel()
                    while client.recv(4096):
                        pass

            thread = threading.Thread(target=stop)
            thread.start()
            end = end_of(list(events))
            thread.join()
    assert end.finish_reason is FinishReason.CANCELLED


def test_a_certificate_that_cannot_be_used_is_named(make_server: MakeServer) -> None:
    file = own_certificate().with_name("none.pem")
    with pytest.raises(RdchatError, match="cannot be read"):
        make_server(certificate=file)
    file.write_text("-----BEGIN CERTIFICATE-----\nnothing\n-----END CERTIFICATE-----\n")
    with pytest.raises(InvalidSettingError, match="cannot be used"):
        make_server(certificate=file)
    assert own_certificate().stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("address", ["http://studio.local:8817", "http://10.0.0.2", "http://[fe80::1]:80"])
def test_an_unencrypted_connection_must_be_confirmed(address: str) -> None:
    with pytest.raises(InvalidSettingError, match="not be encrypted"):
        RemoteServer("studio", address)
    assert RemoteServer("studio", f"{address}/v1/", confirmed_plain=True).address == address


@pytest.mark.parametrize("address", ["http://127.0.0.1:1", "http://localhost:1", "http://[::1]:1", "https://studio"])
def test_a_connection_that_stays_here_or_is_encrypted_needs_no_confirmation(address: str) -> None:
    assert not needs_confirmation(RemoteServer("studio", address).address)


@pytest.mark.parametrize(
    "address", ["", "studio", "ftp://studio", "https://", "https://a b", "https://me:secret@studio", "https://s/?k=1",
                "https://studio:99999", "https://studio\n"]
)  # fmt: skip
def test_invalid_address_of_a_server_is_refused(address: str) -> None:
    with pytest.raises(InvalidSettingError):
        RemoteServer("studio", address)


def test_a_key_is_kept_for_its_address_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RDCHAT_KEY_STUDIO")
    here, there = (RemoteServer("studio", f"https://{name}") for name in ("here", "there"))
    store_key(here, "a-secret")
    assert (key_of(here), key_of(there)) == ("a-secret", "")
    with pytest.raises(InvalidSettingError, match="not a key"):
        store_key(here, "two words")
    assert key_of(here) == "a-secret"
    store_key(here, "")
    assert key_of(here) == ""
    with pytest.raises(RdchatError, match="no keychain"):
        store_key(here, "a-secret", until_quit=False)


def test_a_refused_permission_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def connect(*_: object) -> None:
        raise OSError(errno.EHOSTUNREACH, "No route to host")

    monkeypatch.setattr(socket.socket, "connect", connect)
    for accepted in ("", ":".join(["AB"] * 32)):
        with pytest.raises(NetworkError, match=r"cannot be reached.*Local Network must allow rdchat"):
            list_models(RemoteServer("studio", "https://10.0.0.1:1", accepted), KEY)


# Servers that lie


def test_half_a_character_of_an_earlier_message_does_not_end_the_chat() -> None:
    """A prompt of an imported preset may have one, or a chat from before they were replaced."""
    messages = (ChatMessage(Role.SYSTEM, "a\ud800b"), ChatMessage(Role.USER, "Hi"))
    with (
        lying_server(MODELS, stream(chunk("stop", content="fine"))) as (address, requests),
        loaded(address, "m") as one,
    ):
        assert end_of(reply(one, messages)).text == "fine"
    assert json.loads(requests[1].partition(b"\r\n\r\n")[2])["messages"][0]["content"] == "a?b"
    assert b"content-type: application/json\r\n" in requests[1].lower()


def test_a_byte_that_is_no_text_damages_itself_alone() -> None:
    models = MODELS.replace(b"[", b'[{"id": "a\xff"}, ')
    damaged = stream(chunk("stop", content="a?b")).replace(b"?", b"\xff")
    with lying_server(models, damaged) as (address, _), loaded(address, "m") as engine:
        assert end_of(reply(engine)).text == "a\ufffdb"


def stream(*events: object) -> bytes:
    lines = (each if isinstance(each, str) else json.dumps(each) for each in events)
    return answer("".join(f"data: {line}\n\n" for line in lines).encode(), "text/event-stream")


def chunk(finish: object = None, **delta: object) -> dict[str, Any]:
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def endless(beginning: bytes, part: bytes) -> Write:
    def write(send: Callable[[bytes], object]) -> None:
        send(beginning)
        while True:
            send(part * 1000)

    return write


def test_a_strange_servers_usual_answer_is_read() -> None:
    usage = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": None}
    answers = stream({"choices": []}, ": ping", chunk(role="assistant", content=None), chunk(reasoning="Hm"),
                     chunk(content="A"), chunk("stop", content="B"), {"usage": usage}, "[DONE]")  # fmt: skip
    answers = answers.replace(b"data: : ping", b": ping")
    with lying_server(MODELS, answers) as (address, requests), loaded(address, "m") as engine:
        end = end_of(reply(engine, sampling=SamplingParams(0.0, top_k=3), seed=2**40, thinking=ThinkingChoice.HIGH))
        body = json.loads(requests[1].partition(b"\r\n\r\n")[2])
        with pytest.raises(ModelError, match="how long"):
            engine.count_tokens(HELLO)
    assert (end.text, end.token_ids, end.mode) == ("Hm\n</think>\n\nAB", (), None)
    assert (end.statistics.generated_tokens, end.statistics.rounds, end.statistics.plain_step_ms) == (2, 0, 0)
    assert b"authorization: bearer " + KEY.encode() in requests[1].lower()
    assert (body["top_k"], body["seed"], body["reasoning_effort"]) == (3, 0, "high")
    assert body.keys().isdisjoint({"min_p", "return_token_ids", "presence_penalty", "stop", "tools"})


@pytest.mark.parametrize("sees", [True, False])
def test_an_image_has_an_estimate_where_the_model_sees(sees: bool) -> None:
    """It was "about 0 tokens"."""
    listed = {"id": "m", "context_length": 8000, "capabilities": {"vision": sees}}
    image = ChatImage(Path("one.png"), "1", 64, 64)
    with lying_server(answer(json.dumps({"data": [listed]}).encode())) as (address, _), loaded(address, "m") as engine:
        plain = ChatMessage(Role.USER, "Hi")
        added = engine.count_tokens([replace(plain, images=(image,))]) - engine.count_tokens([plain])
    assert added == (1000 if sees else 0)


# Answers that are none.
_STRANGE = (
    stream("nonsense"),
    stream({"choices": ["x"]}),
    stream(chunk(token_ids=5) | {"choices": [{"token_ids": "xy"}]}),
    stream("[" * 100_000),
    answer(b"<html>Hello</html>", "text/html"),
    answer(b"not found", "text/plain", "404 Not Found"),
    answer(b"x", "text/event-stream", more="Content-Encoding: gzip\r\n"),
)

# Statuses, what is said of them, bodies, and the words in these.
_REFUSALS = [
    (
        "422 X",
        r"refused the request \(422\)",
        b'{"detail": [{"loc": ["body", "x"], "msg": "extra field"}]}',
        ".*extra field",
    ),
    (
        "400 X",
        "refused",
        b'{"object": "error", "message": "max_tokens is too large", "code": 400}',
        "max_tokens is too",
    ),
    ("400 X", "refused", b'{"message": ["a", "b"], "error": "Bad Request", "statusCode": 400}', r'\["a", "b"\]$'),
    ("400 X", "refused", b"the model is\noverloaded", "the model is overloaded$"),
    ("400 X", "refused", b'{"errors": ["what?"]}', '{"errors": .*what'),
    ("500 X", "failed", b'{"error": {"msg": "Oops"}}', "Oops$"),
    ("401 X", "refused the key", b"Unauthorized", "Unauthorized"),
    ("404 X", "OpenAI-compatible", b"404 page not found", "404 page not found"),
    ("404 X", "refused", b'{"object": "error", "message": "no model m"}', "no model m$"),
    ("503 X", "is busy", b'{"detail": "queue full"}', "queue full"),
]


def test_end_mark_of_a_stream_counts_as_eos() -> None:
    with lying_server(MODELS, stream(chunk(content="A"), "[DONE]")) as (address, _), loaded(address, "m") as engine:
        end = end_of(reply(engine))
    assert (end.text, end.finish_reason) == ("A", FinishReason.EOS)


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (stream(chunk(content="A")), "stopped answering"),
        (stream(chunk(content=5)), "stopped answering"),
        (stream(chunk(tool_calls=[{"index": []}])), "stopped answering"),
        (stream(chunk("content_filter", content="A"), "[DONE]"), "broke off the reply: content_filter"),
        (b"nonsense\r\n\r\n", "does not answer"),
        (b"", "does not answer"),
        (stream({"error": {"message": "Out of\nmemory\x1b[31m"}}), "It says: Out of memory"),
        (stream({"object": "error", "message": "Out of memory"}), "It says: Out of memory"),
        (answer(b'{"error": "no stream"}'), "OpenAI-compatible server. It says: no stream"),
        *((answer(body, status=status), f"{told}.* It says: {words}") for status, told, body, words in _REFUSALS),
        *((lie, "does not answer as an OpenAI-compatible server") for lie in _STRANGE),
        (answer(b"<html>Bad Gateway</html>", "text/html", "502 Bad Gateway"), r"failed\.$"),
        (answer(b"", status="307 Go", more="Location: http://evil.example/v1\r\n"), "redirects to evil.example"),
        (answer(b"", status="302 Go", more="Location: \r\n"), "redirects"),
        (endless(answer(b"data: ", "text/event-stream"), b"x" * 1000), "more than a reply"),
        (endless(answer(b"", "text/event-stream"), b": nothing\n\n"), "more than a reply"),
    ],
)  # fmt: skip
def test_a_reply_that_goes_wrong_has_a_plain_error(
    lie: bytes | Write, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_connection, "_REPLY_BYTES", 2**21)
    refused = pytest.raises(RdchatError, match=words)
    with lying_server(MODELS, lie) as (address, _), loaded(address, "m") as engine, refused:
        reply(engine, sampling=SamplingParams(max_tokens=10))


@pytest.mark.parametrize(
    ("lie", "words"),
    [
        (answer(b"<html>"), "OpenAI-compatible"),
        (answer(b'{"data": {}}'), "OpenAI-compatible"),
        (answer(b'{"data": [{"id": 5}, {"id": "a\\n"}, 7]}'), "no model m now"),
        (answer(b"[" * 200_000), "OpenAI-compatible"),
        (endless(answer(b""), b"x" * 1000), "more than 4 MB"),
        (answer(b"", status="308 Go", more="Location: https://evil.example/\r\n"), "redirects"),
    ],
)
def test_invalid_list_of_models_raises_a_plain_error(lie: bytes | Write, words: str) -> None:
    with lying_server(lie) as (address, requests), pytest.raises(RdchatError, match=words), loaded(address, "m"):
        pass
    assert len(requests) == 1
