"""Two clients of the server: the text of one comes while the images of the other are still being seen."""

import threading
from base64 import b64encode
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from pytestqt.qtbot import QtBot

from rdchat.chat.settings import Settings
from rdchat.inference.engines import EnginesByAddress
from rdchat.inference.vision.image_rows import ImageRows, SeenImage
from rdchat.inference.vision.prepared_images import Prepared
from rdchat.server.server import Server
from rdchat.server.server_settings import ServerSettings
from rdchat.services.engine.engine_client import EngineClient, ModelSlot
from rdchat.services.servers.server_control import SharedEngine
from tests.inference.vision.pictures import encoded, photo
from tests.inference.vision.seeing_models import seeing_folder
from tests.server.conftest import openai_client
from tests.server.fakes import KEY


def image(width: int) -> dict[str, Any]:
    data = b64encode(encoded(photo(width, 24), "PNG")).decode()
    return {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{data}"}}


def test_a_text_comes_between_the_images_of_another_client(
    qtbot: QtBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waited for the decoding and the tower of all of them, and then for the reply."""
    client = EngineClient(EnginesByAddress, nullcontext)
    slot = ModelSlot(client, Settings())
    first_begun = threading.Event()
    text_waits = threading.Event()
    text_came = threading.Event()
    seen = list[str]()
    see = ImageRows.see

    def slow(rows: ImageRows, key: str, prepared: Prepared, waiting: Callable[[], None] = lambda: None) -> SeenImage:
        first_begun.set()
        assert text_waits.wait(60)
        assert not seen or text_came.wait(60)
        seen.append(key)
        return see(rows, key, prepared, waiting)

    monkeypatch.setattr(ImageRows, "see", slow)
    server = Server(ServerSettings(KEY, port=0), SharedEngine(slot, tuple))

    def ask(name: str, *parts: Any) -> None:
        content: Any = [*parts, {"type": "text", "text": "what?"}]
        named = {"user-agent": name}
        with openai_client(server) as openai:
            openai.chat.completions.create(
                model="", max_tokens=3, messages=[{"role": "user", "content": content}], extra_headers=named
            )

    def ask_text() -> None:
        ask("text")
        text_came.set()

    with ThreadPoolExecutor() as clients:
        try:
            slot.load_model(str(seeing_folder(tmp_path / "model", "smolvlm")))
            qtbot.waitUntil(lambda: slot.info is not None)
            server.listen()
            images = clients.submit(ask, "images", *map(image, (40, 48)))
            qtbot.waitUntil(first_begun.is_set)
            text = clients.submit(ask_text)
            qtbot.waitUntil(lambda: bool(client._inbox))
            text_waits.set()
            qtbot.waitUntil(lambda: images.done() and text.done(), timeout=120_000)
        finally:
            text_waits.set()
            text_came.set()
            server.stop_server()
            assert client.shutdown(60)
    text.result()
    images.result()
    assert len(seen) == 2
