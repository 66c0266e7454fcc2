"""Images of clients: the engine gets files of known sizes, and a small model sees them."""

from __future__ import annotations

import http.client
import io
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from PIL import Image

from rdchat.errors import one_line
from rdchat.inference.api import (
    ChatImage,
    ChatMessage,
    DraftSettings,
    Dtype,
    GenerationEvent,
    GenerationRequest,
    ImageCap,
    Mode,
    RemoteServer,
    Role,
)
from rdchat.inference.engines import EnginesByAddress
from rdchat.inference.loading import load_model
from rdchat.inference.remote.remote_engine import chat_request
from rdchat.inference.session import ChatSession
from rdchat.inference.vision.image_process import ImageFacts, ImageProcess
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.served_models import Stop
from rdchat.server.server import Server
from rdchat.server.server_settings import ServerSettings
from tests.inference.vision.pictures import encoded, photo, stored
from tests.inference.vision.seeing_models import seeing_folder
from tests.late_module import LateModule
from tests.server.conftest import MakeServer, anthropic_client, openai_client, wait_until
from tests.server.fakes import KEY, MODEL, Running, ScriptedGate

if TYPE_CHECKING:
    from anthropic import Anthropic
    from openai import OpenAI

openai_module = LateModule("openai")
anthropic_module = LateModule("anthropic")
PNG = encoded(photo(40, 24), "PNG")
ADDRESS = f"data:image/png;base64,{b64encode(PNG).decode()}"
URL = "https://example.com/cat.png"


class SeeingGate(ScriptedGate):
    """A scripted engine that reads the images of its requests, as an engine does while the request lives."""

    def __init__(self) -> None:
        super().__init__(model=replace(MODEL, sees=True))
        self.files: list[list[bytes]] = []
        self.folders: set[Path] = set()

    def generate(self, request: GenerationRequest, on_event: Callable[[GenerationEvent | ApiError], object]) -> Stop:
        self._read(request)
        return super().generate(request, on_event)

    def count_tokens(self, request: GenerationRequest) -> int:
        self._read(request)
        return super().count_tokens(request) + 100 * len(self.files[-1])

    def _read(self, request: GenerationRequest) -> None:
        images = [image for message in request.messages for image in message.images]
        self.files.append([image.path.read_bytes() for image in images])
        self.folders |= {image.path.parent for image in images}
        for image in images:
            assert image.path.parent.stat().st_mode & 0o077 == 0


@pytest.fixture
def gate() -> Iterator[SeeingGate]:
    gate = SeeingGate()
    yield gate
    gate.close()
    assert not any(folder.exists() for folder in gate.folders)


def chat(openai: OpenAI, *parts: Any, model: str = "") -> Any:
    return openai.chat.completions.with_raw_response.create(model=model, messages=[{"role": "user", "content": parts}])


def image(url: str = ADDRESS, **more: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, **more}}


def block(data: bytes = PNG) -> dict[str, Any]:
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": b64encode(data).decode()}}


WORDS = {"type": "text", "text": "What is it?"}


def pieces(message: ChatMessage) -> list[str]:
    """Return what a message says, with `#` for an image."""
    return message.with_lines(["#"] * len(message.images)).content.split("\n")


ORDERS = ("a#b#", "#a", "a#", "##ab", "a#b", "ab#c##d", "#")


@pytest.mark.parametrize("order", ORDERS)
def test_words_and_images_keep_their_order(openai: OpenAI, anthropic: Anthropic, gate: SeeingGate, order: str) -> None:
    """The images of a message once came before all its texts: nothing said which was "the first picture"."""
    parts = [image() if each == "#" else {"type": "text", "text": each} for each in order]
    blocks = [block() if each == "#" else {"type": "text", "text": each} for each in order]
    inputs: Any = [
        {"type": "input_image", "image_url": ADDRESS, "detail": "low"}
        if each == "#"
        else {"type": "input_text", "text": each}
        for each in order
    ]
    chat(openai, *parts)
    call: Any = {"type": "function_call", "name": "look", "arguments": "{}", "call_id": "c"}
    output: Any = {"type": "function_call_output", "call_id": "c", "output": inputs}
    openai.responses.create(model="", input=[{"role": "user", "content": inputs}, call, output])
    assert gate.requests[-1].image_cap == ImageCap.SMALL
    used: Any = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    result: Any = {"type": "tool_result", "tool_use_id": "c", "content": blocks, "is_error": True}
    turns: Any = [
        {"role": "user", "content": blocks},
        {"role": "assistant", "content": [used]},
        {"role": "user", "content": [result, *blocks]},
    ]
    anthropic.messages.create(model="", max_tokens=9, messages=turns)
    said = [each for request in gate.requests for each in request.messages if each.role is not Role.ASSISTANT]
    assert len(said) == 6
    for message in said:
        failed = "The call failed."
        words = [each.removeprefix(failed).strip() for each in pieces(message)]
        assert "".join(words) == order, message
        assert message.images or "#" not in order


