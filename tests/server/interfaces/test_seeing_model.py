"""A small model that sees, behind the server: official clients get its replies, and images count as tokens."""

from base64 import b64encode
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rdchat.inference.api import DraftSettings, GenerationEvent, GenerationRequest, Mode, ModelInfo
from rdchat.inference.loading import load_model
from rdchat.inference.session import ChatSession
from rdchat.server.interfaces.fields import ApiError
from rdchat.server.server import Server
from rdchat.server.server_settings import ServerSettings
from tests.inference.vision.pictures import encoded, photo
from tests.inference.vision.seeing_models import seeing_folder
from tests.server.conftest import anthropic_client, openai_client
from tests.server.echoing_engine import EchoingEngine, Running
from tests.server.fakes import KEY

DATA = b64encode(encoded(photo(40, 24), "PNG")).decode()
ADDRESS = f"data:image/png;base64,{DATA}"
IMAGE = {"type": "image_url", "image_url": {"url": ADDRESS}}
BLOCK = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}


class SeeingEngine(EchoingEngine):
    """A `ServerEngine` with a small model that sees, on a thread of its own."""

    def __init__(self, folder: Path) -> None:
        self._loaded = load_model(folder, "float32")
        self._session = ChatSession(self._loaded)
        super().__init__()

    @property
    def model(self) -> ModelInfo:
        return self._loaded.info

    @property
    def draft(self) -> DraftSettings:
        return DraftSettings(Mode.OFF)

    def count_tokens(self, request: GenerationRequest) -> int:
        return self._loaded.prompts.count(request, self.model.context_length)

    def _write(
        self, request: GenerationRequest, on_event: Callable[[GenerationEvent | ApiError], object], _running: Running
    ) -> None:
        for event in self._session.generate(request):
            on_event(event)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    engine = SeeingEngine(seeing_folder(tmp_path / "model", "qwen3_vl"))
    server = Server(ServerSettings(KEY, port=0), engine)
    server.listen()
    yield server
    assert server.stop_server(60)
    engine.close()


def test_images_are_seen_and_counted_in_each_api(server: Server) -> None:
    words: Any = {"type": "text", "text": "what?"}
    counted = list[list[int]]()
    with openai_client(server) as openai, anthropic_client(server) as anthropic:
        for images in range(3):
            asked: Any = [{"role": "user", "content": [*[IMAGE] * images, words]}]
            one = openai.chat.completions.create(model="", max_tokens=3, messages=asked)
            assert one.usage is not None
            parts: Any = [{"type": "input_image", "image_url": ADDRESS}] * images
            items: Any = [{"role": "user", "content": [*parts, {"type": "input_text", "text": "what?"}]}]
            two = openai.responses.create(model="", max_output_tokens=3, input=items)
            assert two.usage is not None
            blocks: Any = [{"role": "user", "content": [*[BLOCK] * images, words]}]
            three = anthropic.messages.create(model="", max_tokens=3, messages=blocks).usage
            four = anthropic.messages.count_tokens(model="", messages=blocks).input_tokens
            whole = three.input_tokens + (three.cache_read_input_tokens or 0)
            counted.append([one.usage.prompt_tokens, two.usage.input_tokens, whole, four])
    assert all(len({*each}) == 1 for each in counted), counted
    plain, single, double = (each[0] for each in counted)
    assert double - single == single - plain >= 16, counted