@pytest.mark.parametrize("url", [URL, "data:,", "data:image/png;base64,AAAA"])
def test_an_old_image_that_cannot_be_read_blocks_no_further_turn(openai: OpenAI, gate: SeeingGate, url: str) -> None:
    parts: Any = [{"type": "text", "text": "a"}, image(url), {"type": "text", "text": "b"}, image()]
    turns: Any = [{"role": "user", "content": parts}, {"role": "assistant", "content": "c"}]
    openai.chat.completions.create(model="", messages=[*turns, {"role": "user", "content": "d"}])
    old = gate.requests[0].messages[0]
    assert (old.content, len(old.images), old.image_offsets) == ("a\n[image]\nb", 1, (len(old.content),))


@pytest.mark.parametrize("order", ORDERS)
def test_a_remote_model_gets_words_and_images_in_their_order(order: str) -> None:
    offsets = [at - order[:at].count("#") for at, letter in enumerate(order) if letter == "#"]
    images = tuple(ChatImage(Path(), str(number), 1, 1) for number in range(len(offsets)))
    message = ChatMessage(Role.USER, order.replace("#", ""), images=images, image_offsets=tuple(offsets))
    body = chat_request(GenerationRequest((message,)), "m", lambda seen, _: seen.digest.encode(), is_rdchat=False)
    parts = body["messages"][0]["content"]
    assert "".join(part.get("text", "#") for part in parts) == order
    urls = [part["image_url"]["url"] for part in parts if part["type"] == "image_url"]
    assert [b64decode(url.partition(",")[2]).decode() for url in urls] == [image.digest for image in images]


def test_a_turned_photo_has_the_size_that_the_model_sees(openai: OpenAI, gate: SeeingGate) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    data = encoded(photo(40, 24), "JPEG", exif=exif)
    raw = chat(openai, image(f"data:image/jpeg;base64,{b64encode(data).decode()}"))
    assert "x-rdchat-ignored" not in raw.headers
    (one,) = gate.requests[0].messages[0].images
    assert (one.width, one.height, one.digest) == (24, 40, sha256(data).hexdigest())
    assert gate.files == [[data]]


@pytest.mark.parametrize(
    ("details", "cap"),
    [(["low"], "small"), ([None], "medium"), (["auto", "low"], "medium"), (["low", "high"], "full"),
     (["original"], "full")],
)  # fmt: skip
def test_the_highest_detail_chooses_the_cap(
    openai: OpenAI, gate: SeeingGate, details: list[str | None], cap: str
) -> None:
    chat(openai, *(image(detail=detail) for detail in details))
    assert gate.requests[0].image_cap == cap


@pytest.mark.parametrize(
    ("part", "words"),
    [
        (image(URL), "rdchat fetches nothing"),
        (image("file:///etc/passwd"), "rdchat fetches nothing"),
        (image("data:image/png,%89PNG"), "rdchat fetches nothing"),
        (image("data:image/png;base64,A"), "not valid base64"),
        (image("data:image/png;base64,"), "is empty"),
        (image(f"data:image/png;base64,{b64encode(PNG[:60]).decode()}"), "is damaged"),
        (image("data:image/png;base64,AAAA"), "no PNG"),
        (image(detail="huge"), "must be one of low, auto, high, original"),
        (image(detail={"x": 1}), "must be one of low, auto, high, original"),
        ({"type": "input_image", "file_id": "f"}, "send the image itself"),
    ],
)
def test_a_new_image_that_cannot_be_read_is_refused_in_a_line(
    openai: OpenAI, gate: SeeingGate, part: dict[str, Any], words: str
) -> None:
    with pytest.raises(openai_module.BadRequestError, match=words) as refused:
        chat(openai, WORDS, part)
    assert refused.value.param.startswith("messages[0].content[1]")
    message = refused.value.body["message"]
    assert message == one_line(message)
    assert "/tmp" not in message
    assert not gate.requests


def test_too_many_images_of_a_message_are_refused(openai: OpenAI, gate: SeeingGate) -> None:
    chat(openai, *[image()] * 20)
    with pytest.raises(openai_module.BadRequestError, match=r"has 21 images; a message may have 20\."):
        chat(openai, *[image()] * 21)
    assert len(gate.requests) == 1


def test_the_oldest_images_are_lines_where_they_are_too_many(
    openai: OpenAI, anthropic: Anthropic, gate: SeeingGate
) -> None:
    """Agents send all their screenshots again, and cannot take one back."""
    said: Any = {"role": "assistant", "content": "ok"}
    old: Any = [{"role": "user", "content": [WORDS, *[image()] * 21]}, said]
    last: Any = {"role": "user", "content": [image(), WORDS]}
    raw = openai.chat.completions.with_raw_response.create(model="", messages=[*old * 6, last])
    asked = gate.requests[0].messages[::2]
    assert [len(each.images) for each in asked] == [0, 19, 20, 20, 20, 20, 1]
    assert [each.content.count("[image]") for each in asked] == [21, 2, 1, 1, 1, 1, 0]
    assert raw.headers["x-rdchat-ignored"] == "messages.content.image_url"
    result = {"type": "tool_result", "tool_use_id": "t", "content": [block()] * 22}
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "look", "input": {}}]}
    messages: Any = [{"role": "user", "content": "Hi"}, call, {"role": "user", "content": [result]}]
    anthropic.messages.create(model="", max_tokens=9, messages=messages)
    answer = gate.requests[1].messages[-1]
    assert (len(answer.images), answer.content) == (20, "[image]\n[image]")


def test_an_image_that_comes_again_is_not_decoded_again(
    openai: OpenAI, gate: SeeingGate, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked = list[Path]()
    look = ImageProcess.check_image

    def noted(process: ImageProcess, path: Path, **more: Any) -> ImageFacts:
        looked.append(path)
        return look(process, path, **more)

    monkeypatch.setattr(ImageProcess, "check_image", noted)
    for _ in range(3):
        chat(openai, image(), image())
    assert len(looked) == 1
    assert gate.requests[2].messages[0].images[1].width == 40


def test_a_large_photo_fits_into_a_request(openai: OpenAI, gate: SeeingGate) -> None:
    file = io.BytesIO()
    Image.new("RGB", (2500, 2500)).save(file, "BMP")
    assert len(file.getvalue()) > 18_000_000
    chat(openai, image(f"data:image/bmp;base64,{b64encode(file.getvalue()).decode()}"))
    assert gate.requests[0].messages[0].images[0].width == 2500


def test_a_model_that_does_not_see_gets_the_chat_and_the_client_is_told(
    make_server: MakeServer, gate: SeeingGate, openai: OpenAI, anthropic: Anthropic
) -> None:
    gate.model = MODEL
    gate.count_tokens = lambda request: 7  # type: ignore[method-assign]
    gate.generate = lambda *given: ScriptedGate.generate(gate, *given)  # type: ignore[method-assign]
    assert chat(openai, WORDS, image()).headers["x-rdchat-ignored"] == "messages.content.image_url"
    ask: Any = {"model": "", "messages": [{"role": "user", "content": [block(), block(b"?")]}]}
    raw = anthropic.messages.with_raw_response.create(max_tokens=9, **ask)
    assert raw.headers["x-rdchat-ignored"] == "messages.content.image"
    counted = anthropic.messages.with_raw_response.count_tokens(**ask)
    assert counted.headers["x-rdchat-ignored"] == "messages.content.image"
    with chat_stream(openai) as stream:
        assert stream.headers["x-rdchat-ignored"] == "messages.content.image_url"
    assert [len(each.messages[0].images) for each in gate.requests] == [1, 2, 1]


def chat_stream(openai: OpenAI) -> Any:
    messages: Any = [{"role": "user", "content": [image()]}]
    return openai.chat.completions.with_streaming_response.create(model="", messages=messages, stream=True)


@pytest.mark.parametrize("sees", [True, False])
def test_models_list_says_whether_a_model_sees(
    openai: OpenAI, anthropic: Anthropic, gate: SeeingGate, sees: bool
) -> None:
    gate.model = replace(MODEL, sees=sees)
    listed: Any = openai.models.retrieve("tiny/model").to_dict()
    assert listed["architecture"]["input_modalities"] == (["text", "image"] if sees else ["text"])
    assert listed["capabilities"]["vision"] is sees
    (model,) = anthropic.models.list()
    assert model.capabilities is not None
    assert model.capabilities.image_input.supported is sees


def test_an_image_of_a_client_that_left_is_gone(server: Server, openai: OpenAI, gate: SeeingGate) -> None:
    gate.gate.shut()
    with chat_stream(openai):
        pass
    gate.gate.open()
    assert server.stop_server(60)


@pytest.mark.parametrize("sees", [True, False])
def test_a_remote_model_gets_turned_pixels_without_metadata(
    server: Server, gate: SeeingGate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sees: bool
) -> None:
    gate.model = replace(MODEL, sees=sees)
    monkeypatch.setenv("RDCHAT_KEY_STUDIO", KEY)
    exif = Image.Exif()
    exif[0x0112], exif[0x010E] = 6, "at home"
    path = stored(tmp_path, photo(1800, 600), "JPEG", exif=exif)
    message = ChatMessage(Role.USER, "What is it?", images=(ChatImage(path, "0", 600, 1800, "home.jpg"),))
    with closing(EnginesByAddress(lambda: [RemoteServer("studio", server.address)])) as engines:
        info = engines.load(f"remote:studio/{MODEL.name}", Dtype.AUTO, lambda _: None)
        with closing(engines.chosen.generate(GenerationRequest((message,), image_cap=ImageCap.SMALL))) as events:
            list(events)
    assert info.sees is sees
    (got,) = gate.requests[0].messages
    if not sees:
        assert (got.content, got.images) == ("(an image that this model cannot see)\nWhat is it?", ())
        return
    (one,) = got.images
    assert (got.content, one.width, one.height, gate.requests[0].image_cap) == ("What is it?", 171, 512, "small")
    assert gate.files[0][0].startswith(b"\x89PNG")
    assert b"home" not in gate.files[0][0]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages/count_tokens"])
def test_the_images_of_clients_that_left_are_not_read_on(
    make_server: MakeServer, gate: SeeingGate, openai: OpenAI, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    looked = list[Path]()
    ended = list[Path]()

    def hang(_process: ImageProcess, path: Path, *, waiting: Callable[[], None], **_more: Any) -> ImageFacts:
        looked.append(path)
        try:
            wait_until(waiting)
        finally:
            ended.append(path)
        raise AssertionError("nobody ended it")

    address = openai.base_url
    part = block() if path.endswith("count_tokens") else image()
    body = json.dumps({"model": "", "messages": [{"role": "user", "content": [part]}]}).encode()
    with monkeypatch.context() as changed:
        changed.setattr(ImageProcess, "check_image", hang)
        with closing(http.client.HTTPConnection(str(address.host), address.port, timeout=60)) as connection:
            connection.request("POST", path, body, {"x-api-key": KEY})
            wait_until(lambda: looked)
        wait_until(lambda: ended)
    assert chat(openai, WORDS, image()).headers["x-request-id"]
    assert len(gate.requests) == 1


class SeeingEngine(ScriptedGate):
    """An engine with a small model that sees."""

    def __init__(self, folder: Path) -> None:
        self._seeing = load_model(folder, "float32")
        self._session = ChatSession(self._seeing)
        super().__init__(model=self._seeing.info, draft=DraftSettings(Mode.OFF))

    def count_tokens(self, request: GenerationRequest) -> int:
        return self._seeing.prompts.count(request, self._seeing.info.context_length)

    def _reply(
        self, request: GenerationRequest, on_event: Callable[[GenerationEvent | ApiError], object], _running: Running
    ) -> None:
        for event in self._session.generate(request):
            on_event(event)


@pytest.fixture
def seeing_server(tmp_path: Path) -> Iterator[Server]:
    engine = SeeingEngine(seeing_folder(tmp_path / "model", "qwen3_vl"))
    server = Server(ServerSettings(KEY, port=0), engine)
    server.listen()
    yield server
    assert server.stop_server(60)
    engine.close()


def test_images_are_seen_and_counted_in_each_api(seeing_server: Server) -> None:
    counted = list[list[int]]()
    with openai_client(seeing_server) as openai, anthropic_client(seeing_server) as anthropic:
        for images in range(3):
            asked: Any = [{"role": "user", "content": [*[image()] * images, WORDS]}]
            one = openai.chat.completions.create(model="", max_tokens=3, messages=asked)
            assert one.usage is not None
            parts: Any = [{"type": "input_image", "image_url": ADDRESS}] * images
            items: Any = [{"role": "user", "content": [*parts, {"type": "input_text", "text": WORDS["text"]}]}]
            two = openai.responses.create(model="", max_output_tokens=3, input=items)
            assert two.usage is not None
            blocks: Any = [{"role": "user", "content": [*[block()] * images, WORDS]}]
            three = anthropic.messages.create(model="", max_tokens=3, messages=blocks).usage
            four = anthropic.messages.count_tokens(model="", messages=blocks).input_tokens
            whole = three.input_tokens + (three.cache_read_input_tokens or 0)
            counted.append([one.usage.prompt_tokens, two.usage.input_tokens, whole, four])
    assert all(len({*each}) == 1 for each in counted), counted
    plain, single, double = (each[0] for each in counted)
    assert double - single == single - plain >= 16, counted
